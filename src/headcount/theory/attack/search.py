"""Two sequences that an attention layer cannot tell apart although their targets differ, searched with many starts.

For a fixed encoder and attention layer F gets the same input for both, so whatever F is, of any size and depth, it errs
by at least half of the gap between the targets on one of them. The search is batched in float64, on a CPU or a GPU:

1. *Starts* with flat attention and targets far apart (`attack_starts`).
2. *Ascent* of the gap with a penalty on the difference after attention that grows to 10^14 (`fibre.climb`).
3. *Projection* onto the fibre {o(X1) = o(X2)} (`fibre.project`).
4. *Along the fibre*, the gap growing (`fibre.follow`).

It keeps to inputs of the task: to the support of its law within the box (`attack_domain`), unless all of the box is
asked for. Of the starts some converge, which is to reach the fibre; how many depends on the layer. Where layers are
compared, each is given as many converged starts, not as many starts: `converged`.

What it returns is measured; `exact` proves that an exact pair lies beside.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headcount.core import BadInput, generator
from headcount.models import SavedModel
from headcount.models.transformer import Transformer
from headcount.tasks import Box, Task
from headcount.theory.attack.domain import Among, check_sizes, domain
from headcount.theory.attack.fibre import climb, follow, project
from headcount.theory.attack.layer import HeadMap, StateMap, state_map
from headcount.theory.attack.pairs import Pairs
from headcount.theory.attack.starts import starts as make_starts
from headcount.theory.attack.target import DRAWS, Region, Target

Told = Callable[[float, str, float], None]  # share of the time, what is done, best gap in standard deviations
KEPT = 16  # pairs that go on along the fibre
CHANCES = 8  # pairs handed on for the proof, the best first
OVERFLOW_DRAWS = 256  # inputs at which the model, its attention and the target are looked at
LARGEST = 1e100  # of these; squares of what is larger may overflow
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
    cut_short: bool = False
    """Whether the clock ended a stage before its last step: then a faster machine may find more."""

    @property
    def effort(self) -> str:
        """How many starts converged, in words; beside every gap."""
        return f"{self.converged} of {self.starts} starts converged"

    @property
    def deviations(self) -> float:
        """The largest gap in standard deviations of the target; 0 where no pair was found."""
        return self.gaps[0] / self.unit[self.outputs[0]] if self.gaps and not self.near else 0.0


def attack(
    model: SavedModel,
    task: Task | None = None,
    box: Box | None = None,
    *,
    surrogate: SavedModel | None = None,
    among: Among = "all",
    starts: int = 64,
    seconds: float = 55.0,
    seed: int = 0,
    device: str = "cpu",
    told: Told | None = None,
    converged: int | None = None,
    most_starts: int = 64,
) -> Found:
    """Search for the pair with the largest target gap among those with equal attention output.

    `task` is the model's own unless stated; `surrogate` is a model whose predictions stand in for a task of which only
    data are known. `among` chooses between all inputs of the task, typical ones (`target`), and all tokens of the box.
    With `converged` rounds of `starts` are made, of `seconds` each, until so many starts have converged or
    `most_starts` were made; the starts after the last one needed do not count. Equal seeds then give equal pairs,
    unless the clock cut a stage short.
    """
    begun = time.perf_counter()
    _check(model.transformer, starts, seconds, converged)
    check_sizes(model, task, surrogate)
    (low, high), moves = domain(model, task, box, among)
    draws = _draws(task, low, high, model.transformer.spec.length, seed)
    draws, low, high = draws.to(device), low.to(device), high.to(device)
    function = None if surrogate is None else _prediction(surrogate, device)
    target = Target(None if surrogate else task, function, draws, among == "typical")
    layer = state_map(model.transformer, device)
    _check_sane(model, layer, target, draws)
    outputs = torch.arange(starts, device=device) % target.out_dim
    pairs = Pairs(layer, target, low, high, model.transformer.spec.length, outputs, moves)
    effort = _Effort(seconds, converged, most_starts)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # thousands of small operations: a second thread waits more than it works
    try:
        search = _Search(pairs, draws, seed, effort, told, begun)
        at, on = search.run()
    finally:
        torch.set_num_threads(threads)
    pairs = pairs.keep(torch.arange(len(at), device=device) % starts)
    return _best(pairs, at, on, (tuple(low.tolist()), tuple(high.tolist())), begun, search.cut_short)


@dataclass(frozen=True)
class _Effort:
    """How long a round may take, and how many starts must converge, of how many at most."""

    seconds: float
    converged: int | None
    most_starts: int


class _Search:
    """The four stages for one layer, with the clock."""

    def __init__(
        self, pairs: Pairs, draws: Tensor, seed: int, effort: _Effort, told: Told | None, begun: float
    ) -> None:
        self.pairs, self.draws, self.seed, self.effort, self.told = pairs, draws, seed, effort, told
        self.begun = self.round_begun = begun
        self.cut_short, self.scale = False, 1.0

    def run(self) -> tuple[Tensor, Tensor]:
        """Return pairs and which of them converged: rounds of the first three stages, then the last with the best."""
        wanted, most = self.effort.converged, self.effort.most_starts
        with torch.no_grad():
            rounds = [self.round(0)]
            while wanted is not None and sum(int(on.sum()) for _, on in rounds) < wanted and self.made(rounds) < most:
                rounds.append(self.round(len(rounds)))
            at, on = torch.cat([at for at, _ in rounds]), torch.cat([on for _, on in rounds])
            if wanted is not None:
                at, on = needed(at, on, wanted, most)
            return self.along(at, on)

    @staticmethod
    def made(rounds: list[tuple[Tensor, Tensor]]) -> int:
        """Return the starts of some rounds."""
        return sum(len(at) for at, _ in rounds)

    def round(self, k: int) -> tuple[Tensor, Tensor]:
        """Start, climb and project; the k-th round has random numbers of its own."""
        self.round_begun, pairs = time.perf_counter() if k else self.begun, self.pairs
        at = make_starts(pairs, self.draws, generator(self.seed, f"attack {k}" if k else "attack"))
        self.scale = float(pairs.layer(pairs.split(at)[:, 0]).std(0).mean()) or 1.0
        now, tell = time.perf_counter(), self.stage("climbing")
        left = self.round_begun + self.effort.seconds - now
        at, early = climb(pairs, at, self.scale, 100, (2, 2), (0.3, 0.03), (0.2, 0.2), now + 0.12 * left, tell)
        at, late = climb(pairs, at, self.scale, 300, (2, 14), (0.03, 0.001), (0.2, 0.02), now + 0.6 * left, tell)
        self.cut_short |= early or late
        return project(pairs, at, self.scale)

    def along(self, at: Tensor, on: Tensor) -> tuple[Tensor, Tensor]:
        """Follow the fibre with the best pairs; where converged starts are counted, with converged ones only."""
        pairs = self.pairs.keep(torch.arange(len(at), device=at.device) % len(self.pairs.outputs))
        order = torch.where(on, pairs.merit(at, 0.0, 0.0), -torch.inf).argsort(descending=True)[:KEPT]
        if self.effort.converged is not None:
            order = order[on[order]]
        if len(order):
            until, tell = self.round_begun + self.effort.seconds, self.stage("following the fibre")
            at[order], on[order] = follow(pairs.keep(order), at[order], on[order], self.scale, 400, until, tell)
            self.cut_short |= time.perf_counter() > until
        return at, on

    def stage(self, name: str) -> Callable[[float, float], None]:
        """Return what tells of a stage's progress."""

        def tell(_: float, best: float) -> None:
            if self.told is not None:
                self.told((time.perf_counter() - self.begun) / self.effort.seconds, name, best)

        return tell


def needed(at: Tensor, on: Tensor, wanted: int, most: int) -> tuple[Tensor, Tensor]:
    """Return the starts up to the one that makes enough of them converged, or the most that may be made."""
    enough = (on.cumsum(0) >= wanted).nonzero()
    count = min(int(enough[0]) + 1 if len(enough) else len(at), most)
    return at[:count], on[:count]


def _best(pairs: Pairs, at: Tensor, on: Tensor, box: Box, begun: float, cut: bool) -> Found:
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
        pairs.split(at)[chosen].cpu().numpy(),
        tuple(gaps.tolist()),
        tuple(pairs.outputs[chosen].tolist()),
        tuple(distance[chosen].tolist()),
        near,
        tuple(pairs.target.unit),
        box,
        pairs.target.region,
        len(at),
        int(on.sum()),
        time.perf_counter() - begun,
        cut,
    )


def _prediction(surrogate: SavedModel, device: str) -> Callable[[Tensor], Tensor]:
    """Return the surrogate's prediction as a differentiable function, in the data's units."""
    import copy

    twin = copy.deepcopy(surrogate.transformer).double().requires_grad_(False).to(device)
    mean, std = (torch.tensor(v, dtype=torch.float64, device=device) for v in (surrogate.mean, surrogate.std))
    return lambda X: twin(X) * std + mean


def _draws(task: Task | None, low: Tensor, high: Tensor, length: int, seed: int) -> Tensor:
    """Return draws to measure the target by, kept to the box; uniform ones where no law is known."""
    rng = generator(seed, "draws")
    if task is not None:
        draws = torch.from_numpy(task.law.draw(rng, DRAWS, length, len(low)))
    else:
        draws = low + (high - low) * torch.from_numpy(rng.random((DRAWS, length, len(low))))
    return torch.minimum(torch.maximum(draws, low), high)


def _check_sane(model: SavedModel, layer: HeadMap | StateMap, target: Target, draws: Tensor) -> None:
    """Refuse in one line what overflows in float64, or would where it is squared: nothing can be compared with it."""
    some = draws[:OVERFLOW_DRAWS]
    with torch.no_grad():
        found = {
            "the target": torch.tensor(target.unit),
            "attention": layer(some),
            "the model": model.predict(some.cpu()),
        }
    for what, numbers in found.items():
        if not float(numbers.abs().max()) <= LARGEST:
            raise BadInput(
                f"{what} overflows on inputs of the box, its numbers exceed {LARGEST:g}: nothing is compared"
            )


def _check(transformer: Transformer, starts: int, seconds: float, converged: int | None) -> None:
    if converged is not None and converged < 1:
        raise BadInput(f"converged must be 1 or more, or None, not {converged}")
    if starts < 1 or not 1.0 <= seconds < float("inf"):
        raise BadInput(f"an attack needs at least one start and a second, not {starts} and {seconds}")
    if not all(bool(torch.isfinite(p).all()) for p in transformer.parameters()):
        raise BadInput("a weight of the model is not a finite number")
