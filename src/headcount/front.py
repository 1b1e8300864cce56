"""The front door's own pieces: `hc.sweep(task, heads=range(1, 6), seeds=8).plot()` is the whole of an experiment.

`hc.attack(model).save(folder)` is the whole of an attack.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headcount.analysis.analyse import analyse
from headcount.analysis.record import Analysis
from headcount.analysis.result import Transition
from headcount.analysis.transition import find_transition
from headcount.base.errors import BadInput, nearest
from headcount.base.shown import Shown
from headcount.experiments.cpu import train_fast
from headcount.experiments.devices import find_device
from headcount.experiments.run import run_panels
from headcount.experiments.runner import run_on_store
from headcount.experiments.spec import ModelOptions, Panel, SweepSpec, TrainSpec
from headcount.experiments.stored import stored_runs
from headcount.experiments.train import Trained
from headcount.models.files import SavedModel, load_model
from headcount.models.spec import ModelSpec
from headcount.report import figures, pair, tables
from headcount.report.notebook import View
from headcount.report.run_page import write_run_report
from headcount.store.records import Run
from headcount.store.store import Store
from headcount.tasks.arrays import ArrayTask
from headcount.tasks.families import make_task
from headcount.tasks.retrieval import GeneralizedRetrieval
from headcount.tasks.sampling import Box
from headcount.tasks.serial import known_task
from headcount.tasks.task import Task
from headcount.theory import attack as search
from headcount.theory.irreducible import Enclosed, irreducible_bound
from headcount.theory.witness import Witness, conclusions, make_witness, pair_figure


@dataclass(frozen=True)
class SweepResult(Shown):
    """What a sweep found: a run and its transition for every panel (one, unless lengths or sizes were varied too)."""

    runs: list[Run]

    @property
    def transitions(self) -> list[Transition]:
        """The transition of every panel."""
        return [find_transition(run) for run in self.runs]

    @property
    def transition(self) -> Transition:
        """The transition of the only panel."""
        if len(self.runs) != 1:
            raise BadInput(f"this sweep has {len(self.runs)} panels: read .transitions")
        return find_transition(self.runs[0])

    @property
    def analysis(self) -> Analysis:
        """All that the sweep says: cells, drops, slopes, laws, and D with its interval and reasons."""
        return analyse(self.runs)

    def plot(self, path: str | Path | None = None) -> Any:
        """Draw error against heads as a matplotlib figure: a notebook shows it, `path` (png, pdf, svg) keeps it.

        A script without a path finds it as NAME.png in its folder, NAME the sweep's name.
        """
        if path is None and not _shows_itself():  # a script has nobody who would display what is returned
            path = Path(f"{self.runs[0].name}.png")
            print(f"headcount: the picture is in {path}", file=sys.stderr)  # noqa: T201
        return super().plot(path)

    def report(self, folder: str | Path) -> Path:
        """Write one page for all panels, with its charts, cells and analysis as files beside it; return its path."""
        return write_run_report(self.runs, analyse(self.runs), Path(folder)).page

    def __repr__(self) -> str:
        return "\n".join(self._sentences())

    def _sentences(self) -> list[str]:
        labels = [f"{run_label(run)}: " if run.values else "" for run in self.runs]
        return [f"{label}{t.sentence}" for label, t in zip(labels, self.transitions, strict=True)]

    def _view(self) -> View:
        """What a notebook shows; the rows of `table` are the trials, each with its panel's values."""
        if len(self.runs) == 1:
            figure = figures.transition_figure(self.runs[0], self.transition)
        else:
            figure = figures.panels_figure(self.runs)
        rows = [{**run.values, **trial.model_dump(exclude={"curve"})} for run in self.runs for trial in run.trials]
        return View(self._sentences(), [tables.transition_table(t) for t in self.transitions], [figure], rows)


def train(
    task: Task | ArrayTask,
    model: ModelSpec,
    recipe: TrainSpec | None = None,
    *,
    seed: int = 0,
    on_step: Callable[[int, float | None], None] | None = None,
) -> Trained:
    """Train one model on the compiled engine and return it with its record; `.save(folder)` keeps it.

    The same arguments give the same weights. `on_step(steps done, validation error or None)` is called now and then.
    """
    return train_fast(task, model, recipe, seed=seed, on_step=on_step)


@dataclass(frozen=True)
class AttackResult(Shown):
    """Two inputs with (nearly) equal attention output and different targets, with what is proved of them."""

    witness: Witness
    model: SavedModel
    task: Task | None

    @property
    def kind(self) -> str:
        """Which it is: exact (proved), near, or evidence."""
        return self.witness.kind

    @property
    def gap(self) -> float:
        """The gap between the two targets; half of it is a lower bound of the sup error where the pair is exact."""
        return self.witness.gap

    @property
    def deviations(self) -> float:
        """The gap in standard deviations of the target."""
        return self.witness.gap / self.witness.unit

    def figure(self) -> dict[str, Any]:
        """Return the data of the picture."""
        return pair_figure(self.model, self.task, self.witness)

    def _view(self) -> View:
        return View(conclusions(self.witness), figures=[pair.pair_drawing(self.figure())])

    def save(self, folder: str | Path, enclosed: Enclosed | None = None) -> str:
        """Write the model, witness.json, pair.png and pair.html; `headcount recheck FOLDER` verifies it.

        An upper bound that `enclose` proved is kept in enclosure.json; no second program verifies that one.
        """
        figure = self.figure()
        files: dict[str, Any] = {"pair.png": pair.pair_png(figure), "pair.html": pair.pair_html(figure).encode()}
        if enclosed is not None:
            files["enclosure.json"] = {**asdict(enclosed), "sup_error_at_most": enclosed.bound / 2}
        return self.model.save(folder, {"witness.json": self.witness.data, **files})

    def enclose(
        self, seconds: float = 60.0, goal: float = 1.1, on_step: Callable[[float, int, float], None] | None = None
    ) -> Enclosed:
        """Prove an upper bound of the largest gap too, by branch and bound over the box: for few tokens only."""
        if not isinstance(self.task, GeneralizedRetrieval) or self.kind == "evidence":
            raise BadInput("only a retrieval task of expressions can be enclosed: here the target is numbers")
        lower = self.gap if self.kind == "exact" else 0.0
        return irreducible_bound(
            self.model, self.task, self.witness.found.box, output=self.witness.data["output"], seconds=seconds,
            lower=lower, goal=goal, on_step=on_step,
        )  # fmt: skip

    def __repr__(self) -> str:
        return "\n".join(conclusions(self.witness))


def attack(
    model: SavedModel | str | Path, task: Task | None = None, box: Box | None = None, *,
    surrogate: SavedModel | str | Path | None = None, among: search.Among = "all", starts: int = 64,
    seconds: float = 55.0, seed: int = 0, device: str = "cpu", told: search.Told | None = None,
) -> AttackResult:  # fmt: skip
    """Find two inputs that a model's attention cannot tell apart although their targets differ, and prove it.

    `model` is a saved model or its folder, `task` its own unless stated, `box` the two corners of the tokens' box.
    among="typical" keeps to sequences like those of the task's law. With the predictions of a `surrogate` in place of
    a task the result is evidence.
    """
    find_device(device)
    saved = model if isinstance(model, SavedModel) else load_model(model)
    stand_in = surrogate if isinstance(surrogate, SavedModel) or surrogate is None else load_model(surrogate)
    task = task or known_task(saved.task)
    found = search.attack(
        saved, task, box, surrogate=stand_in, among=among, starts=starts, seconds=seconds, seed=seed, device=device,
        told=told,
    )  # fmt: skip
    return AttackResult(make_witness(saved, task, found, stand_in), saved, task)


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
    task: Task | ArrayTask | str,
    heads: Iterable[int] | int = range(1, 6),
    seeds: int = 3,
    *,
    store: str | Path | None = None,
    name: str = "sweep",
    device: str = "cpu",
    workers: int | None = None,
    quiet: bool = False,
    **options: Any,
) -> SweepResult:
    """Train a task with each head count and seed, side by side, and return what was found.

    `task` is a task, or the name of a family. All cores train, a model each, or with device="cuda" one GPU, hundreds
    of models at once. Further options are those of ModelOptions and TrainSpec (head_dim=4,
    steps=2000, …) and, for a family by name, its own parameters. With `store` finished trials are kept and an
    interrupted call goes on where it stopped.
    """
    find_device(device)
    several: Iterable[Any] = heads if isinstance(heads, Iterable) and not isinstance(heads, str) else [heads]
    heads = [_whole(h, "heads") for h in several]
    if workers is not None and _whole(workers, "workers") < 1:
        raise BadInput(f"workers must be at least 1, not {workers}")
    model = ModelOptions(**{k: options.pop(k) for k in list(options) if k in ModelOptions.model_fields})
    train = TrainSpec(**{k: options.pop(k) for k in list(options) if k in TrainSpec.model_fields})
    if isinstance(task, str):
        task = make_task(task, **options)
    elif options:
        allowed = [*ModelOptions.model_fields, *TrainSpec.model_fields]
        raise BadInput(f"unknown option {next(iter(options))!r}: {nearest(next(iter(options)), allowed)}")
    if not isinstance(task, Task | ArrayTask):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise BadInput(f"a sweep needs a task or the name of a family, not {type(task).__name__}")
    if isinstance(task, ArrayTask) or not getattr(task, "symbolic", True):
        if store is not None:
            raise BadInput("arrays and bare Python functions cannot be kept in a store: leave store out")
        SweepSpec(name=name, task={"family": "mean"}, heads=heads, seeds=seeds)  # the same rules for all tasks
        panel = Panel({}, task, model, train, tuple(heads))
        counts = list(heads)
        about = {"name": name, "heads": counts, "seeds": seeds}
        return SweepResult(
            run_panels(name, task.name, about, [panel], seeds, workers=workers, quiet=quiet, device=device)
        )
    spec = SweepSpec(
        name=name, title=task.name, task=task.data(), heads=list(heads), seeds=seeds, model=model, train=train
    )
    if store is None:
        return SweepResult(run_panels(
            name, task.name, spec.data(), spec.panels(), seeds, workers=workers, quiet=quiet, device=device
        ))  # fmt: skip
    with Store.open(store) as opened:
        run_on_store(spec, opened, workers=workers, quiet=quiet, device=device)
        return SweepResult(stored_runs(opened, name, spec))
