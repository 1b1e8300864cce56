"""A stack of transformers in training: models of one kind trained together, usually on a GPU, in windows of work."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import torch
from torch import Tensor

from headcount.models.transformer import loss_and_gradient
from headcount.tasks import Task
from headcount.training.batches import FRESH_STEPS
from headcount.training.checkpoint import Moments
from headcount.training.data import Fresh, Part
from headcount.training.job import Job
from headcount.training.lbfgs import polish
from headcount.training.loop import record
from headcount.training.session import Ending, Session, evaluation_every
from headcount.training.stacked import Pools, StackTrainer


class StackSession(Session[Job]):
    """One stack on the device; models that diverge are frozen without affecting the others."""

    restack_when_half_done = True

    def __init__(self, members: Sequence[tuple[str, Job]], device: torch.device) -> None:
        """Place trials that can form a stack on the device."""
        super().__init__(members, window=16)
        self.device = device
        job, train = self.jobs[0], self.jobs[0].train
        tasks = list({id(j.data): j for j in self.jobs}.values())
        targets = [[id(t.data) for t in tasks].index(id(j.data)) for j in self.jobs]
        self.validation = self._place([t.data.validation for t in tasks])
        self.train = self._place([t.data.train for t in tasks])
        pools, part = None, self.train
        if train.fresh:
            sources = [Fresh(t.task, t.data, t.train) for t in tasks if isinstance(t.task, Task)]
            pools = Pools(sources, pinned=device.type == "cuda")
            rows = FRESH_STEPS * train.batch
            X, y = (
                part.X.new_zeros(rows, *part.X.shape[1:]),
                part.y.new_zeros(*part.y.shape[:-2], rows, part.y.shape[-1]),
            )
            part = Part(X, y)
        self.trainer = StackTrainer(
            [j.model for j in self.jobs],
            [j.train for j in self.jobs],
            [j.seed for j in self.jobs],
            part.X,
            part.y,
            part.mask,
            targets=targets,
            pools=pools,
        )
        if job.moments is not None:
            self.trainer.resume([j.moments for j in self.jobs if j.moments is not None])
        self.error: Tensor | None = None
        self.train_error: Tensor | None = None
        self._event = torch.cuda.Event() if device.type == "cuda" else None

    @property
    def steps(self) -> int:
        return self.trainer.steps

    def _place(self, parts: Sequence[Part]) -> Part:
        """Copy the data to the device; the inputs are shared by all targets."""
        y = parts[0].y if len(parts) == 1 else torch.stack([part.y for part in parts])
        mask = parts[0].mask
        return Part(parts[0].X.to(self.device), y.to(self.device), None if mask is None else mask.to(self.device))

    def launch(self, stop: threading.Event) -> None:
        train, trainer = self.jobs[0].train, self.trainer
        self._launch_time = time.perf_counter()
        every = evaluation_every(train.steps, train.evaluations)
        self._window_steps = self._next_target(train.steps, train.evaluations) - trainer.steps
        trainer.launch(self._window_steps)
        self.error = self.train_error = None
        if trainer.steps == train.steps and train.polish and not self._polish(train.polish, stop):
            return
        if trainer.steps % every == 0 or trainer.steps == train.steps:
            self.error = trainer.nmse(self.validation.X, self.validation.y, self.validation.mask)
        if trainer.steps == train.steps:
            self.train_error = trainer.nmse(self.train.X, self.train.y, self.train.mask)
        if self._event is not None:
            self._event.record(trainer.stream)

    def _polish(self, iterations: int, stop: threading.Event) -> bool:
        """Run L-BFGS on the full training set, a chunk of sequences at a time; return False if stopped."""
        trainer, part = self.trainer, self.train
        rows = torch.arange(len(part.X), device=self.device)
        chunk = max(1, 2**22 // (trainer.models * part.X.shape[1]))

        def function(theta: Tensor) -> tuple[Tensor, Tensor]:
            loss, gradient = torch.zeros_like(theta[:, 0]), torch.zeros_like(theta)
            for block in rows.split(chunk):
                index = block.expand(trainer.models, -1).contiguous()
                y = part.y[index] if part.y.ndim == 2 else part.y[trainer.target, index]
                value, slope = loss_and_gradient(trainer.flat, theta, part.X, index, y, part.mask, trainer.betas)
                loss += value * (len(block) / len(rows))
                gradient += slope * (len(block) / len(rows))
            return loss, gradient

        with trainer.on_own_stream():
            better = polish(function, trainer.theta.clone(), iterations, stop.is_set)
            if not stop.is_set():  # otherwise a resumed trial polishes again from the last step
                trainer.theta.copy_(better)
        return not stop.is_set()

    def ready(self) -> bool:
        return self._event is None or self._event.query()

    def collect(self) -> list[Ending]:
        trainer, train = self.trainer, self.jobs[0].train
        self._resize_window()
        alive: list[bool] = trainer.alive.tolist()
        taken: list[int] = trainer.taken.tolist()
        last = self.train_error is not None
        step = trainer.steps + (train.polish if last else 0)
        if self.error is not None:
            errors: list[float] = self.error.tolist()
            for m in sorted(self.unfinished):
                if not (alive[m] and errors[m] <= self.jobs[m].train.diverged_above):  # NaN fails every comparison
                    alive[m] = False
                elif not self.curves[m] or self.curves[m][-1][0] < step:
                    self.curves[m].append((step, errors[m]))
            trainer.alive.copy_(torch.tensor(alive))
        ended = [m for m in sorted(self.unfinished) if last or not alive[m]]
        if not ended:
            return []
        train_errors: list[float] = [] if self.train_error is None else self.train_error.tolist()
        weights = dict(self.snapshots([m for m in ended if alive[m]]))
        endings: list[Ending] = []
        for m in ended:
            self.unfinished.discard(m)
            state, error = ("done", train_errors[m]) if alive[m] else ("diverged", None)
            steps = step if alive[m] else taken[m]
            trial = record(self.jobs[m].model, error, self.jobs[m].seed, state, self.curves[m], steps, self.seconds(m))
            name = self.members[m][0]
            endings.append(Ending(name, trial, weights.get(name)))
        return endings

    def moments(self) -> list[Moments]:
        return self.trainer.moments()

    def close(self) -> None:
        if self.trainer.pools is not None:
            self.trainer.pools.close()
