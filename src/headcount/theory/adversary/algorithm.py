"""The paper's own adversary: Theorem 2 (2) as an algorithm, against one encoder and attention layer with s < D heads.

A head sees tokens one by one: o_i = Σ_t a_i·v_i / Σ_t a_i with a_i, v_i functions of one token. The proof, repaired:

1. Beside every minimiser x^(i) lies a segment G_i, at distances r/4 to r/2, on which f_i and the target rise or fall
   strictly; r is so small that f_i is larger on all other segments and minimisers than on G_i.
2. Every head picks its peak: the point of all segments and minimisers, and the position among ALL that are unused,
   with the largest weight a_i. (Over S_j only, as printed, a free position outside it could outweigh the peak.)
   With s < D heads some basin u is picked by none.
3. The peaks are pinned where they were picked, x^(j) of every other basin j at an unused position of S_j, and the
   other positions are filled with x^(j) of one of them. So every z_j, j ≠ u, is at its minimum whatever else happens,
   and every denominator is at least the peak, which no token exceeds.
4. T0 = min|S_i| − s − D + 1 unused positions of S_u are free. The t-th takes a point of the t-th of T0 consecutive
   grids on G_u, whose points differ by at least 3ε in the target. Two selections whose (n + 1)·s sums
   (Σ a_i, Σ a_i·v_i), in units of the peaks, agree have equal head outputs. Positions where they choose the same are
   filled in both, which changes both sums alike; then z_u is f_u at the smallest index where they differ (f_u rises
   along G_u), and the targets differ by 3ε or more.

That two selections agree within ε^(k+1) is a matter of counting; `collide` searches for them. A feed-forward block
with weights ≤ 1 that is within ε at both needs the width of Lemma 4. Everything found here is evaluated again, in
float64, by the reference model and the task; nothing rests on the search.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass

import numpy as np
import torch

from headcount.core import BadInput
from headcount.models import SavedModel
from headcount.models.transformer import Attention, Transformer
from headcount.tasks import GeneralizedRetrieval
from headcount.theory.adversary.basins import Array, Basin, basins_of, heights
from headcount.theory.adversary.subset_sums import LIST, Choices, Pair, nearest
from headcount.theory.bounds.too_few_heads import Exponent, exponents

LIPSCHITZ = {"gelu2": 1.129, "relu2": 1.0}
"""Of the activations of two-layer blocks; GELU's breaks (1.2) and is paid for."""
ROUNDING = 1e-9
"""How far a weight may exceed its peak, and a spacing fall short, by rounding alone."""
CHUNK = 2_000_000
"""Hidden numbers held at once."""
MAX_POINTS = 256
"""Points of one grid at most: a thinner grid is a grid too, its points further than 3ε apart."""


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
class Plan:
    """Everything but the free positions: what the proof fixes before it counts."""

    basins: tuple[Basin, ...]
    minima: Array
    peaks: tuple[Peak, ...]
    uncovered: int
    pins: dict[int, Array]
    fill: Array
    free: tuple[int, ...]
    exponent: Exponent
    variation: float
    """What the target changes along the segment of the uncovered basin."""


@dataclass(frozen=True)
class Collision:
    """Two sequences that the attention layer nearly confuses, as the reference model and the task see them."""

    eps: float
    X: tuple[Array, Array]
    targets: tuple[Array, Array]
    gap: float
    """The largest difference of the targets' outputs: at least 3ε."""
    distance: float
    """Euclidean distance at F's input, W_O applied."""
    distance_max: float
    distance_l1: float
    width: float | None
    """Lemma 4: hidden units that any two-layer F with weights ≤ 1 within ε needs; None for other kinds of F."""
    counted: float
    """The distance that pigeonholes promise for this model and these grids."""
    plan: Plan
    grids: tuple[Array, ...]
    pair: Pair
    verdict: str


class Attacked:
    """The encoder and attention of a model of depth 1, in float64: weights and values of tokens, F's input."""

    def __init__(self, model: SavedModel | Transformer, task: GeneralizedRetrieval) -> None:
        transformer = model.transformer if isinstance(model, SavedModel) else model
        spec = transformer.spec
        if spec.depth > 1 or spec.layer_norm or spec.class_key:
            raise BadInput("Theorem 2 (2) speaks of one layer without layer norm, the class token not among the keys")
        if spec.dim != task.dim or (spec.positions != "none" and spec.length != task.length):
            raise BadInput(f"the model takes sequences of {spec.length} × {spec.dim}, {task.name} another shape")
        if spec.heads >= task.intrinsic:
            raise BadInput(
                f"{spec.heads} heads can cover all {task.intrinsic} basins: Theorem 2 (2) needs fewer heads than D"
            )
        if len(task.f) != task.intrinsic:
            raise BadInput(f"{task.name} has {len(task.f)} functions f of which {task.intrinsic} count: drop the rest")
        self.spec, self.model = spec, copy.deepcopy(transformer).double().requires_grad_(False)
        attention = self.model.layers[0].attention
        assert isinstance(attention, Attention)
        self.attention = attention

    def terms(self, X: Array) -> tuple[Array, Array]:
        """Return β·r_i[batch, length, heads] and v_i[batch, length, heads, head_dim]: a_i = exp(β·r_i)."""
        layer, step = self.attention, max(1, CHUNK // (X.shape[1] * self.spec.hidden))
        q = torch.einsum("hne,e->hn", layer.query, self.model.class_token)
        e = torch.cat([self.model.encoder(part) for part in torch.from_numpy(X).split(step)])
        r = torch.einsum("hn,hne,bte->bth", q, layer.key, e)
        if layer.gates is not None:
            r = r + layer.gates.T
        beta = layer.fixed_beta if layer.log_beta is None else layer.log_beta.exp()
        return (beta * r).numpy(), torch.einsum("hne,bte->bthn", layer.value, e).numpy()

    def moved(self, X: Array, Y: Array) -> Array:
        """Return the difference at F's input, as the reference attention computes it; c itself cancels."""
        queries = self.model.class_token.expand(2, 1, -1)
        u = self.attention(queries, self.model.encoder(torch.from_numpy(np.stack([X, Y]))))[:, 0]
        return (u[0] - u[1]).numpy()

    def peak_candidates(self, basin: Basin, length: int) -> Array:
        """Return points[candidates, length, dim] of a basin among which every head's weight is largest.

        Along a line the encoder's hidden layer is affine between the points where a unit changes sign, and so is the
        score: it is largest at an end of the segment or at such a point.
        """
        inner, bias = self.model.encoder.inner, self.model.encoder.hidden_bias
        W, b = inner.weight.numpy(), np.broadcast_to(inner.bias.numpy(), (length, len(inner.bias)))
        b = b if bias is None else b + bias.numpy()  # [length, hidden]
        slope = W @ basin.direction
        turns = -(b + W @ basin.minimiser) / np.where(slope == 0, np.inf, slope)
        turns = np.sort(np.where((turns > basin.near) & (turns < basin.far), turns, np.inf), 1)
        turns = turns[:, : int(np.isfinite(turns).sum(1).max())]  # most units turn elsewhere
        ends = np.tile([0.0, basin.near, basin.far], (length, 1))
        return basin.at(np.concatenate([ends, np.where(np.isfinite(turns), turns, basin.near)], 1).T)


def make_plan(attacked: Attacked, task: GeneralizedRetrieval, seed: int = 0) -> Plan:
    """Return steps 1 to 3 of the proof: segments, peaks, the uncovered basin, pins, free positions."""
    s, n, T, D = attacked.spec.heads, attacked.spec.head_dim, task.length, task.intrinsic
    smallest = min(len(S) for S in task.S)
    free = smallest - s - D + 1
    if free < 1:
        raise BadInput(f"{task.name}: min|S_i| = {smallest} leaves no free position beside {s} peaks and {D - 1} pins")
    basins, minima = basins_of(task, seed)
    candidates = [attacked.peak_candidates(b, T) for b in basins]  # each [candidates, length, dim]
    scores = [attacked.terms(points)[0] for points in candidates]
    pins: dict[int, Array] = {}
    peaks: list[Peak] = []
    for head in range(s):
        taken = np.isin(np.arange(T), list(pins))
        tables = [np.where(taken, -np.inf, score[:, :, head]) for score in scores]
        j = int(np.argmax([table.max() for table in tables]))
        c, t = (int(k) for k in np.unravel_index(int(tables[j].argmax()), tables[j].shape))
        pins[t] = candidates[j][c, t]
        peaks.append(Peak(head, j, t, pins[t], float(tables[j][c, t])))
    heard = {peak.basin for peak in peaks}
    spans = [_span(task, minima, i, b) if i not in heard else -1.0 for i, b in enumerate(basins)]
    u = int(np.argmax(spans))  # of several uncovered basins the one where the target varies most
    for j, b in enumerate(basins):
        if j != u and not any(t in task.S[j] and np.array_equal(x, b.minimiser) for t, x in pins.items()):
            unused = [t for t in task.S[j] if t not in pins]
            outside = [t for t in unused if t not in task.S[u]]  # these cost no free position
            pins[(outside or unused)[0]] = b.minimiser
    left = [t for t in task.S[u] if t not in pins][:free]
    fill = basins[D - 1 if u != D - 1 else D - 2].minimiser
    sharp = exponents(length=T, heads=s, head_dim=n, intrinsic=D, smallest_set=smallest)[1]
    return Plan(basins, minima, tuple(peaks), u, pins, fill, tuple(left), sharp, spans[u])


def _span(task: GeneralizedRetrieval, minima: Array, i: int, b: Basin) -> float:
    H = heights(task, minima, i, b.at(np.array([b.near, b.far])), b.output)[1]
    return float(abs(H[1] - H[0]))


def eps_of(plan: Plan, points: int) -> float:
    """Return the ε at which every grid has `points` points: T0·points of them span the segment, 3ε apart."""
    return plan.variation / (3 * (len(plan.free) * points - 1)) * (1 - ROUNDING)


def make_grids(task: GeneralizedRetrieval, plan: Plan, eps: float) -> tuple[Array, ...]:
    """Return the consecutive grids of step 4 as distances u from x^(u): equal steps of at least 3ε in the target."""
    b, count = plan.basins[plan.uncovered], len(plan.free)
    q = math.floor((plan.variation / (3 * eps) * (1 - ROUNDING / 2) + 1) / count) if eps > 0 else 0
    if q < 2:
        raise BadInput(
            f"at eps = {eps:g} the grids have no two points: eps must be above 0 and at most {eps_of(plan, 2):.3g} here"
        )
    q = min(q, MAX_POINTS)

    def height(u: Array) -> Array:
        return heights(task, plan.minima, plan.uncovered, b.at(u), b.output)[1]

    ends = height(np.array([b.near, b.far]))
    rises, levels = ends[1] > ends[0], np.linspace(ends[0], ends[1], q * count)
    low, high = np.full(len(levels), b.near), np.full(len(levels), b.far)
    for _ in range(60):  # the target is monotone on the segment: bisection
        middle = (low + high) / 2
        below = (height(middle) < levels) == rises
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return tuple(np.where(np.arange(len(levels)) == 0, b.near, high).reshape(count, q))


def check_plan(task: GeneralizedRetrieval, plan: Plan, tokens: Array, scores: Array) -> None:
    """Refuse a plan that breaks a step of the proof; tokens[q, free, dim] and their scores[q, free, heads]."""
    u = plan.uncovered

    def f_u(points: Array) -> Array:
        return heights(task, plan.minima, u, points)[0]

    if any(peak.basin == u for peak in plan.peaks):
        raise BadInput(f"basin {u + 1} is covered: a head has its peak there")
    for peak in plan.peaks:
        if not np.array_equal(plan.pins.get(peak.position, peak.point + 1), peak.point):
            raise BadInput(f"the peak of head {peak.head + 1} is not pinned at position {peak.position}")
    for j, b in enumerate(plan.basins):
        if j != u and not any(t in task.S[j] and np.array_equal(x, b.minimiser) for t, x in plan.pins.items()):
            raise BadInput(f"the minimiser of basin {j + 1} is pinned nowhere in S_{j + 1}")
    if set(plan.free) & set(plan.pins) or not set(plan.free) <= set(task.S[u]):
        raise BadInput(f"the free positions must be unused ones of S_{u + 1}")
    resting = np.stack([plan.fill, *(x for t, x in plan.pins.items() if t in task.S[u])])
    if not float(f_u(resting).min()) > float(f_u(tokens.reshape(-1, task.dim)).max()):
        raise BadInput(f"a pinned token has a smaller f_{u + 1} than the free ones: it would hide them")
    tops = np.array([peak.score for peak in plan.peaks])
    if not (scores <= tops + ROUNDING).all():
        raise BadInput("a free token outweighs the peak of a head: its denominator is not under control")


def attack(
    model: SavedModel | Transformer,
    task: GeneralizedRetrieval,
    eps: float,
    *,
    most: int = LIST,
    tries: int = 1,
    seed: int = 0,
    plan: Plan | None = None,
) -> Collision:
    """Run the adversary at one ε: two sequences, targets 3ε apart or more, that attention nearly confuses.

    `most` is the length of the lists that the search may hold, the measure of its work.
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
    X[:, free] = b.at(np.stack(grids, 1))  # the c-th sequence holds the c-th point of every grid
    score, value = attacked.terms(X)
    check_plan(task, plan, X[:, free], score[:, free])
    a = np.exp(score[:, free] - np.array([peak.score for peak in plan.peaks]))[..., None]
    sums = np.concatenate([a, a * value[:, free]], -1).reshape(q, len(free), -1)  # [q, T0, (n + 1)·s]
    H = heights(task, plan.minima, plan.uncovered, X[:, free].reshape(-1, task.dim), b.output)[1].reshape(q, -1)
    pair = nearest(Choices([*sums.swapaxes(0, 1)], [*H.T], 3 * eps * (1 - 2 * ROUNDING)), most, tries, seed)
    found = [base.copy(), base.copy()]
    for t, grid, c, d in zip(free, grids, pair.first, pair.second, strict=True):
        if c != d:
            found[0][t], found[1][t] = b.at(grid[c]), b.at(grid[d])
    targets = task.value(torch.from_numpy(np.stack(found))).numpy()
    gap, moved = float(np.abs(targets[0] - targets[1]).max()), attacked.moved(*found)
    size, m = float(np.linalg.norm(moved)), (spec.head_dim + 1) * spec.heads
    lipschitz, width = LIPSCHITZ.get(spec.feedforward), None
    if lipschitz is not None:
        width = 0.0 if gap <= 2 * eps else math.inf if size == 0 else (gap - 2 * eps) / (lipschitz * size * spec.E**0.5)
    V = float(np.abs(value).max())
    output = np.moveaxis(attacked.attention.output.numpy(), 1, 0).reshape(spec.E, -1)
    # cells of a partition of [0, T0] × [−T0·V, T0·V]^n, fewer than selections: head outputs move by 3·T0·V/G at most
    cells = max(1.0, math.floor(q ** (len(free) / m) * (1 - ROUNDING)))
    counted = float(np.linalg.norm(output, 2)) * (spec.head_dim * spec.heads) ** 0.5 * 3 * len(free) * V / cells
    k = plan.exponent
    says = f"vacuous here: k = {k.k:.2f}{k.bites_from()}" if k.vacuous else f"k = {k.k:.2f}"
    return Collision(
        eps,
        (found[0], found[1]),
        (targets[0], targets[1]),
        gap,
        size,
        float(np.abs(moved).max()),
        float(np.abs(moved).sum()),
        width,
        counted,
        plan,
        grids,
        pair,
        says,
    )
