"""A trial a core: worker threads train and send messages, the caller's thread takes them in."""

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
"""Begins a session with one trial, which works in the thread that launches it and tells of its steps."""


class Cores:
    """Worker threads that take trials from a listener, one at a time, and give back what became of them."""

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
        """Save a trial every so many seconds; `deadline` is a time of the monotonic clock."""
        self.begin, self.listener, self.left, self.workers = begin, listener, deque(names), workers
        self.save_every, self.stop, self.deadline = save_every, stop or threading.Event(), deadline
        self.said: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self.running: set[str] = set()

    def run(self) -> None:
        """Work until nothing is left, the time is over or Ctrl-C comes."""
        with interrupts(self.stop) as interrupted, ThreadPoolExecutor(self.workers) as pool:
            try:
                self._fill(pool)
                while self.running:
                    self._take()
                    self._fill(pool)
            except Exception:
                self.stop.set()  # let the workers leave their checkpoints, and keep them
                while self.running:
                    self._take()
                raise
            finally:
                self.stop.set()  # after a second Ctrl-C too: the pool waits for the workers
        if interrupted():
            raise KeyboardInterrupt

    def _late(self) -> bool:
        if self.deadline is not None and time.monotonic() > self.deadline:
            self.stop.set()
        return self.stop.is_set()

    def _fill(self, pool: ThreadPoolExecutor) -> None:
        """Claim trials for the cores that are free."""
        while self.left and len(self.running) < self.workers and not self._late():
            for name, job in self.listener.start([self.left.popleft()]):  # none where another process has it
                self.running.add(name)
                pool.submit(self._work, name, job)

    def _take(self) -> None:
        """Take in one message of a worker, or notice that the time is over."""
        left = 1.0 if self.deadline is None or self.stop.is_set() else self.deadline - time.monotonic()
        try:
            name, message = self.said.get(timeout=min(1.0, max(left, 0.01)))
        except queue.Empty:
            self._late()
            return
        if isinstance(message, Moments):
            self.listener.saved([(name, message)])
        elif isinstance(message, int):
            self.listener.steps(name, message)
        else:
            self.running.discard(name)
            if message is not None:  # None: stopped, its checkpoint came before
                self.listener.ended([message])
        self._late()

    def _work(self, name: str, job: Any) -> None:
        """Train one trial; whatever happens, one last message says how it ended."""
        session: Session[Any] | None = None
        try:
            session = self.begin([(name, job)], lambda step, _: self.said.put((name, step)))
            last = self._trained(session)
        except Exception as error:  # one bad trial never ends a sweep: it is kept as failed, with its reason
            last = Ending(name, Failure.of(error).line)
        finally:
            if session is not None:
                session.close()
        self.said.put((name, last))

    def _trained(self, session: Session[Any]) -> Ending | None:
        """Drive a session to its end, with a checkpoint now and then; None where it was stopped and goes on later."""
        try:
            while True:
                if self.stop.is_set():  # a session may look at it, and need not
                    raise Stopped
                session.launch(self.stop)
                ended = session.collect()
                if ended:
                    return ended[0]
                if time.perf_counter() - session.last_saved > self.save_every:
                    session.last_saved = time.perf_counter()
                    self.said.put(session.snapshots()[0])
        except Stopped:
            ended = session.cut_short()
            if ended:
                return ended[0]
            if session.steps > 0:
                self.said.put(session.snapshots()[0])
            return None
