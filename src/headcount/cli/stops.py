"""Signals that ask a command to stop: SIGTERM and SIGHUP act as one Ctrl-C."""

from __future__ import annotations

import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any

SIGNALS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


@contextmanager
def stops_like_interrupt() -> Generator[None]:
    """Let the first SIGTERM or SIGHUP do what Ctrl-C does at that moment: stop in good order, with checkpoints.

    More of them change nothing: a logout sends both, and a supervisor may repeat itself. Only Ctrl-C, pressed again,
    ends at once. A signal that is ignored (`nohup`) or that the surrounding program handles stays as it is.
    """
    if threading.current_thread() is not threading.main_thread():  # signals are the main thread's
        yield
        return
    heard = False

    def handler(number: int, frame: FrameType | None) -> None:
        nonlocal heard
        del number
        if heard:
            return
        heard = True
        interrupt: Any = signal.getsignal(signal.SIGINT)
        if callable(interrupt):
            interrupt(signal.SIGINT, frame)
        else:  # ignored: a job of a shell script in the background
            raise KeyboardInterrupt

    taken = [number for number in SIGNALS if signal.getsignal(number) == signal.SIG_DFL]
    for number in taken:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)
