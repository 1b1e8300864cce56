"""The paper's adversary, Theorem 2 (2), as an algorithm against one encoder and attention layer with s < D heads.

A head averages over tokens: o_i = Σ_t a_i·v_i / Σ_t a_i, where a_i and v_i are functions of one token. The proof, with
one repair in step 2, goes as follows:

1. Beside every minimiser x^(i) lies a segment G_i, at distances r/4 to r/2, along which f_i rises strictly and the
   target is strictly monotone. The radius r is small enough for f_i to be larger on every other segment and minimiser
   than on G_i.
2. Each head in turn picks its peak: among all points of the segments and minimisers, and among ALL unused positions,
   the point and position with the largest weight a_i. (The paper takes the positions of S_j only; then a free position
   outside S_j could outweigh the peak.) Since s < D, some basin u is picked by no head.
3. The peaks are pinned where they were picked. For every other basin j ≠ u, x^(j) is pinned at an unused position of
   S_j, and the remaining positions are filled with one of these x^(j). So every z_j, j ≠ u, is at its minimum, whatever
   the free positions hold, and every denominator is at least the weight of the peak, which no token exceeds.
4. T0 = min|S_i| − s − D + 1 unused positions of S_u are free. The t-th of them takes a point of the t-th of T0
   consecutive grids on G_u, at whose points the targets differ by at least 3ε. If two selections have the same
   (n + 1)·s sums (Σ a_i, Σ a_i·v_i), in units of the peaks, then they have equal head outputs. Positions where the two
   selections agree are filled in both, which changes both sums by the same amount. Then z_u is the value of f_u at
   the first position where they differ, because f_u rises along G_u, and the targets differ by at least 3ε.

Counting shows that some two selections agree within ε^(k+1); `subset_sums` searches for them. A feed-forward block
with weights ≤ 1 that is within ε on both needs the width of Lemma 4. Every pair found here is evaluated again, in
float64, by the reference model and the task, so no claim rests on the search.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass

import numpy as np
import torch

from headcount.core import BadInput
from headcount.core.text import exponent_text
from headcount.models import SavedModel
from headcount.models.transformer import Attention, Transformer
from headcount.tasks import GeneralizedRetrieval
from headcount.theory.adversary.basins import Array, Basin, f_and_target, find_basins
from headcount.theory.adversary.subset_sums import DEFAULT_LIST_SIZE, Choices, Pair, nearest_pair
from headcount.theory.bounds.too_few_heads import Exponent, exponents

TWO_LAYER_LIPSCHITZ = {"gelu2": 1.129, "relu2": 1.0}
"""Lipschitz constants of the activations of two-layer blocks; GELU's exceeds the 1 of (1.2), which costs width."""
RELATIVE_SLACK = 1e-9
"""By how much rounding alone may make the log-weight exceed its peak, or a spacing of the grid too small (relative)."""
CHUNK_HIDDEN_NUMBERS = 2_000_000
"""Hidden activations held in memory at once."""
MAX_POINTS_PER_GRID = 256
"""A grid with fewer points remains valid: its points are then further apart than 3ε."""


@dataclass(frozen=True)
class Peak:
    """The largest weight of a head over all segments and minimisers and all positions unused before it."""

    head: int
    basin: int
    position: int
    point: Array
    score: float
    """β·r_i there: the logarithm of the weight."""


@dataclass(frozen=True)
class AdversaryPlan:
    """What the proof fixes before it counts: everything but the tokens at the free positions."""

    basins: tuple[Basin, ...]
    minima: Array
    peaks: tuple[Peak, ...]
    uncovered: int
    pins: dict[int, Array]
    fill: Array
    free: tuple[int, ...]
    exponent: Exponent
    variation: float
    """How much the target changes along the segment of the uncovered basin."""


@dataclass(frozen=True)
class Collision:
    """Two sequences that the attention layer nearly confuses, evaluated by the reference model and the task."""

    eps: float
    X: tuple[Array, Array]
    targets: tuple[Array, Array]
    gap: float
    """The largest difference of the targets over the outputs: at least 3ε."""
    distance: float
    """Euclidean distance of F's two inputs, after W_O."""
    distance_max: float
    distance_l1: float
    width: float | None
    """Hidden units that any two-layer F with weights ≤ 1 needs to be within ε (Lemma 4); None for other kinds of F."""
    pigeonhole_distance: float
    """The distance that the pigeonhole principle guarantees for this model and these grids."""
    plan: AdversaryPlan
    grids: tuple[Array, ...]
    pair: Pair
    verdict: str


class Attacked:
    """The encoder and attention of a model of depth 1 in float64: token scores and values, and F's input."""

    def __init__(self, model: SavedModel | Transformer, task: GeneralizedRetrieval) -> None:
        transformer = model.transformer if isinstance(model, SavedModel) else model
        spec = transformer.spec
        if spec.depth > 1 or spec.layer_norm or spec.class_key:
            raise BadInput("Theorem 2 (2) covers one layer, without layer norm and with no class token among the keys")
        if spec.dim != task.dim or (spec.positions != "none" and spec.length != task.length):
            raise BadInput(
                f"the model takes sequences of shape {spec.length} × {spec.dim}; "
                f"{task.name} has another shape, {task.length} × {task.dim}"
            )
        if spec.heads >= task.intrinsic:
            raise BadInput(
                f"{spec.heads} heads can cover all {task.intrinsic} basins: Theorem 2 (2) needs fewer heads than D"
            )
        if len(task.f) != task.intrinsic:
            raise BadInput(
                f"only {task.intrinsic} of the {len(task.f)} functions f of {task.name} matter: remove the others"
            )
        self.spec, self.model = spec, copy.deepcopy(transformer).double().requires_grad_(False)
        attention = self.model.layers[0].attention
        assert isinstance(attention, Attention)
        self.attention = attention

    def scores_and_values(self, X: Array) -> tuple[Array, Array]:
        """Return β·r_i[batch, length, heads] and v_i[batch, length, heads, head_dim]: a_i = exp(β·r_i)."""
        layer, step = self.attention, max(1, CHUNK_HIDDEN_NUMBERS // (X.shape[1] * self.spec.hidden))
        q = torch.einsum("hne,e->hn", layer.query, self.model.class_token)
        e = torch.cat([self.model.encoder(part) for part in torch.from_numpy(X).split(step)])
        r = torch.einsum("hn,hne,bte->bth", q, layer.key, e)
        if layer.gates is not None:
            r = r + layer.gates.T
        beta = layer.fixed_beta if layer.log_beta is None else layer.log_beta.exp()
        return (beta * r).numpy(), torch.einsum("hne,bte->bthn", layer.value, e).numpy()

    def input_difference(self, X: Array, Y: Array) -> Array:
        """Return the difference of F's inputs, as the reference attention computes it; the class token cancels."""
        queries = self.model.class_token.expand(2, 1, -1)
        u = self.attention(queries, self.model.encoder(torch.from_numpy(np.stack([X, Y]))))[:, 0]
        return (u[0] - u[1]).numpy()

    def peak_candidates(self, basin: Basin, length: int) -> Array:
        """Return the points [candidates, length, dim] of a basin at one of which every head's weight is largest.

        Along a line the hidden units of the encoder, and so the scores, are affine between the points where a unit
        changes sign. A score is therefore largest at an end of the segment or at one of these kinks.
        """
        inner, bias = self.model.encoder.inner, self.model.encoder.hidden_bias
        W, b = inner.weight.numpy(), np.broadcast_to(inner.bias.numpy(), (length, len(inner.bias)))
        b = b if bias is None else b + bias.numpy()  # [length, hidden]
        slope = W @ basin.direction
        kinks = -(b + W @ basin.minimiser) / np.where(slope == 0, np.inf, slope)
        kinks = np.sort(np.where((kinks > basin.near) & (kinks < basin.far), kinks, np.inf), 1)
        kinks = kinks[:, : int(np.isfinite(kinks).sum(1).max())]  # most units have their kink elsewhere
        ends = np.tile([0.0, basin.near, basin.far], (length, 1))
        return basin.at(np.concatenate([ends, np.where(np.isfinite(kinks), kinks, basin.near)], 1).T)


def make_plan(attacked: Attacked, task: GeneralizedRetrieval, seed: int = 0) -> AdversaryPlan:
    """Carry out steps 1 to 3 of the proof: segments, peaks, the uncovered basin, pins and free positions."""
    s, n, T, D = attacked.spec.heads, attacked.spec.head_dim, task.length, task.intrinsic
    smallest = min(len(S) for S in task.S)
    free = smallest - s - D + 1
    if free < 1:
        raise BadInput(f"{task.name}: {s} peaks and {D - 1} pins leave no free position, as min|S_i| = {smallest}")
    basins, minima = find_basins(task, seed)
    candidates = [attacked.peak_candidates(b, T) for b in basins]  # each [candidates, length, dim]
    scores = [attacked.scores_and_values(points)[0] for points in candidates]
    pins: dict[int, Array] = {}
    peaks: list[Peak] = []
    for head in range(s):
        taken = np.isin(np.arange(T), list(pins))
        tables = [np.where(taken, -np.inf, score[:, :, head]) for score in scores]
        j = int(np.argmax([table.max() for table in tables]))
        c, t = (int(k) for k in np.unravel_index(int(tables[j].argmax()), tables[j].shape))
        pins[t] = candidates[j][c, t]
        peaks.append(Peak(head, j, t, pins[t], float(tables[j][c, t])))
    covered = {peak.basin for peak in peaks}
    target_changes = [_target_change(task, minima, i, b) if i not in covered else -1.0 for i, b in enumerate(basins)]
    u = int(np.argmax(target_changes))  # of all uncovered basins, the one where the target changes most
    for j, b in enumerate(basins):
        if j != u and not any(t in task.S[j] and np.array_equal(x, b.minimiser) for t, x in pins.items()):
            unused = [t for t in task.S[j] if t not in pins]
            outside = [t for t in unused if t not in task.S[u]]  # these leave the free positions untouched
            pins[(outside or unused)[0]] = b.minimiser
    left = [t for t in task.S[u] if t not in pins][:free]
    fill = basins[D - 1 if u != D - 1 else D - 2].minimiser
    exponent = exponents(length=T, heads=s, head_dim=n, intrinsic=D, smallest_set=smallest)[1]
    return AdversaryPlan(basins, minima, tuple(peaks), u, pins, fill, tuple(left), exponent, target_changes[u])


def _target_change(task: GeneralizedRetrieval, minima: Array, i: int, b: Basin) -> float:
    H = f_and_target(task, minima, i, b.at(np.array([b.near, b.far])), b.output)[1]
    return float(abs(H[1] - H[0]))


def eps_for_points(plan: AdversaryPlan, points: int) -> float:
    """Return the ε at which each of the T0 grids has `points` points: together they span the segment, 3ε apart."""
    return plan.variation / (3 * (len(plan.free) * points - 1)) * (1 - RELATIVE_SLACK)


def make_grids(task: GeneralizedRetrieval, plan: AdversaryPlan, eps: float) -> tuple[Array, ...]:
    """Return the consecutive grids of step 4, as distances from x^(u), in equal steps of the target of at least 3ε."""
    b, count = plan.basins[plan.uncovered], len(plan.free)
    q = math.floor((plan.variation / (3 * eps) * (1 - RELATIVE_SLACK / 2) + 1) / count) if eps > 0 else 0
    if q < 2:
        raise BadInput(
            f"eps = {eps:g} leaves fewer than two points per grid: eps must be above 0 and at most "
            f"{eps_for_points(plan, 2):.3g} here"
        )
    q = min(q, MAX_POINTS_PER_GRID)

    def height(u: Array) -> Array:
        return f_and_target(task, plan.minima, plan.uncovered, b.at(u), b.output)[1]

    ends = height(np.array([b.near, b.far]))
    rises, levels = ends[1] > ends[0], np.linspace(ends[0], ends[1], q * count)
    low, high = np.full(len(levels), b.near), np.full(len(levels), b.far)
    for _ in range(60):  # bisection: the target is monotone on the segment
        middle = (low + high) / 2
        below = (height(middle) < levels) == rises
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return tuple(np.where(np.arange(len(levels)) == 0, b.near, high).reshape(count, q))


def check_plan(task: GeneralizedRetrieval, plan: AdversaryPlan, tokens: Array, scores: Array) -> None:
    """Reject a plan that breaks a step of the proof, given tokens[q, free, dim] and their scores[q, free, heads]."""
    u = plan.uncovered

    def f_u(points: Array) -> Array:
        return f_and_target(task, plan.minima, u, points)[0]

    if any(peak.basin == u for peak in plan.peaks):
        raise BadInput(f"basin {u + 1} is covered: a head has its peak there")
    for peak in plan.peaks:
        if not np.array_equal(plan.pins.get(peak.position, peak.point + 1), peak.point):
            raise BadInput(f"the peak of head {peak.head + 1} is not pinned at position {peak.position}")
    for j, b in enumerate(plan.basins):
        if j != u and not any(t in task.S[j] and np.array_equal(x, b.minimiser) for t, x in plan.pins.items()):
            raise BadInput(f"the minimiser of basin {j + 1} is not pinned at any position of S_{j + 1}")
    if set(plan.free) & set(plan.pins) or not set(plan.free) <= set(task.S[u]):
        raise BadInput(f"the free positions must be unused positions of S_{u + 1}")
    fixed = np.stack([plan.fill, *(x for t, x in plan.pins.items() if t in task.S[u])])
    if not float(f_u(fixed).min()) > float(f_u(tokens.reshape(-1, task.dim)).max()):
        raise BadInput(f"a pinned token has a smaller f_{u + 1} than the free tokens and would hide them")
    peak_scores = np.array([peak.score for peak in plan.peaks])
    if not (scores <= peak_scores + RELATIVE_SLACK).all():
        raise BadInput("a free token outweighs the peak of a head, so the head's denominator is not bounded")


def attack(
    model: SavedModel | Transformer,
    task: GeneralizedRetrieval,
    eps: float,
    *,
    list_size: int = DEFAULT_LIST_SIZE,
    tries: int = 1,
    seed: int = 0,
    plan: AdversaryPlan | None = None,
) -> Collision:
    """Run the adversary at one ε: find two sequences that attention nearly confuses, with targets at least 3ε apart.

    `list_size` is the length of the lists that the search may hold; its work grows with it.
    """
    attacked = Attacked(model, task)
    spec = attacked.spec
    plan = make_plan(attacked, task, seed) if plan is None else plan
    grids = make_grids(task, plan, eps)
    b, free, q = plan.basins[plan.uncovered], list(plan.free), len(grids[0])
    base = np.repeat(plan.fill[None], task.length, 0)
    for t, x in plan.pins.items():
        base[t] = x
    X = np.repeat(base[None], q, 0)
    X[:, free] = b.at(np.stack(grids, 1))  # the c-th sequence has the c-th point of every grid
    score, value = attacked.scores_and_values(X)
    check_plan(task, plan, X[:, free], score[:, free])
    a = np.exp(score[:, free] - np.array([peak.score for peak in plan.peaks]))[..., None]
    sums = np.concatenate([a, a * value[:, free]], -1).reshape(q, len(free), -1)  # [q, T0, (n + 1)·s]
    H = f_and_target(task, plan.minima, plan.uncovered, X[:, free].reshape(-1, task.dim), b.output)[1].reshape(q, -1)
    pair = nearest_pair(
        Choices([*sums.swapaxes(0, 1)], [*H.T], 3 * eps * (1 - 2 * RELATIVE_SLACK)), list_size, tries, seed
    )
    found = [base.copy(), base.copy()]
    for t, grid, c, d in zip(free, grids, pair.first, pair.second, strict=True):
        if c != d:
            found[0][t], found[1][t] = b.at(grid[c]), b.at(grid[d])
    targets = task.value(torch.from_numpy(np.stack(found))).numpy()
    gap, input_difference = float(np.abs(targets[0] - targets[1]).max()), attacked.input_difference(*found)
    size, m = float(np.linalg.norm(input_difference)), (spec.head_dim + 1) * spec.heads
    lipschitz, width = TWO_LAYER_LIPSCHITZ.get(spec.feedforward), None
    if lipschitz is not None:
        width = 0.0 if gap <= 2 * eps else math.inf if size == 0 else (gap - 2 * eps) / (lipschitz * size * spec.E**0.5)
    V = float(np.abs(value).max())
    output = np.moveaxis(attacked.attention.output.numpy(), 1, 0).reshape(spec.E, -1)
    # partition [0, T0] × [−T0·V, T0·V]^n into fewer cells than there are selections, G along each coordinate:
    # two selections share a cell, and their head outputs differ by at most 3·T0·V/G
    cells = max(1.0, math.floor(q ** (len(free) / m) * (1 - RELATIVE_SLACK)))
    pigeonhole_distance = (
        float(np.linalg.norm(output, 2)) * (spec.head_dim * spec.heads) ** 0.5 * 3 * len(free) * V / cells
    )
    k = plan.exponent
    verdict = f"vacuous here: k = {k.k:.2f}{k.bites_from()}" if k.vacuous else f"k = {exponent_text(k.k)}"
    return Collision(
        eps,
        (found[0], found[1]),
        (targets[0], targets[1]),
        gap,
        size,
        float(np.abs(input_difference).max()),
        float(np.abs(input_difference).sum()),
        width,
        pigeonhole_distance,
        plan,
        grids,
        pair,
        verdict,
    )
