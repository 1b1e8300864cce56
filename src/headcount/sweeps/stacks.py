"""Trials on a GPU: stacks of them, several at once, each on a stream of its own, driven by one thread.

A stack gets a window of work at a time (steps, and an evaluation where one is due) and is looked at again when the
device has done it; meanwhile the others get theirs, so that lengths run side by side. What does not fit into memory
is halved and tried again; a trial that fails alone is kept as failed; a stack whose models have mostly diverged goes
on without them.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from headcount.models.transformer import covering, loss_and_gradient
from headcount.store import Trial
from headcount.sweeps.engine import Engine
from headcount.sweeps.plan import data_bytes, model_bytes
from headcount.sweeps.precompile import Ahead
from headcount.tasks import Task
from headcount.training import FRESH_STEPS, Fresh, Job, Moments, Part, Pools, StackTrainer, polish, record

AT_ONCE = 8  # stacks on the device
WINDOW_SECONDS = 0.5  # the grain of progress and stopping
SHARE = 0.8  # of the free memory that stacks may fill

Member = tuple[str, Job]
Ending = tuple[str, Trial | str, Moments | None]


@runtime_checkable
class Listener(Protocol):
    """Who is told what happens to the trials; all calls come from the thread that runs the stacks."""

    def start(self, members: Sequence[str]) -> list[Member]:
        """Hand over the trials of a stack, those that may be trained, each from its last checkpoint."""
        ...

    def steps(self, member: str, step: int) -> None:
        """A trial has come so far."""
        ...

    def saved(self, snapshots: Sequence[tuple[str, Moments]]) -> None:
        """Keep checkpoints."""
        ...

    def ended(self, endings: Sequence[Ending]) -> None:
        """Trials have ended, with their record and final weights, or with the reason why they failed."""
        ...

    def stopped(self, members: Sequence[str]) -> None:
        """Trials were left unfinished; their checkpoints came before."""
        ...


def free_memory(device: torch.device) -> int | None:
    """Return the bytes that stacks may fill; None where nobody counts them."""
    return int(SHARE * torch.cuda.mem_get_info(device)[0]) if device.type == "cuda" else None


class Running:
    """One stack on the device."""

    def __init__(self, members: Sequence[Member], device: torch.device) -> None:
        self.members, self.device = list(members), device
        self.jobs = [job for _, job in members]
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
            [j.model for j in self.jobs], [j.train for j in self.jobs], [j.seed for j in self.jobs], part.X, part.y,
            part.mask, targets=targets, pools=pools,
        )  # fmt: skip
        if job.moments is not None:
            self.trainer.resume([j.moments for j in self.jobs if j.moments is not None])
        self.curves = [[] if j.moments is None else list(j.moments.curve) for j in self.jobs]
        self.open = set(range(len(self.jobs)))
        self.window = 16
        self.started = self.last_saved = time.perf_counter()
        self.error: Tensor | None = None
        self.train_error: Tensor | None = None
        self._event = torch.cuda.Event() if device.type == "cuda" else None
        self._launched = 0.0

    def _place(self, parts: Sequence[Part]) -> Part:
        """Put the data on the device, the inputs once for all targets."""
        y = parts[0].y if len(parts) == 1 else torch.stack([part.y for part in parts])
        mask = parts[0].mask
        return Part(parts[0].X.to(self.device), y.to(self.device), None if mask is None else mask.to(self.device))

    def launch(self, stop: threading.Event) -> None:
        """Start the next window of work, and do not wait for it."""
        train, trainer = self.jobs[0].train, self.trainer
        self._launched = time.perf_counter()
        every = max(1, math.ceil(train.steps / train.evaluations))
        target = min(train.steps, (trainer.steps // every + 1) * every, trainer.steps + self.window)
        self._taken = target - trainer.steps
        trainer.launch(self._taken)
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
        """Take the iterations of L-BFGS on the whole training set, some sequences at a time; False if stopped."""
        trainer, part = self.trainer, self.train
        rows = torch.arange(len(part.X), device=self.device)
        chunk = max(1, 2**22 // (trainer.models * part.X.shape[1]))

        def function(theta: Tensor) -> tuple[Tensor, Tensor]:
            loss, gradient = torch.zeros_like(theta[:, 0]), torch.zeros_like(theta)
            for some in rows.split(chunk):
                index = some.expand(trainer.models, -1).contiguous()
                y = part.y[index] if part.y.ndim == 2 else part.y[trainer.target, index]
                value, slope = loss_and_gradient(trainer.flat, theta, part.X, index, y, part.mask, trainer.betas)
                loss += value * (len(some) / len(rows))
                gradient += slope * (len(some) / len(rows))
            return loss, gradient

        with trainer.here():
            better = polish(function, trainer.theta.clone(), iterations, stop.is_set)
            if not stop.is_set():  # else it starts again from the last step
                trainer.theta.copy_(better)
        return not stop.is_set()

    def ready(self) -> bool:
        """Whether the device has done what was launched."""
        return self._event is None or self._event.query()

    def collect(self) -> list[tuple[str, Trial]]:
        """Read what the window brought; return the trials that ended in it."""
        trainer, train = self.trainer, self.jobs[0].train
        spent = max(time.perf_counter() - self._launched, 1e-4)
        self.window = max(1, min(4 * self.window, int(self._taken * WINDOW_SECONDS / spent)))
        alive: list[bool] = trainer.alive.tolist()
        taken: list[int] = trainer.taken.tolist()
        last = self.train_error is not None
        step = trainer.steps + (train.polish if last else 0)
        if self.error is not None:
            errors: list[float] = self.error.tolist()
            for m in sorted(self.open):
                if not (alive[m] and errors[m] <= self.jobs[m].train.diverged_above):  # NaN fails every comparison
                    alive[m] = False
                elif not self.curves[m] or self.curves[m][-1][0] < step:
                    self.curves[m].append((step, errors[m]))
            trainer.alive.copy_(torch.tensor(alive))
        ended = [m for m in sorted(self.open) if last or not alive[m]]
        if not ended:
            return []
        train_errors: list[float] = [] if self.train_error is None else self.train_error.tolist()
        share = (time.perf_counter() - self.started) / len(self.jobs)
        found: list[tuple[str, Trial]] = []
        for m in ended:
            self.open.discard(m)
            state, error = ("done", train_errors[m]) if alive[m] else ("diverged", None)
            steps = step if alive[m] else taken[m]
            seconds = share + self._before(m)
            trial = record(trainer.model(m), error, self.jobs[m].seed, state, self.curves[m], steps, seconds)
            found.append((self.members[m][0], trial))
        return found

    def snapshots(self, which: Sequence[int] | None = None) -> list[tuple[str, Moments]]:
        """Return checkpoints of the models that are still in training, or of those named."""
        moments = self.trainer.moments()
        wanted = sorted(self.open) if which is None else which
        share = (time.perf_counter() - self.started) / len(self.jobs)
        for m in wanted:
            moments[m].curve, moments[m].seconds = list(self.curves[m]), share + self._before(m)
        return [(self.members[m][0], moments[m]) for m in wanted]

    def _before(self, m: int) -> float:
        """Seconds that a trial took before it came into this stack."""
        moments = self.jobs[m].moments
        return 0.0 if moments is None else moments.seconds

    def rest(self) -> list[Member]:
        """Return the trials that are left, each as it stands now."""
        saved = dict(self.snapshots())
        return [(key, replace(job, moments=saved[key])) for key, job in self.members if key in saved]

    def close(self) -> None:
        """Let go of the device's memory."""
        if self.trainer.pools is not None:
            self.trainer.pools.close()


class Stacks(Engine[Job, Running]):
    """All stacks of a sweep on one device."""

    def __init__(
        self, device: torch.device, listener: Listener, stop: threading.Event, *, save_every: float = 30.0,
        deadline: float | None = None,
    ) -> None:  # fmt: skip
        super().__init__(device, stop, most=AT_ONCE, deadline=deadline)
        self.listener, self.save_every = listener, save_every
        self._queue: deque[tuple[int, Sequence[str]]] = deque()
        self._ahead: Ahead | None = None

    def run(self, stacks: Sequence[Sequence[str]], ahead: Ahead | None = None) -> None:
        """Train the stacks, each a list of names that the listener turns into trials.

        A stack whose kernels somebody compiles `ahead` waits for them while others train.
        """
        self._queue, self._ahead = deque(enumerate(stacks)), ahead
        try:
            self.drive()
        finally:
            self._leave()
            if ahead is not None:
                ahead.close()

    def _queued(self) -> bool:
        return bool(self._queue)

    def _next(self) -> list[Member] | None:
        ready = next((one for one in self._queue if self._ahead is None or self._ahead.ready(one[0])), None)
        if ready is None:
            return None
        self._queue.remove(ready)
        return self.listener.start(ready[1])

    def _fits(self, members: Sequence[Member]) -> bool:
        model, job = covering([job.model for _, job in members]), members[0][1]
        free = free_memory(self.device)
        return free is None or len(members) * model_bytes(model, job.train) + data_bytes(job) <= free

    def _started(self, members: Sequence[Member]) -> Running:
        stack = Running(members, self.device)
        stack.launch(self.stop)
        return stack

    def _left(self, stack: Running) -> list[Member]:
        return [stack.members[m] for m in sorted(stack.open)]

    def _again(self, members: Sequence[Member]) -> Sequence[Member]:
        return members

    def _lost(self, name: str, reason: str) -> None:
        self.listener.ended([(name, reason, None)])

    def _close(self, stack: Running) -> None:
        stack.close()

    def _goes_on(self, stack: Running) -> bool:
        """Tell what a stack has done; one whose models have mostly diverged ends, and the others go on alone."""
        ended = stack.collect()
        if ended:
            number = {key: m for m, (key, _) in enumerate(stack.members)}
            weights = dict(stack.snapshots([number[key] for key, trial in ended if trial.state == "done"]))
            self.listener.ended([(key, trial, weights.get(key)) for key, trial in ended])
        for m in stack.open:
            self.listener.steps(stack.members[m][0], stack.trainer.steps)
        if not stack.open:
            return False
        if self.stop.is_set():
            self._save(stack)
            self.listener.stopped([name for name, _ in self._left(stack)])
            return False
        if 2 * len(stack.open) <= len(stack.members):  # they go on faster without the rest
            self.rest.appendleft(stack.rest())
            return False
        if time.perf_counter() - stack.last_saved > self.save_every:
            self._save(stack)
        stack.launch(self.stop)
        return True

    def _save(self, stack: Running) -> None:
        stack.last_saved = time.perf_counter()
        if stack.trainer.steps > 0:
            self.listener.saved(stack.snapshots())

    def _leave(self) -> None:
        """Give everything back.

        Stacks are left here after an error alone: they may stand between two steps, so their last checkpoints count.
        """
        while self.running:
            self.listener.stopped([name for name, _ in self._left(self.running[-1])])
            self._drop(len(self.running) - 1)
        for members in self.rest:
            self.listener.stopped([key for key, _ in members])
        self.rest.clear()
