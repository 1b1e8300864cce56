"""`hc.sweep`: a whole experiment in one call, and its result, which can be read, plotted and reported."""

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

from headcount.analysis import Analysis, Dimension, analyse, answers, head_rows
from headcount.core import BadInput, Displayable, nearest
from headcount.core.text import notify, plain
from headcount.render import View, tables, write_run_report
from headcount.render.charts import panels_chart, transition_chart
from headcount.render.words import blind_note
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


@dataclass(frozen=True, repr=False)
class SweepResult(Displayable):
    """The result of a sweep: the trials, and how many heads are needed.

    An answer combines all lengths, hidden sizes and targets of one setting; a sweep has several settings only if it
    varies anything else, such as the head size.
    """

    runs: list[Run]
    """One for every panel: a combination of all that is varied except heads and seeds."""

    @cached_property
    def transitions(self) -> list[Dimension]:
        """How many heads are needed: one record for every setting."""
        return answers(self.runs)

    @property
    def transition(self) -> Dimension:
        """How many heads are needed, if the sweep has one setting: its `heads_needed`, `sentence` and so on."""
        if len(self.transitions) != 1:
            raise BadInput(f"this sweep has {len(self.transitions)} settings: read .transitions")
        return self.transitions[0]

    @cached_property
    def analysis(self) -> Analysis:
        """The full analysis: cells, drops, slopes, laws, and D with its interval and reasons."""
        return analyse(self.runs)

    def plot(self, path: str | Path | None = None) -> Any:
        """Return error against heads as a matplotlib figure, which a notebook shows; `path` (png, pdf, svg) saves it.

        In a script, where nothing shows the figure, the default path is NAME.png in the working directory, with the
        sweep's name.
        """
        if path is None and not _is_interactive():
            path = Path(f"{self.runs[0].name}.png")
            notify(f"the picture is in {path}")
        return super().plot(path)

    def report(self, folder: str | Path) -> Path:
        """Write a folder with one page for all panels, its charts, cells and analysis; return the page's path."""
        return write_run_report(self.runs, self.analysis, Path(folder)).page

    def __str__(self) -> str:
        return "\n".join(map(plain, self._sentences()))

    def _sentences(self) -> list[str]:
        note = blind_note(self.runs)
        return [*(found.labelled for found in self.transitions), *([note] if note else [])]

    def _view(self) -> View:
        """Return the view; the rows of its table are the trials, each with its panel's values."""
        if len(self.runs) == 1:
            chart = transition_chart(self.runs[0], self.transition)
            drawn = [tables.transition_table(self.transition)]
        else:
            chart = panels_chart(self.runs, self.transitions)
            drawn = [tables.row_table(head_rows(run.trials), None, run_label(run)) for run in self.runs]
        rows = [{**run.values, **trial.model_dump(exclude={"curve"})} for run in self.runs for trial in run.trials]
        return View(self._sentences(), drawn, [chart], rows, headline=self._headline())

    def _headline(self) -> str:
        """Return the answer in one line, or how many there are."""
        if len(self.transitions) == 1:
            return " ".join(self._sentences())
        trials = sum(len(run.trials) for run in self.runs)
        line = f"{self.runs[0].name}: {len(self.transitions)} settings, {trials} trials (read .transitions)."
        return f"{line} {blind_note(self.runs)}".rstrip()


def _is_interactive() -> bool:
    """Whether the value of an expression is displayed: in a notebook, IPython or Python's own prompt."""
    notebook = "IPython" in sys.modules and sys.modules["IPython"].get_ipython() is not None
    return notebook or hasattr(sys, "ps1")


def _whole_number(value: Any, name: str) -> int:
    """Return a whole number of any type as an int; refuse texts, bools and fractions."""
    try:
        if isinstance(value, bool | str):
            raise TypeError
        return operator.index(value)
    except TypeError:
        raise BadInput(f"{name} must be whole numbers, not {value!r}") from None


def run_label(run: Run) -> str:
    """Return a name for a panel, made of the values that set it apart: length-16-hidden-32."""
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
    """Train a task with every combination of the listed values and every seed, and return the result.

    task: a task, arrays, the name of a family, a SweepSpec, or the path of a sweep file (ending in .toml). The last
    two state the whole sweep; only store, device, workers and quiet may be combined with them.
    heads: head counts (default 1 to 5). seeds: random starts of each (default 3).
    lengths, targets: sequence lengths, and seeds that draw the task itself; only for a family by name.
    hidden, head_dims, learning_rates: hidden sizes, head sizes and learning rates. A single value (length, seed,
    head_dim, learning_rate) cannot be combined with its list (lengths, targets, head_dims, learning_rates).
    store: folder that keeps finished trials (default: none is kept); an interrupted call resumes where it stopped.
    name: the run's name in the store (default "sweep"). device: "cpu" (one model per core) or "cuda" (hundreds of
    models at once on one GPU). workers: cores to use (default all). quiet: whether to hide progress (default False).
    options: those of ModelOptions and TrainSpec (head_dim=4, steps=2000, …) and, for a family by name, its own
    parameters. Unless stated, positions depend on the task: "concatenated" if its answer depends on where tokens
    stand, else "none".
    """
    find_device(device)
    if workers is not None and _whole_number(workers, "workers") < 1:
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
        description = {k: v for k, v in spec.data().items() if k != "task" or has_serial_form(panels[0].task)}
        return SweepResult(
            run_panels(
                spec.name, spec.title, description, panels, spec.seeds, workers=workers, quiet=quiet, device=device
            )
        )
    if not has_serial_form(panels[0].task):
        raise BadInput("arrays and bare Python functions cannot be kept in a store: leave store out")
    with Store.open(store) as opened:
        run_on_store(spec, opened, workers=workers, quiet=quiet, device=device)
        return SweepResult(stored_runs(opened, spec.name, spec))


def _stated(
    task: Task | ArrayTask | str, lists: dict[str, Any], seeds: int, name: str, options: dict[str, Any]
) -> tuple[SweepSpec, list[Panel]]:
    """Return the spec and the panels of a sweep; arrays and bare functions are in the panels only."""
    check_overridden(options, lists)
    known = _OPTIONS | (_family_fields(task) if isinstance(task, str) else set())
    if fixed := [name for name in options if name in _family_fields() - known and name != "seed"]:
        raise BadInput(f"{fixed[0]}: this task has its own: to choose another, name a family instead")
    _check_names(options, known, known | set(inspect.signature(sweep).parameters) - {"task", "options"})
    if not isinstance(lists["hidden"], Iterable):  # a single size is an option of the model
        options = {**options, **({} if lists["hidden"] is None else {"hidden": lists["hidden"]})}
        lists = {**lists, "hidden": None}
    model = ModelOptions(**{k: options.pop(k) for k in list(options) if k in ModelOptions.model_fields})
    train = TrainSpec(**{k: options.pop(k) for k in list(options) if k in TrainSpec.model_fields})
    values: dict[str, Any] = {key: _number_list(key, value) for key, value in lists.items()}
    if isinstance(task, str):
        task_data, title = family(task, **options).data(), task
    else:
        if not isinstance(task, Task | ArrayTask):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise BadInput(
                f"a sweep needs a task, the name of a family, a SweepSpec or a sweep file, not {type(task).__name__}"
            )
        title = task.name
        task_data = task.data() if has_serial_form(task) else _PLACEHOLDER
        if "positions" not in model.model_fields_set:
            model = model.model_copy(update={"positions": default_positions(task)})
    spec = SweepSpec(name=name, title=title, task=task_data, seeds=seeds, model=model, train=train, **values)
    if isinstance(task, str):
        spec = choose_positions(spec)
    panels = spec.panels()
    return spec, panels if isinstance(task, str) else [replace(panel, task=task) for panel in panels]


_OPTIONS = {*ModelOptions.model_fields, *TrainSpec.model_fields}


def _family_fields(name: str | None = None) -> set[str]:
    """Return the parameters of a family, or without a name those of all families."""
    if name is not None and name not in FAMILIES:
        raise BadInput(f"unknown task {name!r}: {nearest(name, FAMILIES)}")
    families = FAMILIES.values() if name is None else [FAMILIES[name]]
    return {field for spec in families for field in spec.model_fields} - {"family"}


def _check_names(options: Iterable[str], known: set[str], allowed: set[str]) -> None:
    """Refuse the first unknown option, and suggest the nearest of the allowed names."""
    for name in options:
        if name not in known:
            raise BadInput(f"unknown option {name!r}: {nearest(name, allowed)}")


_PLACEHOLDER = {**MeanTask(variable(1).sum(), length=1).data(), "name": "placeholder"}  # "mean" is a family's
"""The task in the spec of a sweep whose own task has no serial form; its options are checked all the same."""


def _number_list(name: str, values: Any) -> list[Any] | None:
    """Return several numbers or a single one as a list; None stays None."""
    if values is None:
        return None
    listed: list[Any] = list(values) if isinstance(values, Iterable) and not isinstance(values, str) else [values]
    if name != "learning_rates":
        return [_whole_number(value, name) for value in listed]
    try:
        if any(isinstance(value, str | bool) for value in listed):
            raise TypeError
        return [float(value) for value in listed]
    except TypeError:
        raise BadInput(f"{name} must be numbers, not {listed!r}") from None
