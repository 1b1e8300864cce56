"""Progress that a person likes: a live bar on a terminal, plain lines elsewhere, nothing when silenced."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any, Self


class Progress:
    """Count `total` units of work with a note on the latest; use it as a context manager.

    On a terminal a bar with the time to go; elsewhere one plain line at most every `every` seconds. All of it
    goes to standard error, so that standard output stays clean for results and `--json`.
    """

    def __init__(self, title: str, total: int, *, quiet: bool = False, every: float = 10.0) -> None:
        self.title, self.total, self.quiet, self.every = title, total, quiet, every
        self.done = 0
        self._bar: Any = None
        self._task: Any = None
        self._start = self._last = time.monotonic()

    def __enter__(self) -> Self:
        self._start = self._last = time.monotonic()
        if not self.quiet and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar

            self._bar = Bar(
                TextColumn("[bold]{task.description}"), BarColumn(), MofNCompleteColumn(),
                TimeRemainingColumn(), TextColumn("{task.fields[note]}"),
                console=Console(stderr=True), transient=True,
            )  # fmt: skip
            self._bar.start()
            self._task = self._bar.add_task(self.title, total=self.total, note="")
        return self

    def say(self, note: str) -> None:
        """Say what is being done before the first unit; the clock for the time to go starts after it."""
        self._start = time.monotonic()
        if self._bar is not None:
            self._bar.update(self._task, note=note)
            self._bar.reset(self._task, note=note)
        elif not self.quiet and note:
            print(f"{self.title}: {note}", file=sys.stderr)  # noqa: T201

    def advance(self, units: int = 1, note: str = "") -> None:
        """Say that more units are done."""
        self.done += units
        if self._bar is not None:
            fields = {"note": note} if note else {}
            self._bar.update(self._task, advance=units, **fields)
        elif not self.quiet:
            now = time.monotonic()
            if now - self._last >= self.every or (self.done == self.total and note):
                self._last = now
                elapsed = now - self._start
                left = elapsed * (self.total - self.done) / max(self.done, 1)
                soon = f", about {left:.0f} s to go" if self.done else ""
                when = soon if self.done < self.total else f" in {elapsed:.0f} s"
                print(f"{self.title}: {self.done}/{self.total}{when}  {note}".rstrip(), file=sys.stderr)  # noqa: T201

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
