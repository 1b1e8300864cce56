"""The scoreboard of an experiment: finished trials, their speed, and the best and median error of each cell so far."""

from __future__ import annotations

import re
import time
from bisect import insort
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headcount.core import Progress
from headcount.store import State

MAX_SHOWN_CELLS = 12  # on the screen


@dataclass(frozen=True)
class Entry:
    """What the board knows about a trial: its cell, its steps, and the relative cost of a step."""

    cell: str
    steps: int
    cost: float


def _error(metrics: Mapping[str, Any]) -> float | None:
    return metrics.get("nmse")


@dataclass(frozen=True)
class Score:
    """Which figure is shown of finished trials, and how."""

    figure: Callable[[Mapping[str, Any]], float | None] = _error
    """Returns the figure from a trial's metrics; None if it has none."""
    first: str = "best"
    """What the first of the sorted figures is called."""
    name: str = "error"
    format: str = ".1e"
    lower_is_better: bool = True
    """Whether small figures come first."""
    steps: str | None = "model-steps"
    """The unit of the speed, per second; None if a speed would mean nothing."""


def _order(cell: str) -> list[tuple[float, str]]:
    """Return the sorting key of a cell: numbers in its name count as numbers, so 16 comes after 8."""
    return [(float(part), "") if part.isdigit() else (0.0, part) for part in re.split(r"(\d+)", cell)]


class Board:
    """The scoreboard. It counts work, not trials, since long sequences and many heads take longer."""

    def __init__(
        self,
        entries: Mapping[str, Entry],
        progress: Progress,
        before: Mapping[str, Sequence[float | None]] | None = None,
        score: Score | None = None,
    ) -> None:
        """Take the unfinished trials, and by cell the figures of the trials that were already finished."""
        before, self.score = before or {}, score or Score()
        self.entries, self.progress = entries, progress
        self._at = dict.fromkeys(entries, 0)
        self._taken = 0
        self._start = 0.0
        self.ended_count = sum(len(figures) for figures in before.values())
        cells = sorted({entry.cell for entry in entries.values()} | set(before), key=_order)
        self._places = {cell: place for place, cell in enumerate(cells)}
        self._sorted_keys = {
            cell: sorted(self._key(e) for e in before.get(cell, []) if e is not None) for cell in cells
        }
        self._ended = {cell: len(before.get(cell, [])) for cell in cells}
        self._begun = sum(map(bool, self._ended.values()))
        self._size = dict(self._ended)
        for entry in entries.values():
            self._size[entry.cell] += 1
        self.total = self.ended_count + len(entries)
        self._latest: list[str] = []  # the cells on the screen, the latest last

    @staticmethod
    def work(entries: Mapping[str, Entry]) -> int:
        """Return the total work of some trials, in the progress bar's units."""
        return max(1, round(sum(entry.steps * entry.cost for entry in entries.values())))

    def steps(self, name: str, step: int) -> None:
        """Report that a trial has reached a step."""
        entry = self.entries[name]
        now = time.monotonic()
        if self._start == 0.0:
            self._start = now
        new_steps = min(step, entry.steps) - self._at[name]
        self._at[name] += new_steps
        self._taken += new_steps
        self.progress.advance(new_steps * entry.cost, note=self.note())

    def resumed(self, name: str, step: int) -> None:
        """Report that a trial resumes from a checkpoint: that work was done earlier and does not count as speed."""
        entry = self.entries[name]
        self._at[name] = step
        self.progress.skip(step * entry.cost)

    def taken_elsewhere(self, name: str) -> None:
        """Report that another process trains a trial, so that it is not part of this run's work."""
        entry = self.entries[name]
        self.total -= 1
        self._size[entry.cell] -= 1
        self.progress.skip((entry.steps - self._at[name]) * entry.cost)

    def ended(self, name: str, state: State, metrics: Mapping[str, Any] | None = None) -> None:
        """Report that a trial has ended."""
        entry = self.entries[name]
        self.ended_count += 1
        self._latest = [*(cell for cell in self._latest if cell != entry.cell), entry.cell][-MAX_SHOWN_CELLS:]
        self._begun += not self._ended[entry.cell]
        self._ended[entry.cell] += 1
        figure = self.score.figure(metrics or {})
        if figure is not None:
            insort(self._sorted_keys[entry.cell], self._key(figure))
        left = (entry.steps - self._at[name]) * entry.cost
        if state == "done":
            self.steps(name, entry.steps)
        else:  # a diverged trial's remaining steps are no longer work
            self.progress.skip(left)
        self.progress.show_table(self.rows(), ("cell", "trials", f"{self.score.first} {self.score.name}", "median"))
        if self._ended[entry.cell] == self._size[entry.cell]:
            self.progress.print_line(self._summary(entry.cell))
        self.progress.advance(0, note=self.note(), last=self.ended_count == self.total)

    def note(self) -> str:
        """Return the line with trials and speed."""
        spent = time.monotonic() - self._start if self._start else 0.0
        known = self.score.steps is not None and spent > 1 and self._taken
        speed = f", {self._taken / spent:,.0f} {self.score.steps}/s" if known else ""
        return f"{self.ended_count:,} of {self.total:,} trials{speed}"

    def _key(self, figure: float) -> float:
        """Return the sorting key of a figure, or the figure of a key."""
        return figure if self.score.lower_is_better else -figure

    def _shown(self, cell: str) -> tuple[str, str] | None:
        """Return the best figure and the median of a cell; None if it has no figures."""
        keys = self._sorted_keys[cell]
        if not keys:
            return None
        best, median = (format(self._key(key), self.score.format) for key in (keys[0], _median(keys)))
        return best, median

    def _summary(self, cell: str) -> str:
        shown, without = self._shown(cell), self._ended[cell] - len(self._sorted_keys[cell])
        text = f"{cell}: none" if shown is None else f"{cell}: {self.score.first} {shown[0]}, median {shown[1]}"
        return text + (f", {without} diverged or failed" if without else "")

    def rows(self) -> list[tuple[str, ...]]:
        """Return the latest cells with results as (cell, trials, best, median); the number of rows is limited."""
        rows: list[tuple[str, ...]] = [
            (cell, f"{self._ended[cell]}/{self._size[cell]}", *(self._shown(cell) or ("–", "–")))
            for cell in sorted(self._latest, key=self._places.__getitem__)
        ]
        others = self._begun - len(rows)
        return rows if others <= 0 else [(f"and {others} more cells", "", "", ""), *rows]


def _median(ordered: Sequence[float]) -> float:
    """Return the median of sorted numbers, in constant time."""
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
