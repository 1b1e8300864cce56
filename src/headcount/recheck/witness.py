"""Verify two colliding inputs: the file witness.json, from the weights beside it up, in ball arithmetic.

The gap is |H_j(X1) − H_j(X2)|. If F reads the same for both, then the error at one of them is at least half the gap,
whatever F is. There are two kinds of witness:

- *near* is about the stated sequences themselves. F's inputs differ by Δ, so the model's own F, with Lipschitz constant
  L, has an error of at least (gap − L·‖Δ‖)/2 at one of them.
- *exact* says that there are two sequences for which F reads exactly the same, within `radius` of the stated ones in
  the m solved coordinates and equal to them in all others.

Krawczyk's test proves that an exact pair exists. Let x0 be the stated values of the solved coordinates,
B = {x : |x − x0|∞ ≤ radius}, f(x) = o(X1) − o(X2) in R^m, and let J enclose the slopes of f over B.

1. For all x in B, f(x) − f(x0) = M(x)·(x − x0) with some M(x) in J: the mean of the slopes along the segment from x0 to
   x. The chain rule holds almost everywhere on the segment, if the slope of a ReLU whose pre-activation may vanish in B
   counts as any number in [0, 1]. For where the pre-activation vanishes with a slope different from 0, it does so at
   an isolated point, which does not change the mean. And where it vanishes with slope 0, the ReLU has slope 0 too, and
   the product is 0 whatever number in [0, 1] it has as a factor.
2. For any matrix Y, the map K(x) = x − Y·f(x) has K(x) − x0 = −Y·f(x0) + (I − Y·M(x))·(x − x0). If
   |Y·f(x0)|_i + Σ_j |I − Y·J|_ij·radius < radius for each i, then K, which is continuous, maps B into itself, and by
   Brouwer's theorem it has a fixed point x* in B. There Y·f(x*) = 0.
3. Since the inequality is strict, ‖I − Y·M‖∞ < 1 for every M in J. So Y·M is invertible, hence Y is, and f(x*) = 0. So
   Y need not be trusted.

The gap and the region are enclosed over all of B, which lies in the box. A pair without a gap is not a witness. Whether
both are inputs of the task, in the support of its law, is checked in `support`; on the sphere f has more equations.
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

STATEMENT_KEYS = {kind: set(WITNESS.keys_of(kind)) - {"claims", "provenance"} for kind in ("exact", "near")}
"""The keys that state a pair, for each kind of witness; claims and provenance come in addition."""
MAX_PRECISION = 4096
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,3999}")


@dataclass(frozen=True)
class ProvedPair:
    """Proved bounds for a pair: lower ones on gap and sup_error, upper ones on the rest; near pairs have no radius."""

    gap: float
    distance: float
    distance_one: float
    sup_error: float
    lipschitz: float | None
    radius: float | None
    outside: str | None
    """Why the pair is not proved to be inputs of the task; empty if it is, None if the task's law is unknown."""

    @property
    def in_support(self) -> bool | None:
        """Whether both sequences are inputs of the task, in the support of its law; None if the law is unknown."""
        return None if self.outside is None else not self.outside


@dataclass(frozen=True)
class WitnessVerdict:
    """Whether a witness holds, the reason if it does not, and what was proved."""

    holds: bool
    reason: str
    witness: dict[str, Any]
    proved: ProvedPair | None


class NoInclusion(Rejected):
    """Raised when Krawczyk's test fails at the precision tried."""


def read_witness(path: Path) -> dict[str, Any]:
    """Read the file, or a folder's witness.json; reject evidence, which cannot be verified."""
    found = read_statement(path, WITNESS)
    if found["kind"] == "evidence":
        raise BadInput(f"{path} is evidence: its numbers were measured, and nothing in it can be verified")
    return found


def verify_witness(path: Path | str) -> WitnessVerdict:
    """Verify a witness from the weights beside it, without relying on anything that it claims.

    path: witness.json, or its folder.
    """
    path = Path(path)
    witness = read_witness(path)
    folder = path if path.is_dir() else path.parent
    for name in ("config.json", "model.safetensors"):
        if not (folder / name).is_file():
            raise BadInput(f"no such file: {folder / name} (a witness is verified with its model folder)")
    try:
        check_statement(witness, WITNESS)
        stated = {key: v for key, v in witness.items() if key not in ("claims", "provenance")}
        proved = prove(stated, read_weights(folder))
        _compare(witness["claims"], proved)
        return WitnessVerdict(True, "", witness, proved)
    except Rejected as error:
        return WitnessVerdict(False, str(error), witness, None)
    except BadInput as error:
        return WitnessVerdict(False, f"the witness is malformed: {error}", witness, None)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, ArithmeticError) as error:
        return WitnessVerdict(False, f"the witness is inconsistent: {type(error).__name__} {error}", witness, None)


def _compare(claims: dict[str, Any], proved: ProvedPair) -> None:
    """Reject claims that go beyond what was proved."""
    if not claims["gap"] > 0:
        raise Rejected("its gap is not above 0: a pair without a gap is not a witness")
    for name, claim in claims.items():
        found = getattr(proved, name)
        if name == "lipschitz" and claim is None:
            continue  # nothing is claimed
        lower = name in ("gap", "sup_error")
        if found is None or not (claim <= found if lower else claim >= found):
            proved_bound = "no bound" if found is None else f"at {'least' if lower else 'most'} {found!r}"
            raise Rejected(f"its {name} is not proved: {proved_bound} is, not {claim!r} as it claims")


@dataclass(frozen=True)
class _Pair:
    """The content of a witness, read strictly, in exact numbers."""

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
        """Return sequence s with the solved coordinates as balls of the given radius."""
        T, d = len(self.X[s]), len(self.X[s][0])
        at = {k - s * T * d for k in self.solved}
        wide = arb(0, radius)
        return [
            [number(v) + wide if t * d + j in at else number(v) for j, v in enumerate(row)]
            for t, row in enumerate(self.X[s])
        ]

    def target(self, X: Sequence[Sequence[arb]]) -> arb:
        """Enclose H_j over all sequences in a ball; all of them must be proved to lie in the region."""
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
    """Prove what can be proved of a stated pair; raise Rejected if the statement is malformed or does not hold."""
    if set(witness) != STATEMENT_KEYS[witness["kind"]]:
        raise Rejected("it has unknown keys, or lacks some that its kind needs")
    if model.hash != witness["model"]:
        raise Rejected("the model is not the witness's: a weight or setting has changed (its hash differs)")
    pair = _read_pair(witness, model)
    numbers = [v for X in pair.X for row in X for v in row]
    bits = 128 + max(pair.radius.denominator.bit_length(), *(v.numerator.bit_length() for v in numbers))
    before, precisions = ctx.prec, sorted({min(k * bits, MAX_PRECISION) for k in (1, 2, 4)})
    try:
        for precision in precisions[:-1]:
            ctx.prec = precision
            with suppress(NoInclusion):
                return _prove(pair, model)
        ctx.prec = precisions[-1]
        return _prove(pair, model)
    finally:
        ctx.prec = before


def reader(model: Weights, length: int) -> Heads | Deep:
    """Return the enclosure of the numbers that F reads: `Heads` if these suffice, else `Deep`."""
    spec = model.config["model"]
    heads_suffice = spec["depth"] == 1 and not spec["layer_norm"]
    heads_suffice = heads_suffice and spec["heads"] * spec["head_dim"] <= spec["width"]  # else W_O is not injective
    return Heads(model, length) if heads_suffice else Deep(model, length)


def _prove(pair: _Pair, model: Weights) -> ProvedPair:
    """Prove what can be proved at the current precision."""
    heads = reader(model, len(pair.X[0]))
    exact, radius = pair.radius > 0, number(pair.radius)
    at, over = ([pair.balls(s, r) for s in (0, 1)] for r in (arb(0), radius))
    o = [heads.outputs(X) for X in at]
    equations = _equations(heads, model, at, over, pair) if exact else None
    if equations is not None and not _krawczyk_succeeds(equations, at, over, pair.solved, radius):
        raise NoInclusion("no exact collision is proved: Krawczyk's test fails for its coordinates and radius")
    gap = (pair.target(over[0]) - pair.target(over[1])).abs_lower()
    if not gap > 0:
        raise Rejected("its targets are not proved to differ: a pair with a gap of 0 is not a witness")
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
        outside(pair.task, over, equations is not None and equations.norms),
    )


def _equations(heads: Heads | Deep, model: Weights, at: list[Any], over: list[Any], pair: _Pair) -> Equations:
    """Return the equations to solve: o(X1) = o(X2), or fewer from which it follows over B, as many as coordinates.

    If the law has tokens of norm 1, and the stated ones do, then further equations keep them on the sphere.
    """
    count, norms = len(pair.solved), has_unit_tokens(pair.task, at)
    equations = Equations(heads, len(over[0]), norms)
    if count == equations.count:
        return equations
    pooled = Pooled(heads, over) if isinstance(heads, Heads) and shares_pieces(model) else None
    if pooled is None or count != Equations(pooled, len(over[0]), norms).count:
        raise Rejected(f"{count} coordinates are solved for {equations.count} equations")
    return Equations(pooled, len(over[0]), norms)


def _krawczyk_succeeds(equations: Equations, at: list[Any], over: list[Any], solved: list[int], radius: arb) -> bool:
    """Apply Krawczyk's test to the equations in the solved coordinates; `at` are the stated sequences, `over` is B."""
    columns = equations.columns(over)
    jacobian = arb_mat([columns[k] for k in solved]).transpose()
    try:
        Y = jacobian.mid().inv().mid()  # the proof allows any matrix; a good one makes the test succeed
    except ZeroDivisionError:
        return False
    return contracts(Y, equations.residual(at), jacobian, radius)


def contracts(Y: arb_mat, residual: Sequence[arb], jacobian: arb_mat, radius: arb) -> bool:
    """Return whether |Y·f(x0)|_i + Σ_j |I − Y·J|_ij·radius < radius for each i."""
    moved = (Y * arb_mat([[v] for v in residual])).entries()
    for i, row in enumerate((Y * jacobian).table()):
        spread: Any = sum((abs(int(i == j) - v) for j, v in enumerate(row)), arb(0))
        if not abs(moved[i]) + spread * radius < radius:
            return False
    return True


def _read_pair(witness: dict[str, Any], model: Weights) -> _Pair:
    """Read task, box, region, sequences and solved coordinates; B must lie in the box."""
    spec, std = model.config["model"], model.config["standardisation"]["std"]
    f, F0, S = read_task(witness["task"])
    T, d, output = witness["task"]["length"], witness["task"]["dim"], witness["output"]
    if d != spec["dim"] or F0.out_dim != spec["out_dim"] or len(std) != F0.out_dim:
        raise Rejected("the dimensions of the task's tokens or outputs are not the model's")
    if type(output) is not int or not 0 <= output < F0.out_dim:
        raise Rejected(f"no such output: {output!r}")
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
        raise Rejected(f"X1 and X2 must have {T} tokens of {d} numbers each")
    return [[_dyadic(v) for v in x] for x in X]


def _read_region(region: Any, D: int) -> tuple[list[float], list[float]] | None:
    if region is None:
        return None
    if type(region) is not dict or set(region) != {"low", "high"} or any(len(side) != D for side in region.values()):
        raise Rejected("the region must have a low and a high number for each z_i")
    return [real(v) for v in region["low"]], [real(v) for v in region["high"]]


def _dyadic(value: Any) -> Fraction:
    """Return mantissa·2^exponent."""
    if type(value) is not list or len(value) != 2 or type(value[0]) is not str or not _INTEGER.fullmatch(value[0]):
        raise Rejected(f"{str(value)[:40]!r} is not a number: expected [mantissa, exponent], the mantissa as text")
    if type(value[1]) is not int or abs(value[1]) > 20_000:
        raise Rejected("an exponent must be a whole number within ±20000")
    return Fraction(int(value[0])) * Fraction(2) ** value[1]
