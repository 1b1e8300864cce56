"""A lower bound over all encoders and attentions: with too few heads, the block behind them is steep or wrong.

*Setting.* Letters e_1, …, e_K are K tokens. The target of a sequence of letters depends only on the set of its letters,
as F0(min f_1, …, min f_D) does. Let γ be the least change of the target when one letter is left out:

    γ = min over m of |H(all letters) − H(all letters but e_m)|.

A head has any weights a(x, t) > 0 and any values v(x, t), of any dimension, which at the letters lie in a box with
sides Δ_r. It returns o = Σ a·v / Σ a. The outputs of h heads go through any function G with |G(o) − G(o')| ≤ R·max_r
|o_r − o'_r|/Δ_r. In the max norm R = L·Δ, the Lipschitz constant of G times the diameter of the values; scaling the
values does not change R. We call R the *reach* over these letters: how far the output can move while every head's
output crosses the range of its values at the letters.

*Theorem.* With h < K heads the sup error over sequences of T letters is at least (γ − R/N)/2, where

    without positions   N = 1 + ⌈(T − K + 1)/h⌉, which is ⌈T/h⌉ for K = h + 1,
    with positions      N = ⌈⌈T/K⌉/h⌉,                             both for T ≥ K.

*Proof.* We construct two sequences X, X' that differ in one token, which is u in X and e_m in X'. Every letter but e_m
occurs at the other positions, so the targets differ by at least γ. Let S be the weight of the T − 1 other tokens in a
head, and let p = a(u)/(S + a(u)) and p' = a(e_m)/(S + a(e_m)) be the shares of the exchanged token. Suppose that
p, p' ≤ 1/N in every head. With c the mean of the other tokens' values, o = c + p·(v(u) − c) and
o' = c + p'·(v(e_m) − c). In each coordinate, c and both values lie in an interval of length Δ_r. If v(u) and v(e_m) are
on the same side of c, then o and o' differ by at most max(p, p')·Δ_r. If not, then |v(u) − c| + |v(e_m) − c| ≤ Δ_r, and
the same bound holds. So the outputs of G are at most R/N apart and the targets at least γ, and one of the two errors is
at least (γ − R/N)/2. It remains to construct X and X' with p, p' ≤ 1/N.

Without positions: each head has a top letter, with the largest a. Let r ≤ h be the number of different top letters, and
let e_m be a letter that is not a top letter of any head. X has each of the K − 1 − r other letters once, and the top
letters in the remaining T' = T − K + 1 + r places: one of them, u, ⌈T'/r⌉ times and the others at least ⌈T'/r⌉ − 1
times. One of the tokens u is exchanged. A head with top letter u has ⌈T'/r⌉ − 1 more tokens u, and every other head has
at least as many tokens with its own top letter. No letter is heavier than the top letter, so p, p' ≤ 1/⌈T'/r⌉. The
number ⌈T'/r⌉ is least for r = h, where it is N. The letter u remains in X', since ⌈T'/r⌉ ≥ 2.

With positions: at each position t some letter is not a top letter of any head there, and some letter e_m is such a
letter at ⌈T/K⌉ positions or more. Let P be ⌈T/K⌉ of these positions, let A_k(t) be the largest a of head k at t, and
let q = ⌈⌈T/K⌉/h⌉ − 1. Head 1 takes the q positions of P with the largest A_1, head 2 the q of the rest with the largest
A_2, and so on; X has each head's top letter at the positions that the head took. At a remaining position t of P, every
head has A_k(t) at most as large as each of its q weights, so p, p' ≤ 1/(q + 1) whatever u is. There are at least K − 1
positions outside P: they hold every letter but e_m at least once, and all other positions hold any such letter.

*Index sets.* If f_i is minimised over S_i only, let C be the intersection of all S_i. Without positions the letters can
be arranged so that C, if it has K positions, holds everything that matters; with positions, T becomes |C|. Outside C
there are only letters other than e_m. So in X every minimum is over all letters but e_m, and in X' over all letters.

*Width.* Consider a two-layer F of width M with outer weights at most B', inner weights at most B and an L_act-Lipschitz
activation, behind W_O with weights at most B_O. It has R ≤ L_act·M·B'·B·B_O·E·n·h·Δ. Under Assumptions 1.1 and 1.3,
B', B and B_O are at most 1 and Δ ≤ 2·√E. So a model can be within ε only if M·B'·B·B_O ≥ (γ − 2ε)·N/(L_act·E·n·h·Δ).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from torch import Tensor

from headcount.core import BadInput, generator
from headcount.tasks import Box, Gaussian, GeneralizedRetrieval, Marked, Sphere
from headcount.tasks.assumptions import find_minimiser
from headcount.tasks.expressions import Node, ball, floor
from headcount.tasks.expressions import in_balls as expr_ball
from headcount.tasks.expressions import in_torch as expr_torch
from headcount.theory.bounds.too_few_heads import root_above, rounded_down

if TYPE_CHECKING:
    from flint import arb

Letter = tuple[float, ...]
Positions = Literal["none", "any"]
GAUSSIAN_REACH = 2.5
"""Standard deviations within which letters are searched for tasks with Gaussian tokens."""
MAX_ALPHABETS = 1000
"""Sets of minimisers that are tried as a start; γ is proved for whatever letters are found."""
CLIMBS, ROUNDS_PER_CLIMB, MOVES_PER_ROUND, STEP_SHRINK = 4, 150, 256, 0.93
"""The search for letters; a round without gain multiplies the step by `STEP_SHRINK`."""


@dataclass(frozen=True)
class Alphabet:
    """K letters of a task, and the proved least change γ of one output when any of them is left out."""

    letters: tuple[Letter, ...]
    gap: float
    """γ, rounded down."""
    output: int
    common: int
    """|C|, the number of positions that all S_i share."""
    length: int
    unit: bool
    """Whether a letter means the point of the unit sphere in its direction."""

    @property
    def size(self) -> int:
        """K."""
        return len(self.letters)

    def balls(self) -> list[list[arb]]:
        """Return the letters as balls."""
        return [_letter_balls(letter, self.unit) for letter in self.letters]


def find_alphabet(task: GeneralizedRetrieval, heads: int, box: Box | None = None) -> Alphabet:
    """Return h + 1 letters with a large γ, proved in ball arithmetic; reject a task without a provable γ > 0.

    The search starts from minimisers of the f_i and keeps to the box or the sphere of the task's tokens.
    """
    size = heads + 1
    if not task.symbolic:
        raise BadInput(f"{task.name} uses a bare Python function: a proof needs f and F0 as expressions")
    if size > len(task.f):
        raise BadInput(f"the bound is for fewer heads than D = {len(task.f)}, not {heads}")
    if isinstance(task.law, Marked):
        raise BadInput(f"every input of {task.name} has each mark exactly once, so no letter can be left out")
    common = len(set(task.S[0]).intersection(*task.S[1:]))
    if common < size:
        raise BadInput(
            f"the index sets S_i of {task.name} share {common} position{'' if common == 1 else 's'}: "
            f"the bound needs h + 1 = {size} shared positions"
        )
    sides, unit = _search_box(task, box), isinstance(task.law, Sphere)
    letters = _search(task, size, sides, unit)
    values = [_values_at(task, _letter_balls(letter, unit)) for letter in letters]
    gap, output = _gap(task, values)
    if gap <= 0:
        raise BadInput(f"found no {size} letters of {task.name} whose absence provably changes the target")
    return Alphabet(letters, gap, output, common, task.length, unit)


def _search_box(task: GeneralizedRetrieval, box: Box | None) -> Box:
    """Return the box in which to search for letters; reject a box with points that are not inputs of the task."""
    task_box, found = task.box, box or task.box
    if box is not None and task_box is not None:
        inside = [all(a <= v <= b for a, v, b in zip(task_box[0], side, task_box[1], strict=True)) for side in box]
        if not all(inside):
            raise BadInput(f"letters are inputs of {task.name}: the box must lie within {task_box[0]} to {task_box[1]}")
    if found is None:
        limit = GAUSSIAN_REACH * (task.law.std if isinstance(task.law, Gaussian) else 1.0)
        found = (-limit,) * task.dim, (limit,) * task.dim
    return found


def _search(task: GeneralizedRetrieval, size: int, sides: Box, unit: bool) -> tuple[Letter, ...]:
    """Search in floats for letters with a large γ: from the best minimisers, by random moves that get smaller."""
    low, high = (torch.tensor(side, dtype=torch.float64) for side in sides)
    minimisers = torch.tensor([find_minimiser(f, sides).points[0] for f in task.f], dtype=torch.float64)
    subsets = itertools.islice(itertools.combinations(range(len(task.f)), size), MAX_ALPHABETS)
    starts = _inside(minimisers[torch.tensor(list(subsets))], low, high, unit)
    order = _gaps(task, starts).argsort(descending=True)
    climbed = [
        _climb(task, starts[order[k % len(order)]], low, high, unit, generator(k, "letters")) for k in range(CLIMBS)
    ]
    return tuple(tuple(letter) for letter in max(climbed, key=lambda found: found[0])[1].tolist())


def _climb(
    task: GeneralizedRetrieval, letters: Tensor, low: Tensor, high: Tensor, unit: bool, rng: np.random.Generator
) -> tuple[float, Tensor]:
    """Return γ and the letters after random moves of some coordinates, which shrink after each round without gain."""
    best, best_gap, step = letters, float(_gaps(task, letters[None])), 0.3
    for _ in range(ROUNDS_PER_CLIMB):
        moves = rng.standard_normal((MOVES_PER_ROUND, *best.shape)) * (rng.random((MOVES_PER_ROUND, *best.shape)) < 0.4)
        moved = _inside(best + step * (high - low) * torch.from_numpy(moves), low, high, unit)
        gaps = _gaps(task, moved)
        if float(gaps.max()) > best_gap:
            best, best_gap = moved[gaps.argmax()], float(gaps.max())
        else:
            step *= STEP_SHRINK
    return best_gap, best


def _inside(letters: Tensor, low: Tensor, high: Tensor, unit: bool) -> Tensor:
    """Move letters to the nearest point of the box, or of the sphere."""
    if not unit:
        return torch.minimum(torch.maximum(letters, low), high)
    norms = letters.norm(dim=-1, keepdim=True)
    return torch.where(norms > 0, letters / norms.clamp(min=1e-300), torch.eye(len(low), dtype=letters.dtype)[0])


def _gaps(task: GeneralizedRetrieval, letters: Tensor) -> Tensor:
    """Return γ for alphabets[count, K, dim] in floats."""
    values = task.tokens(letters).transpose(-1, -2)  # [count, K, D]
    F0, size = task.F0, letters.shape[1]
    assert isinstance(F0, Node)
    whole = expr_torch.evaluate(F0, values.amin(1))
    without = [values[:, [j for j in range(size) if j != m]].amin(1) for m in range(size)]
    changes = torch.stack([(whole - expr_torch.evaluate(F0, z)).abs() for z in without], 1)
    return changes.amin(1).amax(-1).nan_to_num(0.0)


def _letter_balls(letter: Letter, unit: bool) -> list[arb]:
    """Return a letter as balls: its doubles exactly, or the point of the unit sphere in their direction."""
    x = [ball(v) for v in letter]
    if not unit:
        return x
    norm = sum((v * v for v in x), ball(0.0)).sqrt()
    return [v / norm for v in x]


def _values_at(task: GeneralizedRetrieval, letter: Sequence[arb]) -> list[arb]:
    """Enclose every f_i at a letter."""
    return [expr_ball.evaluate(f, letter)[0] for f in task.f if isinstance(f, Node)]


def _gap(task: GeneralizedRetrieval, values: Sequence[Sequence[arb]]) -> tuple[float, int]:
    """Return the largest γ over the outputs, rounded down, and its output."""
    whole = _target(task, values)
    changes = [
        [abs(a - b) for a, b in zip(whole, _target(task, [*values[:m], *values[m + 1 :]]), strict=True)]
        for m in range(len(values))
    ]
    least = [min(floor(change[k]) for change in changes) for k in range(len(whole))]
    return max((gap, k) for k, gap in enumerate(least))


def _target(task: GeneralizedRetrieval, values: Sequence[Sequence[arb]]) -> list[arb]:
    """Enclose the target of a sequence with exactly these letters."""
    assert isinstance(task.F0, Node)
    z = [values[0][i] for i in range(len(task.f))]
    for letter in values[1:]:
        z = [a.min(b) for a, b in zip(z, letter, strict=True)]
    return expr_ball.evaluate(task.F0, z)


def copies(alphabet: Alphabet, heads: int, positions: Positions, length: int | None = None) -> int:
    """Return N of the theorem at the alphabet's length, or at another if every S_i has all positions; 0: no bound."""
    T, K = alphabet.length if length is None else length, alphabet.size
    if length is not None and alphabet.common != alphabet.length:
        raise BadInput(
            "the task's index sets are defined for one length only: make the task again with the length you need"
        )
    if heads >= K or T < K:
        return 0
    if positions == "none":
        return 1 - (T - K + 1) // -heads
    shared = alphabet.common if length is None else length
    return -((shared // -K) // heads)


def least_error(gap: float, reach: float, number: int) -> float:
    """Return the lower bound max(0, (γ − R/N)/2) on the sup error of every model with this reach, rounded down."""
    if number < 1 or not math.isfinite(reach):  # the reach of huge weights may overflow
        return 0.0
    return rounded_down(max(Fraction(0), (Fraction(gap) - Fraction(reach) / number) / 2))


def least_reach(gap: float, eps: float, number: int) -> float:
    """Return the reach R = (γ − 2ε)·N that every model within ε needs, rounded down, or 0 if that is negative."""
    return rounded_down(max(Fraction(0), (Fraction(gap) - 2 * Fraction(eps)) * number))


def least_width(gap: float, eps: float, number: int, *, heads: int, head_dim: int, lipschitz: float = 1.0) -> float:
    """Return the width that a two-layer F then needs under Assumptions 1.1 to 1.3, rounded down; E = n·h.

    Without a limit of 1 on the weights, the same number bounds width × the largest weights of F and W_O. `lipschitz` is
    the Lipschitz constant of the activation.
    """
    E = heads * head_dim
    return rounded_down(Fraction(least_reach(gap, eps, number)) / (Fraction(lipschitz) * E * E * 2 * root_above(E)))
