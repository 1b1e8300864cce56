"""Search, from many starts, for two sequences that an attention layer cannot tell apart although their targets differ.

With the encoder and the attention layer fixed, F gets the same input for both sequences. So F, of whatever size and
depth, errs by at least half of the gap between the targets on one of them. The search is batched in float64, on a CPU
or a GPU:

1. *Starts* have flat attention and targets far apart (`starts`).
2. *Ascent* increases the gap, with a penalty on the difference after attention that grows to 10^14 (`fibre.climb`).
3. *Projection* moves the pairs onto the fibre {o(X1) = o(X2)} (`fibre.project`).
4. *Following the fibre* increases the gap further (`fibre.follow`).

The search keeps to inputs of the task, the support of its law within the box (`domain`), unless the whole box is
requested. A start converges if it reaches the fibre; how many do depends on the layer. To compare layers fairly, give
each the same number of converged starts, not of starts: use `converged`.

The result is measured. `exact` proves that an exact pair lies nearby.
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

OnProgress = Callable[[float, str, float], None]  # fraction of the time, stage, best gap in standard deviations
FOLLOWED_PAIRS = 16  # pairs with which the fibre is followed
MAX_PAIRS_RETURNED = 8  # candidates for the proof, the best first
OVERFLOW_DRAWS = 256  # inputs at which the model, its attention and the target are checked for overflow
MAX_MAGNITUDE = 1e100  # of their values; squares of larger numbers may overflow
NEAR_DISTANCE = 1e-6  # largest distance after attention of a near pair


@dataclass(frozen=True)
class Found:
    """The pairs with the largest gaps, best first: X[pairs, 2, length, dim], all on the fibre unless `near`."""

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
    """Whether the clock cut a stage short; then a faster machine may find more."""

    @property
    def effort(self) -> str:
        """How many starts converged, in words; stated with every gap."""
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
    on_progress: OnProgress | None = None,
    converged: int | None = None,
    most_starts: int = 64,
) -> Found:
    """Search for the pair with the largest target gap among those with equal attention output.

    `task` may be left out if there is a `surrogate`, a model whose predictions stand in for a task that is known only
    by its data. `among` selects all inputs of the task, typical ones (`target`), or the whole box. With `converged`,
    the search makes rounds of `starts`, of up to `seconds` each, until that many starts have converged or `most_starts`
    were made; starts after the last one needed are discarded. Equal seeds then give equal pairs, unless the clock cut a
    stage short.
    """
    started = time.perf_counter()
    _check(model.transformer, starts, seconds, converged)
    check_sizes(model, task, surrogate)
    (low, high), moves = domain(model, task, box, among)
    draws = _draws(task, low, high, model.transformer.spec.length, seed)
    draws, low, high = draws.to(device), low.to(device), high.to(device)
    function = None if surrogate is None else _prediction(surrogate, device)
    target = Target(None if surrogate else task, function, draws, among == "typical")
    layer = state_map(model.transformer, device)
    _check_magnitudes(model, layer, target, draws)
    outputs = torch.arange(starts, device=device) % target.out_dim
    pairs = Pairs(layer, target, low, high, model.transformer.spec.length, outputs, moves)
    effort = _Effort(seconds, converged, most_starts)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # thousands of small operations, too small for a second thread
    try:
        search = _Search(pairs, draws, seed, effort, on_progress, started)
        at, on = search.run()
    finally:
        torch.set_num_threads(threads)
    pairs = pairs.select(torch.arange(len(at), device=device) % starts)
    return _best(pairs, at, on, (tuple(low.tolist()), tuple(high.tolist())), started, search.cut_short)


@dataclass(frozen=True)
class _Effort:
    """Seconds per round, the number of starts that must converge, and the limit on all starts."""

    seconds: float
    converged: int | None
    most_starts: int


class _Search:
    """The four stages of a search for one layer, and its clock."""

    def __init__(
        self, pairs: Pairs, draws: Tensor, seed: int, effort: _Effort, on_progress: OnProgress | None, started: float
    ) -> None:
        self.pairs, self.draws, self.seed, self.effort, self.on_progress = pairs, draws, seed, effort, on_progress
        self.started = self.round_started = started
        self.cut_short, self.scale = False, 1.0

    def run(self) -> tuple[Tensor, Tensor]:
        """Run rounds of the first three stages, then the last with the best pairs; return pairs and which converged."""
        wanted, most = self.effort.converged, self.effort.most_starts
        with torch.no_grad():
            at, on = self.round(0)
            rounds = 1
            while wanted is not None and int(on.sum()) < wanted and len(at) < most:
                more_at, more_on = self.round(rounds)
                at, on = torch.cat([at, more_at]), torch.cat([on, more_on])
                rounds += 1
            if wanted is not None:
                at, on = starts_needed(at, on, wanted, most)
            return self.follow_best(at, on)

    def round(self, k: int) -> tuple[Tensor, Tensor]:
        """Start, climb and project; round k has its own random numbers."""
        self.round_started, pairs = time.perf_counter() if k else self.started, self.pairs
        at = make_starts(pairs, self.draws, generator(self.seed, f"attack {k}" if k else "attack"))
        self.scale = float(pairs.layer(pairs.split(at)[:, 0]).std(0).mean()) or 1.0
        now, report = time.perf_counter(), self.progress_reporter("climbing")
        left = self.round_started + self.effort.seconds - now
        at, hurried = climb(pairs, at, self.scale, 100, (2, 2), (0.3, 0.03), (0.2, 0.2), now + 0.12 * left, report)
        self.cut_short |= hurried
        at, hurried = climb(pairs, at, self.scale, 300, (2, 14), (0.03, 0.001), (0.2, 0.02), now + 0.6 * left, report)
        self.cut_short |= hurried
        return project(pairs, at, self.scale)

    def follow_best(self, at: Tensor, on: Tensor) -> tuple[Tensor, Tensor]:
        """Follow the fibre with the best pairs, or the best converged ones if converged starts are counted."""
        pairs = self.pairs.select(torch.arange(len(at), device=at.device) % len(self.pairs.outputs))
        order = torch.where(on, pairs.merit(at, 0.0, 0.0), -torch.inf).argsort(descending=True)[:FOLLOWED_PAIRS]
        if self.effort.converged is not None:
            order = order[on[order]]
        if len(order):
            until, report = self.round_started + self.effort.seconds, self.progress_reporter("following the fibre")
            at[order], on[order] = follow(pairs.select(order), at[order], on[order], self.scale, 400, until, report)
            self.cut_short |= time.perf_counter() > until
        return at, on

    def progress_reporter(self, name: str) -> Callable[[float, float], None]:
        """Return a callback that reports the progress of a stage."""

        def report(_: float, best: float) -> None:
            if self.on_progress is not None:
                self.on_progress((time.perf_counter() - self.started) / self.effort.seconds, name, best)

        return report


def starts_needed(at: Tensor, on: Tensor, wanted: int, most: int) -> tuple[Tensor, Tensor]:
    """Return the starts up to the one with which `wanted` have converged, and at most `most`."""
    enough = (on.cumsum(0) >= wanted).nonzero()
    count = min(int(enough[0]) + 1 if len(enough) else len(at), most)
    return at[:count], on[:count]


def _best(pairs: Pairs, at: Tensor, on: Tensor, box: Box, started: float, cut: bool) -> Found:
    """Return the converged pairs with the largest gaps or, if there are none, the best near pair."""
    with torch.no_grad():
        polished, still = project(pairs, at, 1e-3, rounds=4)  # polish the last digits
        at = torch.where((on & still)[:, None], polished, at)
        gap, distance = pairs.gap(at), pairs.difference(at).norm(dim=1)
        legal = pairs.legal(at)
        good = on & legal & (gap > 0)
        near = not bool(good.any())
        if near:  # the largest gap among near pairs, or else the nearest pair; in the region if possible
            close = (distance <= NEAR_DISTANCE) & legal
            rank = torch.where(close, gap, -1.0 - distance) if bool(close.any()) else -distance
            rank = torch.where(legal, rank, -torch.inf) if bool(legal.any()) else rank
        else:
            rank = torch.where(good, gap, -torch.inf)
        chosen = rank.argsort(descending=True)[: 1 if near else min(MAX_PAIRS_RETURNED, int(good.sum()))]
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
        time.perf_counter() - started,
        cut,
    )


def _prediction(surrogate: SavedModel, device: str) -> Callable[[Tensor], Tensor]:
    """Return the surrogate's prediction as a differentiable function, in the data's units."""
    import copy

    twin = copy.deepcopy(surrogate.transformer).double().requires_grad_(False).to(device)
    mean, std = (torch.tensor(v, dtype=torch.float64, device=device) for v in (surrogate.mean, surrogate.std))
    return lambda X: twin(X) * std + mean


def _draws(task: Task | None, low: Tensor, high: Tensor, length: int, seed: int) -> Tensor:
    """Return draws from the task's law, clamped to the box, or uniform draws if no task is known."""
    rng = generator(seed, "draws")
    if task is not None:
        draws = torch.from_numpy(task.law.draw(rng, DRAWS, length, len(low)))
    else:
        draws = low + (high - low) * torch.from_numpy(rng.random((DRAWS, length, len(low))))
    return torch.minimum(torch.maximum(draws, low), high)


def _check_magnitudes(model: SavedModel, layer: HeadMap | StateMap, target: Target, draws: Tensor) -> None:
    """Reject a model or target whose values overflow in float64, or would when squared."""
    sample = draws[:OVERFLOW_DRAWS]
    with torch.no_grad():
        found = {
            "the target": torch.tensor(target.unit),
            "attention": layer(sample),
            "the model": model.predict(sample.cpu()),
        }
    for name, numbers in found.items():
        if not float(numbers.abs().max()) <= MAX_MAGNITUDE:
            raise BadInput(
                f"{name} overflows on inputs of the box (numbers above {MAX_MAGNITUDE:g}), so gaps cannot be measured"
            )


def _check(transformer: Transformer, starts: int, seconds: float, converged: int | None) -> None:
    if converged is not None and converged < 1:
        raise BadInput(f"converged must be 1 or more, or None, not {converged}")
    if starts < 1 or not 1.0 <= seconds < float("inf"):
        raise BadInput(f"an attack needs at least one start and one second, not {starts} and {seconds}")
    if not all(bool(torch.isfinite(p).all()) for p in transformer.parameters()):
        raise BadInput("a weight of the model is not a finite number")
