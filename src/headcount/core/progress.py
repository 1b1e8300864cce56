"""Progress that a person likes: a live bar on a terminal, plain lines elsewhere, nothing when silenced."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self, TextIO

from headcount.core.text.harmless import plain
from headcount.core.text.streams import drawing_stream, put_line


class Progress:
    """Count `total` units of work with a note on the latest; use it as a context manager.

    On a terminal a bar with the time to go, and a table of results where there is one; elsewhere one plain line at
    most every `every` seconds. All of it goes to standard error, so that standard output stays clean for results and
    `--json`; in a notebook to standard output, since a notebook paints standard error as an error.
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
        """Take the work; `closes` lets the last unit print the closing line, else the caller marks it.

        With `bound` the total is what the work may take at most. With `live_only` there is a bar on a terminal and
        nothing elsewhere: for steps of seconds, whose lines would only fill a log.
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
            self._task = self._bar.add_task(plain(self.title), total=self.total, note="")
        return self

    def say(self, note: str) -> None:
        """Say what is being done before the first unit; the clock for the time to go starts after it."""
        self._start = time.monotonic()
        if self._bar is not None:
            self._bar.update(self._task, note=plain(note))
            self._bar.reset(self._task, note=plain(note))
        elif not self.quiet and note:
            put_line(f"{self.title}: {note}", _stream())

    def line(self, text: str) -> None:
        """Print a line of results where there is no live table to show them."""
        if self._bar is None and not self.quiet:
            put_line(f"{self.title}: {text}", _stream())

    def show(self, rows: Sequence[tuple[str, ...]], columns: Sequence[str]) -> None:
        """Show rows of results above the bar."""
        self._table = columns, rows

    def skip(self, units: float) -> None:
        """Say that units were done before, or need not be done: they say nothing of the speed."""
        self._skipped += units
        self.done += units
        if self._bar is not None:
            self._bar.update(self._task, total=self.total - self._skipped)

    def advance(self, units: float = 1, note: str = "", *, last: bool = False) -> None:
        """Say that more units are done; `last` marks the end, for a closing line."""
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
        """Print a plain line: how much is done, how long it will take, the note."""
        worked = self.done - self._skipped
        left = max(elapsed * (self.total - self.done) / worked, 0.0) if worked > 0 else None
        about = "at most" if self.bound else "about"
        when = f" in {elapsed:.0f} s" if last else "" if left is None else f", {about} {_time(left)} to go"
        share = 100 if last else min(99, int(100 * self.done / self.total))
        put_line(f"{self.title}: {share} %{when}  {note}".rstrip(), _stream())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()


def in_notebook() -> bool:
    """Whether the code runs in a kernel of IPython, whose output a notebook shows."""
    kernel, shell = sys.modules.get("ipykernel"), sys.modules.get("IPython")
    if kernel is None or shell is None:
        return False
    running = shell.get_ipython()
    return running is not None and getattr(running, "kernel", None) is not None


def _has_live_bar() -> bool:
    """Whether progress is shown as a live bar: on a terminal."""
    return sys.stderr.isatty() and not in_notebook()


def _stream() -> TextIO:
    """Where plain lines go."""
    return sys.stdout if in_notebook() else sys.stderr


def _time(seconds: float) -> str:
    """Write a time to go as a person would say it."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def _bar(shown: Any) -> Any:
    """Make the live bar, with a table of results above it."""
    from rich.progress import BarColumn, SpinnerColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar
    from rich.table import Table

    from headcount.core.text.terminal import Terminal

    class Live(Bar):
        """A bar below a table."""

        def get_renderables(self) -> Any:
            columns, rows = shown()
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
