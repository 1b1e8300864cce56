"""The irreducible-error curve: the largest gap of a proved collision against the head count, with no F trained anew.

A model is trained for every head count and seed, its encoder and attention are attacked, and half of the largest gap
is what no feed-forward block on top can go below. Layers with random weights beside them are the control. Every unit of
the work is a file, written whole, so that a run that was stopped goes on where it was.

Head counts are compared at equal effort. Of as many starts far fewer converge where there are enough heads, so every
search goes on until as many starts have converged, up to a limit; where one hits the limit or the clock, it says so.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Generator
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from headcount.core import HeadcountError, Spec, content_hash, write_json
from headcount.core.readers import read_json
from headcount.models.transformer import ModelSpec, Size
from headcount.sweeps.spec import ModelOptions, Sizes
from headcount.tasks import parse_task
from headcount.training import TrainSpec

Among = Literal["all", "typical"]
Layer = Literal["trained", "random"]
Told = Callable[[int, int, dict[str, Any]], None]  # units done, units in all, the row of the last


class Cell(Spec):
    """One task and head size with all head counts."""

    task: dict[str, Any]
    heads: Sizes
    head_dim: Size = 8
    seeds: int = Field(default=3, ge=1, le=1000)
    random_seeds: int = Field(default=1, ge=0, le=1000)
    """Seeds of the control, layers with random weights."""


class AttackOptions(Spec):
    """How hard every layer is attacked."""

    starts: int = Field(default=64, ge=1, le=100_000)
    """Starts of one round."""
    converged: int = Field(default=16, ge=1, le=100_000)
    """Rounds go on until so many starts have converged; those after the last one needed do not count."""
    most_starts: int = Field(default=512, ge=1, le=1_000_000)
    """… or until so many starts were made."""
    seconds: float = Field(default=120.0, ge=1.0)
    """Of one round; results do not depend on the machine where no round takes as long."""
    among: list[Among] = Field(default_factory=lambda: ["all", "typical"], min_length=1)


class IrreducibleSpec(Spec):
    """Cells, the model's other options, the training and the attack."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")]
    title: str = ""
    cells: Annotated[list[Cell], Field(min_length=1)]
    model: ModelOptions = ModelOptions()
    train: TrainSpec = TrainSpec()
    attack: AttackOptions = AttackOptions()

    @model_validator(mode="after")
    def _tasks_are_known(self) -> IrreducibleSpec:
        for cell in self.cells:
            task = parse_task(cell.task)
            if task.box is None:
                raise ValueError(f"{task.name} has unbounded tokens: an attack needs a box (limit = 2.5 clips them)")
        return self

    def units(self) -> Generator[Unit]:
        """All attacks of the run."""
        for k, cell in enumerate(self.cells):
            task = parse_task(cell.task)
            options = self.model.model_copy(update={"head_dim": cell.head_dim})
            layers: list[tuple[Layer, int]] = [("trained", cell.seeds), ("random", cell.random_seeds)]
            for h, (layer, seeds) in product(cell.heads, layers):
                model = options.model(heads=h, dim=task.dim, length=task.length, out_dim=task.out_dim)
                for seed in range(seeds):
                    yield Unit(
                        cell=k, task=task.data(), model=model, layer=layer, seed=seed, train=self.train,
                        attack=self.attack,
                    )  # fmt: skip


class Unit(Spec):
    """One layer, attacked among all sequences and among typical ones."""

    cell: int
    task: dict[str, Any]
    model: ModelSpec
    layer: Layer
    seed: int
    train: TrainSpec
    attack: AttackOptions

    def name(self) -> str:
        """A name for a person, with enough of the hash to be the only one."""
        m = self.model
        sizes = f"T{m.length}-n{m.head_dim}-h{m.heads}-{self.layer}-{self.seed}"
        return f"D{parse_task(self.task).intrinsic}-{sizes}-{self.hash_of()[:6]}"

    def hash_of(self) -> str:
        """What it is known by: all that decides it."""
        return content_hash(self.model_dump(mode="json", exclude={"cell"}))

    def file(self, folder: Path) -> Path:
        """Where its result is kept."""
        return folder / "units" / f"{self.hash_of()[:20]}.json"


def attack_unit(unit: Unit, folder: Path) -> dict[str, Any]:
    """Train or draw the layer, attack it, prove and keep what was found; this runs in a process of its own."""
    import torch

    from headcount.models import SavedModel
    from headcount.models.transformer import Transformer
    from headcount.theory.attack import attack, make_witness
    from headcount.training import saved_model, train_fast

    torch.set_num_threads(1)
    task, nmse = parse_task(unit.task), None
    if unit.layer == "trained":
        trained = train_fast(task, unit.model, unit.train, seed=unit.seed)
        if trained.trial.state == "diverged":
            raise HeadcountError(f"the training diverged after {trained.trial.steps} steps: lower learning_rate")
        saved, nmse = saved_model(task, trained), trained.trial.nmse
    else:
        saved = SavedModel(Transformer(unit.model, seed=unit.seed, dtype=torch.float64), task=task.data())
    row: dict[str, Any] = {**named(unit), "nmse_measured": nmse}
    control: list[Among] = ["all"]
    for among in unit.attack.among if unit.layer == "trained" else control:
        options = unit.attack.model_dump(exclude={"among"})
        found = attack(saved, task, among=among, seed=unit.seed, **options)
        witness = make_witness(saved, task, found)
        exact = witness.kind == "exact"
        kept = f"{unit.name()}-{among}" if witness.shows_a_gap else None
        if kept is not None:
            saved.save(folder / "witnesses" / kept, {"witness.json": witness.data})
        row[among] = {
            "deviations": found.deviations, "deviations_proved": witness.gap / witness.unit if exact else None,
            "unit_measured": witness.unit, "distance_float64": found.distances[0], "converged": found.converged,
            "starts": found.starts, "equal_effort": found.converged >= unit.attack.converged and not found.cut_short,
            "cut_short": found.cut_short, "seconds": found.seconds, "witness": kept, "in_support": witness.in_support,
        }  # fmt: skip
    if "typical" in row and "all" in row:
        row["all"] = join_searches(row["all"], row["typical"])
    write_json(unit.file(folder), row)  # by the worker: what is done survives whatever ends the run
    return row


def join_searches(every: dict[str, Any], typical: dict[str, Any]) -> dict[str, Any]:
    """Return the better of two searches, with the starts of both: typical inputs are inputs too."""
    best = every if every["deviations"] >= typical["deviations"] else typical
    proved = max(every["deviations_proved"] or 0.0, typical["deviations_proved"] or 0.0)
    sums = {key: every[key] + typical[key] for key in ("starts", "converged", "seconds")}
    equal, cut = every["equal_effort"] and typical["equal_effort"], every["cut_short"] or typical["cut_short"]
    return {**best, **sums, "deviations_proved": proved or None, "equal_effort": equal, "cut_short": cut}


def run_irreducible(
    spec: IrreducibleSpec, folder: Path, workers: int | None = None, told: Told | None = None
) -> list[dict[str, Any]]:
    """Return the rows of all units; those of an earlier run in the same folder are taken as they are.

    A unit that fails leaves a row with its `error` and no file, so that the next run tries it again.
    """
    units = list(spec.units())
    rows = {k: read_json(u.file(folder)) for k, u in enumerate(units) if u.file(folder).is_file()}
    left = [k for k in range(len(units)) if k not in rows]
    (folder / "units").mkdir(parents=True, exist_ok=True)
    with _own_interrupts():
        pool = ProcessPoolExecutor(min(workers or os.cpu_count() or 1, len(left) or 1), mp_context=get_context("spawn"))
    with pool:
        try:
            with _own_interrupts():
                running = {pool.submit(attack_unit, units[k], folder): k for k in left}
            for future in as_completed(running):
                k = running[future]
                rows[k] = _result(future, units[k])
                if told is not None:
                    told(len(rows), len(units), rows[k])
        except BaseException:  # Ctrl-C too: what is done is in its files, what is under way is given up at once
            for process in list(pool._processes.values()):  # pyright: ignore[reportPrivateUsage]
                process.terminate()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [{**rows[k], "cell": unit.cell} for k, unit in enumerate(units)]


@contextmanager
def _own_interrupts() -> Generator[None]:
    """Start processes that Ctrl-C and a closed terminal do not reach: this one ends them, and they say nothing."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})  # children inherit it
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _result(future: Future[dict[str, Any]], unit: Unit) -> dict[str, Any]:
    """Return what a unit gave; its failure ends nothing but itself."""
    try:
        row = future.result()
    except BrokenExecutor:
        raise
    except Exception as error:
        return {**named(unit), "error": f"{type(error).__name__}: {error}"}
    return row


def named(unit: Unit) -> dict[str, Any]:
    """What a unit is, as the first columns of its row."""
    task = parse_task(unit.task)
    return {
        "cell": unit.cell, "intrinsic": task.intrinsic, "length": task.length, "head_dim": unit.model.head_dim,
        "heads": unit.model.heads, "layer": unit.layer, "seed": unit.seed,
    }  # fmt: skip
