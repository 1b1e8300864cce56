"""Two sequences that an attention layer cannot tell apart although their targets differ, searched with many starts.

For a fixed encoder and attention layer F gets the same input for both, so whatever F is, of any size and depth, it errs
by at least half of the gap between the targets on one of them. The search is batched in float64, on a CPU or a GPU:

1. *Starts* with flat attention and targets far apart (`attack_starts`).
2. *Ascent* of the gap with a penalty on the difference after attention that grows to 10^14 (`fibre.climb`).
3. *Projection* onto the fibre {o(X1) = o(X2)} (`fibre.project`).
4. *Along the fibre*, the gap growing (`fibre.follow`).

What it returns is measured; `exact` proves that an exact pair lies beside.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headcount.base.errors import BadInput
from headcount.base.random import generator
from headcount.models.files import SavedModel
from headcount.models.reference import Transformer
from headcount.tasks.sampling import Box
from headcount.tasks.task import Task
from headcount.theory.attack_starts import starts as make_starts
from headcount.theory.fibre import climb, follow, project
from headcount.theory.layer import state_map
from headcount.theory.pairs import Pairs
from headcount.theory.target import DRAWS, Region, Target

Among = Literal["all", "typical"]
Told = Callable[[float, str, float], None]  # share of the time, what is done, best gap in standard deviations
KEPT = 16  # pairs that go on along the fibre
CHANCES = 8  # pairs handed on for the proof, the best first
NEAR = 1e-6  # a near pair is one whose difference after attention is below


@dataclass(frozen=True)
class Found:
    """The pairs with the largest gaps, the best first: X[pairs, 2, length, dim], all on the fibre unless `near`."""

    X: NDArray[np.float64]
    gaps: tuple[float, ...]
    outputs: tuple[int, ...]
    distances: tuple[float, ...]
    near: bool
    unit: tuple[float, ...]
    box: Box
    region: Region | None
    starts: int
    converged: int
    seconds: float

    @property
    def deviations(self) -> float:
        """The largest gap in standard deviations of the target; 0 where no pair was found."""
        return self.gaps[0] / self.unit[self.outputs[0]] if self.gaps and not self.near else 0.0


def attack(
    model: SavedModel, task: Task | None = None, box: Box | None = None, *, surrogate: SavedModel | None = None,
    among: Among = "all", starts: int = 64, seconds: float = 55.0, seed: int = 0, device: str = "cpu",
    told: Told | None = None,
) -> Found:  # fmt: skip
    """Search for the pair with the largest target gap among those with equal attention output.

    `task` is the model's own unless stated; `surrogate` is a model whose predictions stand in for a task of which only
    data are known. `among` chooses between all sequences of the box and typical ones (`target`).
    """
    begun = time.perf_counter()
    _check(model.transformer, starts, seconds)
    draws, (low, high) = _inputs(model, task, box, surrogate, seed)
    draws, low, high = draws.to(device), low.to(device), high.to(device)
    function = None if surrogate is None else _prediction(surrogate, device)
    target = Target(None if surrogate else task, function, draws, among == "typical")
    layer = state_map(model.transformer, device)
    outputs = torch.arange(starts, device=device) % target.out_dim
    pairs = Pairs(layer, target, low, high, model.transformer.spec.length, outputs)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # thousands of small operations: a second thread waits more than it works
    try:
        at, on = _search(pairs, draws, seed, begun, seconds, told)
    finally:
        torch.set_num_threads(threads)
    return _best(pairs, at, on, (tuple(low.tolist()), tuple(high.tolist())), begun)


def _search(
    pairs: Pairs, draws: Tensor, seed: int, begun: float, seconds: float, told: Told | None
) -> tuple[Tensor, Tensor]:
    """All four stages; the last goes on with the best pairs and takes what time is left."""

    def stage(name: str) -> Callable[[float, float], None]:
        def tell(_: float, best: float) -> None:
            if told is not None:
                told((time.perf_counter() - begun) / seconds, name, best)

        return tell

    with torch.no_grad():
        at = make_starts(pairs, draws, generator(seed, "attack"))
        scale = float(pairs.layer(pairs.split(at)[:, 0]).std(0).mean()) or 1.0
        now = time.perf_counter() - begun
        early, late = begun + now + 0.12 * (seconds - now), begun + now + 0.6 * (seconds - now)
        at = climb(pairs, at, scale, 100, (2, 2), (0.3, 0.03), (0.2, 0.2), early, stage("climbing"))
        at = climb(pairs, at, scale, 300, (2, 14), (0.03, 0.001), (0.2, 0.02), late, stage("climbing"))
        at, on = project(pairs, at, scale)
        order = torch.where(on, pairs.merit(at, 0.0, 0.0), -torch.inf).argsort(descending=True)[:KEPT]
        part = pairs.keep(order)
        at[order], on[order] = follow(
            part, at[order], on[order], scale, 400, begun + seconds, stage("following the fibre")
        )
    return at, on


def _best(pairs: Pairs, at: Tensor, on: Tensor, box: Box, begun: float) -> Found:
    """Keep the exact pairs with the largest gaps; without any, the near ones."""
    with torch.no_grad():
        polished, still = project(pairs, at, 1e-3, rounds=4)  # the last digits
        at = torch.where((on & still)[:, None], polished, at)
        gap, distance = pairs.gap(at), pairs.difference(at).norm(dim=1)
        legal = pairs.legal(at)
        good = on & legal & (gap > 0)
        near = not bool(good.any())
        if near:  # the largest gap among the nearest, or else the nearest of all, outside of the region only if all are
            close = (distance <= NEAR) & legal
            rank = torch.where(close, gap, -1.0 - distance) if bool(close.any()) else -distance
            rank = torch.where(legal, rank, -torch.inf) if bool(legal.any()) else rank
        else:
            rank = torch.where(good, gap, -torch.inf)
        chosen = rank.argsort(descending=True)[: 1 if near else min(CHANCES, int(good.sum()))]
        gaps = (gap * pairs.unit)[chosen]
    return Found(
        pairs.split(at)[chosen].cpu().numpy(), tuple(gaps.tolist()), tuple(pairs.outputs[chosen].tolist()),
        tuple(distance[chosen].tolist()), near, tuple(pairs.target.unit), box, pairs.target.region,
        len(at), int(on.sum()), time.perf_counter() - begun,
    )  # fmt: skip


def _prediction(surrogate: SavedModel, device: str) -> Callable[[Tensor], Tensor]:
    """Return the surrogate's prediction as a differentiable function, in the data's units."""
    import copy

    twin = copy.deepcopy(surrogate.transformer).double().requires_grad_(False).to(device)
    mean, std = (torch.tensor(v, dtype=torch.float64, device=device) for v in (surrogate.mean, surrogate.std))
    return lambda X: twin(X) * std + mean


def _inputs(
    model: SavedModel, task: Task | None, box: Box | None, surrogate: SavedModel | None, seed: int
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Return draws to measure the target by, kept to the box, and the box; refuse in one line what does not fit."""
    spec = model.transformer.spec
    if task is None and surrogate is None:
        raise BadInput(
            "the model carries no task whose value is known: state one, --task, or a model that stands in for it, "
            "--surrogate"
        )
    sizes = spec.dim, spec.length, spec.out_dim
    other = None if surrogate is None else surrogate.transformer.spec
    if other is not None and (other.dim, other.length, other.out_dim) != sizes:
        raise BadInput("the surrogate reads other sequences or gives other outputs than the model")
    if task is not None and surrogate is None and (task.dim, task.length, task.out_dim) != sizes:
        raise BadInput(
            f"the model reads {spec.length} tokens of dimension {spec.dim} and gives {spec.out_dim} numbers, "
            f"{task.name} has {task.length}, {task.dim} and {task.out_dim}"
        )
    sides = box or model.box or (task.box if task is not None else None)
    if sides is None:
        name = task.name if task is not None else "the surrogate's task"
        raise BadInput(f"{name} has unbounded tokens: state the box of the attack, --box LOW,HIGH")
    low, high = (torch.tensor(side, dtype=torch.float64) for side in sides)
    if low.shape != (spec.dim,) or high.shape != (spec.dim,) or not bool((low < high).all()):
        raise BadInput(f"the box needs {spec.dim} numbers below {spec.dim} others, not {sides}")
    rng = generator(seed, "draws")
    if task is not None:
        draws = torch.from_numpy(task.law.draw(rng, DRAWS, spec.length, spec.dim))
    else:
        draws = low + (high - low) * torch.from_numpy(rng.random((DRAWS, spec.length, spec.dim)))
    return torch.minimum(torch.maximum(draws, low), high), (low, high)


def _check(transformer: Transformer, starts: int, seconds: float) -> None:
    if starts < 1 or not 1.0 <= seconds < float("inf"):
        raise BadInput(f"an attack needs at least one start and a second, not {starts} and {seconds}")
    if not all(bool(torch.isfinite(p).all()) for p in transformer.parameters()):
        raise BadInput("a weight of the model is not a finite number")
