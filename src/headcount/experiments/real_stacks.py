"""Stacks of encoders on one device, driven by one thread: several at once on a GPU, one after the other on a CPU.

A stack gets a window of work at a time and is looked at again when the device has done it. What does not fit into
memory waits until one of the others has ended, or is halved and tried again; a trial that fails alone is kept as
failed. A stack that has failed is held by nobody when its memory is given back: hence places instead of stacks below.
"""

from __future__ import annotations

import gc
import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import torch

from headcount.base.errors import HeadcountError
from headcount.experiments.encoder_train import stack_bytes
from headcount.experiments.moments import Moments
from headcount.experiments.real_stack import Ended, Member, RealStack
from headcount.experiments.stacks import Failure, free_memory, interrupts

log = logging.getLogger("headcount")
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


class RealStacks:
    """All stacks of a run on one device."""

    def __init__(
        self, device: torch.device, listener: Listener, *, save_every: float = 30.0, deadline: float | None = None
    ) -> None:
        self.device, self.listener, self.save_every, self.deadline = device, listener, save_every, deadline
        self.stop = threading.Event()
        self.running: list[RealStack] = []
        self.rest: deque[list[Member]] = deque()
        self._most = AT_ONCE if device.type == "cuda" else 1
        self._crowded = self._most  # how many stacks have turned out to fit at once

    def run(self, stacks: Sequence[Sequence[str]]) -> None:
        """Train the stacks in order, each a list of names that the listener turns into trials."""
        queue = deque(stacks)
        try:
            with interrupts(self.stop) as interrupted:
                while True:
                    if self.deadline is not None and time.monotonic() > self.deadline:
                        self.stop.set()
                    if not self.stop.is_set():
                        self._fill(queue)
                    if not self.running and (self.stop.is_set() or not (queue or self.rest)):
                        break
                    self._look_around()
            if interrupted():
                raise KeyboardInterrupt
        finally:
            self.running.clear()  # left after an error alone: their last checkpoints count
            self.rest.clear()

    def _fill(self, queue: deque[Sequence[str]]) -> None:
        """Start stacks while there is room for them."""
        while len(self.running) < self._crowded and (self.rest or queue):
            if self.rest:
                self._begin(self.rest.popleft())
                continue
            self._line_up(self.listener.start(queue.popleft()))

    def _line_up(self, members: Sequence[Member]) -> None:
        """Queue trials; those that were interrupted at different steps cannot share a stack."""
        for step in sorted({job.step for _, job in members}):
            self.rest.append([member for member in members if member[1].step == step])

    def _begin(self, members: list[Member]) -> None:
        """Place a stack on the device and give it its first work; beside others, if there is room for it."""
        free = free_memory(self.device) if self.running else None
        if free is not None and _needed(members, self.device) > free:
            self.rest.appendleft(members)
            self._crowded = len(self.running)
            return
        try:
            self.running.append(_started(members, self.device))
            return
        except Exception as error:
            failure = Failure.of(error)
        self._failed([name for name, _ in members], failure)  # outside, where the error holds no memory any more

    def _failed(self, names: list[str], failure: Failure) -> None:
        """Wait for room or halve a stack that failed, until the trial is alone that fails."""
        if failure.broken:
            raise HeadcountError(
                f"the GPU reported an error and must be started anew: {failure.line}; what was finished is kept, and "
                "the same command goes on from here"
            )
        self._give_back()
        if failure.full and self.running:  # the others took the room: wait until one of them ends, then try again
            self._crowded = len(self.running)
            self._line_up(self.listener.reload(names))
        elif len(names) > 1:
            half = len(names) // 2
            log.info("%d models did not train together (%s): halved", len(names), failure.line)
            for some in (names[:half], names[half:]):
                self._line_up(self.listener.reload(some))
        else:
            reason = "one model does not fit into the device's memory" if failure.full else failure.line
            self.listener.ended([(names[0], reason)])

    def _look_around(self) -> None:
        """Look at every stack that has done its window; wait a little where none has."""
        ready = [place for place, stack in enumerate(self.running) if stack.ready()]
        for place in reversed(ready):  # from the last: one that leaves does not move those before it
            self._look(place)
        if not ready:
            time.sleep(0.0005)

    def _look(self, place: int) -> None:
        """Take in what a stack has done, and give it more to do."""
        try:
            goes_on = self._goes_on(self.running[place])
        except HeadcountError:  # of the listener: the store is gone, say
            raise
        except Exception as error:
            failure = Failure.of(error)
        else:
            if not goes_on:
                del self.running[place]
                self._give_back()
                self._crowded = min(self._most, self._crowded + 1)  # what did not fit may now
            return
        names = self.running[place].names()
        del self.running[place]
        self._failed(names, failure)

    def _goes_on(self, stack: RealStack) -> bool:
        """Tell what a stack has done; launch its next window, unless it has ended or is stopped."""
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

    def _give_back(self) -> None:
        """Give the device the memory of stacks that are gone, so that it is there for others and counted as free."""
        if self.device.type == "cuda":
            gc.collect()
            torch.cuda.empty_cache()

    def _save(self, stack: RealStack) -> None:
        start = time.perf_counter()
        if stack.trainer.steps > 0:
            self.listener.saved(stack.snapshots())
        stack.last_saved = time.perf_counter()
        stack.saving = stack.last_saved - start


def _started(members: Sequence[Member], device: torch.device) -> RealStack:
    """Return a stack at its first work."""
    stack = RealStack(members, device)
    stack.launch()
    return stack


def _needed(members: Sequence[Member], device: torch.device) -> int:
    """Estimate the bytes that a stack takes."""
    job = members[0][1]
    return stack_bytes(job.spec.model, job.spec.train, len(members), job.feed, device)
