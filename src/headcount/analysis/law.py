"""Laws of the error in heads and length, fitted by least absolute error in log scale, and judged on cells left out.

The paper fits Err = c·T^b·exp(α·h/T^δ). Beside it stand simpler laws; each is scored by leaving out one cell at a
time (δ chosen anew without it) and taking the mean absolute error of log10 there. The law that is chosen is the
simplest whose score is at most 5 % (`MAX_EXTRA_SCORE`) above the best score. A step in h is judged last, by the same
rule, against the law that was chosen among these: if the error falls within one head count, every smooth law misses it.
It is in the record only if it wins. Intervals come from the first 200 (`LAW_DRAWS`) draws of the bootstrap.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headcount.analysis.blocks import Floats
from headcount.analysis.bootstrap import BlockDraws, balanced, grouped, interval
from headcount.analysis.record import Law, LawName

GRID_OF_DELTA = np.linspace(0.0, 1.0, 21)
"""The values of δ that are tried."""
LAW_DRAWS = 200
"""Draws of the bootstrap that a law is fitted to: enough for the ends of an interval, in a fifth of the time."""
MIN_CELLS = 6
"""A law is not fitted to fewer cells."""
SCORE_TOLERANCE = 1e-4
"""Scores that differ by less are equal: the fit itself is not more exact."""
MAX_EXTRA_SCORE = 0.05
"""A simpler law is chosen if its score is at most this share above the best one."""


@dataclass(frozen=True)
class Form:
    """A law that is linear in its coefficients once its shape (δ, or where a step lies) is fixed."""

    name: LawName
    formula: str
    names: tuple[str, ...]
    """The coefficients after c."""
    columns: Callable[[Floats, Floats, float], list[Floats]]
    """What they multiply in log scale, from heads, log T and the shape."""
    shapes: Callable[[Floats], Floats] | None = None
    """The shapes that are tried, given the head counts of the cells; None if the law has no shape."""
    shape: str = "delta"
    """The name of the shape among the coefficients."""

    @property
    def freedom(self) -> int:
        """The number of parameters of the fit."""
        return 1 + len(self.names) + (self.shapes is not None)


def _splits(h: Floats) -> Floats:
    """Return the head counts with at least two cells on either side: a single cell says nothing about its level."""
    return np.array([s for s in np.unique(h)[1:] if min((h < s).sum(), (h >= s).sum()) >= 2])


FORMS = (
    Form(
        "heads over length",
        "c·T^b·exp(alpha·h/T^delta)",
        ("b", "alpha"),
        lambda h, t, delta: [t, h * np.exp(-delta * t)],
        lambda _h: GRID_OF_DELTA,
    ),
    Form("heads and length apart", "c·T^b·exp(alpha·h)", ("b", "alpha"), lambda h, t, _: [t, h]),
    Form("powers of heads and length", "c·T^b·h^a", ("b", "a"), lambda h, t, _: [t, np.log(h)]),
    Form("exponential in heads", "c·exp(alpha·h)", ("alpha",), lambda h, _t, _: [h]),
    Form("power of heads", "c·h^a", ("a",), lambda h, _t, _: [np.log(h)]),
    Form("constant", "c", (), lambda _h, _t, _: []),
)
"""The smooth laws."""
STEP = Form(
    "step in heads", "a for h < s, b for h >= s", ("fall",), lambda h, _t, s: [(h >= s).astype(float)], _splits, "s"
)
"""Two levels: `a` below the head count s, `b` from it on."""


def laws(drawn: Sequence[BlockDraws], without: Sequence[int] = ()) -> Iterator[Law]:
    """Fit every law to the cells of each hidden size with two or more lengths, three head counts and `MIN_CELLS` cells.

    The head counts in `without` are left out, as the paper leaves out some.
    """
    for hidden, some in grouped(drawn, "hidden").items():
        block = some[0].block
        best = np.stack([d.level[: 1 + LAW_DRAWS] for d in some], 3)  # [draw, target, head count, length]
        levels = balanced(best.reshape(*best.shape[:2], -1)).reshape(len(best), *best.shape[2:])
        left_out = np.isin(block.heads, list(without))
        known = np.isfinite(levels[0]) & ~left_out[:, None]
        if known.any(0).sum() < 2 or known.any(1).sum() < 3 or known.sum() < MIN_CELLS:
            continue
        h, t = np.meshgrid(np.array(block.heads, float), np.log([d.block.length for d in some]), indexing="ij")
        about = {
            "setting": block.setting,
            "hidden": hidden,
            "fitted_without": [heads for heads in block.heads if heads in without],
            **_uneven(np.isfinite(best[0][:, ~left_out]), known[~left_out]),
        }
        yield from compare(h[known], t[known], levels[:, known] * np.log(10.0), about)


def _uneven(there: NDArray[np.bool_], used: NDArray[np.bool_]) -> dict[str, int]:
    """Count the cells that lack targets or are left out; `there` is [target, head count, length], `used` by cell."""
    return {
        "cells_lacking_targets": int((used & ~there[there.any((1, 2))].all(0)).sum()),
        "cells_apart": int((there.any(0) & ~used).sum()),
    }


def compare(h: Floats, t: Floats, logs: Floats, about: Mapping[str, Any] | None = None) -> list[Law]:
    """Fit and score all laws, and return them by score.

    h and t = log T are those of the cells; logs[draw, cell] are natural logs, row 0 the data. `about` has the fields of
    `Law` that say which cells these are.
    """
    steps = [STEP] if len(_splits(h)) else []
    misses = {form.name: _left_out(form, h, t, logs[0]) for form in (*FORMS, *steps)}
    smooth = _simplest(FORMS, misses)
    chosen = _simplest([smooth, *steps], misses)
    found: list[Law] = []
    for form in FORMS if chosen is smooth else (*FORMS, chosen):
        coefficients = fit(form, h, t, logs)
        coefficients["c"] = np.exp(coefficients["c"])
        if form is STEP:
            level = coefficients["c"]
            coefficients = {"a": level, "b": level * np.exp(coefficients["fall"]), "s": coefficients["s"]}
        found.append(
            Law(
                name=form.name,
                formula=form.formula,
                score=_score(misses[form.name]),
                coefficients={name: float(values[0]) for name, values in coefficients.items()},
                intervals={name: interval(values) for name, values in coefficients.items()},
                chosen=form is chosen,
                points=len(h),
                **(about or {}),
            )
        )
    return sorted(found, key=lambda law: law.score)


def predicted(law: Law, heads: float, length: float) -> float:
    """Return the error that a fitted law gives."""
    known = law.coefficients
    if law.name == STEP.name:
        return known["b"] if heads >= known["s"] else known["a"]
    form = next(form for form in FORMS if form.name == law.name)
    columns = form.columns(np.array([float(heads)]), np.log([float(length)]), known.get(form.shape, 0.0))
    terms = (known[name] * float(column[0]) for name, column in zip(form.names, columns, strict=True))
    return known["c"] * math.exp(min(sum(terms), 300.0))


def _score(misses: Floats) -> float:
    return float(np.abs(misses).mean())


def _simplest(forms: Sequence[Form], misses: dict[str, Floats]) -> Form:
    """Return the simplest law whose score is not much worse than the best."""
    best = min((misses[form.name] for form in forms), key=_score)
    as_good = [form for form in forms if _as_good(misses[form.name], best)]
    return min(as_good, key=lambda form: (form.freedom, _score(misses[form.name])))


def at_edge(delta: float) -> bool:
    """Whether δ is at an end of its grid, so that a δ beyond it might fit better."""
    return not GRID_OF_DELTA[0] < delta < GRID_OF_DELTA[-1]


def fit(form: Form, h: Floats, t: Floats, logs: Floats, weights: Floats | None = None) -> dict[str, Floats]:
    """Fit a law to each row of logs[row, cell] by least absolute error; c is returned as its log.

    If the law has a shape, it is the value of its grid with the smallest sum of absolute errors.
    """
    known = np.isfinite(logs)
    weights = np.where(known, 1.0 if weights is None else weights, 0.0)
    y = np.where(known, logs, 0.0)
    best = np.full(len(y), np.inf)
    chosen = np.zeros((len(y), 1 + len(form.names)))
    shape = np.zeros(len(y))
    for candidate in [0.0] if form.shapes is None else form.shapes(h).tolist():
        X = np.stack([np.ones_like(h), *form.columns(h, t, candidate)], 1)
        found = least_absolute(X, y, weights)
        missed = (weights * np.abs(y - found @ X.T)).sum(1)
        # the small margin keeps the first of several shapes that fit equally well
        better = missed < best - 1e-9
        best, shape = np.where(better, missed, best), np.where(better, candidate, shape)
        chosen[better] = found[better]
    coefficients = {name: chosen[:, i] for i, name in enumerate(("c", *form.names))}
    return coefficients if form.shapes is None else {**coefficients, form.shape: shape}


def least_absolute(X: Floats, y: Floats, weights: Floats, rounds: int = 40) -> Floats:
    """Return coefficients[row] that minimise Σ weight·|y − X·coefficients| for every row of y at once.

    Iterated least squares: each round divides the weights by the residuals of the round before. Residuals count at
    least as a bound that falls from round to round, so that no early residual fixes the fit.
    """
    Q, R = np.linalg.qr(X)
    ridge = 1e-12 * np.eye(X.shape[1])
    current, bound = weights, 1.0
    found = np.zeros((len(y), X.shape[1]))
    for _ in range(rounds):
        A = (current[:, None, :] * Q.T) @ Q + ridge
        found = np.linalg.solve(A, ((current * y) @ Q)[..., None])[..., 0]
        bound = max(bound * 0.6, 1e-8)
        current = weights / np.maximum(np.abs(y - found @ Q.T), bound)
    return found @ np.linalg.pinv(R).T


def _left_out(form: Form, h: Floats, t: Floats, logs: Floats) -> Floats:
    """Return the error, in log10, at which a law fitted without a cell predicts it."""
    n = len(h)
    found = fit(form, h, t, np.tile(logs, (n, 1)), 1.0 - np.eye(n))
    shape = found.get(form.shape, np.zeros(n))
    predicted = found["c"].copy()
    for i in range(n):
        columns = form.columns(h[i : i + 1], t[i : i + 1], float(shape[i]))
        predicted[i] += sum(float(found[name][i] * c[0]) for name, c in zip(form.names, columns, strict=True))
    return (logs - predicted) / np.log(10.0)


def _as_good(misses: Floats, best: Floats) -> bool:
    """Whether the score of a law is at most `MAX_EXTRA_SCORE` above that of the best one."""
    return bool(np.abs(misses).mean() <= (1.0 + MAX_EXTRA_SCORE) * np.abs(best).mean() + SCORE_TOLERANCE)
