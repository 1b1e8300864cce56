"""The irreducible-error curve: the largest gap of a proved collision, by head count, without training any F anew.

For every head count and seed a model is trained and its encoder and attention are attacked. No feed-forward block on
top can have a smaller error than half of the largest gap. Layers with random weights are the control. A layer with its
attacks is a trial like any other: the store keeps the results with the layer's weights and its witnesses, and a stopped
run can be continued. Each trial has a process of its own, since a search holds Python's global lock.

Head counts are compared at equal effort. Far fewer starts converge when there are enough heads, so every search
continues until the same number of starts have converged, up to a limit, and reports if it hits the limit or the clock.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, model_validator

from headcount.core import HeadcountError, Progress, Spec, Worker, content_hash, json_bytes
from headcount.core.readers import parse_json
from headcount.models import SavedModel
from headcount.models.transformer import Flat, ModelSpec, Size, Transformer
from headcount.store import Store, StoredTrial, Trial
from headcount.sweeps.backends import TrainStacks
from headcount.sweeps.cores import BeginOnCore
from headcount.sweeps.engine import Listener
from headcount.sweeps.experiments import Experiment
from headcount.sweeps.scoreboard import Entry, Score
from headcount.sweeps.spec import MAX_TRIALS, ModelOptions, Sizes
from headcount.tasks import parse_task
from headcount.training import Ending, Moments, OnStep, Session, Stopped, TrainSpec, saved_model, train_fast

InputSet = Literal["all", "typical"]
Layer = Literal["trained", "random"]


class AttackCell(Spec):
    """One task and head size, with all head counts."""

    task: dict[str, Any]
    heads: Sizes
    head_dim: Size = 8
    seeds: int = Field(default=3, ge=1, le=1000)
    random_seeds: int = Field(default=1, ge=0, le=1000)
    """Number of seeds of the control, layers with random weights."""


class AttackOptions(Spec):
    """The effort of the attack on each layer."""

    starts: int = Field(default=64, ge=1, le=100_000)
    """Starts in one round."""
    converged: int = Field(default=16, ge=1, le=100_000)
    """Rounds continue until this many starts have converged; starts after the last one needed do not count."""
    most_starts: int = Field(default=512, ge=1, le=1_000_000)
    """The most starts in all rounds."""
    seconds: float = Field(default=120.0, ge=1.0)
    """The most seconds for one round; results depend on the machine only if a round takes longer."""
    among: list[InputSet] = Field(default_factory=lambda: ["all", "typical"], min_length=1)


class IrreducibleSpec(Spec):
    """The cells of a curve, the model's other options, the training and the attack."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")]
    title: str = ""
    cells: Annotated[list[AttackCell], Field(min_length=1)]
    model: ModelOptions = ModelOptions()
    train: TrainSpec = TrainSpec()
    attack: AttackOptions = AttackOptions()

    @model_validator(mode="after")
    def _check(self) -> IrreducibleSpec:
        attacks = sum(len(cell.heads) * (cell.seeds + cell.random_seeds) for cell in self.cells)
        if attacks > MAX_TRIALS:
            raise ValueError(f"the cells make {attacks:,} attacks: at most {MAX_TRIALS:,} (use several specs)")
        for cell in self.cells:
            task = parse_task(cell.task)
            if task.box is None:
                raise ValueError(f"{task.name} has unbounded tokens: an attack needs a box (limit = 2.5 clips them)")
        return self

    def units(self) -> Generator[AttackUnit]:
        """Yield all layers of the run."""
        for k, cell in enumerate(self.cells):
            task = parse_task(cell.task)
            options = self.model.model_copy(update={"head_dim": cell.head_dim})
            layers: list[tuple[Layer, int]] = [("trained", cell.seeds), ("random", cell.random_seeds)]
            for h, (layer, seeds) in product(cell.heads, layers):
                model = options.model(heads=h, dim=task.dim, length=task.length, out_dim=task.out_dim)
                for seed in range(seeds):
                    yield AttackUnit(
                        cell=k,
                        task=task.data(),
                        model=model,
                        layer=layer,
                        seed=seed,
                        train=self.train,
                        attack=self.attack,
                    )


class AttackUnit(Spec):
    """One layer, attacked among all sequences and among typical ones."""

    cell: int
    task: dict[str, Any]
    model: ModelSpec
    layer: Layer
    seed: int
    train: TrainSpec
    attack: AttackOptions

    def name(self) -> str:
        """Return a readable name, made unique by a part of the hash."""
        m = self.model
        sizes = f"T{m.length}-n{m.head_dim}-h{m.heads}-{self.layer}-{self.seed}"
        return f"D{parse_task(self.task).intrinsic}-{sizes}-{self.hash_of()[:6]}"

    def identity(self) -> dict[str, Any]:
        """Return everything that decides the result: the spec that a store keeps."""
        return self.model_dump(mode="json", exclude={"cell"})

    def hash_of(self) -> str:
        """Return the hash that names the trial."""
        return content_hash(self.identity())


# -- one trial ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AttackResult:
    """The result for one layer: its record, what each search found, and the arrays to store."""

    trial: Trial
    found: dict[str, dict[str, Any]]
    arrays: dict[str, NDArray[Any]]


def attack_unit(unit: AttackUnit) -> AttackResult:
    """Train or draw the layer, attack it, and prove the gaps found; this runs in a process of its own."""
    torch.set_num_threads(1)
    task = parse_task(unit.task)
    if unit.layer == "trained":
        trained = train_fast(task, unit.model, unit.train, seed=unit.seed)
        record, model = trained.trial, saved_model(task, trained)
        if record.state == "diverged":
            return AttackResult(record, {}, {})
    else:
        model = SavedModel(Transformer(unit.model, seed=unit.seed, dtype=torch.float64), task=task.data())
        counts = model.transformer.counts()
        record = Trial(
            heads=unit.model.heads,
            seed=unit.seed,
            state="done",
            nmse=None,
            train_nmse=None,
            steps=0,
            seconds=0.0,
            parameters=counts["paper"],
            parameters_total=counts["total"],
        )
    arrays = {
        "theta": Flat.of(unit.model).pack(model.transformer),
        "mean": np.array(model.mean),
        "std": np.array(model.std),
    }
    control: list[InputSet] = ["all"]
    found: dict[str, dict[str, Any]] = {}
    for among in unit.attack.among if unit.layer == "trained" else control:
        found[among], witness = _search(unit, model, among)
        if witness is not None:
            arrays[f"witness-{among}"] = np.frombuffer(json_bytes(witness), np.uint8)
    if "typical" in found and "all" in found:
        found["all"] = merge_searches(found["all"], found["typical"])
    return AttackResult(record, found, arrays)


def _search(unit: AttackUnit, model: SavedModel, among: InputSet) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Return the result of one search, and the witness if it found a gap."""
    from headcount.theory.attack import attack, make_witness  # only in the process that attacks

    task = parse_task(unit.task)
    options = unit.attack.model_dump(exclude={"among"})
    found = attack(model, task, among=among, seed=unit.seed, **options)
    witness = make_witness(model, task, found)
    exact, shows = witness.kind == "exact", witness.shows_a_gap
    row = {
        "deviations": found.deviations,
        "deviations_proved": witness.gap / witness.unit if exact else None,
        "unit_measured": witness.unit,
        "distance_float64": found.distances[0],
        "converged": found.converged,
        "starts": found.starts,
        "equal_effort": found.converged >= unit.attack.converged and not found.cut_short,
        "cut_short": found.cut_short,
        "witness": f"{unit.name()}-{among}" if shows else None,
        "in_support": witness.in_support,
    }
    return row, witness.data if shows else None


def merge_searches(among_all: dict[str, Any], among_typical: dict[str, Any]) -> dict[str, Any]:
    """Return the result among all inputs: the better of two searches, since typical inputs are inputs too."""
    searches = (among_all, among_typical)
    best = among_all if among_all["deviations"] >= among_typical["deviations"] else among_typical
    proved = max(search["deviations_proved"] or 0.0 for search in searches)
    sums = {key: among_all[key] + among_typical[key] for key in ("starts", "converged")}
    equal = among_all["equal_effort"] and among_typical["equal_effort"]
    cut = among_all["cut_short"] or among_typical["cut_short"]
    return {**best, **sums, "deviations_proved": proved or None, "equal_effort": equal, "cut_short": cut}


@dataclass(frozen=True)
class AttackJob:
    """One layer to be attacked; there are no checkpoints, so a stopped attack starts again."""

    unit: AttackUnit
    moments: Moments | None = None


class AttackSession(Session[AttackJob]):
    """The attack on one layer in a process of its own; the thread that launches it waits without Python's lock."""

    def __init__(
        self, workers: queue.SimpleQueue[Worker], members: Sequence[tuple[str, AttackJob]], on_step: OnStep
    ) -> None:
        """Take one trial, and the queue of idle processes."""
        del on_step  # the session ends in its first window
        super().__init__(members, window=0)
        self._workers = workers
        self._attacked: AttackResult | None = None

    @property
    def steps(self) -> int:
        return 0

    def launch(self, stop: threading.Event) -> None:
        """Train and attack the layer; raise Stopped if `stop` is set before that is done."""
        try:
            worker = self._workers.get_nowait()
        except queue.Empty:
            worker = Worker()
        try:
            self._attacked = worker.call(attack_unit, self.jobs[0].unit, stop=stop)
        finally:
            if worker.alive:
                self._workers.put(worker)
        if self._attacked is None:
            raise Stopped

    def collect(self) -> list[Ending]:
        if self._attacked is None:
            return []
        self.unfinished.clear()
        trial = self._attacked.trial.model_copy(update={"seconds": self.seconds(0)})
        return [Ending(self.members[0][0], trial, measured=self._attacked.found, arrays=self._attacked.arrays or None)]

    def moments(self) -> list[Moments]:
        raise HeadcountError("an attack has no checkpoints")


# -- all of them --------------------------------------------------------------------------------------------


def _largest_gap(metrics: Mapping[str, Any]) -> float | None:
    """Return the largest gap that was found, in standard deviations; None if there is none."""
    return max((metrics[among]["deviations"] for among in ("all", "typical") if among in metrics), default=None)


class Attacks(Experiment):
    """An experiment: every layer of a spec, with its attacks."""

    title = "attacking"
    score = Score(_largest_gap, "largest", "gap", ".2f", lower_is_better=False, steps=None)

    def __init__(self, spec: IrreducibleSpec) -> None:
        super().__init__(spec.name, {"spec": spec.data()})
        self._units = {unit.hash_of(): unit for unit in spec.units()}
        self._workers: queue.SimpleQueue[Worker] = queue.SimpleQueue()
        self.names = list(self._units)

    def spec(self, trial: str) -> dict[str, Any]:
        return self._units[trial].identity()

    def entry(self, trial: str) -> Entry:
        m, unit = self._units[trial].model, self._units[trial]
        sizes = f"D = {parse_task(unit.task).intrinsic}, T = {m.length}, n = {m.head_dim}, h = {m.heads}"
        return Entry(sizes if unit.layer == "trained" else f"{sizes}, random weights", 1, 1.0)

    def check(self, left: Sequence[str]) -> None:
        del left  # every valid spec can be run

    def job(self, trial: str, moments: Moments | None) -> AttackJob:
        del moments  # an attack has no checkpoints
        return AttackJob(self._units[trial])

    def on_cores(self, left: Sequence[str], progress: Progress) -> BeginOnCore:
        del left, progress  # nothing to prepare
        return partial(AttackSession, self._workers)

    def on_device(self, left: Sequence[str], train: TrainStacks, listener: Listener, device: torch.device) -> None:
        del left, train, listener
        raise HeadcountError(f"attacks run on a CPU, not on {device}")

    def close(self) -> None:
        while not self._workers.empty():
            self._workers.get_nowait().close()

    def final_arrays(self, ending: Ending) -> dict[str, NDArray[Any]] | None:
        return ending.arrays


# -- read back ----------------------------------------------------------------------------------------------


def attack_rows(store: Store, spec: IrreducibleSpec) -> list[dict[str, Any]]:
    """Return a row for every finished layer, in the order of the spec; the row of a failed one says why."""
    trials = {trial.hash: trial for trial in store.trials(run=spec.name)}
    units = [(unit, trials.get(unit.hash_of())) for unit in spec.units()]
    return [{**unit_columns(unit), **_outcome(trial)} for unit, trial in units if trial is not None and trial.finished]


def _outcome(trial: StoredTrial) -> dict[str, Any]:
    metrics = trial.metrics or {}
    if trial.state == "failed":
        return {"error": trial.error}
    if trial.state == "diverged":
        return {"error": f"the training diverged after {metrics['steps']} steps: lower learning_rate"}
    found = {among: metrics[among] for among in ("all", "typical") if among in metrics}
    return {"nmse_measured": metrics["nmse"], "seconds": (trial.provenance or {}).get("seconds"), **found}


def save_witnesses(store: Store, spec: IrreducibleSpec, folder: Path) -> int:
    """Write every witness of a run as a folder that `recheck` reads, and return their number."""
    units = {unit.hash_of(): unit for unit in spec.units()}
    names = [trial.hash for trial in store.trials(run=spec.name, states=("done",)) if trial.hash in units]
    count = 0
    for name, (_, arrays) in store.load_checkpoints(names).items():
        unit = units[name]
        transformer, task = Flat.of(unit.model).unpack(arrays["theta"]), parse_task(unit.task)
        box = task.box if unit.layer == "trained" else None
        mean, std = tuple(arrays["mean"].tolist()), tuple(arrays["std"].tolist())
        model = SavedModel(transformer, task.data(), box, mean, std)
        for among in ("all", "typical"):
            if f"witness-{among}" in arrays:
                witness = parse_json(arrays[f"witness-{among}"].tobytes().decode(), f"witness of {unit.name()}")
                target = folder / f"{unit.name()}-{among}"
                if not target.exists():
                    model.save(target, {"witness.json": witness})
                count += 1
    return count


def unit_columns(unit: AttackUnit) -> dict[str, Any]:
    """Return the columns that describe a layer, the first ones of its row."""
    task = parse_task(unit.task)
    return {
        "cell": unit.cell,
        "intrinsic": task.intrinsic,
        "length": task.length,
        "head_dim": unit.model.head_dim,
        "heads": unit.model.heads,
        "layer": unit.layer,
        "seed": unit.seed,
    }
