"""`headcount runs --check` finds what is damaged; damaged trials are left out and told of; old stores get checksums."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import kill_worker
import pytest
from store_help import ORIGIN, SPECS, SWEEP, arrays, checkpoint_files, to_version_1

from headcount.cli.runs import runs
from headcount.core.errors import BadInput
from headcount.core.hashing import content_hash
from headcount.store.schema import DamagedStore, StoreError
from headcount.store.store import Store
from headcount.sweeps.file import read_sweep
from headcount.sweeps.run import run_on_store


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed store with two runs, curves and checkpoints."""
    folder = tmp_path_factory.mktemp("check") / "store"
    with Store.open(folder) as store:
        a, b, c, _ = store.add_run("r", SPECS, about={"title": "t"})
        store.add_run("s", SPECS[:2])
        store.checkpoint(a, 1, arrays(1), [(1, 1.0)])
        store.checkpoint(b, 1, arrays(2), [(1, 1.0), (2, 0.5)])
        store.finish(b, "done", {"nmse": 0.5}, ORIGIN, [(3, 0.25)])
        store.fail(c, "out of memory")
    return folder


@pytest.fixture
def copy(whole: Path, tmp_path: Path) -> Path:
    shutil.copytree(whole, tmp_path / "copy")
    return tmp_path / "copy"


def change(folder: Path, statement: str) -> None:
    """Change a store behind its back: this connection renews no checksum."""
    with contextlib.closing(sqlite3.connect(folder / "trials.sqlite")) as db:
        assert db.execute(statement).rowcount > 0
        db.commit()


CHANGES = {
    "UPDATE trials SET metrics = '{\"nmse\":0.4}' WHERE state = 'done'": "row is not what was written",
    "UPDATE trials SET state = 'diverged' WHERE state = 'done'": "row is not what was written",
    "UPDATE trials SET step = step + 1 WHERE rowid = 1": "row is not what was written",
    "UPDATE trials SET spec = '{}' WHERE rowid = 1": "row is not what was written",
    "UPDATE trials SET updated = updated + 1 WHERE rowid = 1": "row is not what was written",
    "DELETE FROM trials WHERE rowid = 1": "row is missing",
    "DELETE FROM seals WHERE state = 'done'": "no checksum",
    "UPDATE seals SET curve = x'00' WHERE state = 'done'": "curve is not what was written",
    "DELETE FROM curves WHERE sequence = 1": "curve is not what was written",
    "UPDATE curves SET points = zeroblob(16) WHERE sequence = 1": "curve is not what was written",
    "DELETE FROM runs WHERE name = 's' AND position = 1": "run 's': its list of trials is not what was written",
    "UPDATE runs SET position = 7 WHERE name = 's' AND position = 1": "run 's': its list of trials",
    "DELETE FROM run_seals WHERE name = 's'": "run 's': its list of trials",
    "DELETE FROM abouts": "run 'r': its spec is not what was written",
    "UPDATE abouts SET about = '{}'": "run 'r': its spec is not what was written",
    "UPDATE meta SET value = '1' WHERE key = 'commits'": "rows are missing",
    "DELETE FROM meta WHERE key = 'commits'": "count of commits is missing",
}


def test_an_intact_store_is_reported_as_whole(copy, capsys):
    assert runs(store=copy, check=True) == 0
    assert "is whole: 4 trials and 2 checkpoint files" in capsys.readouterr().out
    assert runs(store=copy, check=True, json=True) == 0
    assert json.loads(capsys.readouterr().out) == {"store": str(copy), "whole": True, "damaged": [], "notes": []}
    with pytest.raises(BadInput, match="leave out r"):
        runs("r", store=copy, check=True)


@pytest.mark.parametrize("statement", CHANGES)
def test_the_check_finds_every_change(copy, capsys, statement):
    change(copy, statement)
    assert runs(store=copy, check=True) == 1
    assert CHANGES[statement] in capsys.readouterr().out


def test_damaged_and_missing_checkpoints_are_found_and_shown(copy, capsys):
    first, second = (copy / "checkpoints").iterdir()
    first.unlink()
    second.write_bytes(second.read_bytes()[:-1] + b"?")
    assert runs(store=copy, check=True) == 1
    told = capsys.readouterr().out
    assert "is missing" in told
    assert f"{second.name} is damaged" in told
    assert "its result stands" in told
    assert "the trial starts again" in told
    for run in (None, "r"):
        assert runs(run, store=copy) == 0
        assert "2 trials have checkpoints that are damaged or missing" in capsys.readouterr().out
    (copy / "checkpoints" / f"{'0' * 32}.safetensors").touch()
    runs(store=copy, check=True, json=True)
    assert "files that no row names: 1" in json.loads(capsys.readouterr().out)["notes"][0]


def test_a_damaged_trial_is_left_out_and_never_resealed(copy, capsys, caplog):
    change(copy, "UPDATE trials SET step = 9 WHERE rowid = 1")
    with Store.open(copy) as store:
        trial = content_hash(SPECS[0])
        assert len(store.trials()) == 3
        assert "1 trial of the store" in caplog.text
        with pytest.raises(DamagedStore, match="not what was written"):
            store.trial(trial)
        assert store.claim([trial, content_hash(SPECS[3])]) == [content_hash(SPECS[3])]
        assert store.checkpoint_many([]) == []
        with pytest.raises(StoreError):
            store.checkpoint(trial, 10, arrays())
        with store.writing() as db:
            db.execute("UPDATE trials SET updated = 0")
        store.add_run("r", SPECS)
        assert len(store.trials("r")) == 3, "whatever is written, once damaged is always damaged"
    assert runs(store=copy) == 0
    assert "1 trial is damaged and left out: headcount runs --check" in capsys.readouterr().out


def test_a_trial_whose_row_is_missing_is_not_recreated(copy):
    change(copy, "DELETE FROM trials WHERE rowid = 1")
    with Store.open(copy) as store:
        store.add_run("r", SPECS)
        assert len(store.trials("r")) == 3
        assert store.claim([content_hash(SPECS[0])]) == []


def test_an_unfinished_trial_with_a_damaged_curve_restarts(copy):
    change(copy, f"UPDATE curves SET points = zeroblob(16) WHERE trial = '{content_hash(SPECS[0])}'")
    with Store.open(copy) as store:
        trial = content_hash(SPECS[0])
        assert store.load_checkpoint(trial) is None
        assert (store.trial(trial).step, store.curve(trial)) == (0, [])
        store.checkpoint(trial, 1, arrays(), [(1, 1.0)])
        assert store.curve(trial) == [(1, 1.0)]


def test_merging_copies_only_intact_trials(copy, tmp_path):
    change(copy, "UPDATE trials SET step = 9 WHERE rowid = 1")
    with Store.open(tmp_path / "new") as store:
        report = store.merge(copy)
        assert len(report.added) == 3
        assert report.damaged_rows == [content_hash(SPECS[0])]
        assert "1 damaged and left out" in str(report)
        assert len(store.trials("r")) == 3
        assert store.add_run("r", SPECS)
        assert store.trial(content_hash(SPECS[0])).state == "pending", "and what is damaged can be trained anew"
        assert store.about("r") == {"title": "t"}


def test_merging_continues_past_a_damaged_run(copy, tmp_path, caplog):
    change(copy, "DELETE FROM runs WHERE name = 's' AND position = 1")
    with Store.open(tmp_path / "new") as store:
        assert len(store.merge(copy).added) == 4
        assert store.runs() == {"r": 4}
    assert "run 's' of the store" in caplog.text


def test_a_report_counts_damaged_trials(tmp_path, capsys):
    from headcount.cli.analyse import analyse
    from headcount.cli.report import report
    from headcount.cli.sweep import sweep

    (tmp_path / "small.toml").write_text(SWEEP)
    with Store.open(tmp_path / "store") as store:
        run_on_store(read_sweep(tmp_path / "small.toml"), store, quiet=True, workers=1)
        checkpoint_files(store)[0].unlink()
    assert analyse("small", store=tmp_path / "store", resamples=100, json=True) == 0
    found = json.loads(capsys.readouterr().out)
    assert "damaged" not in found["counts"]
    assert "1 trial has a checkpoint that is damaged or missing" in found["notes"][-1]
    change(tmp_path / "store", "UPDATE trials SET metrics = replace(metrics, '0', '1') WHERE rowid = 1")
    assert analyse("small", store=tmp_path / "store", resamples=100, json=True) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["counts"]["damaged"] == 1
    assert "1 trial is damaged and left out: headcount runs --check" in found["notes"]
    assert report("small", store=tmp_path / "store", out=tmp_path / "page") == 0
    assert "damaged and left out" in (tmp_path / "page" / "index.html").read_text(encoding="utf-8")
    capsys.readouterr()
    assert sweep(tmp_path / "small.toml", store=tmp_path / "store") == 4
    assert "5 done, 1 damaged" in capsys.readouterr().out


# -- stores of the older form ---------------------------------------------------------------------------------------


def content(folder: Path) -> dict[str, object]:
    with Store.open(folder, read_only=True) as store:
        return {
            "table": store.table(),
            "runs": store.runs(),
            "about": store.about("r"),
            "order": store.members("r"),
            "curves": [store.curve(trial.hash) for trial in store.trials()],
        }


def test_an_old_store_is_read_as_it_is_and_migrated_by_a_writer(copy, capsys):
    wanted = content(copy)
    to_version_1(copy)
    before = (copy / "trials.sqlite").read_bytes()
    assert content(copy) == wanted
    assert runs(store=copy, check=True) == 0
    assert "rows have no checksums yet" in capsys.readouterr().out
    assert (copy / "trials.sqlite").read_bytes() == before
    with Store.open(copy) as store:
        assert store.sealed
    assert content(copy) == wanted
    assert runs(store=copy, check=True) == 0
    assert "is whole" in capsys.readouterr().out


def test_an_old_store_with_a_bad_row_is_migrated_without_it(copy, capsys):
    to_version_1(copy)
    change(copy, "UPDATE trials SET checkpoint = '/etc/passwd' WHERE checkpoint IS NOT NULL AND state = 'pending'")
    change(copy, "UPDATE trials SET metrics = '{' WHERE state = 'done'")
    for read_only in (True, False):
        with Store.open(copy, read_only=read_only) as store:
            assert len(store.trials()) == 2
    assert runs(store=copy, check=True) == 1


def test_a_kill_in_the_middle_of_migrating_leaves_the_old_or_the_new(copy):
    to_version_1(copy)
    wanted = content(copy)
    code = (
        "import sys; sys.path[:0] = sys.argv[1:2]\nimport kill_worker\nfrom headcount.store.store import Store\n"
        "kill_worker.die_at_line(int(sys.argv[3]))\nStore.open(sys.argv[2]).close()\n"
    )
    versions: list[str] = []
    for line in range(10, 500, 30):
        shutil.rmtree(copy.parent / "killed", ignore_errors=True)
        shutil.copytree(copy, copy.parent / "killed")
        folder = copy.parent / "killed"
        here = str(Path(kill_worker.__file__).parent)
        done = subprocess.run([sys.executable, "-c", code, here, str(folder), str(line)], check=False)
        assert done.returncode in (0, -signal.SIGKILL)
        assert content(folder) == wanted
        with Store.open(folder, read_only=True) as store:
            versions.append(f"{done.returncode} {store.sealed}")
        Store.open(folder).close()
        assert content(folder) == wanted
        assert runs(store=folder, check=True) == 0
    assert {"-9 False", "-9 True"} <= set(versions), versions
