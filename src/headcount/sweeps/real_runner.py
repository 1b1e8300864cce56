"""An experiment on real data on a store: finished trials are not trained again, interrupted ones go on.

All seeds of one head count and length form a stack, the largest first. Ctrl-C and `seconds` stop the run cleanly: each
running trial leaves a checkpoint. Several processes may work on one store.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from headcount.core import Progress, provenance
from headcount.store import FINISHED, STATES, Outcome, Snapshot, State, Store
from headcount.sweeps.encoder_spec import RealPanel, RealSpec, RealTrialSpec
from headcount.sweeps.open_data import Feeds
from headcount.sweeps.real_stack import Ended, Member, RealJob
from headcount.sweeps.real_stacks import RealStacks
from headcount.sweeps.run import cell_name
from headcount.sweeps.scoreboard import Board, Entry
from headcount.training import Moments, device_name, find_device
from headcount.training.encoder import Feed, chosen_attention

CHECKPOINT_SECONDS = 30.0
RENEW_SECONDS = 120.0  # a lease lasts for 600


def run_real(
    spec: RealSpec, store: Store, feeds: Feeds, *, device: str = "cpu", seconds: float | None = None,
    quiet: bool = False, weights: bool = False,
) -> dict[State, int]:  # fmt: skip
    """Train what is left of an experiment; return how many of its trials are in which state.

    `feeds` gives the data of a panel on the device (`MarcoSource.feeds`, `CifarSource.feeds`). With `weights` the
    store keeps those of finished trials; without, their checkpoints go: a grid of these models fills many gigabytes.
    The store keeps the spec with the precision that it has on the device.
    """
    where = find_device(device)
    spec = spec.on(where)
    trials: dict[str, RealTrialSpec] = {}
    panels: dict[str, RealPanel] = {}
    for panel in spec.panels():
        for heads in panel.heads:
            for seed in range(spec.seeds):
                trial = panel.trial(heads, seed)
                trials[name := trial.hash()] = trial
                panels[name] = panel
    done = {name for name, state in store.states(trials).items() if state in FINISHED}
    made: dict[int, Feed] = {}
    for panel in {panels[name].size: panels[name] for name in trials if name not in done}.values():
        made[panel.size] = feeds(panel)  # before anything starts: bad data are an error of the spec, not of a trial
        panel.check(made[panel.size])
    store.add_run(spec.name, [t.data() for t in trials.values()], about={"spec": spec.data()})
    states = store.states(trials)
    left = [name for name in trials if states.get(name) in ("pending", "running")]
    if left:
        cells = {name: cell_name(panels[name].values, trial.model.heads) for name, trial in trials.items()}
        entries = {name: Entry(cells[name], trials[name].train.steps, step_cost(trials[name])) for name in left}
        before: dict[str, list[float | None]] = {}
        for trial in store.trials(run=spec.name, states=FINISHED):
            if trial.hash in cells:
                before.setdefault(cells[trial.hash], []).append((trial.metrics or {}).get("nmse"))
        deadline = None if seconds is None else time.monotonic() + seconds
        with Progress("training", Board.work(entries), quiet=quiet, closes=False) as progress:
            data = {name: made[panels[name].size] for name in left}
            stacks = stacked(trials, left)
            keeper = _Keeper(store, trials, data, Board(entries, progress, before), where, weights)
            keeper.kernels = kernels(trials, data, stacks, where)
            engine = RealStacks(where, keeper, save_every=CHECKPOINT_SECONDS, deadline=deadline)
            try:
                engine.run(stacks)
            finally:
                store.release()
    ended = Counter(store.states(trials).values())  # of this spec alone: a run may hold an older one's trials too
    return {state: ended[state] for state in STATES}


def step_cost(trial: RealTrialSpec) -> float:
    """Estimate the work of one model-step in multiply-adds a thousand million; only ratios of it matter."""
    m = trial.model
    layer = (4 + 2 * m.expansion) * m.width**2 + 2 * m.tokens * m.width
    return trial.train.batch * m.tokens * (m.inputs * m.width + m.depth * layer) / 1e9


def stacked(trials: dict[str, RealTrialSpec], left: Sequence[str]) -> list[list[str]]:
    """Sort trials into stacks: the seeds of one model on the same data; the largest stacks first."""
    found: dict[str, list[str]] = {}
    for name in left:
        key = trials[name].model_copy(update={"seed": 0}).hash()
        found.setdefault(key, []).append(name)
    return sorted(found.values(), key=lambda names: -step_cost(trials[names[0]]) * len(names))


def kernels(
    trials: dict[str, RealTrialSpec], feeds: dict[str, Feed], stacks: Sequence[Sequence[str]], device: torch.device
) -> dict[str, str | None]:
    """Choose every stack's attention kernel: before any of them runs, or its neighbours would be in the timing."""
    chosen: dict[str, str | None] = {}
    for names in stacks:
        first = trials[names[0]]
        kernel = chosen_attention(first.model, first.train, len(names), feeds[names[0]], device)
        chosen |= dict.fromkeys(names, kernel)
    return chosen


class _Keeper:
    """Takes trials from the store, and gives back what became of them."""

    def __init__(
        self, store: Store, trials: dict[str, RealTrialSpec], feeds: dict[str, Feed], board: Board,
        device: torch.device, weights: bool,
    ) -> None:  # fmt: skip
        self.store, self.trials, self.feeds, self.board, self.weights = store, trials, feeds, board, weights
        precision = next(iter(trials.values())).train.precision
        self._provenance = {**provenance(device_name(device)), "precision": precision}
        self.kernels: dict[str, str | None] = {}
        self._renewed = time.monotonic()

    def start(self, members: Sequence[str]) -> list[Member]:
        """Claim trials, and load their checkpoints."""
        ours = self.store.claim(list(members))
        for name in set(members) - set(ours):
            self.board.elsewhere(name)
        found = self.reload(ours)
        for name, job in found:
            if job.step:
                self.board.resumed(name, job.step)
        return found

    def reload(self, members: Sequence[str]) -> list[Member]:
        """Load the checkpoints of trials that are ours already."""
        saved = self.store.load_checkpoints(members)
        found: list[Member] = []
        for name in members:
            job = RealJob(self.trials[name], self.feeds[name], attention=self.kernels.get(name))
            if name in saved:
                step, arrays = saved[name]
                job = replace(job, moments=Moments.of(step, arrays, self.store.curve(name)))
            found.append((name, job))
        return found

    def steps(self, member: str, step: int) -> None:
        """Pass on how far a trial is; now and then tell the store that we are alive."""
        self.board.steps(member, step)
        if time.monotonic() - self._renewed > RENEW_SECONDS:
            self._renewed = time.monotonic()
            self.store.renew()

    def saved(self, snapshots: Sequence[tuple[str, Moments]]) -> None:
        """Keep the checkpoints of a stack in one commit; a trial that another process took over is left to it."""
        self.store.checkpoint_many([Snapshot(name, m.step, m.arrays(), m.curve) for name, m in snapshots])

    def ended(self, endings: Sequence[tuple[str, Ended | str]]) -> None:
        """Write the ends of trials; what takes the place of a checkpoint is the weights, or next to nothing."""
        rows: list[Outcome] = []
        for name, outcome in endings:
            if isinstance(outcome, str):
                rows.append(Outcome(name, "failed", provenance=self._provenance, error=outcome))
                continue
            measured: dict[str, Any] = {**outcome.trial.data(), **outcome.losses}
            where = {**self._provenance, "seconds": measured.pop("seconds")}
            curve = [(int(step), float(error)) for step, error in measured.pop("curve")]
            kept = {"steps": np.array([outcome.trial.steps])}
            if self.weights and outcome.moments is not None:
                kept = {"theta": outcome.moments.theta}
            state = measured.pop("state")
            rows.append(Outcome(name, state, measured, where, curve, step=outcome.trial.steps, arrays=kept))
        self.store.finish_many(rows)
        for name, outcome in endings:
            self.board.ended(name, outcome if isinstance(outcome, str) else outcome.trial)
