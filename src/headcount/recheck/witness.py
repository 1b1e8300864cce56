"""Verify two colliding inputs: the file witness.json, from the weights beside it up, in ball arithmetic.

The gap is |H_j(X1) − H_j(X2)|. Where F reads the same of both, one of the two errors is at least half the gap whatever
F is. *near*: the stated sequences themselves; what F reads differs by Δ, so the model's own F, with Lipschitz constant
L, has an error of at least (gap − L·‖Δ‖)/2 at one of them. *exact*: there are sequences, within `radius` of the stated
ones in the m solved coordinates and equal to them in all others, of which F reads exactly the same. Their existence is
Krawczyk's test. Let x0 be the solved coordinates, B = {x : |x − x0|∞ ≤ radius}, f(x) = o(X1) − o(X2) in R^m, and J an
enclosure of f's slopes over B:

1. f(x) − f(x0) = M(x)·(x − x0) with M(x) in J for all x in B. M(x) is the mean of the slopes along the segment from
   x0 to x, where the chain rule holds almost everywhere, with a ReLU counting as any number of [0, 1] where its
   pre-activation may vanish in B: where that vanishes with a slope, it does so at an isolated point, which is
   immaterial; where it vanishes without one, so does the ReLU's slope, whatever is multiplied by 0.
2. For any matrix Y, K(x) = x − Y·f(x) has K(x) − x0 = −Y·f(x0) + (I − Y·M(x))·(x − x0). If
   |Y·f(x0)|_i + Σ_j |I − Y·J|_ij·radius < radius for each i, the continuous K maps B into itself: by Brouwer it has a
   fixed point x*, where Y·f(x*) = 0.
3. The inequality is strict, so ‖I − Y·M‖∞ < 1 for every M in J: Y·M has an inverse, hence Y has one, and f(x*) = 0. So
   Y need not be trusted.

Gap and region are enclosed over all of B, which lies in the box. A pair without a gap is no witness. Whether the pair
are inputs of the task, drawn by its law, is a matter of its own: `support`. On the sphere f has more equations.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from pathlib import Path
from typing import Any

from flint import arb, arb_mat, ctx

from headcount.core import BadInput
from headcount.core.readers import WITNESS, check_statement, read_statement
from headcount.recheck.deep import Deep
from headcount.recheck.differences import bound
from headcount.recheck.enough import up
from headcount.recheck.heads import Heads, lipschitz
from headcount.recheck.pooled import Pooled, shares_pieces
from headcount.recheck.statement import read_box, read_task, real
from headcount.recheck.support import Equations, has_unit_tokens, outside
from headcount.recheck.trees import number
from headcount.recheck.weights import Rejected, Weights, read_weights
from headcount.tasks.expressions import evaluate
from headcount.tasks.expressions import tree as e

STATED = {kind: set(WITNESS.keys_of(kind)) - {"claims", "provenance"} for kind in ("exact", "near")}
"""The keys that state a pair, by its kind; what is claimed of it comes on top."""
MAX_BITS = 4096
_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,3999}")


@dataclass(frozen=True)
class ProvedPair:
    """What is proved of a pair: gap and sup_error from below, all else from above; near pairs have no radius."""

    gap: float
    distance: float
    distance_one: float
    sup_error: float
    lipschitz: float | None
    radius: float | None
    outside: str | None
    """Why the pair are not proved to be inputs of the task; empty where they are, None where its law is not known."""

    @property
    def in_support(self) -> bool | None:
        """Whether the pair are inputs of the task, as its law draws them; None where the law is not known."""
        return None if self.outside is None else not self.outside


@dataclass(frozen=True)
class WitnessVerdict:
    """Whether a witness holds, why not, and what was proved on the way."""

    holds: bool
    reason: str
    witness: dict[str, Any]
    proved: ProvedPair | None


class NoInclusion(Rejected):
    """Krawczyk's test does not succeed, at the precision tried."""


def read_witness(path: Path) -> dict[str, Any]:
    """Read the file, or a folder's witness.json; evidence, in which nothing can be verified, is refused."""
    found = read_statement(path, WITNESS)
    if found["kind"] == "evidence":
        raise BadInput(f"{path} is evidence: its numbers were measured, nothing in it can be verified")
    return found


def verify_witness(path: Path | str) -> WitnessVerdict:
    """Verify a witness from the weights beside it; nothing that it claims is taken for granted.

    path: witness.json, or the folder that holds it.
    """
    path = Path(path)
    witness = read_witness(path)
    folder = path if path.is_dir() else path.parent
    for name in ("config.json", "model.safetensors"):
        if not (folder / name).is_file():
            raise BadInput(f"there is no {name} beside the witness in {folder}: it speaks of a model folder")
    try:
        check_statement(witness, WITNESS)
        stated = {key: v for key, v in witness.items() if key not in ("claims", "provenance")}
        proved = prove(stated, read_weights(folder))
        _compare(witness["claims"], proved)
        return WitnessVerdict(True, "", witness, proved)
    except Rejected as error:
        return WitnessVerdict(False, str(error), witness, None)
    except BadInput as error:
        return WitnessVerdict(False, f"it is not well formed: {error}", witness, None)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, ArithmeticError) as error:
        return WitnessVerdict(False, f"it does not fit together: {type(error).__name__} {error}", witness, None)


def _compare(claims: dict[str, Any], proved: ProvedPair) -> None:
    """Refuse claims that go beyond what was proved."""
    if not claims["gap"] > 0:
        raise Rejected("its gap is not above 0: a pair without a gap is no witness")
    for name, claim in claims.items():
        found = getattr(proved, name)
        if name == "lipschitz" and claim is None:
            continue  # nothing is claimed
        lower = name in ("gap", "sup_error")
        if found is None or not (claim <= found if lower else claim >= found):
            said = "no bound" if found is None else f"at {'least' if lower else 'most'} {found!r}"
            raise Rejected(f"its {name} is not proved: {said} is, not {claim!r} as it claims")


@dataclass(frozen=True)
class _Pair:
    """A witness read strictly, in exact numbers."""

    task: dict[str, Any]
    f: list[e.Expr]
    F0: e.Expr
    S: list[list[int]]
    region: tuple[list[float], list[float]] | None
    output: int
    X: list[list[list[Fraction]]]
    solved: list[int]
    radius: Fraction

    def balls(self, s: int, radius: arb) -> list[list[arb]]:
        """Return sequence s with the solved coordinates as balls of a radius."""
        T, d = len(self.X[s]), len(self.X[s][0])
        at = {k - s * T * d for k in self.solved}
        wide = arb(0, radius)
        return [
            [number(v) + wide if t * d + j in at else number(v) for j, v in enumerate(row)]
            for t, row in enumerate(self.X[s])
        ]

    def target(self, X: Sequence[Sequence[arb]]) -> arb:
        """Enclose H_j over the sequences of a ball; all of them must lie in the region."""
        z = [
            reduce(lambda a, b: a.min(b), [evaluate(g, X[t])[0] for t in s])
            for g, s in zip(self.f, self.S, strict=True)
        ]
        if self.region is not None:
            for i, (low, v, high) in enumerate(zip(self.region[0], z, self.region[1], strict=True)):
                if not (v >= low and v <= high):
                    raise Rejected(f"z_{i + 1} of a sequence is not proved to lie in the region")
        return evaluate(self.F0, z)[self.output]


def prove(witness: dict[str, Any], model: Weights) -> ProvedPair:
    """Prove what can be proved of a stated pair; a statement that is no such, or does not hold, raises Rejected."""
    if set(witness) != STATED[witness["kind"]]:
        raise Rejected("it has keys that are not known, or lacks some of its kind")
    if model.hash != witness["model"]:
        raise Rejected("the model is not the witness's: a weight or a setting was changed (its hash differs)")
    pair = _read_pair(witness, model)
    numbers = [v for X in pair.X for row in X for v in row]
    bits = 128 + max(pair.radius.denominator.bit_length(), *(v.numerator.bit_length() for v in numbers))
    before, ladder = ctx.prec, sorted({min(k * bits, MAX_BITS) for k in (1, 2, 4)})
    try:
        for precision in ladder[:-1]:
            ctx.prec = precision
            with suppress(NoInclusion):
                return _prove(pair, model)
        ctx.prec = ladder[-1]
        return _prove(pair, model)
    finally:
        ctx.prec = before


def reader(model: Weights, length: int) -> Heads | Deep:
    """Return what computes the numbers that F reads."""
    spec = model.config["model"]
    plain = spec["depth"] == 1 and not spec["layer_norm"]
    plain = plain and spec["heads"] * spec["head_dim"] <= spec["width"]  # else W_O forgets some of o, and u is less
    return Heads(model, length) if plain else Deep(model, length)


def _prove(pair: _Pair, model: Weights) -> ProvedPair:
    """Prove at the precision of the moment."""
    heads = reader(model, len(pair.X[0]))
    exact, radius = pair.radius > 0, number(pair.radius)
    at, over = ([pair.balls(s, r) for s in (0, 1)] for r in (arb(0), radius))
    o = [heads.outputs(X) for X in at]
    system = _system(heads, model, at, over, pair) if exact else None
    if system is not None and not _holds_a_zero(system, at, over, pair.solved, radius):
        raise NoInclusion("no exact collision is proved: Krawczyk's test fails for its coordinates and radius")
    gap = (pair.target(over[0]) - pair.target(over[1])).abs_lower()
    if not gap > 0:
        raise Rejected("its targets are not proved to differ: a pair with a gap of 0 is no witness")
    delta = [v.abs_upper() for v in heads.difference(*o)]
    one: Any = sum(delta, arb(0))
    two: Any = sum((v * v for v in delta), arb(0)).sqrt()
    steep = lipschitz(model, pair.output)
    steep = None if steep is None or not up(steep) < math.inf else steep
    moved = arb(0) if exact else None if steep is None else steep * two
    error = 0.0 if moved is None else max(0.0, bound((gap - moved) / 2)[0])
    return ProvedPair(
        max(0.0, bound(gap)[0]),
        up(two),
        up(one),
        error,
        None if steep is None else up(steep),
        up(radius) if exact else None,
        outside(pair.task, over, system is not None and system.norms),
    )


def _system(heads: Heads | Deep, model: Weights, at: list[Any], over: list[Any], pair: _Pair) -> Equations:
    """Return the equations that the solved coordinates are for: o(X1) = o(X2), or what it follows from over B.

    Stated tokens of norm 1, where the law has such, are held to the sphere by equations of their own.
    """
    count, norms = len(pair.solved), has_unit_tokens(pair.task, at)
    system = Equations(heads, len(over[0]), norms)
    if count == system.count:
        return system
    pooled = Pooled(heads, over) if isinstance(heads, Heads) and shares_pieces(model) else None
    if pooled is None or count != Equations(pooled, len(over[0]), norms).count:
        raise Rejected(f"{count} coordinates are solved for {system.count} equations")
    return Equations(pooled, len(over[0]), norms)


def _holds_a_zero(system: Equations, at: list[Any], over: list[Any], solved: list[int], radius: arb) -> bool:
    """Krawczyk's test for the equations in the solved coordinates; `at` are the stated sequences, `over` is B."""
    columns = system.columns(over)
    jacobian = arb_mat([columns[k] for k in solved]).transpose()
    try:
        Y = jacobian.mid().inv().mid()  # any matrix would do: a good one makes the test succeed
    except ZeroDivisionError:
        return False
    return contracts(Y, system.residual(at), jacobian, radius)


def contracts(Y: arb_mat, residual: Sequence[arb], jacobian: arb_mat, radius: arb) -> bool:
    """Whether |Y·f(x0)|_i + Σ_j |I − Y·J|_ij·radius < radius for each i."""
    moved = (Y * arb_mat([[v] for v in residual])).entries()
    for i, row in enumerate((Y * jacobian).table()):
        spread: Any = sum((abs(int(i == j) - v) for j, v in enumerate(row)), arb(0))
        if not abs(moved[i]) + spread * radius < radius:
            return False
    return True


def _read_pair(witness: dict[str, Any], model: Weights) -> _Pair:
    """Read task, box, region, sequences and what is solved; B must lie in the box."""
    spec, std = model.config["model"], model.config["standardisation"]["std"]
    f, F0, S = read_task(witness["task"])
    T, d, output = witness["task"]["length"], witness["task"]["dim"], witness["output"]
    if d != spec["dim"] or F0.out_dim != spec["out_dim"] or len(std) != F0.out_dim:
        raise Rejected("the task's tokens or outputs are not the model's")
    if type(output) is not int or not 0 <= output < F0.out_dim:
        raise Rejected(f"there is no output {output!r}")
    low, high = read_box(witness["box"], d)
    X = [_read_sequence(witness[name], T, d) for name in ("X1", "X2")]
    solved, radius = list[int](), Fraction(0)
    if witness["kind"] == "exact":
        solved, radius = witness["solved"], _dyadic(witness["radius"])
        if type(solved) is not list or any(type(k) is not int or not 0 <= k < 2 * T * d for k in solved):
            raise Rejected("the solved coordinates are not places in X1 and X2")
        if len(set(solved)) != len(solved):
            raise Rejected("a coordinate is solved twice")
        if not radius > 0:
            raise Rejected("the radius is not above 0")
    for k, v in enumerate(v for Xs in X for x in Xs for v in x):
        r = radius if k in solved else 0
        if not Fraction(float(low[k % d])) <= v - r <= v + r <= Fraction(float(high[k % d])):
            raise Rejected("a sequence leaves the box")
    return _Pair(witness["task"], f, F0, S, _read_region(witness["region"], len(f)), output, X, solved, radius)


def _read_sequence(X: Any, T: int, d: int) -> list[list[Fraction]]:
    if type(X) is not list or len(X) != T or any(type(x) is not list or len(x) != d for x in X):
        raise Rejected(f"X1 and X2 are not {T} tokens of {d} numbers each")
    return [[_dyadic(v) for v in x] for x in X]


def _read_region(region: Any, D: int) -> tuple[list[float], list[float]] | None:
    if region is None:
        return None
    if type(region) is not dict or set(region) != {"low", "high"} or any(len(side) != D for side in region.values()):
        raise Rejected("the region is not a low and a high number for each z_i")
    return [real(v) for v in region["low"]], [real(v) for v in region["high"]]


def _dyadic(value: Any) -> Fraction:
    """Return mantissa·2^exponent."""
    if type(value) is not list or len(value) != 2 or type(value[0]) is not str or not _WHOLE.fullmatch(value[0]):
        raise Rejected(f"{str(value)[:40]!r} is no number: expected [mantissa, exponent], the mantissa as a text")
    if type(value[1]) is not int or abs(value[1]) > 20_000:
        raise Rejected("an exponent is no whole number within ±20000")
    return Fraction(int(value[0])) * Fraction(2) ** value[1]
