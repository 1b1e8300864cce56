"""Warnings about data that can spoil an answer: targets and features dominated by a few huge values."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headcount.advisor.data import Material
from headcount.analysis import Reason
from headcount.render.words import percent

OUTLIER_RANGES = 10.0
"""Interquartile ranges from the median beyond which a target is an outlier; there is a warning …"""
MIN_OUTLIER_SHARE = 0.1
"""… if all outliers together have this share of the variance of y."""
FLATTENED_RATIO = 30.0
"""A feature is flattened if its standard deviation is this many times the typical difference of its values …"""
OFFSET_RATIO = 1e9
"""… or if its mean is this many times its standard deviation: few of the 15 digits of a number are left."""
MAX_NAMED = 3
Floats = NDArray[np.float64]


def data_warnings(material: Material) -> list[Reason]:
    """Return what a user should check before trusting an answer on these data."""
    texts = [] if material.classes is not None else outlying_targets(material.task.y)
    if material.task.codes is None and material.codes is None:
        texts += flattened_features(material.task.X, material.task.mask)
    return [Reason(tag="measured", text=text) for text in texts]


def outlying_targets(y: Floats) -> list[str]:
    """Return warnings about targets so far off that they dominate the error."""
    texts: list[str] = []
    for column in range(y.shape[1]):
        values = y[:, column] / max(float(np.abs(y[:, column]).max()), 1e-300)
        low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
        off = np.flatnonzero(np.abs(values - middle) > OUTLIER_RANGES * (high - low))
        squares = np.square(values - values.mean())
        share = float(squares[off].sum() / max(squares.sum(), 1e-300))
        if share < MIN_OUTLIER_SHARE or not 0 < len(off) <= len(values) // 10:
            continue
        off = off[np.argsort(-squares[off])]
        named = ", ".join(f"{y[i, column]:.4g} (sequence {i})" for i in off[:MAX_NAMED])
        more = f" and {len(off) - MAX_NAMED} more" if len(off) > MAX_NAMED else ""
        which = "y" if y.shape[1] == 1 else f"y[:, {column}]"
        texts.append(
            f"Outliers in {which} have {percent(round(share, 2))} of its variance and dominate the error: {named}"
            f"{more}, counted from 0. Check them, or give the logarithm."
        )
    return texts


def flattened_features(X: Floats, mask: NDArray[np.bool_] | None) -> list[str]:
    """Return warnings about features that scaling leaves almost constant."""
    tokens = X.reshape(-1, X.shape[2]) if mask is None else X[mask]
    texts: list[str] = []
    for k in range(tokens.shape[1]):
        unit = max(float(np.abs(tokens[:, k]).max()), 1e-300)
        values = tokens[:, k] / unit
        spread, middle = float(values.std()), float(np.median(values))
        off = np.abs(values - middle)
        typical = float(np.median(off[off > 0])) if (off > 0).any() else 0.0
        if spread == 0:
            continue
        if abs(float(values.mean())) > OFFSET_RATIO * spread:
            texts.append(
                f"Feature {k} (from 0) varies by {spread * unit:.2g} around {values.mean() * unit:.6g}: most digits of "
                f"such numbers are the offset. Subtract it before saving them."
            )
        elif spread > FLATTENED_RATIO * typical:
            count = int((off > FLATTENED_RATIO * typical).sum())
            texts.append(
                f"Feature {k} (from 0) is flattened by {count:,} huge {'value' if count == 1 else 'values'} (up to "
                f"{tokens[off.argmax(), k]:.4g}, while values typically differ by {typical * unit:.2g}): clip them, or "
                f"give the logarithm."
            )
    return texts
