"""One stack of encoders in training: the seeds of one head count and length together, in windows of work.

A model whose loss becomes infinite or NaN ends as diverged at the next evaluation, so its record does not depend on the
lengths of the windows.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from pydantic import Field
from torch import Tensor

from headcount.core import Spec
from headcount.models.encoder import EncoderSpec, parameter_counts
from headcount.store import Trial
from headcount.training.checkpoint import Moments
from headcount.training.encoder.settings import Feed, RealTrain
from headcount.training.encoder.stacked import MEASURES, EncoderTrainer
from headcount.training.session import Ending, Session, evaluation_every

MAX_TRAIN_EVALUATED = 8192
"""The training error is measured on at most this many training samples (the first ones)."""


class RealTrialSpec(Spec):
    """One encoder trained once: the unit of a store, identified by the hash of its content."""

    real: dict[str, Any]
    """The description of the data, with the length T, and for images the side of the frame."""
    model: EncoderSpec
    train: RealTrain
    seed: int = Field(ge=0)


@dataclass(frozen=True, eq=False)
class EncoderJob:
    """One trial to be trained, from the beginning or from a checkpoint (`moments`)."""

    spec: RealTrialSpec
    feed: Feed
    moments: Moments | None = None
    attention: str | None = None
    """The attention kernel, if it has been chosen already."""


class EncoderSession(Session[EncoderJob]):
    """One stack on the device."""

    def __init__(self, members: Sequence[tuple[str, EncoderJob]], device: torch.device) -> None:
        """Place trials of one spec, length and step on the device; they differ only in their seeds."""
        super().__init__(members, window=1)
        spec = self.jobs[0].spec
        self.train, self.feed = spec.train, self.jobs[0].feed
        seeds, kernel = [job.spec.seed for job in self.jobs], self.jobs[0].attention
        self.trainer = EncoderTrainer(spec.model, spec.train, seeds, self.feed, device, attention=kernel)
        moments = [job.moments for job in self.jobs if job.moments is not None]
        if moments:
            self.trainer.resume(moments)
        self._validation: Tensor | None = None  # measures of the window; they stay on the device until it is done
        self._train: Tensor | None = None
        self._event = torch.cuda.Event() if device.type == "cuda" else None

    @property
    def steps(self) -> int:
        return self.trainer.steps

    def launch(self, stop: threading.Event) -> None:
        del stop  # windows are short
        train, trainer = self.train, self.trainer
        self._launch_time = time.perf_counter()
        self._window_steps = self._next_target(train.steps, train.evaluations) - trainer.steps
        trainer.launch(self._window_steps)
        last = trainer.steps == train.steps
        due = last or trainer.steps % evaluation_every(train.steps, train.evaluations) == 0
        self._validation = trainer.measure("validation") if due else None
        self._train = trainer.measure("train", limit=MAX_TRAIN_EVALUATED) if last else None
        if self._event is not None:
            self._event.record(trainer.stream)

    def ready(self) -> bool:
        return self._event is None or self._event.query()

    def collect(self) -> list[Ending]:
        if self._validation is None:
            self._resize_window()
            return []
        step, alive = self.trainer.steps, self.trainer.alive.tolist()
        validation, train = _read(self._validation), _read(self._train)
        for m in sorted(self.unfinished):
            alive[m] = bool(alive[m]) and math.isfinite(validation["loss"][m])
            if alive[m] and (not self.curves[m] or self.curves[m][-1][0] < step):
                self.curves[m].append((step, _error(validation["accuracy"][m])))
        ended = [m for m in sorted(self.unfinished) if train or not alive[m]]
        moments = self.trainer.moments() if ended else []
        self.unfinished -= set(ended)
        return [self._ending(m, alive[m], validation, train, moments[m]) for m in ended]

    def _ending(
        self, m: int, alive: bool, validation: dict[str, list[float]], train: dict[str, list[float]], moments: Moments
    ) -> Ending:
        """Return how one trial ended, with its record."""
        spec = self.jobs[m].spec
        size = parameter_counts(spec.model)
        measured: dict[str, float | None] = dict.fromkeys(
            ("nmse", "train_nmse", "accuracy", "train_accuracy", "mrr", "train_mrr")
        )
        losses: dict[str, float] = {}
        if alive:
            for prefix, values in (("", validation), ("train_", train)):
                accuracy = values["accuracy"][m]
                measured |= {f"{prefix}accuracy": accuracy, f"{prefix}nmse": _error(accuracy)}
                measured[f"{prefix}mrr"] = min(1.0, values["mrr"][m])
                losses[f"{prefix}loss"] = values["loss"][m]
        trial = Trial(
            heads=spec.model.heads,
            seed=spec.seed,
            state="done" if alive else "diverged",
            **measured,
            steps=moments.step,
            seconds=self.seconds(m),
            parameters=size["paper"],
            parameters_total=size["total"],
            curve=self.curves[m],
        )
        return Ending(self.members[m][0], trial, moments if alive else None, losses)

    def moments(self) -> list[Moments]:
        return self.trainer.moments()


def _read(measured: Tensor | None) -> dict[str, list[float]]:
    """Return the measures by name, copied to the host; empty if nothing was measured."""
    return {} if measured is None else dict(zip(MEASURES, measured.tolist(), strict=True))


def _error(accuracy: float) -> float:
    """Return 1 − accuracy without the rounding errors of fractions such as 4997/5000."""
    return max(0.0, round(1.0 - accuracy, 12))
