"""`hc.sweep(task, heads=range(1, 6), seeds=8).plot()` is the whole of an experiment."""

from __future__ import annotations

import inspect
import logging
import operator
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from headcount.analysis import Analysis, Dimension, analyse, answers, blind_note, head_rows
from headcount.core import BadInput, Displayable, nearest
from headcount.core.text import notify, plain
from headcount.render import View, tables, write_run_report
from headcount.render.charts import panels_chart, transition_chart
from headcount.store import Run, Store
from headcount.sweeps import (
    ModelOptions,
    Panel,
    SweepSpec,
    check_overridden,
    choose_positions,
    default_positions,
    has_serial_form,
    read_sweep,
    run_on_store,
    run_panels,
    stored_runs,
)
from headcount.tasks import FAMILIES, MeanTask, Task, family
from headcount.tasks.arrays import ArrayTask
from headcount.tasks.expressions import variable
from headcount.training import TrainSpec, find_device

log = logging.getLogger("headcount")


@dataclass(frozen=True)
class SweepResult(Displayable):
    """What a sweep found: a run for every panel (one, unless lengths or sizes were varied too), and the answers.

    An answer is read off all lengths, hidden sizes and targets of one setting together; there is one, unless the
    sweep varies anything else.
    """

    runs: list[Run]

    @cached_property
    def transitions(self) -> list[Dimension]:
        """How many heads are needed, one record for every setting."""
        return answers(self.runs)

    @property
    def transition(self) -> Dimension:
        """How many heads are needed, where the sweep has one setting: its `heads_needed`, `sentence` and so on."""
        if len(self.transitions) != 1:
            raise BadInput(f"this sweep has {len(self.transitions)} settings: read .transitions")
        return self.transitions[0]

    @cached_property
    def analysis(self) -> Analysis:
        """All that the sweep says: cells, drops, slopes, laws, and D with its interval and reasons."""
        return analyse(self.runs)

    def plot(self, path: str | Path | None = None) -> Any:
        """Draw error against heads as a matplotlib figure: a notebook shows it, `path` (png, pdf, svg) keeps it.

        A script without a path finds it as NAME.png in its folder, NAME the sweep's name.
        """
        if path is None and not _shows_itself():  # a script has nobody who would display what is returned
            path = Path(f"{self.runs[0].name}.png")
            notify(f"the picture is in {path}")
        return super().plot(path)

    def report(self, folder: str | Path) -> Path:
        """Write a folder: one page for all panels, its charts, cells and analysis; return the page's path."""
        return write_run_report(self.runs, self.analysis, Path(folder)).page

    def __repr__(self) -> str:
        return "\n".join(map(plain, self._sentences()))

    def _sentences(self) -> list[str]:
        note = blind_note(self.runs)
        return [*(found.labelled for found in self.transitions), *([note] if note else [])]

    def _view(self) -> View:
        """What a notebook shows; the rows of `table` are the trials, each with its panel's values."""
        if len(self.runs) == 1:
            chart = transition_chart(self.runs[0], self.transition)
            shown = [tables.transition_table(self.transition)]
        else:
            chart = panels_chart(self.runs, self.transitions)
            shown = [tables.row_table(head_rows(run.trials), None, run_label(run)) for run in self.runs]
        rows = [{**run.values, **trial.model_dump(exclude={"curve"})} for run in self.runs for trial in run.trials]
        return View(self._sentences(), shown, [chart], rows)


def _shows_itself() -> bool:
    """Whether somebody displays what a line returns: a notebook, IPython or Python's own prompt."""
    notebook = "IPython" in sys.modules and sys.modules["IPython"].get_ipython() is not None
    return notebook or hasattr(sys, "ps1")


def _whole(value: Any, what: str) -> int:
    """Read a whole number of any kind, but no text, bool or 1.5."""
    try:
        if isinstance(value, bool | str):
            raise TypeError
        return operator.index(value)
    except TypeError:
        raise BadInput(f"{what} must be whole numbers, not {value!r}") from None


def run_label(run: Run) -> str:
    """Name a panel by what sets it apart: length-16-hidden-32."""
    return "-".join(f"{key}-{value}" for key, value in run.values.items()) or run.name


def sweep(
    task: Task | ArrayTask | SweepSpec | str | Path,
    heads: Iterable[int] | int | None = None,
    seeds: int | None = None,
    *,
    lengths: Iterable[int] | int | None = None,
    hidden: Iterable[int] | int | None = None,
    head_dims: Iterable[int] | int | None = None,
    learning_rates: Iterable[float] | float | None = None,
    targets: Iterable[int] | int | None = None,
    store: str | Path | None = None,
    name: str | None = None,
    device: str = "cpu",
    workers: int | None = None,
    quiet: bool = False,
    **options: Any,
) -> SweepResult:
    """Train a task with every combination of the listed values and every seed, and return what was found.

    task: a task, arrays, the name of a family, a SweepSpec, or the path of a sweep file (ending in .toml). The last
    two state the whole sweep, so that of the other arguments only store, device, workers and quiet go with them.
    heads: head counts (default 1 to 5). seeds: random starts of each (default 3).
    lengths, targets: sequence lengths, and seeds that draw the task itself; for a family by name.
    hidden, head_dims, learning_rates: hidden sizes, head sizes and learning rates. An option for one value (length,
    seed, head_dim, learning_rate) beside the list of the same (lengths, targets, head_dims, learning_rates) is refused.
    store: folder that keeps finished trials (default: none is kept); an interrupted call goes on where it stopped.
    name: the run's name in the store (default "sweep"). device: "cpu" (a model a core) or "cuda" (hundreds of models
    at once on one GPU). workers: cores to use (default all). quiet: no progress.
    options: those of ModelOptions and TrainSpec (head_dim=4, steps=2000, …) and, for a family by name, its own
    parameters. Where positions are not stated they are chosen from the task: "concatenated" where its answer depends
    on where tokens stand, else "none".
    """
    find_device(device)
    if workers is not None and _whole(workers, "workers") < 1:
        raise BadInput(f"workers must be at least 1, not {workers}")
    lists = {
        "heads": heads,
        "lengths": lengths,
        "hidden": hidden,
        "head_dims": head_dims,
        "learning_rates": learning_rates,
        "targets": targets,
    }
    if isinstance(task, SweepSpec | Path) or (isinstance(task, str) and task.endswith(".toml")):
        _check_names(options, _OPTIONS | _family_fields(), {"store", "device", "workers", "quiet"})
        given = [k for k, v in {**lists, "seeds": seeds, "name": name, **options}.items() if v is not None]
        if given:
            raise BadInput(f"{given[0]}: a SweepSpec or a sweep file states the whole sweep: change it there")
        spec = choose_positions(task) if isinstance(task, SweepSpec) else read_sweep(Path(task))
        panels = spec.panels()
    else:
        lists["heads"] = range(1, 6) if heads is None else heads
        spec, panels = _stated(task, lists, 3 if seeds is None else seeds, "sweep" if name is None else name, options)
    if store is None:
        about = {k: v for k, v in spec.data().items() if k != "task" or has_serial_form(panels[0].task)}
        return SweepResult(
            run_panels(spec.name, spec.title, about, panels, spec.seeds, workers=workers, quiet=quiet, device=device)
        )
    if not has_serial_form(panels[0].task):
        raise BadInput("arrays and bare Python functions cannot be kept in a store: leave store out")
    with Store.open(store) as opened:
        run_on_store(spec, opened, workers=workers, quiet=quiet, device=device)
        return SweepResult(stored_runs(opened, spec.name, spec))


def _stated(
    task: Task | ArrayTask | str, lists: dict[str, Any], seeds: int, name: str, options: dict[str, Any]
) -> tuple[SweepSpec, list[Panel]]:
    """Return the sweep that arguments state, and its panels; that of arrays or bare functions lacks their task."""
    check_overridden(options, lists)
    known = _OPTIONS | (_family_fields(task) if isinstance(task, str) else set())
    if fixed := [name for name in options if name in _family_fields() - known and name != "seed"]:
        raise BadInput(f"{fixed[0]}: the task given has its own; to choose another, give a family by name")
    _check_names(options, known, known | set(inspect.signature(sweep).parameters) - {"task", "options"})
    if not isinstance(lists["hidden"], Iterable):  # one size is the model's own
        options = {**options, **({} if lists["hidden"] is None else {"hidden": lists["hidden"]})}
        lists = {**lists, "hidden": None}
    model = ModelOptions(**{k: options.pop(k) for k in list(options) if k in ModelOptions.model_fields})
    train = TrainSpec(**{k: options.pop(k) for k in list(options) if k in TrainSpec.model_fields})
    values: dict[str, Any] = {key: _several(key, value) for key, value in lists.items()}
    if isinstance(task, str):
        stated, title = family(task, **options).data(), task
    else:
        if not isinstance(task, Task | ArrayTask):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise BadInput(
                f"a sweep needs a task, the name of a family, a SweepSpec or a sweep file, not {type(task).__name__}"
            )
        title = task.name
        stated = task.data() if has_serial_form(task) else _PLACEHOLDER
        if "positions" not in model.model_fields_set:
            model = model.model_copy(update={"positions": default_positions(task)})
    spec = SweepSpec(name=name, title=title, task=stated, seeds=seeds, model=model, train=train, **values)
    if isinstance(task, str):
        spec = choose_positions(spec)
    panels = spec.panels()
    return spec, panels if isinstance(task, str) else [replace(panel, task=task) for panel in panels]


_OPTIONS = {*ModelOptions.model_fields, *TrainSpec.model_fields}


def _family_fields(name: str | None = None) -> set[str]:
    """Return the parameters of a family, or those that any family has."""
    if name is not None and name not in FAMILIES:
        raise BadInput(f"unknown task {name!r}: {nearest(name, FAMILIES)}")
    families = FAMILIES.values() if name is None else [FAMILIES[name]]
    return {field for one in families for field in one.model_fields} - {"family"}


def _check_names(options: Iterable[str], known: set[str], allowed: set[str]) -> None:
    """Refuse the first option that is not known, with the nearest name that is allowed."""
    for name in options:
        if name not in known:
            raise BadInput(f"unknown option {name!r}: {nearest(name, allowed)}")


_PLACEHOLDER = {**MeanTask(variable(1).sum(), length=1).data(), "name": "placeholder"}  # "mean" is a family's
"""Stands in a spec for a task that has no serial form, so that the same rules hold for all."""


def _several(what: str, values: Any) -> list[Any] | None:
    """Read a list of numbers, or one number; None stays None."""
    if values is None:
        return None
    listed: list[Any] = list(values) if isinstance(values, Iterable) and not isinstance(values, str) else [values]
    if what != "learning_rates":
        return [_whole(value, what) for value in listed]
    try:
        if any(isinstance(value, str | bool) for value in listed):
            raise TypeError
        return [float(value) for value in listed]
    except TypeError:
        raise BadInput(f"{what} must be numbers, not {listed!r}") from None
