"""A new kind of experiment is its own file and one entry: shown here with a kind that no trial of ours is."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import headcount as hc
from headcount.core import HeadcountError, Progress, Spec, content_hash
from headcount.core.errors import BadInput
from headcount.store import Store, Trial
from headcount.sweeps import kinds
from headcount.sweeps.experiments import Experiment
from headcount.sweeps.kinds import KINDS, ExperimentKind, kind_of_run, kind_of_trial
from headcount.sweeps.results import stored_model, stored_runs
from headcount.sweeps.run import run_on_store
from headcount.sweeps.scoreboard import Entry
from headcount.tasks import parse_task
from headcount.training import Ending, Moments, Session
from headcount.training.encoder import RealTrialSpec


class LineSpec(Spec):
    """Straight lines fitted to a task, each to so many sequences."""

    name: str
    of_task: dict[str, Any]
    samples: list[int]


class LineJob(Spec):
    """One line to be fitted."""

    trial: dict[str, Any]
    moments: None = None


class LineSession(Session[Any]):
    """Fits one line in its first window."""

    steps = 0

    def __init__(self, members: Any, on_step: Any) -> None:
        del on_step
        super().__init__(members, window=0)
        self.error: float | None = None

    def launch(self, stop: threading.Event) -> None:
        del stop  # it ends in its first window
        stated = self.jobs[0].trial
        task = parse_task(stated["of_task"])
        X = task.sample(stated["samples"], seed=0)
        y = task.value(X)
        inputs = torch.cat([X.flatten(1), torch.ones(len(X), 1, dtype=X.dtype)], 1)
        fitted = inputs @ torch.linalg.lstsq(inputs, y).solution
        self.error = float((fitted - y).square().mean() / y.var())

    def collect(self) -> list[Ending]:
        self.unfinished.clear()
        found = Trial(
            heads=1,
            seed=0,
            state="done",
            nmse=self.error,
            train_nmse=self.error,
            steps=0,
            seconds=self.seconds(0),
            parameters=1,
            parameters_total=1,
        )
        return [Ending(self.members[0][0], found)]

    def moments(self) -> list[Moments]:
        raise HeadcountError("a line has no checkpoints")


class Lines(Experiment):
    """All lines of a spec."""

    title = "fitting"

    def __init__(self, spec: LineSpec) -> None:
        super().__init__(spec.name, {"spec": spec.data()})
        stated = [{"of_task": parse_task(spec.of_task).data(), "samples": count} for count in spec.samples]
        self._trials = {content_hash(one): one for one in stated}
        self.names = list(self._trials)

    def spec(self, trial: str) -> dict[str, Any]:
        return self._trials[trial]

    def entry(self, trial: str) -> Entry:
        return Entry(f"{self._trials[trial]['samples']} samples", 1, 1.0)

    def check(self, left: Any) -> None:
        pass

    def job(self, trial: str, moments: Moments | None) -> LineJob:
        assert moments is None
        return LineJob(trial=self._trials[trial])

    def on_cores(self, left: Any, progress: Progress) -> Any:
        del left, progress
        return LineSession

    def on_device(self, left: Any, train: Any, listener: Any, device: torch.device) -> None:
        del left, train, listener
        raise HeadcountError(f"lines are fitted on a CPU, not on {device}")


LINES = ExperimentKind(
    LineSpec,
    lambda spec, _: Lines(spec),
    run_key="of_task",
    trial_key="of_task",
    shown_by="holds lines, not a sweep",
    export_refusal="holds lines, which are no models",
)
SPEC = LineSpec(name="lines", of_task={"family": "min-plus-max"}, samples=[200, 300])


def test_a_new_kind_is_one_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The runner, the store and every reader of it take a kind that they have never heard of."""
    with Store.open(tmp_path / "store") as store:
        with pytest.raises(HeadcountError, match="LineSpec is not a kind of experiment: use one of Irr"):
            run_on_store(SPEC, store, quiet=True)
        monkeypatch.setattr(kinds, "KINDS", (LINES, *KINDS))
        assert run_on_store(SPEC, store, quiet=True)["done"] == 2
        assert run_on_store(SPEC.model_copy(update={"samples": [200, 400]}), store, quiet=True)["done"] == 2
        errors = [(one.metrics or {})["nmse"] for one in store.trials(run="lines")]
        assert all(0 < error < 1 for error in errors)
        with pytest.raises(BadInput, match="run 'lines' holds lines, not a sweep"):
            stored_runs(store, "lines")
        with pytest.raises(BadInput, match="run 'lines' holds lines, which are no models"):
            stored_model(store, "lines", "best")


# -- no two kinds are taken for each other ------------------------------------------------------------------


def problems(known: tuple[ExperimentKind, ...]) -> list[str]:
    """Say what is wrong with a list of kinds: keys that another kind has too, sweeps that cannot be read."""
    found: list[str] = []
    for kind in known:
        others = [other for other in known if other is not kind]
        if bool(kind.run_key) != bool(kind.trial_key) or (not kind.run_key and kind is not known[-1]):
            found.append(f"{kind.spec.__name__} has no key and is not the last, or has one key alone")
        elif kind.run_key and kind.run_key not in kind.spec.model_fields:
            found.append(f"{kind.spec.__name__} has no key {kind.run_key}")
        found += [
            f"{other.spec.__name__} has the key of {kind.spec.__name__}"
            for other in others
            if kind.run_key in other.spec.model_fields
        ]
        if not kind.shown_by and not hasattr(kind.spec, "panels"):
            found.append(f"{kind.spec.__name__} has no panels, and nothing says what shows its runs")
        if kind.run_key and not kind.export_refusal:
            found.append(f"{kind.spec.__name__}: nothing says why it has no models to export")
    return found


SABOTAGED = {
    "another's key": replace(LINES, run_key="name"),
    "no key of its own": replace(LINES, run_key="task"),
    "one key": replace(LINES, trial_key=""),
    "nothing shows it": replace(LINES, shown_by=""),
    "nothing says why": replace(LINES, export_refusal=""),
    "no key, not the last": replace(LINES, run_key="", trial_key=""),
}


def test_no_kind_is_mistaken_for_another() -> None:
    assert problems(KINDS) == []
    assert problems((LINES, *KINDS)) == []


@pytest.mark.parametrize("name", SABOTAGED)
def test_a_kind_that_could_be_mistaken_for_another_is_detected(name: str) -> None:
    assert problems((SABOTAGED[name], *KINDS)) != []


def test_every_spec_and_every_trial_is_recognised_by_its_kind() -> None:
    task = hc.make_task("min-plus-max")
    trial = hc.SweepSpec(name="a", task={"family": "min-plus-max"}, heads=[1]).panels()[0].trial(1, 0)
    assert "task" in trial.data()
    assert kind_of_trial(trial.data()).spec.__name__ == "SweepSpec"
    assert {"real"} & set(RealTrialSpec.model_fields)
    assert kind_of_trial({"real": {}}).spec.__name__ == "RealSpec"
    assert kind_of_trial({"attack": {}, "task": task.data()}).spec.__name__ == "IrreducibleSpec"
    assert [kind_of_run(dict.fromkeys(kind.spec.model_fields)) for kind in KINDS] == list(KINDS)
