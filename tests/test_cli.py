"""The command line: what it prints, and one line with exit status 2 for everything that is wrong."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from headcount import ModelSpec, SavedModel, Transformer
from headcount.cli.main import VERBS, _explain, main
from headcount.training import core_session
from support import Cli

SWEEP = """
name = "quick"
heads = [1, 2]
seeds = 2
task = {family = "min-plus-max", length = 4}
model = {head_dim = 2, hidden = 4}
train = {steps = 40, warmup = 4, batch = 8, train_size = 50, validation_size = 20}
"""
TRAIN = ["--out", "m", "--steps", "20", "--batch", "16", "--train-size", "100"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, with some good and some bad files in `in/`."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "in"
    folder.mkdir()
    rng = np.random.default_rng(0)
    X, y = rng.random((40, 5, 2)), rng.random(40)
    np.savez(folder / "good.npz", X=X, y=y)
    np.savez(folder / "nan.npz", X=np.where(X > 0.99, np.nan, X), y=y)
    np.savez(folder / "nan_y.npz", X=X, y=np.where(y > 0.9, np.inf, y))
    np.savez(folder / "no_y.npz", X=X)
    np.savez(folder / "short.npz", X=X, y=y[:-1])
    np.savez(folder / "flat.npz", X=X, y=np.ones(40))
    whole = (folder / "good.npz").read_bytes()
    (folder / "cut.npz").write_bytes(whole[: len(whole) // 2])
    (folder / "text.npz").write_text("not an array")
    (folder / "cut.json").write_text('{"kind": "retr')
    (folder / "odd.json").write_text('{"kind": "retrieval", "name": "x"}')
    (folder / "unreadable.npz").write_bytes(whole)
    (folder / "good.toml").write_text(SWEEP)
    (folder / "key.toml").write_text(SWEEP.replace("seeds", "seed"))
    (folder / "damaged").mkdir()
    (folder / "damaged" / "trials.sqlite").write_text("this is no database" * 100)
    (folder / "taken").mkdir()
    (folder / "taken" / "thesis.tex").write_text("mine")
    SavedModel(Transformer(ModelSpec(dim=2, length=3, heads=2))).save(folder / "model")
    SavedModel(Transformer(ModelSpec(dim=2, length=3, heads=2))).save(folder / "cut_model")
    weights = folder / "cut_model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-10])
    return tmp_path


def snapshot(folder: Path) -> dict[str, bytes]:
    """All files but locks, which hold nothing."""
    return {
        str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file() and p.suffix != ".lock"
    }


def call(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as caught:
        main(list(args))
    captured = capsys.readouterr()
    return int(caught.value.code or 0), captured.out, captured.err


BAD: dict[str, tuple[list[str], str]] = {
    "no heads": (["train", "sum-of-maxima", "--heads", "0", *TRAIN], "heads must be at least 1, not 0"),
    "negative heads": (["train", "sum-of-maxima", "--heads", "-3", *TRAIN], "heads"),
    "half a head": (["train", "sum-of-maxima", "--heads", "2.5", *TRAIN], "heads.*whole number"),
    "heads as text": (["train", "sum-of-maxima", "--heads", "many", *TRAIN], "many"),
    "heads missing": (["train", "sum-of-maxima", *TRAIN], "--heads"),
    "T below D": (
        ["train", "sum-of-maxima", "--heads", "2", "-T", "3", *TRAIN],
        "length must be at least.*4.*3",
    ),
    "D = 0": (["train", "sum-of-maxima", "--heads", "2", "-D", "0", *TRAIN], "intrinsic"),
    "S too small": (
        ["train", "quadratic-basins", "--heads", "2", "--set", "sets=bands", "--set", "share=0.1", *TRAIN],
        "share.*0.25",
    ),
    "too many orthonormal": (["train", "sum-of-maxima", "--heads", "2", "-D", "5", *TRAIN], "orthonormal"),
    "unknown task": (["train", "sum-of-maximas", "--heads", "2", *TRAIN], "did you mean 'sum-of-maxima'"),
    "unknown task parameter": (
        ["train", "mean", "--heads", "2", "--set", "lenght=9", *TRAIN],
        "did you mean 'length'",
    ),
    "bad setting": (["train", "mean", "--heads", "2", "--set", "length", *TRAIN], "key=value"),
    "unknown flag": (["train", "mean", "--heads", "2", "--hads", "2", *TRAIN], "--hads.*headcount train --help lists"),
    "unknown verb": (["trian", "mean"], "trian.*headcount --help lists"),
    "bad choice": (["train", "mean", "--heads", "2", "--positions", "rotary", *TRAIN], "rotary"),
    "beta nan": (["train", "mean", "--heads", "2", "--beta", "nan", *TRAIN], "beta"),
    "beta text": (["train", "mean", "--heads", "2", "--beta", "hot", *TRAIN], "beta.*hot"),
    "rate nan": (["train", "mean", "--heads", "2", "--lr", "nan", *TRAIN], "learning_rate"),
    "rate negative": (["train", "mean", "--heads", "2", "--lr", "-1", *TRAIN], "learning_rate"),
    "no steps": (["train", "mean", "--heads", "2", "--out", "m", "--steps", "0"], "steps"),
    "batch above data": (["train", "mean", "--heads", "2", "--out", "m", "--batch", "9000"], "batch"),
    "seed negative": (["train", "mean", "--heads", "2", "--seed", "-1", *TRAIN], "seed"),
    "NaN in X": (["train", "in/nan.npz", "--heads", "2", *TRAIN], "(?i)X.*nan"),
    "inf in y": (["train", "in/nan_y.npz", "--heads", "2", *TRAIN], "(?i)y.*inf"),
    "y missing": (["train", "in/no_y.npz", "--heads", "2", *TRAIN], "y"),
    "samples differ": (["train", "in/short.npz", "--heads", "2", *TRAIN], "40.*39|39.*40"),
    "constant y": (["train", "in/flat.npz", "--heads", "2", *TRAIN], "constant"),
    "truncated": (["train", "in/cut.npz", "--heads", "2", *TRAIN], "cut.npz"),
    "no archive": (["train", "in/text.npz", "--heads", "2", *TRAIN], "text.npz"),
    "no file": (["train", "in/none.npz", "--heads", "2", *TRAIN], "none.npz"),
    "arrays fix the task": (
        ["train", "in/good.npz", "--heads", "2", "-T", "9", *TRAIN],
        "in/good.npz.*leave out --length",
    ),
    "truncated task": (["train", "in/cut.json", "--heads", "2", *TRAIN], "cut.json"),
    "incomplete task": (["train", "in/odd.json", "--heads", "2", *TRAIN], "in/odd.json: .*missing"),
    "out is a file": (["train", "mean", "--heads", "2", "--out", "in/good.npz", "--steps", "20"], "good.npz"),
    "out is taken": (["train", "mean", "--heads", "2", "--out", "in/taken", "--steps", "20"], "thesis.tex"),
    "out below a file": (
        ["train", "mean", "--heads", "2", "--out", "in/good.npz/m", "--steps", "20"],
        "good.npz",
    ),
    "more memory than there is": (["train", "mean", "--heads", "100000", *TRAIN], "GB are free"),
    "a billion heads": (["train", "mean", "--heads", "1000000000", *TRAIN], "heads must be at most"),
    "no model": (["show", "in/none"], "in/none"),
    "a file as model": (["show", "in/good.npz"], "good.npz"),
    "truncated model": (["show", "in/cut_model"], "truncated"),
    "no samples": (["show", "in/model", "--samples", "0"], "samples"),
    "tasks: unknown": (["tasks", "sum"], "unknown task 'sum'"),
    "tasks: a file that cannot be one": (["tasks", "in/mine.feather"], "in/mine.feather.* .json, .npz.* or .csv"),
    "tasks: a file and parameters": (
        ["tasks", "in/odd.json", "--task-seed", "3", "--set", "share=1"],
        "leave out --task-seed, --set share, or name a family",
    ),
    "bounds: incomplete task": (["bounds", "in/odd.json"], "in/odd.json: .*missing"),
    "tasks: T below D": (["tasks", "sum-of-maxima", "-T", "2"], "length"),
    "sweep: no spec": (["sweep"], "--example"),
    "sweep: no file": (["sweep", "in/none.toml"], "none.toml"),
    "sweep: not TOML": (["sweep", "in/cut.json"], "not valid TOML"),
    "sweep: unknown key": (["sweep", "in/key.toml"], "did you mean 'seeds'"),
    "sweep: a time below nothing": (
        ["sweep", "in/good.toml", "--for", "-5s"],
        "invalid duration '-5s'",
    ),
    "reproduce: an empty folder": (["reproduce", "table2", "--out", ""], "missing value after --out"),
    "an empty verb": ([""], "missing value after headcount"),
    "sweep: bad time": (["sweep", "in/good.toml", "--for", "5 minutes"], "90s, 9m or 2h"),
    "sweep: no workers": (["sweep", "in/good.toml", "--workers", "0"], "workers"),
    "sweep: the store is a file": (["sweep", "in/good.toml", "--store", "in/good.npz"], "good.npz"),
    "sweep: a damaged store": (["sweep", "in/good.toml", "--store", "in/damaged"], "damaged"),
    "sweep: example exists": (["sweep", "--example", "in/good.toml"], "exists already"),
    "runs: no store": (["runs", "--store", "nowhere"], "no store in nowhere"),
    "runs: merge nothing": (["runs", "merge"], "merge STORE"),
    "report: no store": (["report", "x", "--store", "nowhere"], "no store in nowhere"),
    "demo: out is taken": (["demo", "--out", "in/taken"], "thesis.tex"),
    "demo: out is a file": (["demo", "--out", "in/good.npz"], "good.npz"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line(here: Path, capsys: pytest.CaptureFixture[str], case: str) -> None:
    args, complaint = BAD[case]
    before = snapshot(here)
    status, out, err = call(capsys, *args)
    assert status == 2, err
    lines = err.strip().splitlines()
    assert len(lines) == 1, err
    assert lines[0].startswith("headcount: ")
    assert out == ""
    import re

    assert re.search(complaint, lines[0]), lines[0]
    assert snapshot(here) == before


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (MemoryError(), 2, "out of memory: choose"),
        (RuntimeError("CUDA out of memory. Tried to allocate 3 GiB"), 2, "out of memory: choose"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), 2, "out of memory: choose"),
        (RuntimeError("something else"), 1, "(a bug: run again with --debug and report it)"),
    ],
)
def test_full_memory_is_no_bug(error: Exception, status: int, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _explain(error) == status
    assert text in capsys.readouterr().err


def test_debug_shows_the_traceback(headcount_cli: Cli, headcount_here: Cli) -> None:
    done = headcount_cli("train", "mean", "--heads", "0", "--out", "m", "--debug")
    assert done.returncode != 0
    assert "Traceback" in done.stderr
    assert "Traceback" not in headcount_here("train", "mean", "--heads", "0", "--out", "m").stderr


def test_train_show_round_trip(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = call(capsys, "train", "min-plus-max", "--heads", "2", "--json", *TRAIN)
    assert status == 0
    trained = json.loads(out)
    status, out, _ = call(capsys, "show", "m", "--json")
    assert status == 0
    shown = json.loads(out)
    assert shown["hash"] == trained["hash"]
    assert shown["nmse_measured"] == pytest.approx(trained["trial"]["nmse"], rel=0.2)
    assert {p.name for p in Path("m").iterdir()} == {"model.safetensors", "config.json", "history.json"}
    status, out, _ = call(capsys, "train", "min-plus-max", "--heads", "2", *TRAIN)  # again, over our own folder
    assert status == 0
    assert "2 heads: validation NMSE" in out
    status, out, _ = call(capsys, "show", "m")
    assert status == 0
    assert shown["hash"] in out


def test_sweep_runs_report(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = call(capsys, "sweep", "in/good.toml", "--json")
    assert status == 0, err
    assert json.loads(out)["trials"]["done"] == 4
    status, out, _ = call(capsys, "sweep", "in/good.toml")  # again: nothing is left to train
    assert status == 0
    assert "quick: 4 done" in out
    assert [row["run"] for row in json.loads(call(capsys, "runs", "--json")[1])] == ["quick"]
    rows = json.loads(call(capsys, "runs", "quick", "--json")[1])
    assert len(rows) == 4
    assert {row["state"] for row in rows} == {"done"}
    assert "quick" in call(capsys, "runs")[1]
    assert call(capsys, "runs", "quick", "--sort", "error")[0] == 0
    status, out, _ = call(capsys, "report", "quick")
    assert status == 0
    assert (here / "report-quick" / "index.html").exists()
    made = json.loads(call(capsys, "report", "quick", "--out", "again", "--json")[1])
    assert Path(made["page"]).read_text(encoding="utf-8").count("<figure") == len(made["pictures"]) / 2
    files = sorted(here.iterdir())
    status, out, _ = call(capsys, "report", "quick", "--terminal")
    assert status == 0
    assert "4 trials: 4 done" in out
    assert " heads\n" in out
    assert sorted(here.iterdir()) == files, "--terminal writes nothing"
    assert call(capsys, "report", "quick", "--terminal", "--out", "x")[0] == 2
    status, out, _ = call(capsys, "runs", "merge", "headcount-runs", "--store", "other")
    assert status == 0, out
    assert json.loads(call(capsys, "runs", "--store", "other", "--json")[1])[0]["done"] == 4
    assert call(capsys, "sweep", "--example", "mine.toml")[0] == 0
    assert call(capsys, "report", "slow")[0] == 2


def test_train_on_arrays(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = ["train", "in/good.npz", "--heads", "1", "--out", "m", "--steps", "5", "--batch", "8", "--json"]
    status, _, err = call(capsys, *args)
    assert status == 0, err
    assert json.loads((here / "m" / "config.json").read_text())["task"]["kind"] == "arrays"
    assert json.loads(call(capsys, "show", "m", "--json")[1])["nmse_measured"] is None


def test_help_is_quick_and_lists_every_verb(headcount_cli: Cli, headcount_here: Cli) -> None:
    done = headcount_cli("--help")
    assert done.returncode == 0
    assert all(verb in done.stdout for verb in VERBS)
    for verb in VERBS:
        shown = headcount_here(verb, "--help")
        assert shown.returncode == 0
        assert "--json" in shown.stdout
    assert headcount_cli("--version").stdout.strip() == "0.1.0"


SAYS_WHEN_IT_TRAINS = """
import sys
from headcount.cli.main import main
from headcount.training.core_session import CoreSession
real = CoreSession.launch
def launch(self, stop):
    print("it trains", file=sys.stderr, flush=True)
    return real(self, stop)
CoreSession.launch = launch
main()
"""


def test_interrupt_leaves_nothing_half_written(tmp_path: Path) -> None:
    """Ctrl-C in the middle of training: one line, status 130, no file and no process left."""
    command = [sys.executable, "-c", SAYS_WHEN_IT_TRAINS, "train", "sum-of-maxima", "--heads", "2", "--out", "m"]
    command += ["--steps", "10000000"]  # more than any machine takes before the signal comes
    # a shell's background job ignores the signal, and its children would too
    heeds = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # noqa: E731
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, preexec_fn=heeds)
    assert process.stderr is not None
    assert any(line == "it trains\n" for line in process.stderr)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert err.strip().splitlines()[-1] == "headcount: interrupted"
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


def test_a_closed_pipe_is_no_error(tmp_path: Path) -> None:
    command = f"{shlex.quote(sys.executable)} -m headcount tasks --json | head -c 10"
    done = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert "Traceback" not in done.stderr
    assert done.stderr == ""


def test_what_is_not_ours_is_never_replaced(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder with another tool's config.json and weights, and a good model when a new training diverges."""
    other = here / "hf"
    other.mkdir()
    (other / "config.json").write_text('{"model_type": "bert"}')
    (other / "model.safetensors").write_bytes(b"weights")
    before = snapshot(here)
    status, _, err = call(capsys, "train", "mean", "--heads", "1", "--out", "hf", "--steps", "20")
    assert (status, snapshot(here)) == (2, before), err
    real = core_session.train_fast

    def diverges(*args: object, **options: object) -> object:
        trained = real(*args, **options)  # type: ignore[arg-type]
        return replace(trained, trial=trained.trial.model_copy(update={"state": "diverged", "nmse": None}))

    monkeypatch.setattr(core_session, "train_fast", diverges)
    status, _, err = call(capsys, "train", "mean", "--heads", "1", "--out", "in/model", "--steps", "20")
    assert status == 2
    assert "nothing was saved" in err
    assert snapshot(here) == before


def test_numpy_numbers_and_seeds() -> None:
    import headcount as hc

    assert ModelSpec(dim=2, length=np.int64(3), heads=np.int64(2)) == ModelSpec(dim=2, length=3, heads=2)
    assert hc.make_task("mean", length=np.int64(5)).length == 5
    with pytest.raises(hc.BadInput, match="seed"):
        hc.train(hc.make_task("mean"), ModelSpec(dim=2, length=8, heads=1), seed=-1)
    with pytest.raises(hc.BadInput, match="did you mean 'heads'"):
        ModelSpec(dim=2, length=3, heds=2)
    with pytest.raises(hc.BadInput, match="JSON object"):
        hc.parse_task(5)
