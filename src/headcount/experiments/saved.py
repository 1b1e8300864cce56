"""From a trained model to a model that can be saved: with its task, box and standardisation."""

from __future__ import annotations

from typing import Any

from headcount.base.errors import BadInput
from headcount.experiments.data import prepare
from headcount.experiments.spec import TrialSpec
from headcount.experiments.stored import as_trial
from headcount.experiments.train import Trained
from headcount.models.files import SavedModel
from headcount.models.flat import Flat
from headcount.store.store import Store
from headcount.store.trials import StoredTrial
from headcount.tasks.arrays import ArrayTask
from headcount.tasks.serial import parse_task
from headcount.tasks.task import Task


def saved_model(task: Task | ArrayTask, trained: Trained) -> SavedModel:
    """Bundle a trained model; arrays are named by their hash, never copied into the model's folder."""
    mean, std = tuple(trained.data.mean.tolist()), tuple(trained.data.std.tolist())
    if isinstance(task, ArrayTask):
        data: dict[str, Any] = {"kind": "arrays", "name": task.name, "hash": task.hash()}
        if task.classes is not None:  # in the order of the outputs
            data["classes"] = list(task.classes)
        return SavedModel(trained.model, data, None, mean, std)
    return SavedModel(trained.model, task.data(), task.box, mean, std)


def stored_model(store: Store, run: str, trial: str) -> tuple[str, SavedModel, dict[str, Any]]:
    """Return a finished trial of a run, by the beginning of its hash or `best`: its hash, model and history."""
    found = _choose(store, run, trial)
    if "real" in found.spec:
        raise BadInput(f"run {run!r} is on real data: its encoders cannot be exported, only the models of a sweep can")
    checkpoint = store.load_checkpoint(found.hash)
    if checkpoint is None:
        raise BadInput(
            f"trial {found.hash[:10]} has no weights in the store {store.folder}: its file is missing or damaged"
        )
    spec = TrialSpec.parse(found.spec, where=f"trial {found.hash[:10]}")
    task = parse_task(spec.task)
    model = Flat.of(spec.model).unpack(checkpoint[1]["theta"])
    record = as_trial(store, found)
    history = {"trial": record.data(), "train": spec.train.data()}
    return found.hash, saved_model(task, Trained(model, prepare(task, spec.train), record, task, spec.train)), history


def _choose(store: Store, run: str, name: str) -> StoredTrial:
    trials = store.trials(run=run)
    done = [t for t in trials if t.state == "done"]
    if name == "best":
        if not done:
            raise BadInput(f"run {run!r} has no finished trial yet: headcount runs {run} lists them")
        return min(done, key=lambda t: float((t.metrics or {})["nmse"]))
    found = [t for t in trials if t.hash.startswith(name)] if name else []
    if len(found) != 1:
        many = "more than one trial" if found else "no trial"
        raise BadInput(f"run {run!r} has {many} whose hash begins with {name!r}: headcount runs {run} lists them")
    if found[0].state != "done":
        raise BadInput(f"trial {found[0].hash[:10]} is {found[0].state}: only finished ones can be exported")
    return found[0]
