"""The scoreboard of an experiment: trials done, their speed, best and median of every cell's errors as they come."""

from __future__ import annotations

import re
import time
from bisect import insort
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headcount.core import Progress
from headcount.store import State

SHOWN = 12  # cells on the screen


@dataclass(frozen=True)
class Entry:
    """What the board knows of a trial: its cell, its steps, and what one step costs beside the others'."""

    cell: str
    steps: int
    cost: float


def _error(metrics: Mapping[str, Any]) -> float | None:
    return metrics.get("nmse")


@dataclass(frozen=True)
class Score:
    """What is shown of finished trials, and how."""

    figure: Callable[[Mapping[str, Any]], float | None] = _error
    """Reads the figure off a trial's metrics; None where it has none."""
    first: str = "best"
    """What the first of the sorted figures is called."""
    name: str = "error"
    form: str = ".1e"
    falls: bool = True
    """Whether small figures come first."""
    steps: str | None = "model-steps"
    """What is counted a second; None where that says nothing."""


def _order(cell: str) -> list[tuple[float, str]]:
    """Sort cells by the numbers in their names, so that 16 comes after 8."""
    return [(float(part), "") if part.isdigit() else (0.0, part) for part in re.split(r"(\d+)", cell)]


class Board:
    """Counts work, not trials: long sequences and many heads take longer, and the time to go knows it."""

    def __init__(
        self,
        entries: Mapping[str, Entry],
        progress: Progress,
        before: Mapping[str, Sequence[float | None]] | None = None,
        score: Score | None = None,
    ) -> None:
        """Take the trials that are left, and the figures of those of each cell that were finished before."""
        before, self.score = before or {}, score or Score()
        self.entries, self.progress = entries, progress
        self._at = dict.fromkeys(entries, 0)
        self._taken = 0
        self._start = 0.0
        self.ended_count = sum(len(figures) for figures in before.values())
        cells = sorted({entry.cell for entry in entries.values()} | set(before), key=_order)
        self._places = {cell: place for place, cell in enumerate(cells)}
        self._found = {cell: sorted(self._key(e) for e in before.get(cell, []) if e is not None) for cell in cells}
        self._ended = {cell: len(before.get(cell, [])) for cell in cells}
        self._begun = sum(map(bool, self._ended.values()))
        self._size = dict(self._ended)
        for entry in entries.values():
            self._size[entry.cell] += 1
        self.total = self.ended_count + len(entries)
        self._latest: list[str] = []  # the cells on the screen, the latest last

    @staticmethod
    def work(entries: Mapping[str, Entry]) -> int:
        """The whole work of some trials, in the progress bar's units."""
        return max(1, round(sum(entry.steps * entry.cost for entry in entries.values())))

    def steps(self, name: str, step: int) -> None:
        """A trial has come so far; the first word on a resumed trial says where it starts."""
        entry = self.entries[name]
        now = time.monotonic()
        if self._start == 0.0:
            self._start = now
        more = min(step, entry.steps) - self._at[name]
        self._at[name] += more
        self._taken += more
        self.progress.advance(more * entry.cost, note=self.note())

    def resumed(self, name: str, step: int) -> None:
        """A trial goes on from a checkpoint: that work was done earlier and tells nothing of the speed."""
        entry = self.entries[name]
        self._at[name] = step
        self.progress.skip(step * entry.cost)

    def elsewhere(self, name: str) -> None:
        """Another process trains this one: it is no work of ours."""
        entry = self.entries[name]
        self.total -= 1
        self._size[entry.cell] -= 1
        self.progress.skip((entry.steps - self._at[name]) * entry.cost)

    def ended(self, name: str, state: State, metrics: Mapping[str, Any] | None = None) -> None:
        """A trial has ended."""
        entry = self.entries[name]
        self.ended_count += 1
        self._latest = [*(cell for cell in self._latest if cell != entry.cell), entry.cell][-SHOWN:]
        self._begun += not self._ended[entry.cell]
        self._ended[entry.cell] += 1
        figure = self.score.figure(metrics or {})
        if figure is not None:
            insort(self._found[entry.cell], self._key(figure))
        left = (entry.steps - self._at[name]) * entry.cost
        if state == "done":
            self.steps(name, entry.steps)
        else:  # what a diverged trial leaves undone is no work any more
            self.progress.skip(left)
        self.progress.show_table(self.rows(), ("cell", "trials", f"{self.score.first} {self.score.name}", "median"))
        if self._ended[entry.cell] == self._size[entry.cell]:
            self.progress.print_line(self._summary(entry.cell))
        self.progress.advance(0, note=self.note(), last=self.ended_count == self.total)

    def note(self) -> str:
        """One line: trials and speed."""
        spent = time.monotonic() - self._start if self._start else 0.0
        known = self.score.steps is not None and spent > 1 and self._taken
        speed = f", {self._taken / spent:,.0f} {self.score.steps}/s" if known else ""
        return f"{self.ended_count:,} of {self.total:,} trials{speed}"

    def _key(self, figure: float) -> float:
        """Return what a figure is sorted by."""
        return figure if self.score.falls else -figure

    def _shown(self, cell: str) -> tuple[str, str] | None:
        """Return the first and the middle one of a cell's figures; None where it has none."""
        found = self._found[cell]
        if not found:
            return None
        first, middle = (format(self._key(key), self.score.form) for key in (found[0], _median(found)))
        return first, middle

    def _summary(self, cell: str) -> str:
        shown, lost = self._shown(cell), self._ended[cell] - len(self._found[cell])
        text = f"{cell}: none" if shown is None else f"{cell}: {self.score.first} {shown[0]}, median {shown[1]}"
        return text + (f", {lost} diverged or failed" if lost else "")

    def rows(self) -> list[tuple[str, ...]]:
        """The latest cells with results, as a table: (cell, trials, best, median); what it costs does not grow."""
        rows: list[tuple[str, ...]] = [
            (cell, f"{self._ended[cell]}/{self._size[cell]}", *(self._shown(cell) or ("–", "–")))
            for cell in sorted(self._latest, key=self._places.__getitem__)
        ]
        others = self._begun - len(rows)
        return rows if others <= 0 else [(f"and {others} more cells", "", "", ""), *rows]


def _median(ordered: Sequence[float]) -> float:
    """Return the median of sorted numbers, without a look at all of them."""
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
