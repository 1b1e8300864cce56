"""Hashes, stores, formats, proofs and results that no refactoring may change: they equal the golden data.

`make.py` wrote the data. If processor and libraries are those of data/environment.json, recomputed floats are compared
bit for bit; otherwise with a relative tolerance, and the id of the test says so.
"""

from __future__ import annotations

import copy
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import headcount as hc
from golden import names, observe
from golden.observe import DATA, differences, dump
from support import Cli, tracked_files

GOLDEN_ENVIRONMENT = json.loads((DATA / "environment.json").read_text(encoding="utf-8"))
ENVIRONMENT_CHANGES = differences(GOLDEN_ENVIRONMENT, observe.environment())
"""How this machine differs from the one that wrote the data."""
TRAINING, PREDICTION, ANALYSIS = (0.0, 0.0, 0.0) if not ENVIRONMENT_CHANGES else (1e-3, 1e-5, 1e-6)
"""Relative tolerances: of errors after training, of predictions of stored weights, of the analysis of stored errors."""
bits_or_within = pytest.mark.parametrize(
    "tolerance", [TRAINING], ids=[f"within-{TRAINING:g}-on-another-machine" if ENVIRONMENT_CHANGES else "bit-for-bit"]
)


def golden(name: str) -> Any:
    return json.loads((DATA / name).read_text(encoding="utf-8"))


def through_json(value: Any) -> Any:
    return json.loads(json.dumps(value, allow_nan=False))


def check(name: str, found: Any, tolerance: float = 0.0) -> None:
    """Compare what is found with a golden file."""
    different = differences(golden(name), through_json(found), tolerance)
    machine = (
        f"on another machine: {ENVIRONMENT_CHANGES}"
        if ENVIRONMENT_CHANGES
        else "on a machine like the one that wrote it"
    )
    assert not different, "\n".join([f"{name}: {len(different)} places differ, {machine}", *different[:20]])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a copy of the golden store."""
    shutil.copytree(DATA / "store", tmp_path / "store")
    return tmp_path


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> observe.RealSources:
    return observe.RealSources(tmp_path_factory.mktemp("real"))


# -- identities ---------------------------------------------------------------------------------------------


def test_the_hashes_of_all_shipped_trials():
    check("trials.json", observe.trial_hashes())


def test_the_tasks_and_their_expressions():
    check("tasks.json", observe.tasks())


def test_inputs_and_targets_of_the_tasks():
    check("task-values.json", observe.values(), PREDICTION)


# -- the store ----------------------------------------------------------------------------------------------


def test_every_row_curve_and_checkpoint_is_read(folder):
    check("store.json", dump(folder / "store"))


def test_the_store_holds_every_kind_of_trial():
    trials = golden("store.json")["trials"].values()
    assert {trial["state"] for trial in trials} == {"done", "diverged", "failed", "pending"}
    assert {"task", "real"} <= {key for trial in trials for key in trial["spec"]}
    begun = [t for t in trials if t["state"] == "pending" and t["checkpoint_step"]]
    half_way = [t for t in begun if 0 < t["checkpoint_step"] < t["spec"]["train"]["steps"]]
    assert {t["spec"]["model"]["depth"] for t in half_way if "task" in t["spec"]} == {1, 2}
    assert any("real" in t["spec"] for t in half_way)


def test_the_output_of_commands_on_the_store(folder):
    check("store-commands.json", observe.store_commands(folder), ANALYSIS)
    check("store-exported.json", observe.exported(folder), ANALYSIS)


def test_the_command_in_a_process_of_its_own(folder, headcount_cli: Cli):
    done = headcount_cli("runs", "--check", "--store", "store")
    assert (done.returncode, done.stdout) == tuple(golden("store-commands.json")["runs --check"].values())[:2]


@bits_or_within
def test_unfinished_trials_resume_as_if_undisturbed(folder, tolerance):
    for spec in observe.unfinished_specs():
        hc.sweep(spec, store=folder / "store", workers=1, quiet=True)
        hc.sweep(spec, store=folder / "whole", workers=1, quiet=True)
        with names.Store.open(folder / "store") as store, names.Store.open(folder / "whole") as whole:
            (failed, *resumed), (_, *undisturbed) = (observe.finished(one, spec.name) for one in (store, whole))
            weights = [observe.weights(one, [trial["hash"] for trial in resumed]) for one in (whole, store)]
        assert failed["state"] == "failed"
        assert [trial["state"] for trial in resumed] == ["done", "done"]
        assert differences(undisturbed, resumed, tolerance) == []
        assert differences(*weights, tolerance) == []


@bits_or_within
def test_unfinished_encoders_resume_as_if_undisturbed(folder, sources, tolerance):
    name = observe.REAL[-1]
    with names.Store.open(folder / "store") as store, names.Store.open(folder / "whole") as whole:
        assert all(0 < trial.checkpoint_step < 12 for trial in store.trials(run=name))
        sources.run(name, store)
        sources.run(name, whole)
        resumed, undisturbed = observe.finished(store, name), observe.finished(whole, name)
    assert [trial["state"] for trial in resumed] == ["done", "done"]
    assert differences(undisturbed, resumed, tolerance) == []


# -- models, certificates and witnesses ---------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(golden("model-outputs.json")))
def test_the_predictions_of_a_model(name, tmp_path):
    X, outputs = golden("model-inputs.json")[name], golden("model-outputs.json")[name]
    found = observe.predictions(DATA / "models" / name, X)
    assert differences(outputs, found, PREDICTION) == []
    hc.load_model(DATA / "models" / name).save(tmp_path / "again")
    for file in ("model.safetensors", "config.json"):
        assert (tmp_path / "again" / file).read_bytes() == (DATA / "models" / name / file).read_bytes()


def test_rechecks_of_certificates_and_witnesses():
    found = observe.rechecked()
    assert {one["output"]["kind"] for one in found.values()} == {"enough-heads", "one-wide-head", "exact", "near"}
    assert all(one["status"] == 0 for one in found.values())
    check("statements.json", found)


# -- results ------------------------------------------------------------------------------------------------


@bits_or_within
@pytest.mark.parametrize("where", ["memory", "store"])
def test_a_sweep(where, tmp_path, tolerance):
    found = through_json(observe.sweep_result(tmp_path / "s" if where == "store" else None))
    before = golden("results.json")[where]
    assert differences(before["trials"], found["trials"], tolerance) == [], ENVIRONMENT_CHANGES
    if not ENVIRONMENT_CHANGES:  # sentences contain rounded numbers
        assert differences(before["analysis"], found["analysis"]) == []
    assert before["analysis"].keys() == found["analysis"].keys()


@bits_or_within
def test_encoders(sources, tmp_path, tolerance):
    found = observe.real_result(sources, tmp_path / "store")
    assert differences(golden("results.json")["real"], through_json(found), tolerance) == [], ENVIRONMENT_CHANGES


@bits_or_within
def test_advice(tolerance):
    before, found = golden("results.json")["advice"], observe.advice_result()
    assert differences(before["trials"], through_json(found["trials"]), tolerance) == [], ENVIRONMENT_CHANGES
    if not ENVIRONMENT_CHANGES:
        assert differences(before["record"], found["record"]) == []
    assert before["record"].keys() == found["record"].keys()


@bits_or_within
def test_a_probe(tmp_path, tolerance):
    found = through_json(observe.probe_result(tmp_path))
    assert differences(golden("results.json")["probe"], found, tolerance) == [], ENVIRONMENT_CHANGES


# -- the comparison itself, and the data --------------------------------------------------------------------

SPOILT = {
    "trials.json": lambda data: data["table2-smoke"].update(sha256="0" + data["table2-smoke"]["sha256"][1:]),
    "tasks.json": lambda data: data[0]["data"]["f"].pop(),
    "task-values.json": lambda data: turn(data[0]["y"][0], 0),
    "store.json": lambda data: data["trials"].popitem(),
    "store-commands.json": lambda data: data["runs plain --json"]["output"].pop(),
    "model-outputs.json": lambda data: turn(data["deep"]["y"][0], 0),
    "statements.json": lambda data: data["statements/exact"]["output"].update(holds=1),
    "results.json": lambda data: turn(data["memory"]["trials"][0], 5),
}


def turn(values: list[Any], place: int) -> None:
    """Change the last bit of a float in hexadecimal form."""
    value = float.fromhex(values[place])
    values[place] = torch.nextafter(torch.tensor(value, dtype=torch.float64), torch.tensor(9e9)).item().hex()


@pytest.mark.parametrize("name", SPOILT)
def test_a_changed_bit_hash_or_row_is_found(name):
    data = golden(name)
    spoilt = copy.deepcopy(data)
    SPOILT[name](spoilt)
    assert differences(data, data) == []
    assert len(differences(data, spoilt)) == 1
    assert len(differences(spoilt, data)) == 1


def test_a_tolerance_applies_to_floats_only():
    values = [1.0, "0x1.0p+0", 3, "a"]
    assert differences(values, [1.0005, "0x1.001p+0", 3, "a"], 1e-3) == []
    for place, other in enumerate((1.01, "0x1.1p+0", 4, "b")):
        assert len(differences(values, [*values[:place], other, *values[place + 1 :]], 1e-3)) == 1
    assert len(differences([1], [1.0])) == len(differences([True], [1])) == len(differences({}, {"a": None})) == 1


@pytest.mark.parametrize("spoil", ["row", "checkpoint"])
def test_a_spoilt_store_differs(folder, spoil):
    if spoil == "row":
        path = folder / "store/trials.sqlite"
        text = path.read_bytes()
        path.write_bytes(text.replace(b'"seed":1', b'"seed":7', 1))
    else:
        path = max((folder / "store/checkpoints").iterdir(), key=lambda one: one.stat().st_size)
        path.write_bytes(path.read_bytes()[:-1] + bytes([path.read_bytes()[-1] ^ 1]))
    assert differences(golden("store.json"), dump(folder / "store"))
    assert observe.command(folder, "runs", "--check", "--store", "store")["status"] == 1


def test_a_spoilt_model_is_refused(tmp_path):
    path = shutil.copytree(DATA / "models/deep", tmp_path / "deep") / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + bytes([path.read_bytes()[-1] ^ 1]))
    with pytest.raises(hc.BadInput, match="hash"):
        hc.load_model(tmp_path / "deep")


def test_the_data_are_small_and_name_no_machine(repo):
    files = [path for path in tracked_files(repo) if path.is_relative_to(DATA)]
    assert 0 < sum(path.stat().st_size for path in files) < 1_000_000
    assert {path.suffix for path in files} <= {".json", ".safetensors", ".sqlite", ".commits", ".clean"}
