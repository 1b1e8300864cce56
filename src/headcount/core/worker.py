"""A process that makes calls, one at a time: for work that holds Python's lock, or must be ended from outside.

It is started as a command of its own, so that scripts and notebooks need no guard around their main module. It hears
neither Ctrl-C nor a closed terminal (whoever started it ends it), says nothing on standard output, and ends by itself
when the process that started it is gone, however that came.
"""

from __future__ import annotations

import os
import pickle
import queue
import selectors
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO

from headcount.core.errors import HeadcountError

CODE = "from headcount.core.worker import serve; serve()"
POLL_SECONDS = 0.1


class WorkerFailed(HeadcountError):
    """A call that raised an error, in one line, or a process that ended before it had answered."""


class Worker:
    """One process; use it from one thread at a time."""

    def __init__(self) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        with _out_of_reach():
            self._process = subprocess.Popen(
                [sys.executable, "-c", CODE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
            )

    @property
    def alive(self) -> bool:
        """Whether it can take a call."""
        return self._process.poll() is None

    def call(self, function: Callable[..., Any], *args: Any, stop: threading.Event | None = None) -> Any:
        """Return what a function of a module returns; end the process, and return None, where asked to stop."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            pickle.dump((function, args), self._process.stdin)
            self._process.stdin.flush()
            with selectors.DefaultSelector() as selector:
                selector.register(self._process.stdout, selectors.EVENT_READ)
                while not selector.select(POLL_SECONDS):
                    if stop is not None and stop.is_set():
                        self.close()
                        return None
            done, value = pickle.load(self._process.stdout)
        except (OSError, EOFError, pickle.UnpicklingError):
            self.close()
            raise WorkerFailed(f"its process ended with {_ending(self._process.returncode)}") from None
        if not done:
            raise WorkerFailed(value)
        return value

    def close(self) -> None:
        """End the process at once, whatever it is doing."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            with suppress(OSError):
                if stream is not None:
                    stream.close()


@contextmanager
def _out_of_reach() -> Generator[None]:
    """Start processes that Ctrl-C and a closed terminal do not reach."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})  # children inherit it
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _ending(code: int) -> str:
    """Say how a process ended."""
    return f"signal {-code}" if code < 0 else f"status {code}"


def serve() -> None:
    """What the process does: take calls from standard input, and answer on what was standard output."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a call prints must not stand between answers
    calls: queue.SimpleQueue[tuple[Callable[..., Any], tuple[Any, ...]]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(sys.stdin.buffer, calls), daemon=True).start()
    while True:
        function, args = calls.get()
        try:
            answer = True, function(*args)
        except Exception as error:
            answer = False, f"{type(error).__name__}: {error}"
        answers.write(pickle.dumps(answer))
        answers.flush()


def _listen(stream: BinaryIO, calls: queue.SimpleQueue[Any]) -> None:
    """Pass calls on; when nobody is left who could make one, end the process in the middle of its work."""
    while True:
        try:
            calls.put(pickle.load(stream))
        except BaseException:  # end of file: the caller is gone; anything else: it no longer speaks our language
            os._exit(0)
