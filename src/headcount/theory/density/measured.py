"""Theorem 1, measured: how far the approximants of `approximant.py` are from F, beside the proved bounds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from headcount.core import BadInput, Displayable, generator, nearest
from headcount.theory.density.approximant import (
    MAX_ARRAY_NUMBERS,
    NAMED,
    Approximant,
    Array,
    evaluate,
    selector_bound,
    selector_constant,
    selector_peak,
)


@dataclass(frozen=True)
class Row:
    """Errors at one q, of the recovered tokens (max norm) and of F: measured, except `proved` and `F_proved`."""

    q: float
    rate: float
    """c/√q"""
    proved: float
    uniform: float
    hardest: float
    F_uniform: float
    F_hardest: float
    F_proved: float | None


@dataclass(frozen=True, repr=False)
class Density(Displayable):
    """The measured errors beside the proved bounds."""

    name: str
    length: int
    dim: int
    intrinsic: int
    samples: int
    seed: int
    lipschitz: float | None
    stated: bool
    """Whether the Lipschitz constant was stated by the caller, so it is not proved."""
    rows: tuple[Row, ...]
    exact: float
    """Largest error of a token without a selector (q = ∞), which is due to rounding alone."""

    def data(self) -> dict[str, Any]:
        """Return everything as JSON data, and whether each number is proved or measured."""
        status = dict.fromkeys(("uniform", "hardest", "F_uniform", "F_hardest", "exact"), "measured")
        status |= {"rate": "c/√q, for comparison", "proved": "proved"}
        if self.lipschitz is not None:
            status["F_proved"] = "proved, given the stated Lipschitz constant" if self.stated else "proved"
        return {
            **asdict(self),
            "rows": [asdict(row) for row in self.rows],
            "constant": selector_constant(),
            "status": status,
        }

    def figure(self) -> dict[str, Any]:
        """Return the data of the picture that `render.bounds` draws: plain values only."""

        def series(name: str, style: str, tone: str, key: str) -> dict[str, Any]:
            return {"name": name, "style": style, "tone": tone, "y": [getattr(row, key) for row in self.rows]}

        curves = [
            series("tokens, proved for every X: ≤ 0.2779/√q", "line", "ink", "proved"),
            series("tokens, measured, hardest X", "dots", "few", "hardest"),
            series("tokens, measured, random X", "faint", "enough", "uniform"),
            series(f"F = {self.name}, measured, hardest X", "rings", "plain", "F_hardest"),
        ]
        if self.lipschitz is not None:
            curves.append(
                series(
                    f"F = {self.name}, proved: {self.lipschitz:.3g} times as much",
                    "dashes",
                    "plain",
                    "F_proved",
                )
            )
        conclusion = "no error at all" if self.length == 4 else "the error falls as 1/√q"
        return {
            "title": f"Tokens rebuilt from {self.intrinsic:,} minima: {conclusion}",
            "subtitle": f"Theorem 1, T = {self.length}, d = {self.dim}; {self.samples:,} sequences per dot",
            "x_label": "Sharpness q of the selector",
            "y_label": "Largest error",
            "x": [row.q for row in self.rows],
            "series": curves,
        }


def measure(
    F: str | Callable[[Array], Any],
    *,
    length: int = 8,
    dim: int = 1,
    q: Sequence[float] = (10, 100, 1000, 10000),
    samples: int = 2000,
    seed: int = 0,
    lipschitz: float | None = None,
) -> Density:
    """Measure the approximants of F at several q, on random sequences and on the hardest known ones, beside the bounds.

    F is one of `NAMED`, or a function of X[count, length, dim] that returns [count]. With `lipschitz`, its Lipschitz
    constant in the max norm, the error of F is bounded too. Whether F is continuous is not checked.
    """
    stated = lipschitz is not None
    if isinstance(F, str):
        if F not in NAMED:
            raise BadInput(f"unknown function {F!r}: {nearest(F, NAMED)}")
        name, function = F, NAMED[F].F
        lipschitz = NAMED[F].lipschitz if lipschitz is None else lipschitz
    else:
        name, function = str(getattr(F, "__name__", "F")), F
    if not q or not all(0 < number < math.inf for number in q):
        raise BadInput(f"q must be finite numbers above 0, not {', '.join(map(str, q)) or 'none'}")
    if lipschitz is not None and not 0 <= lipschitz < math.inf:
        raise BadInput(f"the Lipschitz constant must be a finite number of at least 0, not {lipschitz}")
    exact = Approximant(function, length=length, dim=dim)
    max_samples = MAX_ARRAY_NUMBERS // 2 // (length * dim)
    if not 1 <= samples <= max_samples or seed < 0:
        raise BadInput(f"samples must be from 1 to {max_samples:,} and seed at least 0, not {samples} and {seed}")
    uniform = generator(seed, "density").random((samples, length, dim))
    rounding_error = _largest_distance(exact.recovered(uniform), uniform)
    rows: list[Row] = []
    for number in q:
        built = Approximant(function, length=length, dim=dim, q=number)
        hard = hardest(length, dim, number, samples, seed)
        (easy_tokens, easy_F), (hard_tokens, hard_F) = (_errors(built, X, lipschitz) for X in (uniform, hard))
        rounding_error = max(rounding_error, _largest_distance(exact.recovered(hard), hard))
        rows.append(
            Row(
                q=float(number),
                rate=selector_constant() / math.sqrt(number),
                proved=built.token_bound,
                uniform=easy_tokens,
                hardest=hard_tokens,
                F_uniform=easy_F,
                F_hardest=hard_F,
                F_proved=None if lipschitz is None else selector_bound(length, number, lipschitz),
            )
        )
    return Density(name, length, dim, exact.intrinsic, samples, seed, lipschitz, stated, tuple(rows), rounding_error)


def hardest(length: int, dim: int, q: float, count: int, seed: int = 0) -> Array:
    """Return sequences [count, length, dim] near the selector's worst case: all tokens equal except up to 2(m − 1).

    Half of the sequences shift these tokens by exactly √(s/q), the others by about as much. All numbers are multiples
    of 2⁻⁵³, so 1 − x is exact.
    """
    rng, m = generator(seed, f"density-hardest {float(q)!r}"), length // 4
    best = min(1.0, math.sqrt(float(selector_peak()[0]) / q))
    about = np.where(np.arange(count) < (count + 1) // 2, 1.0, np.exp(rng.uniform(-1, 1, count)))
    shift = np.minimum(1.0, best * about)[:, None, None]
    up, down = (rng.integers(0, m, (count, 1, dim)) for _ in range(2))
    down = np.where(shift > 0.5, 0, down)  # shifts in both directions would not fit into [0, 1]
    order = rng.random((count, length, dim)).argsort(-2)
    low, high = shift * (down > 0), 1 - shift * (up > 0)
    base = low + (high - low) * rng.random((count, 1, dim))
    X = np.where(order < up, base + shift, np.where(order >= length - down, base - shift, base))
    return np.round(np.clip(X, 0, 1) * 2.0**53) / 2.0**53


def _largest_distance(recovered_X: Array, X: Array) -> float:
    return float(np.abs(recovered_X - X).max())


def _errors(built: Approximant, X: Array, lipschitz: float | None) -> tuple[float, float]:
    """Return the largest errors of the tokens and of F; reject a Lipschitz constant that the values contradict."""
    recovered_X = built.recovered(X)
    values = evaluate(built.F, X)
    change = np.abs(evaluate(built.F, recovered_X) - values)
    if lipschitz is not None:
        rounding = 1e-9 * (1 + np.abs(values).max())
        pairs = ((change, recovered_X - X), (np.abs(np.diff(values)), np.diff(X, axis=0)))
        for change_F, change_X in pairs:
            distance = np.abs(change_X).max((-2, -1))
            violated = change_F > lipschitz * distance + rounding
            if violated.any():
                min_lipschitz = float((change_F[violated] / np.maximum(distance[violated], 1e-300)).max())
                raise BadInput(
                    f"F has a Lipschitz constant of at least {min_lipschitz:.4g} in the max norm, not {lipschitz:g}"
                )
    return _largest_distance(recovered_X, X), float(change.max())
