"""What drives sessions on one device, whatever trains in them: one thread, several sessions at once.

A session gets a window of work at a time and is looked at again when the device has done it; meanwhile the others get
theirs. What does not fit into memory waits until one of the others has ended, or is halved and tried again; a trial
that fails alone is kept as failed. A session that has failed is held by nobody when its memory is given back: hence
places instead of sessions below.
"""

from __future__ import annotations

import gc
import logging
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any, Protocol, runtime_checkable

import torch

from headcount.core import HeadcountError
from headcount.training import Ending, Moments, Session, Stopped

log = logging.getLogger("headcount")
SHARE = 0.8
"""Of the free memory that sessions may fill."""
SAVING_SHARE = 0.05
"""Of the time may go into checkpoints: those of large sessions come less often."""
_FULL = ("CUDA error: out of memory", "ALLOC_FAILED", "ALLOCATION_FAILED")  # the last two of cuBLAS and cuDNN
Member = tuple[str, Any]
"""A trial by name, and what its session is to train."""


@runtime_checkable
class Listener(Protocol):
    """Who hands out trials and is told what becomes of them; all calls come from the thread that drives."""

    def start(self, members: Sequence[str]) -> list[Member]:
        """Hand over trials that may be trained now, each from its last checkpoint."""
        ...

    def reload(self, members: Sequence[str]) -> list[Member]:
        """Hand over trials that are ours already, each from its last checkpoint."""
        ...

    def refused(self, member: str, error: Exception) -> None:
        """A trial that nobody holds yet cannot be made; one that another process has is left to it."""
        ...

    def steps(self, member: str, step: int) -> None:
        """A trial has come so far."""
        ...

    def saved(self, snapshots: Sequence[tuple[str, Moments]]) -> None:
        """Keep checkpoints."""
        ...

    def ended(self, endings: Sequence[Ending]) -> None:
        """Trials have ended, with their record and last state, or with the reason why they failed."""
        ...


@runtime_checkable
class Compiling(Protocol):
    """Who compiles kernels ahead, for sessions that wait."""

    def ready(self, number: int) -> bool:
        """Whether nobody is compiling, or still to compile, what a session needs."""
        ...

    def close(self) -> None:
        """End what is still being compiled."""
        ...


@dataclass(frozen=True)
class Kind:
    """What an engine must know of the sessions that it drives."""

    begin: Callable[[Sequence[Member], torch.device], Session[Any]]
    needs: Callable[[Sequence[Member], torch.device], int]
    """Bytes that a session takes on the device."""
    at_once: int
    """Sessions at once, at most."""


def free_memory(device: torch.device) -> int | None:
    """Return the bytes that sessions may fill; None where nobody counts them."""
    return int(SHARE * torch.cuda.mem_get_info(device)[0]) if device.type == "cuda" else None


class Engine:
    """All sessions of a run on one device."""

    def __init__(
        self,
        kind: Kind,
        device: torch.device,
        listener: Listener,
        *,
        stop: threading.Event | None = None,
        save_every: float = 30.0,
        deadline: float | None = None,
    ) -> None:
        """Save a session every so many seconds; `deadline` is a time of the monotonic clock."""
        self.kind, self.device, self.listener = kind, device, listener
        self.stop, self.save_every, self.deadline = stop or threading.Event(), save_every, deadline
        self.running: list[Session[Any]] = []
        self.waiting: deque[list[Member]] = deque()  # what is ready to begin
        self._queue: deque[tuple[int, Sequence[str]]] = deque()
        self._ahead: Compiling | None = None
        self._crowded = kind.at_once  # how many sessions have turned out to fit at once

    def run(self, sessions: Sequence[Sequence[str]], ahead: Compiling | None = None) -> None:
        """Train sessions in order, each a list of names that the listener turns into trials.

        One whose kernels somebody compiles `ahead` waits for them while others train. What is left behind after an
        error may stand between two steps, so its last checkpoint counts.
        """
        self._queue, self._ahead = deque(enumerate(sessions)), ahead
        try:
            self._drive()
        finally:
            while self.running:
                self._drop(len(self.running) - 1)
            self.waiting.clear()
            if ahead is not None:
                ahead.close()

    def _drive(self) -> None:
        """Work until nothing is left, the time is over or Ctrl-C comes."""
        with interrupts(self.stop) as interrupted:
            while True:
                if self.deadline is not None and time.monotonic() > self.deadline:
                    self.stop.set()
                if not self.stop.is_set():
                    self._fill()
                if not self.running and (self.stop.is_set() or not (self.waiting or self._queue)):
                    break
                self._look_around()
        if interrupted():
            raise KeyboardInterrupt

    def _fill(self) -> None:
        """Start sessions while there is room for them."""
        while len(self.running) < self._crowded:
            if self.waiting:
                self._begin(self.waiting.popleft())
                continue
            ready = next((one for one in self._queue if self._ahead is None or self._ahead.ready(one[0])), None)
            if ready is None:
                return
            self._queue.remove(ready)
            self._line_up(self.listener.start(ready[1]))

    def _line_up(self, members: Sequence[Member]) -> None:
        """Let trials begin next; those that were interrupted at different steps cannot share a session."""
        steps = {name: 0 if job.moments is None else job.moments.step for name, job in members}
        for step in sorted(set(steps.values()), reverse=True):
            self.waiting.appendleft([member for member in members if steps[member[0]] == step])

    def _fits(self, members: Sequence[Member]) -> bool:
        """Whether there is room for a session beside those that run."""
        free = free_memory(self.device)
        return free is None or self.kind.needs(members, self.device) <= free

    def _begin(self, members: list[Member]) -> None:
        """Place a session on the device and give it its first work; beside others, if there is room for it."""
        if self.running and not self._fits(members):
            self.give_back()  # what ended sessions held counts as taken until then
            if not self._fits(members):
                self.waiting.appendleft(members)
                self._crowded = len(self.running)
                return
        try:
            session = self.kind.begin(members, self.device)
            try:
                session.launch(self.stop)
            except Stopped:  # it has done nothing yet: its last checkpoint counts
                session.close()
            else:
                self.running.append(session)
            return
        except Exception as error:
            failure = Failure.of(error)
        session = None  # it must not hold on to the device's memory either
        self._failed([name for name, _ in members], failure)  # outside, where the error no longer holds on to it

    def _failed(self, names: Sequence[str], failure: Failure) -> None:
        """Wait for room or halve a session that failed, until a trial is alone that fails; a broken device ends all."""
        if failure.broken:
            raise HeadcountError(
                f"the GPU reported an error and must be started anew: {failure.line}; what was finished is kept, and "
                "the same command goes on from here"
            )
        self.give_back()
        if failure.full and self.running:  # the others took the room: wait until one of them ends, then try again
            self._crowded = len(self.running)
            self._line_up(self.listener.reload(names))
        elif len(names) > 1:
            half = len(names) // 2
            log.info("%d models did not train together (%s): halved", len(names), failure.line)
            for some in (names[half:], names[:half]):
                self._line_up(self.listener.reload(some))
        else:
            full = "one model does not fit into the device's memory"
            self.listener.ended([Ending(names[0], full if failure.full else failure.line)])

    def _look_around(self) -> None:
        """Look at every session that has done its window; wait a little where none has."""
        ready = [place for place, session in enumerate(self.running) if session.ready()]
        for place in reversed(ready):  # from the last: one that leaves does not move those before it
            self._look(place)
        if not ready:
            time.sleep(0.0005)

    def _look(self, place: int) -> None:
        """Let a session go on; one that has ended makes room for another, and for one more than fitted before."""
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
                self._crowded = min(self.kind.at_once, self._crowded + 1)
            return
        names = [name for name, _ in self.running[place].unfinished_members()]
        self._drop(place)
        self._failed(names, failure)

    def _goes_on(self, session: Session[Any]) -> bool:
        """Tell what a session has done and launch its next window, unless it has ended or is stopped."""
        ended = session.collect()
        if ended:
            self.listener.ended(ended)
        for name, _ in session.unfinished_members():
            self.listener.steps(name, session.steps)
        if not session.unfinished:
            return False
        if self.stop.is_set():
            self._leave(session)
            return False
        if session.restack_when_half_done and 2 * len(session.unfinished) <= len(
            session.members
        ):  # they go on faster without the rest
            self.waiting.appendleft(session.resumable_members())
            return False
        if time.perf_counter() - session.last_saved > max(self.save_every, session.checkpoint_seconds / SAVING_SHARE):
            self._save(session)
        try:
            session.launch(self.stop)
        except Stopped:
            self._leave(session)
            return False
        return True

    def _leave(self, session: Session[Any]) -> None:
        """Let trials end as they stand where that counts, or keep them, to go on later."""
        ended = session.cut_short()
        if ended:
            self.listener.ended(ended)
        else:
            self._save(session)

    def _save(self, session: Session[Any]) -> None:
        start = time.perf_counter()
        if session.steps > 0:
            self.listener.saved(session.snapshots())
        session.last_saved = time.perf_counter()
        session.checkpoint_seconds = session.last_saved - start

    def _drop(self, place: int) -> None:
        """Take a session off the device."""
        self.running.pop(place).close()

    def give_back(self) -> None:
        """Give the device the memory of sessions that are gone, so that others can have it and it counts as free."""
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
        kind = "" if isinstance(error, HeadcountError) else f"{type(error).__name__}: "  # our own say it all
        line = f"{kind}{text.split('. ')[0] if full else text}"
        return cls(line, full, "CUDA error" in text and not full)


def lacks_memory(error: BaseException | None) -> bool:
    """Whether an error, or one that it came from (a capture that memory ended fails once more), is lack of memory."""
    while error is not None:
        if isinstance(error, torch.OutOfMemoryError) or any(word in str(error) for word in _FULL):
            return True
        error = error.__cause__ or error.__context__
    return False
