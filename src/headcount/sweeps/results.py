"""Read records and models back from a store: the finished trials of a run, panel by panel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import Any, cast

from headcount.core import BadInput
from headcount.models import SavedModel
from headcount.models.transformer import Flat
from headcount.store import DamagedStore, Run, Store, StoredTrial, Trial, TrialStore, log
from headcount.sweeps.encoder_spec import RealSpec
from headcount.sweeps.kinds import kind_of_run, kind_of_trial
from headcount.sweeps.spec import SweepSpec, TrialSpec
from headcount.tasks import parse_task
from headcount.training import Trained, prepare, saved_model


def stored_spec(store: Store, run: str) -> SweepSpec | RealSpec:
    """Return the spec that a run was started with: of a sweep over a task, or over real data.

    A run on real data may have been trained in two precisions, on a CPU and on a GPU. Then the spec has the precision
    with more finished trials, or at a tie the one that was started last.
    """
    about = store.about(run)
    if "spec" not in about:
        raise BadInput(f"run {run!r} was not made by a sweep: it has no spec")
    kind = kind_of_run(about["spec"])
    if kind.shown_by:
        raise BadInput(f"run {run!r} {kind.shown_by}")
    spec = kind.spec.parse(about["spec"], where=f"run {run}")
    if not isinstance(spec, RealSpec):
        return cast("SweepSpec", spec)
    states = store.states(store.members(run))
    finished = {trial for trial, state in states.items() if state in ("done", "diverged")}
    trains = [spec.train, *(spec.train.model_copy(update={"precision": one}) for one in ("bf16", "float32"))]
    choices = [spec.model_copy(update={"train": train}) for train in trains]
    return max(choices, key=lambda one: len(finished.intersection(chain(*_hashes(one)))))


def _hashes(spec: SweepSpec | RealSpec) -> list[list[str]]:
    """Return the hashes of a spec's trials, panel by panel."""
    return [
        [panel.trial(heads, seed).hash() for heads in panel.heads for seed in range(spec.seeds)]
        for panel in spec.panels()
    ]


def stored_runs(store: Store, run: str, spec: SweepSpec | RealSpec | None = None) -> list[Run]:
    """Return a record for every panel of a run; unfinished trials are left out and counted.

    Trials that only belong to an earlier spec of the same name are counted with the first panel, as superseded.
    """
    spec = spec or stored_spec(store, run)
    stored = {trial.hash: trial for trial in store.trials(run=run)}
    names = _hashes(spec)
    members = set(store.members(run))
    older = members.difference(*names)
    found = {n: trial for n, trial in stored.items() if trial.state in ("done", "diverged") and n not in older}
    records = {name: record for name, trial in found.items() if (record := _record(store, trial)) is not None}
    lost = members - set(stored) | found.keys() - records.keys()
    runs: list[Run] = []
    for panel, wanted in zip(spec.panels(), names, strict=True):
        trials = [records[h] for h in wanted if h in records]
        seconds = sum(trial.seconds for trial in trials)
        others = [_state(stored.get(h), h in lost) for h in wanted if h not in records]
        about = spec.name, spec.title, spec.data()
        record = panel.run(*about, trials, seconds)
        own = {"left_out": dict(Counter(others)), "provenance": training_provenance(list(found.values()))}
        runs.append(record.model_copy(update=own if found else {"left_out": own["left_out"]}))
    if older:
        runs[0] = runs[0].model_copy(update={"left_out": {**runs[0].left_out, "superseded": len(older)}})
    return runs


def _state(trial: StoredTrial | None, lost: bool) -> str:
    """Return the state of a trial that has no record."""
    return "damaged" if lost else "pending" if trial is None else trial.state


def _record(store: Store, trial: StoredTrial) -> Trial | None:
    """Return the record of a finished trial; None if its curve is damaged."""
    try:
        return as_trial(store, trial)
    except DamagedStore as error:
        log.warning("%s", error)
        return None


def training_provenance(trials: Sequence[StoredTrial]) -> dict[str, Any]:
    """Return the provenance of the trial that was trained last, with the commits of all trials if they differ."""
    origins = [dict(t.provenance or {}) for t in sorted(trials, key=lambda t: t.updated)]
    last = {k: v for k, v in origins[-1].items() if k != "seconds"} if origins else {}
    commits = list(dict.fromkeys(str(origin["commit"]) for origin in origins if origin.get("commit")))
    return {**last, "commit": ", ".join(commits)} if len(commits) > 1 else last


def as_trial(store: TrialStore, stored: StoredTrial) -> Trial:
    """Return a stored trial as a record; metrics that records do not have, such as the loss, are dropped."""
    metrics = {name: value for name, value in (stored.metrics or {}).items() if name in Trial.model_fields}
    seconds = float((stored.provenance or {}).get("seconds", 0.0))
    return Trial.parse({**metrics, "state": stored.state, "seconds": seconds, "curve": store.curve(stored.hash)})


def stored_model(store: Store, run: str, trial: str) -> tuple[str, SavedModel, dict[str, Any]]:
    """Return hash, model and history of a finished trial, which is given by the beginning of its hash or as `best`."""
    found = _choose(store, run, trial)
    if (kind := kind_of_trial(found.spec)).export_refusal:
        raise BadInput(f"run {run!r} {kind.export_refusal}")
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
        return min(done, key=_nmse)
    found = [t for t in trials if t.hash.startswith(name)] if name else []
    if len(found) != 1:
        many = "more than one trial" if found else "no trial"
        raise BadInput(f"run {run!r} has {many} whose hash begins with {name!r}: headcount runs {run} lists them")
    if found[0].state != "done":
        raise BadInput(f"trial {found[0].hash[:10]} is {found[0].state}: only finished ones can be exported")
    return found[0]


def _nmse(trial: StoredTrial) -> float:
    """Return a trial's error; infinity if it has none, such as an attacked layer with random weights."""
    error = (trial.metrics or {}).get("nmse")
    return float("inf") if error is None else float(error)
