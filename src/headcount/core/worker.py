"""A worker process that runs one call at a time: for work that holds the GIL, or must be stopped from outside.

It is started as a separate command, so scripts and notebooks need no guard around their main module. It ignores Ctrl-C
and a closed terminal (its parent stops it), keeps calls from writing to standard output, and exits by itself when its
parent is gone, for whatever reason.
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

SERVE_CODE = "from headcount.core.worker import serve; serve()"
POLL_SECONDS = 0.1


class WorkerFailed(HeadcountError):
    """A call in a worker process raised an error, given in one line, or the process ended before it answered."""


class Worker:
    """A worker process; use it from one thread at a time."""

    def __init__(self) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        with _signals_blocked():
            self._process = subprocess.Popen(
                [sys.executable, "-c", SERVE_CODE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
            )

    @property
    def alive(self) -> bool:
        """Whether the process can take a call."""
        return self._process.poll() is None

    def call(self, function: Callable[..., Any], *args: Any, stop: threading.Event | None = None) -> Any:
        """Return the result of a module-level function; once `stop` is set, end the process and return None."""
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
            succeeded, value = pickle.load(self._process.stdout)
        except (OSError, EOFError, pickle.UnpicklingError):
            self.close()
            raise WorkerFailed(f"the worker process ended with {_exit_text(self._process.returncode)}") from None
        if not succeeded:
            raise WorkerFailed(value)
        return value

    def close(self) -> None:
        """Kill the process at once, whatever it is doing."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            with suppress(OSError):
                if stream is not None:
                    stream.close()


@contextmanager
def _signals_blocked() -> Generator[None]:
    """Block SIGINT and SIGHUP, also in processes started inside: Ctrl-C and a closed terminal do not reach them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})  # children inherit it
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _exit_text(code: int) -> str:
    """Return how a process ended: its signal or exit status."""
    return f"signal {-code}" if code < 0 else f"status {code}"


def serve() -> None:
    """Serve calls from standard input, and answer on the original standard output."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a call prints must not mix with the answers
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
    """Queue incoming calls; when the parent is gone, end the process in the middle of its work."""
    while True:
        try:
            calls.put(pickle.load(stream))
        except BaseException:  # end of file: the parent is gone; anything else: the stream is corrupt
            os._exit(0)
