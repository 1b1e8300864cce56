"""The spec of a sweep: one task with several head counts and several seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Annotated, Any, Literal, TypeGuard

from pydantic import BeforeValidator, Field, model_validator

from headcount.core import BadInput, Spec, provenance
from headcount.models.transformer import FeedForwardKind, ModelSpec, Positions, Size, Transformer
from headcount.store import Run, Trial
from headcount.tasks import FAMILIES, Task, parse_task, sized_family
from headcount.tasks.arrays import ArrayTask
from headcount.training import TrainSpec


class ModelOptions(Spec):
    """The options of a model that neither the task nor the sweep decides (dim, length, out_dim, heads)."""

    head_dim: Size = 8
    total_head_dim: Size | None = None
    """If given, head_dim = ⌈total_head_dim / heads⌉: more heads are narrower, and the width stays about the same."""
    hidden: Size = 32
    parameters: Size | None = None
    """If given, hidden is the largest size whose model has at most this many parameters in all."""
    width: Size | None = None
    hidden_ff: Size | None = None
    depth: Annotated[int, Field(ge=1, le=1000)] = 1
    positions: Positions = "none"
    beta: Literal["scaled", "learned"] | Annotated[float, Field(gt=0)] = "scaled"
    class_key: bool = False
    feedforward: FeedForwardKind = "gelu2"
    layer_norm: bool = False
    residual: bool = False

    def model(self, *, heads: int, dim: int, length: int, out_dim: int) -> ModelSpec:
        """Return the full spec of one model."""
        sizes: dict[str, Any] = {"heads": heads, "dim": dim, "length": length, "out_dim": out_dim}
        fields: dict[str, Any] = self.model_dump(exclude={"total_head_dim", "parameters"})
        if self.total_head_dim is not None:
            fields["head_dim"] = -(-self.total_head_dim // heads)
        if self.parameters is None:
            return ModelSpec(**fields, **sizes)
        return _largest_within(ModelSpec(**{**fields, "hidden_ff": None}, **sizes), self.parameters)  # pyright: ignore[reportArgumentType]


@cache
def _largest_within(model: ModelSpec, max_parameters: int) -> ModelSpec:
    """Return the model with the largest hidden size that has at most `max_parameters` parameters in all."""

    def sized(hidden: int) -> ModelSpec:
        return model.model_copy(update={"hidden": hidden, "hidden_ff": hidden})

    def count(hidden: int) -> int:
        return Transformer(sized(hidden)).counts()["total"]

    if count(1) > max_parameters:
        raise BadInput(
            f"parameters = {max_parameters} is too few for {model.heads} heads of dimension {model.head_dim}: "
            f"the least is {count(1)}"
        )
    low, high = 1, 2
    while count(high) <= max_parameters:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if count(middle) <= max_parameters else (low, middle)
    return sized(low)


def _listed(values: Any) -> Any:
    """Return a single value, a range or a tuple as a list; each value may be listed once."""
    if isinstance(values, int | float) and not isinstance(values, bool):
        values = [values]
    if isinstance(values, range | tuple):
        values = list(values)
    if isinstance(values, list) and len(set(values)) != len(values):
        raise ValueError("each value may be listed once")
    return values


Sizes = Annotated[list[Size], BeforeValidator(_listed), Field(min_length=1)]
Rates = Annotated[list[Annotated[float, Field(gt=0, le=10)]], BeforeValidator(_listed), Field(min_length=1)]
TaskSeeds = Annotated[list[Annotated[int, Field(ge=0)]], BeforeValidator(_listed), Field(min_length=1)]


class Setting(Spec):
    """A named variant of a sweep: its changes to [task], [model], [train] and the lists."""

    name: Annotated[str, Field(min_length=1, max_length=60)]
    task: dict[str, Any] = Field(default_factory=dict[str, Any])
    model: dict[str, Any] = Field(default_factory=dict[str, Any])
    train: dict[str, Any] = Field(default_factory=dict[str, Any])
    heads: Sizes | None = None
    lengths: Sizes | None = None
    hidden: Sizes | None = None
    head_dims: Sizes | None = None


class TrialSpec(Spec):
    """One model trained once; a store names it by the hash of this spec."""

    task: dict[str, Any]
    """The task's JSON data."""
    model: ModelSpec
    train: TrainSpec
    seed: int = Field(ge=0)


MAX_PANELS = 100_000
"""The most combinations of a sweep's lists, except for heads and seeds; each is a task, a model and a recipe."""
MAX_TRIALS = 250_000
"""The most trials of a sweep; planning takes about 8 kB per trial."""
MAX_TASK_NUMBERS = 1 << 26
"""The most numbers in the tasks of all lengths and targets together: their index sets are listed."""


class SweepSpec(Spec):
    """One task trained with every combination of the listed values and every seed.

    `lengths`, `hidden`, `head_dims`, `learning_rates` and `targets` (seeds that draw the task itself) are optional
    lists; without one, the value of [task], [model] or [train] holds. `settings` are named variants of all this.
    `name` is the name of the run, `title` its title on pages, and `heads` the head counts.
    """

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")]
    title: str = ""
    task: dict[str, Any]
    """A family with its parameters ({family = "sum-of-maxima", …}), or a task's full JSON data."""
    heads: Sizes
    lengths: Sizes | None = None
    hidden: Sizes | None = None
    head_dims: Sizes | None = None
    learning_rates: Rates | None = None
    targets: TaskSeeds | None = None
    settings: list[Setting] | None = None
    seeds: int = Field(default=3, ge=1, le=10_000)
    model: ModelOptions = ModelOptions()
    train: TrainSpec = TrainSpec()

    @model_validator(mode="after")
    def _check(self) -> SweepSpec:
        names = [setting.name for setting in self.settings or []]
        if len(set(names)) != len(names):
            raise ValueError("settings: each needs a name of its own")
        if (count := self._count()) > MAX_PANELS:
            raise ValueError(f"the lists make {count:,} combinations beside heads and seeds: at most {MAX_PANELS:,}")
        if (trials := self._count("heads") * self.seeds) > MAX_TRIALS:
            raise ValueError(f"the lists make {trials:,} trials: at most {MAX_TRIALS:,} (sweep them in parts)")
        parts = [self._apply(setting) for setting in self.settings] if self.settings else [self]
        if (numbers := sum(part._task_numbers() for part in parts)) > MAX_TASK_NUMBERS:
            raise ValueError(
                f"the tasks of all lengths take {numbers:,} numbers: at most {MAX_TASK_NUMBERS:,} (sweep fewer)"
            )
        self.panels()  # reports a bad task, length, target or setting here, before anything runs
        return self

    def _count(self, *more: str) -> int:
        """Return the number of panels, without making any; with "heads", the number of models per seed."""
        common = math.prod(len(values or [0]) for values in (self.learning_rates, self.targets))
        by_setting = [
            [getattr(part, key) or getattr(self, key) or [0] for key in ("lengths", "hidden", "head_dims", *more)]
            for part in self.settings or [self]
        ]
        return common * sum(math.prod(map(len, lists)) for lists in by_setting)

    def _task_numbers(self) -> int:
        """Return about how many numbers the tasks of a sweep without settings hold, without making any."""
        name = self.task.get("family")
        if not isinstance(name, str) or name not in FAMILIES:
            return 0  # the file states the whole task
        plain = {key: value for key, value in self.task.items() if key != "family"}
        return sum(sized_family(name, **{**plain, **change}).numbers() for _, change in self._changes())

    def _changes(self) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """Return the values that distinguish each task of a sweep: as shown to users, and as changes to [task]."""
        return [
            (
                {k: v for k, v in (("length", length), ("target", target)) if v is not None},
                {k: v for k, v in (("length", length), ("seed", target)) if v is not None},
            )
            for length, target in product(self.lengths or [None], self.targets or [None])
        ]

    def panels(self) -> list[Panel]:
        """Return the sweep as panels, each a task, a model and a recipe with all head counts and seeds."""
        if not self.settings:
            return self._panels({})
        return [panel for setting in self.settings for panel in self._apply(setting)._panels({"setting": setting.name})]

    def _apply(self, setting: Setting) -> SweepSpec:
        """Return the sweep of one setting, which has no settings of its own."""
        lists = {
            key: value
            for key in ("heads", "lengths", "hidden", "head_dims")
            if (value := getattr(setting, key)) is not None
        }
        parts: dict[str, Any] = {
            "task": {**self.task, **setting.task},
            "model": ModelOptions.parse({**self.model.data(), **setting.model}, where=f"setting {setting.name}"),
            "train": TrainSpec.parse({**self.train.data(), **setting.train}, where=f"setting {setting.name}"),
        }
        return self.model_copy(update={**lists, **parts, "settings": None})

    def _panels(self, setting: dict[str, Any]) -> list[Panel]:
        """Return the panels of a sweep without settings; their values begin with those of `setting`."""
        panels: list[Panel] = []
        for task_values, task in self._tasks():
            for model_values, model, train in self._models():
                values = {**setting, **task_values, **model_values}
                panels.append(Panel(values, task, model, train, tuple(self.heads)))
        return panels

    def _tasks(self) -> list[tuple[dict[str, Any], Task]]:
        """Return the tasks of the sweep, each with the values that distinguish it."""
        if "family" not in self.task and (self.lengths or self.targets):
            raise BadInput(_fixed_text(self.task.get("name"), "lengths" if self.lengths else "targets", self))
        return [(shown, parse_task({**self.task, **change})) for shown, change in self._changes()]

    def _models(self) -> list[tuple[dict[str, Any], ModelOptions, TrainSpec]]:
        """Return every combination of sizes and learning rates, each with the values that distinguish it."""
        found: list[tuple[dict[str, Any], ModelOptions, TrainSpec]] = []
        for hidden, head_dim, rate in product(
            self.hidden or [None], self.head_dims or [None], self.learning_rates or [None]
        ):
            sizes = {k: v for k, v in (("hidden", hidden), ("head_dim", head_dim)) if v is not None}
            rates = {} if rate is None else {"learning_rate": rate}
            model: dict[str, Any] = {**self.model.model_dump(), **sizes}
            train: dict[str, Any] = {**self.train.model_dump(), **rates}
            found.append(({**sizes, **rates}, ModelOptions(**model), TrainSpec(**train)))
        return found


def has_serial_form(task: Task | ArrayTask) -> TypeGuard[Task]:
    """Return whether a spec can state the task; arrays and bare Python functions have no serial form."""
    return isinstance(task, Task) and bool(getattr(task, "symbolic", True))


@dataclass(frozen=True)
class Panel:
    """The part of a sweep in which only heads and seeds vary."""

    values: dict[str, Any]
    task: Task | ArrayTask
    model: ModelOptions
    train: TrainSpec
    heads: tuple[int, ...]

    def trial(self, heads: int, seed: int) -> TrialSpec:
        """Return one trial of the panel."""
        if isinstance(self.task, ArrayTask):
            raise BadInput("arrays have no serial form, so their trials cannot be kept in a store")
        return TrialSpec(task=self.task.data(), model=self.sized(heads), train=self.train, seed=seed)

    def trial_data(self, heads: int, seed: int, number: int) -> dict[str, Any]:
        """Return a trial's spec as data; for arrays and bare functions, the panel's number in the run is its task."""
        if has_serial_form(self.task):
            return self.trial(heads, seed).data()
        model, train = self.sized(heads).data(), self.train.data()
        return {"task": {"panel": number}, "model": model, "train": train, "seed": seed}

    def run(
        self,
        name: str,
        title: str,
        about: dict[str, Any],
        trials: Sequence[Trial],
        seconds: float,
        device: str = "cpu",
    ) -> Run:
        """Return the record of the panel with these trials."""
        task = self.task
        if isinstance(task, ArrayTask):
            stated: dict[str, Any] = {"kind": "arrays", "name": task.name, "hash": task.hash()}
            if task.classes is not None:
                stated["classes"] = len(task.classes)
        else:
            stated = task.data() if has_serial_form(task) else {"kind": "callable", "name": task.name}
        intrinsic = None if isinstance(task, ArrayTask) else task.intrinsic
        blind = not isinstance(task, ArrayTask) and task.positional and self.model.positions == "none"
        return Run(
            name=name,
            title=title,
            task={**stated, "length": task.length, "dim": task.dim},
            intrinsic=intrinsic,
            spec={**about, "heads": list(self.heads), "model": self.model.data(), "train": self.train.data()},
            sweep=about if "task" in about else {},
            values=self.values,
            blind=blind,
            trials=sorted(trials, key=lambda t: (t.heads, t.seed)),
            provenance=provenance(device),
            seconds=seconds,
        )

    def sized(self, heads: int) -> ModelSpec:
        """Return the model with this number of heads."""
        task = self.task
        return self.model.model(heads=heads, dim=task.dim, length=task.length, out_dim=task.out_dim)


def _fixed_text(name: str | None, key: str, spec: SweepSpec) -> str:
    """Return the message why a fully stated task cannot vary in length or draw, and what to do."""
    what = "length" if key == "lengths" else "draw"
    if name not in FAMILIES:
        return f"{key}: this task belongs to no family and has one {what}: sweep one task for each {what}"
    call = f'hc.sweep("{name}", {key}={list(getattr(spec, key))}, …)'
    return (
        f"{key}: this task is fully stated and has one {what}: give the family's name, {call}; "
        f'in a sweep file family = "{name}" under [task]'
    )
