"""Progress: a live bar on a terminal, plain lines elsewhere, nothing when silenced."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self, TextIO

from headcount.core.text.harmless import plain
from headcount.core.text.streams import drawing_stream, write_line


class Progress:
    """Progress over `total` units of work, with a note on the latest; use it as a context manager.

    A terminal shows a bar with the remaining time and, if given, a table of results; elsewhere at most one plain line
    appears every `every` seconds. Everything goes to standard error, so standard output stays clean for results and
    `--json`; in a notebook it goes to standard output, since notebooks show standard error as errors.
    """

    def __init__(
        self,
        title: str,
        total: float,
        *,
        quiet: bool = False,
        every: float = 10.0,
        closes: bool = True,
        bound: bool = False,
        live_only: bool = False,
    ) -> None:
        """Set up, printing nothing.

        closes: whether the last unit prints the closing line; otherwise the caller marks it with `last`. bound: whether
        `total` is an upper bound of the work. live_only: whether there is a bar on a terminal and nothing elsewhere,
        for steps of seconds, whose lines would only fill a log.
        """
        self.title, self.total, self.every, self.closes = title, total, every, closes
        self.quiet = quiet or (live_only and not _has_live_bar())
        self.bound = bound
        self.done = 0.0
        self._skipped = 0.0
        self._bar: Any = None
        self._task: Any = None
        self._table: tuple[Sequence[str], Sequence[tuple[str, ...]]] = (), ()
        self._start = self._last = time.monotonic()

    def __enter__(self) -> Self:
        self._start = self._last = time.monotonic()
        if not self.quiet and _has_live_bar():
            self._bar = _bar(lambda: self._table)
            self._bar.start()
            self._task = self._bar.add_task(
                plain(self.title), total=None if math.isinf(self.total) else self.total, note=""
            )
        return self

    def start(self, note: str) -> None:
        """Show what is done before the first unit, and restart the clock of the remaining time."""
        self._start = time.monotonic()
        if self._bar is not None:
            self._bar.update(self._task, note=plain(note))
            self._bar.reset(self._task, note=plain(note))
        elif not self.quiet and note:
            write_line(f"{self.title}: {note}", _stream())

    def print_line(self, text: str) -> None:
        """Print a line of results, unless a live table shows them."""
        if self._bar is None and not self.quiet:
            write_line(f"{self.title}: {text}", _stream())

    def show_table(self, rows: Sequence[tuple[str, ...]], columns: Sequence[str]) -> None:
        """Show rows of results above the live bar."""
        self._table = columns, rows

    def skip(self, units: float) -> None:
        """Count units as done that took no work, so that they do not enter the estimate of the remaining time."""
        self._skipped += units
        self.done += units
        if self._bar is not None:
            self._bar.update(self._task, total=self.total - self._skipped)

    def advance(self, units: float = 1, note: str = "", *, last: bool = False) -> None:
        """Count more units as done; `last` marks the end, for a closing line."""
        self.done += units
        if self._bar is not None:
            fields = {"note": plain(note)} if note else {}
            self._bar.update(self._task, advance=units, **fields)
        elif not self.quiet:
            now = time.monotonic()
            last = last or (self.closes and self.done >= self.total and bool(note))
            if now - self._last >= self.every or last:
                self._last = now
                self._print(now - self._start, note, last)

    def _print(self, elapsed: float, note: str, last: bool) -> None:
        """Print a plain line: the percentage done, the remaining time, the note."""
        worked = self.done - self._skipped
        remaining = max(elapsed * (self.total - self.done) / worked, 0.0) if worked > 0 else None
        about = "at most" if self.bound else "about"
        when = f" in {elapsed:.0f} s" if last else ""
        if not last and remaining is not None:
            when = f", {about} {_time_text(remaining)} to go"
        percent = 100 if last else min(99, int(100 * self.done / self.total))
        write_line(f"{self.title}: {percent} %{when}  {note}".rstrip(), _stream())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()


def working(title: str, *, quiet: bool = False) -> Progress:
    """Return the progress of a step whose length is not known: a moving bar on a terminal, and nothing elsewhere."""
    return Progress(title, math.inf, quiet=quiet, live_only=True)


def in_notebook() -> bool:
    """Whether the code runs in an IPython kernel, whose output a notebook shows."""
    kernel, shell = sys.modules.get("ipykernel"), sys.modules.get("IPython")
    if kernel is None or shell is None:
        return False
    running = shell.get_ipython()
    return running is not None and getattr(running, "kernel", None) is not None


def _has_live_bar() -> bool:
    """Whether progress is shown as a live bar: on a terminal."""
    return sys.stderr.isatty() and not in_notebook()


def _stream() -> TextIO:
    """Return the stream for plain lines."""
    return sys.stdout if in_notebook() else sys.stderr


def _time_text(seconds: float) -> str:
    """Return a remaining time in seconds, minutes or hours."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def _bar(current_table: Any) -> Any:
    """Return the live bar, with a table of results above it."""
    from rich.progress import BarColumn, SpinnerColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar
    from rich.table import Table

    from headcount.core.text.terminal import Terminal

    class Live(Bar):
        """A bar below a table."""

        def get_renderables(self) -> Any:
            columns, rows = current_table()
            if rows:
                table = Table(box=None, pad_edge=False)
                for place, name in enumerate(columns):
                    table.add_column(name, justify="right" if place else "left", style="dim")
                for row in rows:
                    table.add_row(*row)
                yield table
            yield self.make_tasks_table(self.tasks)

    return Live(
        SpinnerColumn(),  # moves while one unit of work takes long
        TextColumn("{task.description}", style="bold", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}", markup=False),
        console=Terminal(file=drawing_stream()),
        transient=True,
    )
