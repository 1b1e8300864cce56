"""Drive the sessions on one device, whatever they train: one thread, several sessions at once.

A session gets one window of work at a time, and is advanced when the device has finished it; meanwhile the others do
their work. A session that does not fit into memory waits until another has ended, or is halved and tried again; a trial
that fails on its own is kept as failed. Nothing may refer to a failed session when its memory is released, which is why
the methods below pass indices instead of sessions.
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
MEMORY_FRACTION = 0.8
"""Fraction of the free device memory that sessions may fill."""
MAX_SAVING_FRACTION = 0.05
"""Fraction of the time that may go into checkpoints: large sessions save less often."""
_OUT_OF_MEMORY_TEXTS = (
    "CUDA error: out of memory",
    "ALLOC_FAILED",
    "ALLOCATION_FAILED",
)  # the last two of cuBLAS and cuDNN
Member = tuple[str, Any]
"""A trial's name, and the job that its session trains."""


@runtime_checkable
class Listener(Protocol):
    """Hands out trials and receives their progress and outcomes; all calls come from the driver's thread."""

    def start(self, members: Sequence[str]) -> list[Member]:
        """Return those of the trials that may be trained now, each at its last checkpoint."""
        ...

    def reload(self, members: Sequence[str]) -> list[Member]:
        """Return trials that are already ours, each at its last checkpoint."""
        ...

    def refused(self, member: str, error: Exception) -> None:
        """Handle a trial whose job cannot be made and that is not claimed yet; ignore it if another process has it."""
        ...

    def steps(self, member: str, step: int) -> None:
        """Handle the progress of a trial, which has reached this step."""
        ...

    def saved(self, snapshots: Sequence[tuple[str, Moments]]) -> None:
        """Store checkpoints."""
        ...

    def ended(self, endings: Sequence[Ending]) -> None:
        """Handle trials that have ended, each with its record and last state or with the reason why it failed."""
        ...


@runtime_checkable
class KernelCompiler(Protocol):
    """Compiles kernels ahead of time, for sessions that wait."""

    def ready(self, number: int) -> bool:
        """Return whether the kernels that a session needs are compiled, or compilation was given up."""
        ...

    def close(self) -> None:
        """Stop compiling."""
        ...


@dataclass(frozen=True)
class SessionKind:
    """What an engine must know about the sessions that it drives."""

    begin: Callable[[Sequence[Member], torch.device], Session[Any]]
    needs: Callable[[Sequence[Member], torch.device], int]
    """Returns the bytes that a session takes on the device."""
    max_sessions: int
    """The most sessions at once."""


def free_memory(device: torch.device) -> int | None:
    """Return the bytes that sessions may fill; None if there is no limit, as on a CPU."""
    return int(MEMORY_FRACTION * torch.cuda.mem_get_info(device)[0]) if device.type == "cuda" else None


class Engine:
    """All sessions of a run on one device."""

    def __init__(
        self,
        kind: SessionKind,
        device: torch.device,
        listener: Listener,
        *,
        stop: threading.Event | None = None,
        save_every: float = 30.0,
        deadline: float | None = None,
    ) -> None:
        """Save a session every `save_every` seconds; `deadline` is a time of the monotonic clock."""
        self.kind, self.device, self.listener = kind, device, listener
        self.stop, self.save_every, self.deadline = stop or threading.Event(), save_every, deadline
        self.running: list[Session[Any]] = []
        self.waiting: deque[list[Member]] = deque()  # sessions that are ready to begin
        self._queue: deque[tuple[int, Sequence[str]]] = deque()
        self._ahead: KernelCompiler | None = None
        self._max_running = kind.max_sessions  # lowered when fewer sessions turn out to fit at once

    def run(self, sessions: Sequence[Sequence[str]], ahead: KernelCompiler | None = None) -> None:
        """Train sessions in order, each given as a list of names that the listener turns into trials.

        A session whose kernels are being compiled ahead waits for them while others train. After an error, running
        sessions are dropped without a checkpoint, since they may be in the middle of a step.
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
        """Work until everything is done, the deadline passes or Ctrl-C is pressed."""
        with interrupts(self.stop) as interrupted:
            while True:
                if self.deadline is not None and time.monotonic() > self.deadline:
                    self.stop.set()
                if not self.stop.is_set():
                    self._fill()
                if not self.running and (self.stop.is_set() or not (self.waiting or self._queue)):
                    break
                self._poll()
        if interrupted():
            raise KeyboardInterrupt

    def _fill(self) -> None:
        """Start sessions while there is room for them."""
        while len(self.running) < self._max_running:
            if self.waiting:
                self._begin(self.waiting.popleft())
                continue
            ready = next((item for item in self._queue if self._ahead is None or self._ahead.ready(item[0])), None)
            if ready is None:
                return
            self._queue.remove(ready)
            self._enqueue(self.listener.start(ready[1]))

    def _enqueue(self, members: Sequence[Member]) -> None:
        """Put trials at the head of the waiting sessions; trials at different steps cannot share a session."""
        steps = {name: 0 if job.moments is None else job.moments.step for name, job in members}
        for step in sorted(set(steps.values()), reverse=True):
            self.waiting.appendleft([member for member in members if steps[member[0]] == step])

    def _fits(self, members: Sequence[Member]) -> bool:
        """Return whether there is room for a session beside those that run."""
        free = free_memory(self.device)
        return free is None or self.kind.needs(members, self.device) <= free

    def _begin(self, members: list[Member]) -> None:
        """Start a session on the device, or put it back if there is no room beside the running ones."""
        if self.running and not self._fits(members):
            self.release_memory()  # until then, memory of sessions that have ended counts as taken
            if not self._fits(members):
                self.waiting.appendleft(members)
                self._max_running = len(self.running)
                return
        try:
            session = self.kind.begin(members, self.device)
            try:
                session.launch(self.stop)
            except Stopped:  # it has done nothing yet, so its last checkpoint is current
                session.close()
            else:
                self.running.append(session)
            return
        except Exception as error:
            failure = Failure.of(error)
        session = None  # so that it does not keep the device's memory allocated
        self._handle_failure(
            [name for name, _ in members], failure
        )  # outside, where the error no longer holds on to it

    def _handle_failure(self, names: Sequence[str], failure: Failure) -> None:
        """Retry a session that failed, later or in halves, until a single trial fails; a broken device ends the run."""
        if failure.device_broken:
            raise HeadcountError(
                f"the GPU reported an error and must be restarted: {failure.line}; what was finished is kept, and "
                "the same command continues from here"
            )
        self.release_memory()
        if failure.out_of_memory and self.running:  # the others take the room: try again when one of them has ended
            self._max_running = len(self.running)
            self._enqueue(self.listener.reload(names))
        elif len(names) > 1:
            half = len(names) // 2
            log.info("%d models did not train together (%s): halved", len(names), failure.line)
            for part in (names[half:], names[:half]):
                self._enqueue(self.listener.reload(part))
        else:
            too_large = "one model does not fit into the device's memory"
            self.listener.ended([Ending(names[0], too_large if failure.out_of_memory else failure.line)])

    def _poll(self) -> None:
        """Advance every session that has finished its window; sleep briefly if none has."""
        ready = [index for index, session in enumerate(self.running) if session.ready()]
        for index in reversed(ready):  # from the last, since dropping a session shifts those after it
            self._advance_or_drop(index)
        if not ready:
            time.sleep(0.0005)

    def _advance_or_drop(self, index: int) -> None:
        """Advance a session, or drop it if it has ended; then one more session may run than fitted before."""
        try:
            continues = self._advance(self.running[index])
        except HeadcountError:  # from the listener, such as a store that has vanished
            self._drop(index)
            raise
        except Exception as error:
            failure = Failure.of(error)
        else:
            if not continues:
                self._drop(index)
                self._max_running = min(self.kind.max_sessions, self._max_running + 1)
            return
        names = [name for name, _ in self.running[index].unfinished_members()]
        self._drop(index)
        self._handle_failure(names, failure)

    def _advance(self, session: Session[Any]) -> bool:
        """Report what a session has done and launch its next window; return False if it has ended or was stopped."""
        ended = session.collect()
        if ended:
            self.listener.ended(ended)
        for name, _ in session.unfinished_members():
            self.listener.steps(name, session.steps)
        if not session.unfinished:
            return False
        if self.stop.is_set():
            self._finish_or_save(session)
            return False
        # a new stack is faster without the trials that have ended
        if session.restack_when_half_done and 2 * len(session.unfinished) <= len(session.members):
            self.waiting.appendleft(session.resumable_members())
            return False
        save_every = max(self.save_every, session.checkpoint_seconds / MAX_SAVING_FRACTION)
        if time.perf_counter() - session.last_saved > save_every:
            self._save(session)
        try:
            session.launch(self.stop)
        except Stopped:
            self._finish_or_save(session)
            return False
        return True

    def _finish_or_save(self, session: Session[Any]) -> None:
        """End trials as they stand if that counts as a result; otherwise save them, to be resumed later."""
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

    def _drop(self, index: int) -> None:
        """Remove a session from the device."""
        self.running.pop(index).close()

    def release_memory(self) -> None:
        """Return the memory of sessions that have ended to the device, so that it is free and counts as free."""
        if self.device.type == "cuda":
            gc.collect()
            torch.cuda.empty_cache()


class CutShort(KeyboardInterrupt):
    """A second Ctrl-C, which does not wait for checkpoints: training since the last ones is lost."""


@contextmanager
def interrupts(stop: threading.Event) -> Generator[Callable[[], bool]]:
    """Make the first Ctrl-C set `stop`, which ends after a window with checkpoints; a second one raises CutShort.

    An exception between two launches would leave a stack at an unknown step, and one between a message and its commit
    would lose the message. The value of the context tells whether Ctrl-C was pressed.
    """
    if threading.current_thread() is not threading.main_thread():  # only the main thread receives signals
        yield lambda: False
        return
    received: list[int] = []
    before = signal.getsignal(signal.SIGINT)

    def handler(number: int, frame: FrameType | None) -> None:
        del frame
        received.append(number)
        stop.set()
        if len(received) > 1:
            raise CutShort

    signal.signal(signal.SIGINT, handler)
    try:
        yield lambda: bool(received)
    finally:
        signal.signal(signal.SIGINT, before)


@dataclass(frozen=True)
class Failure:
    """What went wrong, without the exception itself: its frames would keep tensors alive."""

    line: str
    """The error message, one line."""
    out_of_memory: bool
    """Whether the device's memory was too small."""
    device_broken: bool
    """Whether the GPU can no longer be used by this process."""

    @classmethod
    def of(cls, error: Exception) -> Failure:
        """Describe an exception; what libraries call a CUDA error may be just a lack of memory."""
        text = (str(error).splitlines() or [""])[0]
        out_of_memory = is_out_of_memory(error)
        kind = "" if isinstance(error, HeadcountError) else f"{type(error).__name__}: "  # our own messages need none
        line = f"{kind}{text.split('. ')[0] if out_of_memory else text}"
        return cls(line, out_of_memory, "CUDA error" in text and not out_of_memory)


def is_out_of_memory(error: BaseException | None) -> bool:
    """Return whether an error, or one that caused it, is a lack of memory; a failed capture raises a second error."""
    while error is not None:
        if isinstance(error, torch.OutOfMemoryError) or any(word in str(error) for word in _OUT_OF_MEMORY_TEXTS):
            return True
        error = error.__cause__ or error.__context__
    return False
