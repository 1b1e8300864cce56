"""What drives stacks of trials on one device, whatever a stack is: one thread, several stacks at once.

A stack gets a window of work at a time and is looked at again when the device has done it. What does not fit into
memory waits until one of the others has ended, or is halved and tried again; a trial that fails alone is kept as
failed. A stack that has failed is held by nobody when its memory is given back: hence places instead of stacks below.
"""

from __future__ import annotations

import gc
import logging
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Generic, Protocol, TypeVar, runtime_checkable

import torch

from headcount.core import HeadcountError
from headcount.training import Moments

log = logging.getLogger("headcount")
_FULL = ("CUDA error: out of memory", "ALLOC_FAILED", "ALLOCATION_FAILED")  # the last two of cuBLAS and cuDNN


@runtime_checkable
class Resumable(Protocol):
    """A trial to be trained."""

    @property
    def moments(self) -> Moments | None:
        """Its last checkpoint; None where it begins."""
        ...


@runtime_checkable
class Working(Protocol):
    """A stack on the device."""

    def ready(self) -> bool:
        """Whether the device has done what was launched."""
        ...


J = TypeVar("J", bound=Resumable)
S = TypeVar("S", bound=Working)


class Engine(ABC, Generic[J, S]):
    """Stacks of one kind on one device; a kind says how a stack starts, goes on and is begun again."""

    def __init__(self, device: torch.device, stop: threading.Event, *, most: int, deadline: float | None) -> None:
        """Take at most so many stacks at once; `deadline` is a time of the monotonic clock."""
        self.device, self.stop, self.deadline = device, stop, deadline
        self.running: list[S] = []
        self.rest: deque[list[tuple[str, J]]] = deque()  # what is ready to begin
        self._most = self._crowded = most  # how many stacks have turned out to fit at once

    @abstractmethod
    def _queued(self) -> bool:
        """Whether stacks have not been asked for yet."""

    @abstractmethod
    def _next(self) -> Sequence[tuple[str, J]] | None:
        """Return the trials of the next stack; None where there is none, or none that may start yet."""

    @abstractmethod
    def _fits(self, members: Sequence[tuple[str, J]]) -> bool:
        """Whether there is room for a stack beside those that run."""

    @abstractmethod
    def _started(self, members: Sequence[tuple[str, J]]) -> S:
        """Return a stack at its first work."""

    @abstractmethod
    def _goes_on(self, stack: S) -> bool:
        """Take in what a stack has done; launch its next window, unless it has ended or is stopped."""

    @abstractmethod
    def _left(self, stack: S) -> list[tuple[str, J]]:
        """Return the trials of a stack that have not ended."""

    @abstractmethod
    def _again(self, members: Sequence[tuple[str, J]]) -> Sequence[tuple[str, J]]:
        """Return trials that failed together as they can begin again."""

    @abstractmethod
    def _lost(self, name: str, reason: str) -> None:
        """Keep a trial as failed."""

    @abstractmethod
    def _close(self, stack: S) -> None:
        """Let go of what a stack holds beside memory."""

    def drive(self) -> None:
        """Work until nothing is left, the time is over or Ctrl-C comes."""
        with interrupts(self.stop) as interrupted:
            while True:
                if self.deadline is not None and time.monotonic() > self.deadline:
                    self.stop.set()
                if not self.stop.is_set():
                    self._fill()
                if not self.running and (self.stop.is_set() or not (self.rest or self._queued())):
                    break
                self._look_around()
        if interrupted():
            raise KeyboardInterrupt

    def _fill(self) -> None:
        """Start stacks while there is room for them."""
        while len(self.running) < self._crowded:
            if self.rest:
                self._begin(self.rest.popleft())
                continue
            members = self._next()
            if members is None:
                return
            self._line_up(members)

    def _line_up(self, members: Sequence[tuple[str, J]]) -> None:
        """Let trials begin next; those that were interrupted at different steps cannot share a stack."""
        steps = {name: 0 if job.moments is None else job.moments.step for name, job in members}
        for step in sorted(set(steps.values()), reverse=True):
            self.rest.appendleft([member for member in members if steps[member[0]] == step])

    def _begin(self, members: list[tuple[str, J]]) -> None:
        """Place a stack on the device and give it its first work; beside others, if there is room for it."""
        if self.running and not self._fits(members):
            self.give_back()  # what ended stacks held counts as taken until then
            if not self._fits(members):
                self.rest.appendleft(members)
                self._crowded = len(self.running)
                return
        try:
            self.running.append(self._started(members))
            return
        except Exception as error:
            failure = Failure.of(error)
        self._failed(members, failure)  # outside, where the error no longer holds on to the device's memory

    def _failed(self, members: Sequence[tuple[str, J]], failure: Failure) -> None:
        """Wait for room or halve a stack that failed, until the trial is alone that fails; a broken device ends all."""
        if failure.broken:
            raise HeadcountError(
                f"the GPU reported an error and must be started anew: {failure.line}; what was finished is kept, and "
                "the same command goes on from here"
            )
        self.give_back()
        if failure.full and self.running:  # the others took the room: wait until one of them ends, then try again
            self._crowded = len(self.running)
            self._line_up(self._again(members))
        elif len(members) > 1:
            half = len(members) // 2
            log.info("%d models did not train together (%s): halved", len(members), failure.line)
            for some in (members[half:], members[:half]):
                self._line_up(self._again(some))
        else:
            full = "one model does not fit into the device's memory"
            self._lost(members[0][0], full if failure.full else failure.line)

    def _look_around(self) -> None:
        """Look at every stack that has done its window; wait a little where none has."""
        ready = [place for place, stack in enumerate(self.running) if stack.ready()]
        for place in reversed(ready):  # from the last: one that leaves does not move those before it
            self._look(place)
        if not ready:
            time.sleep(0.0005)

    def _look(self, place: int) -> None:
        """Let a stack go on; one that has ended makes room for another, and for one more than fitted before."""
        try:
            goes_on = self._goes_on(self.running[place])
        except HeadcountError:  # of the listener: the store is gone, say
            self._drop(place)
            raise
        except Exception as error:
            failure = Failure.of(error)
        else:
            if not goes_on:
                self._drop(place)
                self._crowded = min(self._most, self._crowded + 1)
            return
        members = self._left(self.running[place])
        self._drop(place)
        self._failed(members, failure)

    def _drop(self, place: int) -> None:
        """Take a stack off the device."""
        self._close(self.running.pop(place))

    def give_back(self) -> None:
        """Give the device the memory of stacks that are gone, so that others can have it and it counts as free."""
        if self.device.type == "cuda":
            gc.collect()
            torch.cuda.empty_cache()


class CutShort(KeyboardInterrupt):
    """A second Ctrl-C, which did not wait for checkpoints: what was trained since the last ones is lost."""


@contextmanager
def interrupts(stop: threading.Event) -> Generator[Callable[[], bool]]:
    """Let the first Ctrl-C stop at the end of a window, with checkpoints; a second one raises CutShort at once.

    An exception between two launches would leave a stack at a step that nobody has counted, and one between a message
    and its commit would lose the message.
    """
    if threading.current_thread() is not threading.main_thread():  # signals are the main thread's
        yield lambda: False
        return
    seen: list[int] = []
    before = signal.getsignal(signal.SIGINT)

    def handler(number: int, frame: FrameType | None) -> None:
        del frame
        seen.append(number)
        stop.set()
        if len(seen) > 1:
            raise CutShort

    signal.signal(signal.SIGINT, handler)
    try:
        yield lambda: bool(seen)
    finally:
        signal.signal(signal.SIGINT, before)


@dataclass(frozen=True)
class Failure:
    """What went wrong, without the error itself: its frames would keep the tensors alive."""

    line: str
    full: bool
    broken: bool

    @classmethod
    def of(cls, error: Exception) -> Failure:
        """Say in one line what went wrong; what libraries call a CUDA error may be lack of memory alone."""
        text = (str(error).splitlines() or [""])[0]
        full = lacks_memory(error)
        line = f"{type(error).__name__}: {text.split('. ')[0] if full else text}"
        return cls(line, full, "CUDA error" in text and not full)


def lacks_memory(error: BaseException | None) -> bool:
    """Whether an error, or one that it came from (a capture that memory ended fails once more), is lack of memory."""
    while error is not None:
        if isinstance(error, torch.OutOfMemoryError) or any(word in str(error) for word in _FULL):
            return True
        error = error.__cause__ or error.__context__
    return False
