"""Check in ball arithmetic whether both sequences of a pair are inputs of the task, that is in the support of its law.

All sequences within the radius of the stated ones are checked; whatever is not proved to lie in the support counts as
outside. For most laws the support either is an open set around the solved coordinates, or constrains only coordinates
that are not solved for. The unit sphere is different. There Krawczyk's test includes the equations |x(t)|² = 1 of all
tokens beside o(X1) = o(X2), so the pair that it proves to exist lies exactly on the sphere. The stated numbers
themselves, and those of a near pair, have norm 1 only within NORM_TOLERANCE, like everything that the law draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flint import arb

from headcount.recheck.deep import Deep
from headcount.recheck.heads import Heads, Sequences
from headcount.recheck.pooled import Pooled
from headcount.recheck.statement import real
from headcount.recheck.weights import Rejected

NORM_TOLERANCE = 1e-12  # largest distance of a norm from 1 where the norm is not an equation
BOX_LAW_KEYS = {"uniform": {"law", "low", "high"}, "clipped-gaussian": {"law", "std", "limit"}}


class Equations:
    """The system f = 0: f = o(X1) − o(X2), and if `norms` is set then |x(t)|² − 1 for every token of both sequences."""

    def __init__(self, heads: Heads | Deep | Pooled, length: int, norms: bool) -> None:
        self.heads, self.norms = heads, norms
        self.count = heads.count + (2 * length if norms else 0)

    def residual(self, both: Sequence[Sequences]) -> list[arb]:
        """Enclose f."""
        o1, o2 = (self.heads.outputs(X) for X in both)
        lengths = [_square(x) - 1 for X in both for x in X] if self.norms else []
        return [*(a - b for a, b in zip(o1, o2, strict=True)), *lengths]

    def columns(self, both: Sequence[Sequences]) -> list[list[arb]]:
        """Enclose the slopes of f: one list per coordinate s·T·d + t·d + j."""
        first, second = (self.heads.slopes(X) for X in both)
        columns = [*first, *[[-v for v in column] for column in second]]
        if not self.norms:
            return columns
        tokens = [x for X in both for x in X]
        coordinates = [(k, v) for k, x in enumerate(tokens) for v in x]
        rows = range(len(tokens))
        return [
            [*c, *(2 * v if k == row else arb(0) for row in rows)]
            for c, (k, v) in zip(columns, coordinates, strict=True)
        ]


def has_unit_tokens(task: dict[str, Any], both: Sequence[Sequences]) -> bool:
    """Return whether tokens lie on the sphere by law and are all proved to have norm 1 within NORM_TOLERANCE."""
    return task["law"] == {"law": "sphere"} and not _outside_sphere(both)


def outside(task: dict[str, Any], both: Sequence[Sequences], on_sphere: bool) -> str | None:
    """Return why a pair of balls is not proved to be inputs of the task: "" if it is, None if the law is unknown.

    on_sphere: whether the equations already prove that all tokens of the exact pair have norm 1.
    """
    law = task["law"]
    match law.get("law") if type(law) is dict else None:
        case "gaussian":
            return ""
        case "uniform" | "clipped-gaussian":
            return _outside_box(law, both)
        case "sphere":
            return "" if on_sphere else _outside_sphere(both)
        case "marked":
            return _outside_marks(law, both)
        case _:
            return None


def _outside_box(law: dict[str, Any], both: Sequence[Sequences]) -> str:
    dim = len(both[0][0])
    if set(law) != BOX_LAW_KEYS[law["law"]]:
        raise Rejected(f"the task's law {law['law']} has unknown settings, or lacks some")
    if law["law"] == "uniform":
        low, high = ([real(v) for v in law[name]] for name in ("low", "high"))
    else:
        low, high = [-real(law["limit"])], [real(law["limit"])]
    if not len(low) == len(high) in (1, dim):
        raise Rejected("the box of the task's law does not match the dimension of its tokens")
    low, high = low * (dim // len(low)), high * (dim // len(high))
    for x in (x for X in both for x in X):
        for a, v, b in zip(low, x, high, strict=True):
            if not (v >= a and v <= b):
                return f"a coordinate of {float(v):.4g}; the task's lie from {a:g} to {b:g}"
    return ""


def _outside_sphere(both: Sequence[Sequences]) -> str:
    worst = max((_square(x).sqrt() for X in both for x in X), key=lambda v: float(abs(v - 1).upper()))
    if abs(worst - 1) <= NORM_TOLERANCE:
        return ""
    shown = f"{float(worst):.3g}"
    return f"tokens of norm {f'1 ± {float(abs(worst - 1)):.1g}' if shown == '1' else shown}; the task's have norm 1"


def _outside_marks(law: dict[str, Any], both: Sequence[Sequences]) -> str:
    dim = len(both[0][0])
    if set(law) != {"law", "marks"} or type(law["marks"]) is not int or law["marks"] != dim - 1:
        raise Rejected("the marks of the task's law do not match the dimension of its tokens")
    for X in both:
        for x in X:
            if not (x[0] >= 0 and x[0] <= 1):
                return f"a value of {float(x[0]):.4g}; the task's lie from 0 to 1"
            if odd := [v for v in x[1:] if not (v == 0 or v == 1)]:
                return f"a mark of {float(odd[0]):.4g}; the task's are 0 or 1"
        for j in range(1, dim):
            if (count := sum(bool(x[j] == 1) for x in X)) != 1:
                return f"{count} tokens that carry mark {j}; the task's inputs have one"
    return ""


def _square(x: Sequence[arb]) -> arb:
    total: Any = sum((v * v for v in x), arb(0))
    return total
