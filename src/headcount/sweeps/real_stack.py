"""One stack of encoders in training: the seeds of one head count and length side by side, in windows of work.

A model whose loss is no longer a finite number ends as diverged at the next evaluation, so that its record does not
depend on the windows.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from headcount.models.encoder import counts
from headcount.store import Trial
from headcount.sweeps.encoder_spec import EVALUATED, RealTrialSpec
from headcount.training import Moments
from headcount.training.encoder import MEASURES, EncoderTrainer, Feed

WINDOW_SECONDS = 0.5  # the grain of progress and stopping


@dataclass(frozen=True, eq=False)
class RealJob:
    """One trial to be trained, from its start or from a checkpoint."""

    spec: RealTrialSpec
    feed: Feed
    moments: Moments | None = None
    attention: str | None = None
    """The attention kernel, where it was chosen before."""

    @property
    def step(self) -> int:
        """The steps that it has behind it."""
        return 0 if self.moments is None else self.moments.step


Member = tuple[str, RealJob]


@dataclass(frozen=True)
class Ended:
    """How a trial ended: its record, what else was measured, and its last state."""

    trial: Trial
    losses: dict[str, float]
    moments: Moments | None


class RealStack:
    """One stack on the device."""

    def __init__(self, members: Sequence[Member], device: torch.device) -> None:
        """Place trials of one spec, length and step on the device; they differ in their seeds alone."""
        self.members, self.jobs = list(members), [job for _, job in members]
        spec = self.jobs[0].spec
        self.train, self.feed = spec.train, self.jobs[0].feed
        seeds, kernel = [job.spec.seed for job in self.jobs], self.jobs[0].attention
        self.trainer = EncoderTrainer(spec.model, spec.train, seeds, self.feed, device, attention=kernel)
        moments = [job.moments for job in self.jobs if job.moments is not None]
        if moments:
            self.trainer.resume(moments)
        self.curves = [[] if job.moments is None else list(job.moments.curve) for job in self.jobs]
        self.open = set(range(len(self.jobs)))
        self.window = 1
        self.started = self.last_saved = time.perf_counter()
        self.saving = 0.0  # seconds that the last checkpoint took
        self._launched, self._taken = 0.0, 0
        self._validation: Tensor | None = None  # what was measured, on the device until the window is done
        self._training: Tensor | None = None
        self._event = torch.cuda.Event() if device.type == "cuda" else None

    def launch(self) -> None:
        """Start the next window of work, and do not wait for it."""
        train, trainer = self.train, self.trainer
        self._launched = time.perf_counter()
        every = max(1, math.ceil(train.steps / train.evaluations))
        target = min(train.steps, (trainer.steps // every + 1) * every, trainer.steps + self.window)
        self._taken = target - trainer.steps
        trainer.launch(self._taken)
        last = trainer.steps == train.steps
        due = last or trainer.steps % every == 0
        self._validation = trainer.measure("validation") if due else None
        self._training = trainer.measure("train", limit=EVALUATED) if last else None
        if self._event is not None:
            self._event.record(trainer.stream)

    def ready(self) -> bool:
        """Whether the device has done what was launched."""
        return self._event is None or self._event.query()

    def collect(self) -> list[tuple[str, Ended]]:
        """Read what the window brought; return the trials that ended in it."""
        if self._validation is None:
            spent = max(time.perf_counter() - self._launched, 1e-4)
            self.window = max(1, min(4 * self.window, int(self._taken * WINDOW_SECONDS / spent)))
            return []
        step, alive = self.trainer.steps, self.trainer.alive.tolist()
        found, known = _read(self._validation), _read(self._training)
        for m in sorted(self.open):
            alive[m] = bool(alive[m]) and math.isfinite(found["loss"][m])
            if alive[m] and (not self.curves[m] or self.curves[m][-1][0] < step):
                self.curves[m].append((step, _error(found["accuracy"][m])))
        ended = [m for m in sorted(self.open) if known or not alive[m]]
        moments = self.trainer.moments() if ended else []
        self.open -= set(ended)
        return [(self.members[m][0], self._ended(m, alive[m], found, known, moments[m])) for m in ended]

    def _ended(
        self, m: int, alive: bool, found: dict[str, list[float]], known: dict[str, list[float]], moments: Moments
    ) -> Ended:
        """Make the record of one trial."""
        spec = self.jobs[m].spec
        size = counts(spec.model)
        measured: dict[str, float | None] = dict.fromkeys(
            ("nmse", "train_nmse", "accuracy", "train_accuracy", "mrr", "train_mrr")
        )
        losses: dict[str, float] = {}
        if alive:
            for before, values in (("", found), ("train_", known)):
                accuracy = values["accuracy"][m]
                measured |= {f"{before}accuracy": accuracy, f"{before}nmse": _error(accuracy)}
                measured[f"{before}mrr"] = min(1.0, values["mrr"][m])
                losses[f"{before}loss"] = values["loss"][m]
        trial = Trial(
            heads=spec.model.heads, seed=spec.seed, state="done" if alive else "diverged", **measured,
            steps=moments.step, seconds=self._seconds(m), parameters=size["paper"], parameters_total=size["total"],
            curve=self.curves[m],
        )  # fmt: skip
        return Ended(trial, losses, moments if alive else None)

    def snapshots(self) -> list[tuple[str, Moments]]:
        """Return checkpoints of the models that are still in training."""
        moments = self.trainer.moments()
        for m in self.open:
            moments[m].curve, moments[m].seconds = list(self.curves[m]), self._seconds(m)
        return [(self.members[m][0], moments[m]) for m in sorted(self.open)]

    def _seconds(self, m: int) -> float:
        """A trial's share of the stack's time, and what it took before it came here."""
        before = self.jobs[m].moments
        return (time.perf_counter() - self.started) / len(self.jobs) + (0.0 if before is None else before.seconds)

    def names(self) -> list[str]:
        """Name the trials that are still in training."""
        return [self.members[m][0] for m in sorted(self.open)]


def _read(measured: Tensor | None) -> dict[str, list[float]]:
    """Bring what was measured to the host, by name; nothing where nothing was."""
    return {} if measured is None else dict(zip(MEASURES, measured.tolist(), strict=True))


def _error(accuracy: float) -> float:
    """Return 1 − accuracy, clean of the rounding of shares such as 4997/5000."""
    return max(0.0, round(1.0 - accuracy, 12))
