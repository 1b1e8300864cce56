"""The global minimiser of one function on a box: found by a search, and proved unique for smooth expressions."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor

from headcount.core import BadInput, generator
from headcount.tasks.assumptions import branch_and_bound as branch
from headcount.tasks.assumptions.branch_and_bound import Point, Region, hull
from headcount.tasks.expressions import in_balls as expr_ball
from headcount.tasks.expressions import in_torch as expr_torch
from headcount.tasks.expressions.jet_arithmetic import balls, ceil, jets
from headcount.tasks.expressions.tree import Expr, Function, Node

Box = tuple[Sequence[float], Sequence[float]]

# -- measured ------------------------------------------------------------------------------------------------

RANDOM_SAMPLES, MAX_STARTS, MAX_NEWTON_STEPS = 1024, 48, 60
LBFGS_STARTS = 4
TIE_TOLERANCE = 1e-9
"""Difference of equal minima, as a fraction of the range of f."""
MIN_SEPARATION = 1e-3
"""Distance of different minimisers in some coordinate, as a fraction of the box's side."""
MAX_NEWTON_DIM = 16
"""Dimension above which the d backward passes for a Hessian cost more than they gain."""


class SearchResult(NamedTuple):
    """The minimisers found, one per cluster, their value, and the range of f over the samples."""

    points: list[Point]
    value: float
    spread: float


def values(f: Function, x: Tensor) -> Tensor:
    """Return f(x)[..., out] for x[..., in]; a callable may drop a last axis of length 1."""
    y = expr_torch.evaluate(f, x) if isinstance(f, Node) else f(x)
    y = y if y.ndim == x.ndim else y[..., None]
    if y.shape[:-1] != x.shape[:-1]:
        raise BadInput(f"a function mapped {list(x.shape)} to {list(y.shape)}: only the last axis may change")
    return y


def find_minimiser(f: Function, box: Box, seed: int = 0) -> SearchResult:
    """Search a bounded box for the global minimisers of f, from the best samples and a selection of the others."""
    low, high = (torch.tensor([float(v) for v in side], dtype=torch.float64) for side in box)
    dim = len(low)
    x = low + (high - low) * torch.from_numpy(_unit_points(dim, seed))
    with torch.no_grad():
        y = _nan_to_inf(values(f, x)[..., 0])
    if not math.isfinite(float(y.min())):
        raise BadInput("a function f has no finite minimum on the box of its tokens: check it for inf and nan")
    order = torch.argsort(y)
    half = MAX_STARTS // 2
    stride = max(1, (len(order) - half) // half)
    starts = torch.cat([order[:half], order[half::stride]])
    spread = float(y[y.isfinite()].max() - y.min()) or 1.0
    refine = _newton if dim <= MAX_NEWTON_DIM else _lbfgs
    x = refine(f, x[starts], low, high)
    with torch.no_grad():
        y = _nan_to_inf(values(f, x)[..., 0])
    minimum = float(y.min())
    points: list[Tensor] = []
    for k in torch.argsort(y).tolist():
        tied = float(y[k]) <= minimum + TIE_TOLERANCE * spread
        if tied and all(float(((x[k] - p) / (high - low)).abs().max()) > MIN_SEPARATION for p in points):
            points.append(x[k])
    return SearchResult([tuple(p.tolist()) for p in points], minimum, spread)


def _nan_to_inf(y: Tensor) -> Tensor:
    """Return y with NaN replaced by infinity, so that it is never the minimum."""
    return torch.where(y.isnan(), math.inf, y)


def _unit_points(dim: int, seed: int) -> NDArray[np.float64]:
    """Return points of the unit box: random ones inside and on the faces, the corners, and the centre."""
    inside = generator(seed, "minimise").random((RANDOM_SAMPLES, dim))
    faces = inside[: 16 * dim].copy()
    row = np.arange(len(faces))
    faces[row, row % dim] = row // dim % 2
    corners = np.full((2 ** min(dim, 8), dim), 0.5)
    corners[:, :8] = list(itertools.product((0.0, 1.0), repeat=min(dim, 8)))
    return np.concatenate([inside, faces, corners, np.full((1, dim), 0.5)])


def derivatives(f: Function, x: Tensor, order: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    """Return f[n], its gradient[n, d] and Hessian[n, d, d] at x[n, d]; 0 where autograd finds no dependence."""
    x = x.detach().requires_grad_(True)
    zero = torch.zeros_like(x)
    with torch.enable_grad():
        y = values(f, x)[..., 0]
        g = torch.autograd.grad(y.sum(), x, create_graph=True, materialize_grads=True)[0] if y.requires_grad else zero
        rows = [
            torch.autograd.grad(part, x, retain_graph=True, materialize_grads=True)[0] if g.requires_grad else zero
            for part in (g.sum(0) if order > 1 else ())
        ]
    return y.detach(), g.detach(), torch.stack(rows, 1) if rows else zero[:, None]


def _newton(f: Function, x: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Return minima by projected Newton from all starts at once, with |eigenvalues| and a line search at every step."""
    step_fractions = 4.0 ** -torch.arange(12, dtype=x.dtype)
    diagonal = (high - low).norm()
    for _ in range(MAX_NEWTON_STEPS):
        y, g, H = derivatives(f, x)
        blocked = ((x <= low) & (g > 0)) | ((x >= high) & (g < 0))
        g = g.nan_to_num(0.0).masked_fill(blocked, 0.0)
        hessian = H.nan_to_num(0.0, 0.0, 0.0).masked_fill(blocked[:, :, None] | blocked[:, None, :], 0.0)
        eigenvalues, axes = torch.linalg.eigh(hessian)
        along = (axes.mT @ g[..., None])[..., 0] / eigenvalues.abs().clamp(min=1e-200)
        step = -(axes @ along.clamp(-1e150, 1e150)[..., None])[..., 0]
        length = step.norm(dim=-1, keepdim=True)
        step = step * (diagonal / length.clamp(min=1e-300)).clamp(max=1.0)
        trials = torch.minimum(torch.maximum(x + step_fractions[:, None, None] * step, low), high)
        with torch.no_grad():
            v = _nan_to_inf(values(f, trials)[..., 0])
        best = v.min(0)
        full = v[0] <= best.values + 1e-15 * y.abs()  # near a minimum all values tie: take the full step
        pick = torch.where(full, 0, best.indices)
        moved = torch.gather(trials, 0, pick[None, :, None].expand(1, *x.shape))[0]
        better = (torch.where(full, v[0], best.values) <= y + 1e-15 * y.abs())[:, None]
        new = torch.where(better, moved, x)
        converged = bool(((new - x).abs() <= 1e-15 * (high - low)).all())
        x = new
        if converged:
            break
    return x


def _lbfgs(f: Function, x: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Return minima from the best few starts by L-BFGS-B, for many dimensions."""

    def target(point: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        y, g, _ = derivatives(f, torch.from_numpy(point)[None], order=1)
        return float(y[0]), g[0].numpy()

    bounds = list(zip(low.tolist(), high.tolist(), strict=True))
    options = {"ftol": 0.0, "gtol": 1e-13, "maxiter": 300}
    ends = [
        minimize(target, s.numpy(), jac=True, bounds=bounds, method="L-BFGS-B", options=options).x
        for s in x[:LBFGS_STARTS]
    ]
    return torch.from_numpy(np.stack(ends)).clamp(low, high)


def kinked(f: Function, at: Tensor, box: Box, spread: float, order: int = 2) -> bool:
    """Measure whether a derivative of f up to `order` jumps at a point, relative to f's spread over the box.

    Across a kink the jump persists as the distance shrinks from 1e-4 to 1e-6 of a side; otherwise it shrinks too.
    """
    low, high = (torch.tensor(side, dtype=at.dtype) for side in box)
    order = order if len(at) <= MAX_NEWTON_DIM else 1
    for k in range(len(at)):
        step = torch.zeros_like(at)
        step[k] = high[k] - low[k]
        if not bool(((at - 1e-4 * step >= low) & (at + 1e-4 * step <= high)).all()):
            continue  # on the boundary there is only one side
        jumps: list[list[float]] = []
        for h in (1e-4, 1e-6):
            _, g, H = derivatives(f, torch.stack([at + h * step, at - h * step]), order)
            sizes = [(g[0] - g[1]) * (high - low), (H[0] - H[1]) * (high - low) ** 2]
            jumps.append([float(v.nan_to_num(math.inf).abs().max()) / spread for v in sizes[:order]])
        if any(near > 1e-3 and near > 0.2 * far for far, near in zip(*jumps, strict=True)):
            return True
    return False


# -- proved --------------------------------------------------------------------------------------------------

Outcome = Literal["unique", "several", "none", "unclear"]
MAX_BOXES_WITHOUT_CORE = 200


@dataclass(frozen=True)
class Proof:
    """What is proved: how many global minimisers exist, a box that contains all of them, and bounds of the minimum.

    `box` and `value` are valid for every outcome; for "unclear" they are merely wide.
    """

    outcome: Outcome
    box: Region
    value: tuple[float, float]
    boxes: int

    @property
    def proved(self) -> bool:
        """Whether exactly one global minimiser is proved to exist."""
        return self.outcome == "unique"


def prove_minimiser(f: Expr, box: Box, candidate: Sequence[float], *, budget: int = 3000) -> Proof:
    """Prove by branch and bound that a smooth expression has one global minimiser on a box.

    1. *Core.* On a box around the candidate f is strictly convex in all directions that step 2 leaves free, so the
       core contains at most one minimiser.
    2. *Monotonicity.* Where ∂f/∂x_k has one sign on a box, only the domain's own downhill face can contain a
       minimiser: a box that does not touch this face is dropped, one that does is reduced to it.
    3. *Bounds.* A box on which f exceeds f(candidate) is dropped.
    If steps 2 and 3 leave nothing outside the core, the minimiser, which exists on a bounded box, is the only one
    of the core. Sides may be infinite: then only a core equal to the domain, or step 2 without a face, decides.
    If f does not depend on some coordinate, there are several minimisers.
    """
    domain = Region(tuple(float(v) for v in box[0]), tuple(float(v) for v in box[1]))
    point = domain.clamp(candidate)
    slope = jets(f, balls(*domain), 1)[0].gradient
    flat = [k for k in domain.free() if k not in slope]
    inner = domain
    for k in flat:  # any value will do
        inner = inner.cut(k, point[k], point[k])
    proof = _branch(f, inner, point, budget)
    if not flat:
        return proof
    box_of_all = proof.box
    for k in flat:
        box_of_all = box_of_all.cut(k, domain.low[k], domain.high[k])
    return replace(proof, box=box_of_all, outcome="none" if proof.outcome == "none" else "several")


def _branch(f: Expr, domain: Region, point: Point, budget: int) -> Proof:
    """Return the proof on a domain where f depends on every free coordinate."""
    if not domain.bounded() and branch.reduce(f, domain, domain) is None:
        return Proof("none", domain, (-math.inf, math.inf), 1)
    core = branch.find_core(f, domain, point)
    top = core.top if core else ceil(expr_ball.evaluate(f, balls(point, point))[0])
    if core is None and not domain.bounded():
        return Proof("unclear", domain, (-math.inf, top), 1)
    if core is None:
        budget = min(budget, MAX_BOXES_WITHOUT_CORE)  # uniqueness cannot be proved: only tighten box and minimum
    unclear, used, ties = core is None, 1, itertools.count()
    pieces = branch.without(domain, core.region) if core else [domain]
    heap = [(-math.inf, next(ties), piece) for piece in pieces]
    while heap and heap[0][0] <= top:  # lowest bound first: if it exceeds the known value, all do
        if used >= budget or (core and top < core.bottom):  # in the latter case the candidate is not a minimiser
            unclear = True
            break
        used += 1
        reduced = branch.reduce(f, heap[0][2], domain)
        if reduced is None:
            heapq.heappop(heap)
            continue
        region, jet = reduced
        middle, bound, above = branch.bounds(f, region, jet)
        top = min(top, above)
        axis = branch.split_axis(region, jet, domain)
        if bound > top:
            heapq.heappop(heap)
        elif axis is None:  # too small to split and still as low as the candidate: a tie
            heapq.heapreplace(heap, (bound, next(ties), region))
            unclear = True
            break
        else:
            heapq.heapreplace(heap, (bound, next(ties), region.cut(axis, region.low[axis], middle[axis])))
            heapq.heappush(heap, (bound, next(ties), region.cut(axis, middle[axis], region.high[axis])))
    left = [(bound, region) for bound, _, region in heap if bound <= top]
    if core is not None:
        left.append((core.bottom, core.minimiser))
    value = (min(bound for bound, _ in left), top)
    return Proof("unclear" if unclear else "unique", hull([region for _, region in left]), value, used)
