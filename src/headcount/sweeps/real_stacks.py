"""Stacks of encoders on one device: what the engine must know of them, and who is told what becomes of the trials."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import torch

from headcount.sweeps.engine import Engine
from headcount.sweeps.real_stack import Ended, Member, RealJob, RealStack
from headcount.sweeps.stacks import free_memory
from headcount.training import Moments
from headcount.training.encoder import stack_bytes

AT_ONCE = 3  # stacks on a GPU; a CPU has one at a time
SAVING_SHARE = 0.05  # of the time may go into checkpoints: those of large stacks come less often


@runtime_checkable
class Listener(Protocol):
    """Who is told what happens to the trials; all calls come from the thread that runs the stacks."""

    def start(self, members: Sequence[str]) -> list[Member]:
        """Hand over the trials of a stack, those that may be trained, each from its last checkpoint."""
        ...

    def reload(self, members: Sequence[str]) -> list[Member]:
        """Hand over trials that are ours already, each from its last checkpoint."""
        ...

    def steps(self, member: str, step: int) -> None:
        """A trial has come so far."""
        ...

    def saved(self, snapshots: Sequence[tuple[str, Moments]]) -> None:
        """Keep checkpoints."""
        ...

    def ended(self, endings: Sequence[tuple[str, Ended | str]]) -> None:
        """Trials have ended, with their record or with the reason why they failed."""
        ...


class RealStacks(Engine[RealJob, RealStack]):
    """All stacks of a run on one device: several at once on a GPU, one after the other on a CPU."""

    def __init__(
        self, device: torch.device, listener: Listener, *, save_every: float = 30.0, deadline: float | None = None
    ) -> None:
        most = AT_ONCE if device.type == "cuda" else 1
        super().__init__(device, threading.Event(), most=most, deadline=deadline)
        self.listener, self.save_every = listener, save_every
        self._queue: deque[Sequence[str]] = deque()

    def run(self, stacks: Sequence[Sequence[str]]) -> None:
        """Train the stacks in order, each a list of names that the listener turns into trials."""
        self._queue = deque(stacks)
        try:
            self.drive()
        finally:
            self.running.clear()  # left after an error alone: their last checkpoints count
            self.rest.clear()

    def _queued(self) -> bool:
        return bool(self._queue)

    def _next(self) -> list[Member] | None:
        return self.listener.start(self._queue.popleft()) if self._queue else None

    def _fits(self, members: Sequence[Member]) -> bool:
        free, job = free_memory(self.device), members[0][1]
        need = stack_bytes(job.spec.model, job.spec.train, len(members), job.feed, self.device)
        return free is None or need <= free

    def _started(self, members: Sequence[Member]) -> RealStack:
        stack = RealStack(members, self.device)
        stack.launch()
        return stack

    def _left(self, stack: RealStack) -> list[Member]:
        return [stack.members[m] for m in sorted(stack.open)]

    def _again(self, members: Sequence[Member]) -> list[Member]:
        return self.listener.reload([name for name, _ in members])

    def _lost(self, name: str, reason: str) -> None:
        self.listener.ended([(name, reason)])

    def _close(self, stack: RealStack) -> None:
        pass

    def _goes_on(self, stack: RealStack) -> bool:
        """Tell what a stack has done."""
        ended = stack.collect()
        if ended:
            self.listener.ended(ended)
        for name in stack.names():
            self.listener.steps(name, stack.trainer.steps)
        if not stack.open:
            return False
        stopped = self.stop.is_set()
        if stopped or time.perf_counter() - stack.last_saved > max(self.save_every, stack.saving / SAVING_SHARE):
            self._save(stack)
        if not stopped:
            stack.launch()
        return not stopped

    def _save(self, stack: RealStack) -> None:
        start = time.perf_counter()
        if stack.trainer.steps > 0:
            self.listener.saved(stack.snapshots())
        stack.last_saved = time.perf_counter()
        stack.saving = stack.last_saved - start
