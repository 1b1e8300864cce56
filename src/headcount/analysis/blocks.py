"""The trials of a whole run as arrays: one block for every setting, length and hidden size.

A run of a sweep is a list of panels (`Run`), each with one length, hidden size and target. Panels that differ only in
their target become one block, whose array has an axis for targets, one for head counts and one for seeds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headcount.analysis.measures import ROUNDING_ERROR, Part, error_for_zero
from headcount.core import BadInput
from headcount.store import Run, Trial

Floats = NDArray[np.float64]
AXES = ("length", "hidden", "target", "side")
"""The values of a panel that a block or one of its axes stands for (an image's side goes with its length); all others
make the name of its setting."""


@dataclass(frozen=True)
class Block:
    """All trials of one setting, length and hidden size."""

    setting: str
    length: int
    hidden: int
    targets: tuple[str, ...]
    """The targets of the whole setting: a target has the same index in all blocks."""
    heads: tuple[int, ...]
    """The head counts of the whole setting."""
    errors: Floats
    """log10 of the error, [target, head count, seed]; infinite for diverged trials and beyond `counts`."""
    counts: NDArray[np.int64]
    """[target, head count]: the trials that have a record."""
    panels: tuple[tuple[str, Run], ...]
    """The panels behind it, each with its target."""
    on: Part = "validation"
    """The part of the data whose errors these are."""

    @property
    def rate(self) -> bool:
        """Whether the errors are error rates."""
        return self.panels[0][1].measure == "error rate"

    @property
    def errors_for_zero(self) -> list[float]:
        """What an error rate of 0 counts as in each panel where that is known."""
        return [error for _, run in self.panels if (error := error_for_zero(run, self.on)) is not None]

    def trials(self, heads: int) -> list[tuple[str, Trial]]:
        """Return the trials of a head count, each with its target."""
        return [(target, t) for target, run in self.panels for t in run.trials if t.heads == heads]


def blocks(runs: Sequence[Run], on: Part = "validation") -> list[Block]:
    """Return the panels of one run as blocks, by setting, length and hidden size.

    `on` is the part of the data that their errors were measured on.
    """
    if not runs:
        raise BadInput("nothing to analyse: the run has no panels")
    settings: dict[str, list[Run]] = {}
    for run in runs:
        settings.setdefault(setting_name(run), []).append(run)
    return [block for setting, panels in settings.items() for block in _setting_blocks(setting, panels, on)]


def setting_name(run: Run) -> str:
    """Return the values of a panel other than length, hidden size and target: "head dim 4, learning rate 0.01"."""
    named = {k: v for k, v in run.values.items() if k not in AXES}
    return ", ".join(str(v) if k == "setting" else f"{k.replace('_', ' ')} {v}" for k, v in named.items())


def size(run: Run, name: str) -> int:
    """Return a size of a panel: the one it varies, or else the one that its task or model states."""
    model: dict[str, Any] = run.spec.get("model") or {}
    stated: dict[str, Any] = {**model, **run.task} if name == "length" else model
    return int(run.values.get(name, stated.get(name)) or 0)


def head_dim(run: Run, heads: int) -> int:
    """Return the dimension of each head; in a run of fixed width that is the width divided by the heads."""
    total = size(run, "total_head_dim")
    return -(-total // heads) if total else size(run, "head_dim")


def planned(run: Run, heads: int) -> int:
    """Return how many trials of a head count were planned in a panel; at least as many as it has."""
    found = sum(t.heads == heads for t in run.trials)
    seeds = run.spec.get("seeds")
    return max(found, seeds) if isinstance(seeds, int) and heads in planned_heads(run) else found


def planned_heads(run: Run) -> list[int]:
    """Return the head counts that were planned in a panel, in order."""
    heads = run.spec.get("heads")
    return sorted({*(heads if isinstance(heads, list) else []), *(t.heads for t in run.trials)})


def log_error(trial: Trial) -> float:
    """Return log10 of a trial's error, infinite if it has none; smaller ones count as `ROUNDING_ERROR`."""
    finished = trial.state == "done" and trial.nmse is not None
    return float(np.log10(max(trial.nmse or 0.0, ROUNDING_ERROR))) if finished else np.inf


def state_counts(runs: Sequence[Run]) -> dict[str, int]:
    """Count the trials by state, including those without a record."""
    found = Counter[str]({"done": 0, "diverged": 0, "failed": 0, "pending": 0, "running": 0})
    for run in runs:
        found.update(t.state for t in run.trials)
        found.update(run.left_out)
    return dict(found)


def _setting_blocks(setting: str, runs: Sequence[Run], on: Part) -> list[Block]:
    targets = tuple(dict.fromkeys(str(run.values.get("target", "")) for run in runs))
    heads = tuple(sorted({h for run in runs for h in planned_heads(run)}))
    cells: dict[tuple[int, int], list[Run]] = {}
    for run in runs:
        cells.setdefault((size(run, "length"), size(run, "hidden")), []).append(run)
    return [
        _block(setting, length, hidden, targets, heads, cells[length, hidden], on) for length, hidden in sorted(cells)
    ]


def _block(
    setting: str,
    length: int,
    hidden: int,
    targets: tuple[str, ...],
    heads: tuple[int, ...],
    runs: Sequence[Run],
    on: Part,
) -> Block:
    found: dict[tuple[int, int], list[float]] = {}
    for run in runs:
        k = targets.index(str(run.values.get("target", "")))
        for trial in run.trials:
            found.setdefault((k, heads.index(trial.heads)), []).append(log_error(trial))
    seeds = max((len(errors) for errors in found.values()), default=0)
    errors = np.full((len(targets), len(heads), max(seeds, 1)), np.inf)
    counts = np.zeros((len(targets), len(heads)), np.int64)
    for place, some in found.items():
        errors[place][: len(some)] = some
        counts[place] = len(some)
    panels = tuple((str(run.values.get("target", "")), run) for run in runs)
    return Block(setting, length, hidden, targets, heads, errors, counts, panels, on)
