"""The advisor's trials in training: one on a core, or a stack of them; each is kept at its best validation point.

A trial that the deadline cuts off counts with its best point so far. The drivers are those of every sweep
(`sweeps/cores.py`, `sweeps/engine.py`); the sessions here decide what to keep of a trial, and when it counts.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from headcount.advisor.measures import Errors, Measurer, StackMeasurer, history_of, predicted
from headcount.advisor.trials import Outcome, Wanted
from headcount.models.transformer import Flat, ModelSpec
from headcount.store import Trial
from headcount.training import (
    CoreSession,
    Ending,
    Moments,
    Session,
    StackTrainer,
    record,
    stacked_indices,
    stream_keys,
    torch_threads,
)


@dataclass(frozen=True, eq=False)
class SessionTrial:
    """A trial as a session gets it; an interrupted one is not resumed, so there is never a checkpoint."""

    wanted: Wanted
    model: ModelSpec
    moments: Moments | None = None


@dataclass(frozen=True)
class TrialEnding(Ending):
    """How a trial ended, with its model at the best point."""

    found: Outcome | None = None


def _ending(name: str, found: Outcome, train_error: float) -> TrialEnding:
    return TrialEnding(name, _record(found, train_error), found=found)


def _record(found: Outcome, train_error: float) -> Trial:
    """Return the record of a trial; the steps show whether it was cut off."""
    wanted = found.wanted
    return record(found.model, train_error, wanted.seed, "done", found.curve, found.steps, found.seconds)


class BestOnCore(CoreSession):
    """One trial on one core."""

    def __init__(self, data: Measurer, members: Sequence[tuple[str, SessionTrial]], on_step: Any = None) -> None:
        """Take one trial on some data."""
        ((name, trial),) = members
        self.data, self.requested, self._report_step = data, trial, on_step
        self._least, self._best, self._evaluations = float("inf"), None, 0
        self._measures: list[Errors] = []
        super().__init__([(name, data.job(trial.wanted))], self._note)

    def _note(self, step: int, error: float | None) -> None:
        """Keep the weights of the best evaluation and, in folds, the errors of every sequence."""
        moments = self.trial.moments
        if error is not None and len(moments.curve) > self._evaluations:
            self._evaluations = len(moments.curve)
            if self.data.folds > 1:
                unseen = self.data.parts(self.requested.wanted).unseen
                network = self.trial.flat.unpack(moments.theta)
                self._measures.append(self.data.errors(predicted(network, unseen), unseen))
            if moments.curve[-1][1] < self._least:
                self._least, self._best = moments.curve[-1][1], moments.theta.copy()
        if self._report_step is not None:
            self._report_step(step, error)

    def launch(self, stop: threading.Event | None) -> None:
        with torch_threads(1):
            super().launch(stop)

    def collect(self) -> list[Ending]:
        return [] if self.state is None else self._ended(completed=self.state == "done")

    def cut_short(self) -> list[Ending]:
        """End the trial with its best point so far; one that was never evaluated does not count."""
        return [] if self._best is None else self._ended(completed=False)

    def _ended(self, *, completed: bool) -> list[Ending]:
        self.unfinished.clear()
        name, best, now, model = self.members[0][0], self._best, self.trial.moments, self.trial.model
        if best is None:
            return [Ending(name, self.data.diverged_text())]
        parts, flat = self.data.parts(self.requested.wanted), Flat.of(model)
        with torch_threads(1):
            network, last = flat.unpack(best), flat.unpack(now.theta)
            outputs = predicted(network, parts.unseen), predicted(network, parts.known), predicted(last, parts.known)
        found = self.data.outcome(
            self.requested.wanted,
            model,
            best,
            now.curve,
            steps=now.step,
            completed=completed,
            seconds=self.seconds(0),
            outputs=outputs,
            history=history_of(self._measures) if self._measures else None,
        )
        return [_ending(name, found, found.fitted)]


class BestStack(Session[SessionTrial]):
    """One stack on the device: trials of one recipe, which differ only in seeds and sizes."""

    def __init__(
        self,
        data: Measurer,
        members: Sequence[tuple[str, SessionTrial]],
        device: torch.device,
        *,
        plain: bool,
        largest: int = 1,
    ) -> None:
        """Place trials on the device; `plain` trains without kernels.

        Kernels are compiled for the largest model of a stack: if none has `largest` heads, one model of that size is
        added, so that the kernels of an earlier stack serve this one.
        """
        super().__init__(members, window=1)
        self.data, wanted = data, [trial.wanted for trial in self.jobs]
        self.spec = wanted[0].train
        if not plain and all(request.heads < largest for request in wanted):
            wanted.append(replace(wanted[0], heads=largest))
        rows, counts = _rows(data, wanted, device)
        keys_of = torch.from_numpy(stream_keys([request.seed for request in wanted], "batches")).to(device)

        def batches(first: int, count: int) -> Tensor:
            """Return the same batches as on a core, of rows that differ from fold to fold."""
            index = stacked_indices(keys_of, first, count, self.spec.batch, counts)
            return rows.expand(count, -1, -1).gather(2, index)

        sequences, models = data.sequences, [data.sized(request) for request in wanted]
        self.trainer = StackTrainer(
            models,
            [self.spec] * len(wanted),
            [request.seed for request in wanted],
            sequences.X,
            sequences.y,
            sequences.mask,
            plain=plain,
            batches=batches,
        )
        self.measurer = StackMeasurer(data, wanted)
        self.curves = [[] for _ in wanted]
        self.least = torch.full((len(wanted),), torch.inf, dtype=torch.float64, device=device)
        self.best = self.trainer.theta.clone()
        self._errors: Tensor | None = None
        self._event = torch.cuda.Event() if device.type == "cuda" else None

    @property
    def steps(self) -> int:
        return self.trainer.steps

    def launch(self, stop: threading.Event) -> None:
        del stop  # a window ends at the next evaluation, however long that takes
        self._launch_time, self.window = time.perf_counter(), self.spec.steps
        self._window_steps = self._next_target(self.spec.steps, self.spec.evaluations) - self.steps
        self.trainer.launch(self._window_steps)
        self._errors = self.measurer.launch(self.trainer)
        if self._event is not None:
            self._event.record(self.trainer.stream)

    def ready(self) -> bool:
        return self._event is None or self._event.query()

    def collect(self) -> list[Ending]:
        trainer, launched = self.trainer, self._errors
        assert launched is not None
        trainer.wait()
        errors = self.measurer.errors(launched)
        trainer.alive.logical_and_(errors <= self.spec.diverged_above)  # NaN fails every comparison; it stays as it is
        better = trainer.alive & (errors < self.least)
        self.least = torch.where(better, errors, self.least)
        self.best = torch.where(better[:, None], trainer.theta, self.best)
        for curve, error, alive in zip(self.curves, errors.tolist(), trainer.alive.tolist(), strict=True):
            if alive:
                curve.append((trainer.steps, error))
        return self.cut_short() if trainer.steps == self.spec.steps else []

    def cut_short(self) -> list[Ending]:
        """End all trials, each with its best point so far."""
        self.unfinished.clear()
        trainer = self.trainer
        taken, done = trainer.taken.tolist(), (trainer.alive & (trainer.taken == self.spec.steps)).tolist()
        outputs, own = self.measurer.outputs(trainer, self.best), trainer.unpadded(self.best)
        found: list[Ending] = []
        for m, (name, trial) in enumerate(self.members):
            if not self.curves[m]:
                found.append(Ending(name, self.data.diverged_text()))
                continue
            outcome = self.data.outcome(
                trial.wanted,
                trial.model,
                own[m],
                self.curves[m],
                steps=taken[m],
                completed=done[m],
                seconds=self.seconds(m),
                outputs=outputs[m],
                history=self.measurer.history(m, len(self.curves[m])),
            )
            found.append(_ending(name, outcome, outcome.fitted))
        return found

    def moments(self) -> list[Moments]:
        return self.trainer.moments()[: len(self.members)]


def _rows(data: Measurer, order: Sequence[Wanted], device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the rows that each model trains on, padded to equal length, and their numbers."""
    rows = [torch.from_numpy(data.split(wanted).train) for wanted in order]
    counts = torch.tensor([[len(row)] for row in rows], device=device)
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True).to(device)[None], counts
