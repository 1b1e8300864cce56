"""One trial per core: worker threads train and send messages, which the caller's thread handles."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from headcount.sweeps.engine import Failure, Listener, Member, interrupts
from headcount.training import Ending, Moments, OnStep, Session, Stopped

BeginOnCore = Callable[[Sequence[Member], OnStep], Session[Any]]
"""Begins a session with one trial, which works in the thread that launches it and reports its steps."""


class Cores:
    """Worker threads that each train one trial at a time; trials come from a listener, and outcomes go back to it."""

    def __init__(
        self,
        begin: BeginOnCore,
        listener: Listener,
        names: Sequence[str],
        workers: int,
        *,
        save_every: float = 30.0,
        stop: threading.Event | None = None,
        deadline: float | None = None,
    ) -> None:
        """Save a trial every `save_every` seconds; `deadline` is a time of the monotonic clock."""
        self.begin, self.listener, self.left, self.workers = begin, listener, deque(names), workers
        self.save_every, self.stop, self.deadline = save_every, stop or threading.Event(), deadline
        self.messages: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self.running: set[str] = set()

    def run(self) -> None:
        """Work until everything is done, the deadline passes or Ctrl-C is pressed."""
        with interrupts(self.stop) as interrupted, ThreadPoolExecutor(self.workers) as pool:
            try:
                self._fill(pool)
                while self.running:
                    self._receive()
                    self._fill(pool)
            except Exception:
                self.stop.set()  # let the workers send their checkpoints, and store them
                while self.running:
                    self._receive()
                raise
            finally:
                self.stop.set()  # also after a second Ctrl-C: the pool waits for the workers
        if interrupted():
            raise KeyboardInterrupt

    def _should_stop(self) -> bool:
        """Return whether to stop; after the deadline, set `stop` first."""
        if self.deadline is not None and time.monotonic() > self.deadline:
            self.stop.set()
        return self.stop.is_set()

    def _fill(self, pool: ThreadPoolExecutor) -> None:
        """Claim trials for the cores that are free."""
        while self.left and len(self.running) < self.workers and not self._should_stop():
            for name, job in self.listener.start([self.left.popleft()]):  # none where another process has it
                self.running.add(name)
                pool.submit(self._work, name, job)

    def _receive(self) -> None:
        """Handle one message of a worker, or notice that the deadline has passed."""
        left = 1.0 if self.deadline is None or self.stop.is_set() else self.deadline - time.monotonic()
        try:
            name, message = self.messages.get(timeout=min(1.0, max(left, 0.01)))
        except queue.Empty:
            self._should_stop()
            return
        if isinstance(message, Moments):
            self.listener.saved([(name, message)])
        elif isinstance(message, int):
            self.listener.steps(name, message)
        else:
            self.running.discard(name)
            if message is not None:  # None if it was stopped: its checkpoint came before
                self.listener.ended([message])
        self._should_stop()

    def _work(self, name: str, job: Any) -> None:
        """Train one trial; whatever happens, the last message says how it ended."""
        session: Session[Any] | None = None
        try:
            session = self.begin([(name, job)], lambda step, _: self.messages.put((name, step)))
            last = self._train(session)
        except Exception as error:  # one bad trial never ends a sweep: it is kept as failed, with the reason
            last = Ending(name, Failure.of(error).line)
        finally:
            if session is not None:
                session.close()
        self.messages.put((name, last))

    def _train(self, session: Session[Any]) -> Ending | None:
        """Drive a session to its end, with regular checkpoints; return None if it was stopped, to be resumed later."""
        try:
            while True:
                if self.stop.is_set():  # a session may check this itself, but need not
                    raise Stopped
                session.launch(self.stop)
                ended = session.collect()
                if ended:
                    return ended[0]
                if time.perf_counter() - session.last_saved > self.save_every:
                    session.last_saved = time.perf_counter()
                    self.messages.put(session.snapshots()[0])
        except Stopped:
            ended = session.cut_short()
            if ended:
                return ended[0]
            if session.steps > 0:
                self.messages.put(session.snapshots()[0])
            return None
