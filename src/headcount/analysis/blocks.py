"""The trials of a whole run as arrays: one block for every setting, length and hidden size.

A run of a sweep is a list of panels (`Run`), each with one length, hidden size and target. Here panels that differ in
their target only become one block, whose array has an axis for targets, one for head counts and one for seeds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headcount.analysis.measures import FLOOR, Part, floor
from headcount.core import BadInput
from headcount.store import Run, Trial

Floats = NDArray[np.float64]
AXES = ("length", "hidden", "target", "side")
"""What a block or an axis of it stands for (an image's side goes with its length); every other value of a panel belongs
to the name of its setting."""


@dataclass(frozen=True)
class Block:
    """All trials of one setting, length and hidden size."""

    setting: str
    length: int
    hidden: int
    targets: tuple[str, ...]
    """The targets of the whole setting, so that a target has the same place in all its blocks."""
    heads: tuple[int, ...]
    """The head counts of the whole setting."""
    errors: Floats
    """log10 of the error, [target, head count, seed]; infinite for a diverged trial and beyond `counts`."""
    counts: NDArray[np.int64]
    """[target, head count]: the trials that have a record."""
    panels: tuple[tuple[str, Run], ...]
    """The records behind it, each with its target."""
    on: Part = "validation"
    """The part of the data whose errors these are."""

    @property
    def rate(self) -> bool:
        """Whether the errors are error rates."""
        return self.panels[0][1].measure == "error rate"

    @property
    def floors(self) -> list[float]:
        """What an error rate of 0 counts as, panel by panel, where that is known."""
        return [least for _, run in self.panels if (least := floor(run, self.on)) is not None]

    def trials(self, heads: int) -> list[tuple[str, Trial]]:
        """Return the trials of a head count, each with its target."""
        return [(target, t) for target, run in self.panels for t in run.trials if t.heads == heads]


def blocks(runs: Sequence[Run], on: Part = "validation") -> list[Block]:
    """Sort the panels of one run into blocks, by setting, length and hidden size; `on` is what their errors are of."""
    if not runs:
        raise BadInput("there is nothing to analyse: the run has no panels")
    settings: dict[str, list[Run]] = {}
    for run in runs:
        settings.setdefault(setting_name(run), []).append(run)
    return [block for setting, panels in settings.items() for block in _setting_blocks(setting, panels, on)]


def setting_name(run: Run) -> str:
    """Name what sets a panel apart beside length, hidden size and target: "head dim 4, learning rate 0.01"."""
    named = {k: v for k, v in run.values.items() if k not in AXES}
    return ", ".join(str(v) if k == "setting" else f"{k.replace('_', ' ')} {v}" for k, v in named.items())


def size(run: Run, name: str) -> int:
    """Return a size of a panel: what it varies, or else what its task or model states."""
    model: dict[str, Any] = run.spec.get("model") or {}
    stated: dict[str, Any] = {**model, **run.task} if name == "length" else model
    return int(run.values.get(name, stated.get(name)) or 0)


def head_dim(run: Run, heads: int) -> int:
    """Return the dimension of each head; in a run of fixed width it is the width divided among the heads."""
    total = size(run, "total_head_dim")
    return -(-total // heads) if total else size(run, "head_dim")


def planned(run: Run, heads: int) -> int:
    """Return how many trials of a head count a panel was to have; at least those that it has."""
    found = sum(t.heads == heads for t in run.trials)
    seeds = run.spec.get("seeds")
    return max(found, seeds) if isinstance(seeds, int) and heads in planned_heads(run) else found


def planned_heads(run: Run) -> list[int]:
    """Return the head counts that a panel was to have, in order."""
    heads = run.spec.get("heads")
    return sorted({*(heads if isinstance(heads, list) else []), *(t.heads for t in run.trials)})


def log_error(trial: Trial) -> float:
    """Return log10 of a trial's error, infinite where it has none; rounding errors count as `FLOOR`."""
    finished = trial.state == "done" and trial.nmse is not None
    return float(np.log10(max(trial.nmse or 0.0, FLOOR))) if finished else np.inf


def state_counts(runs: Sequence[Run]) -> dict[str, int]:
    """Count the trials by what became of them, those without a record too."""
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
    most = max((len(errors) for errors in found.values()), default=0)
    errors = np.full((len(targets), len(heads), max(most, 1)), np.inf)
    counts = np.zeros((len(targets), len(heads)), np.int64)
    for place, some in found.items():
        errors[place][: len(some)] = some
        counts[place] = len(some)
    panels = tuple((str(run.values.get("target", "")), run) for run in runs)
    return Block(setting, length, hidden, targets, heads, errors, counts, panels, on)
