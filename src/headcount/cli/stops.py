"""Signals that ask a command to stop: SIGTERM and SIGHUP act like one Ctrl-C."""

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
    """Let the first SIGTERM or SIGHUP act like Ctrl-C: the command writes its checkpoints and stops.

    Later ones are ignored, because a logout sends both and a supervisor may send more; only a second Ctrl-C stops at
    once. A signal that is already ignored (`nohup`) or handled by the surrounding program is left alone.
    """
    if threading.current_thread() is not threading.main_thread():  # only the main thread may set handlers
        yield
        return
    received = False

    def handler(number: int, frame: FrameType | None) -> None:
        nonlocal received
        del number
        if received:
            return
        received = True
        interrupt: Any = signal.getsignal(signal.SIGINT)
        if callable(interrupt):
            interrupt(signal.SIGINT, frame)
        else:  # SIGINT is ignored in background jobs of shell scripts
            raise KeyboardInterrupt

    handled = [number for number in SIGNALS if signal.getsignal(number) == signal.SIG_DFL]
    for number in handled:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number in handled:
            signal.signal(number, signal.SIG_DFL)
