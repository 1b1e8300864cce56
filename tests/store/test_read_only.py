"""Who only reads changes nothing, and works where nothing may be written; what rows once named is never thrown away."""

from __future__ import annotations

import logging
import random
import shutil
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from store_help import ORIGIN, SPECS, arrays, checkpoint_files, same, to_version_1

from headcount.cli.runs import runs
from headcount.store.checkpoints import CheckpointFiles
from headcount.store.database import Reader
from headcount.store.schema import StoreError
from headcount.store.store import Store

KILLED = """
import os, sys
import numpy as np
from headcount.store.store import Store
store = Store.open(sys.argv[1])
for number in range(3):
    (trial,) = store.add_run("r", [{"seed": number}])
    store.checkpoint(trial, 1, {"a": np.arange(10.0) + number})
    store.finish(trial, "done", {"nmse": 0.5})
os.kill(os.getpid(), 9)
"""


def killed(folder: Path) -> Path:
    """A store whose only writer was killed: all of it is in the log."""
    done = subprocess.run([sys.executable, "-c", KILLED, str(folder)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert (folder / "trials.sqlite-wal").stat().st_size > 0
    return folder


def closed(folder: Path) -> Path:
    """A store that was closed, with a finished trial, a checkpoint and an orphan."""
    with Store.open(folder) as store:
        first, second, *_ = store.add_run("r", SPECS, about={"title": "t"})
        store.checkpoint(first, 1, arrays(1), [(1, 1.0)])
        store.finish(second, "done", {"nmse": 0.5}, ORIGIN, [(1, 2.0)])
    (folder / "checkpoints" / f"{'0' * 32}.safetensors").write_bytes(b"orphan")
    return folder


def snapshot(folder: Path) -> dict[str, tuple[bytes, int]]:
    """All files but SQLite's shared memory, which readers and writers meet in."""
    found = [path for path in folder.rglob("*") if path.is_file() and not path.name.endswith("-shm")]
    return {str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns) for path in found}


def read_all(folder: Path) -> dict[str, object]:
    """All that can be read of a store."""
    with Store.open(folder, read_only=True) as store:
        table = store.table()
        loaded = store.load_checkpoints([str(row["hash"]) for row in table])
        return {
            "table": table,
            "runs": store.runs(),
            "counts": store.counts_by_run(),
            "curves": {row["hash"]: store.curve(str(row["hash"])) for row in table},
            "abouts": {name: store.about(name) for name in store.runs()},
            "checkpoints": {name: {key: a.tobytes() for key, a in one.items()} for name, (_, one) in loaded.items()},
        }


# -- reading --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [closed, killed, lambda folder: to_version_1(closed(folder))])
def test_reading_changes_no_file(tmp_path, make):
    folder = make(tmp_path / "store")
    before = snapshot(folder)
    found = read_all(folder)
    assert found["runs"]
    assert runs(store=folder, json=True) == runs("r", store=folder, json=True) == runs(store=folder, check=True) == 0
    assert snapshot(folder) == before


@pytest.mark.parametrize("make", [closed, killed])
@pytest.mark.parametrize("drop", ["", "-shm"])
def test_a_read_only_mount_reads_the_same(small_disk, make, drop):
    folder = make(small_disk / "store")
    wanted = read_all(folder)
    if drop:
        (folder / f"trials.sqlite{drop}").unlink(missing_ok=True)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    assert read_all(folder) == wanted
    assert runs(store=folder) == 0


def test_a_log_without_its_shared_memory_is_read_and_left_alone(tmp_path):
    folder = killed(tmp_path / "store")
    wanted = read_all(folder)
    (folder / "trials.sqlite-shm").unlink()
    assert read_all(folder) == wanted
    assert not (folder / "trials.sqlite-shm").exists()


def test_a_reader_follows_a_writer_that_comes_and_goes(tmp_path):
    folder = closed(tmp_path / "store")
    with Store.open(folder, read_only=True) as reader:
        assert len(reader.trials()) == 4
        for number in range(3):
            with Store.open(folder) as writer:
                writer.add_run("more", [{"more": number}])
                assert len(reader.trials()) == 5 + number
            assert len(reader.trials()) == 5 + number
    assert isinstance(reader._database, Reader)


def test_a_slow_reader_does_not_hold_up_a_writer(tmp_path):
    folder = closed(tmp_path / "store")
    with Store.open(folder, read_only=True) as reader:
        rows = reader.each()
        next(rows)
        with Store.open(folder, patience=0.5) as writer:
            writer.add_run("more", SPECS)
        assert len(list(rows)) == 3


def test_readers_do_not_record_damage(tmp_path):
    folder = closed(tmp_path / "store")
    with Store.open(folder, read_only=True) as store:
        (path,) = {store.files.find(name) for name in store.named_files()}
        path.write_bytes(path.read_bytes()[:-1] + b"?")
        before = snapshot(folder)
        assert store.load_checkpoints([trial.hash for trial in store.trials()]) == {}
        with pytest.raises(StoreError, match="opened read-only"):
            store.release()
    assert snapshot(folder) == before


# -- rows that are missing ------------------------------------------------------------------------------------------


def drop_log(folder: Path) -> None:
    for name in ("-wal", "-shm"):
        (folder / f"trials.sqlite{name}").unlink()


@pytest.mark.parametrize("counted", [True, False])
def test_a_lost_log_loses_no_checkpoint(tmp_path, capsys, caplog, counted):
    folder = killed(tmp_path / "store")
    files = {path.name for path in (folder / "checkpoints").iterdir()}
    whole = tmp_path / "whole"
    shutil.copytree(folder, whole)
    drop_log(folder)
    if not counted:
        (folder / "trials.commits").unlink()
    with caplog.at_level(logging.WARNING):
        assert runs(store=folder) == 0
    assert ("rows are missing from the store" in caplog.text) == counted
    told = capsys.readouterr().out
    assert "No runs are left: rows are missing" in told
    assert "The store is empty" not in told
    assert runs(store=folder, check=True) == 1
    for _ in range(3):  # writers go on with what there is, and never clear away what lost rows may have named
        with caplog.at_level(logging.WARNING), Store.open(folder) as store:
            trial = store.add_run("r", [{"seed": "new"}])[0]
            if store.trial(trial).state == "pending":
                store.finish(trial, "done", {"nmse": 0.1})
        assert files <= {path.name for path in (folder / "checkpoints").iterdir()}
    assert ("rows are missing" in caplog.text) == counted
    capsys.readouterr()
    assert runs(store=whole) == 0
    assert "missing" not in capsys.readouterr().out, "with its log all of it is there"


def test_a_flipped_bit_in_the_log_is_harmless_or_reported(tmp_path, caplog):
    folder = killed(tmp_path / "store")
    wanted = read_all(folder)
    assert caplog.text == ""
    size = (folder / "trials.sqlite-wal").stat().st_size
    told = 0
    for bit in random.Random(1).sample(range(size * 8), 25):
        shutil.rmtree(tmp_path / "copy", ignore_errors=True)
        shutil.copytree(folder, tmp_path / "copy")
        content = bytearray((folder / "trials.sqlite-wal").read_bytes())
        content[bit // 8] ^= 1 << bit % 8
        (tmp_path / "copy" / "trials.sqlite-wal").write_bytes(content)
        caplog.clear()
        found = read_all(tmp_path / "copy")
        assert (found == wanted) == (caplog.text == "")
        told += caplog.text != ""
    assert told > 0


def test_an_empty_store_is_reported_as_empty(tmp_path, capsys):
    Store.open(tmp_path).close()
    assert runs(store=tmp_path) == 0
    assert capsys.readouterr().out == "The store is empty.\n"


def test_nothing_is_set_aside_while_rows_are_missing(tmp_path):
    folder = closed(tmp_path / "store")
    with Store.open(tmp_path / "other") as other:
        other.add_run("r", SPECS)
        with other.writing() as db:
            db.execute("DELETE FROM trials WHERE rowid = 1")
    (tmp_path / "other" / "checkpoints" / f"{'1' * 32}.safetensors").touch()
    Store.open(tmp_path / "other").close()
    assert len(list((tmp_path / "other" / "checkpoints").iterdir())) == 1
    Store.open(folder).close()
    assert len(list((folder / "checkpoints").iterdir())) == 1, "the twin: whole but for an orphan, which is set aside"


# -- orphans --------------------------------------------------------------------------------------------------------


def test_orphans_are_set_aside_and_deleted_a_week_later(tmp_path):
    folder = closed(tmp_path / "store")
    with Store.open(folder) as store:
        (orphan,) = store.files.set_aside()
        assert orphan.read_bytes() == b"orphan"
        assert len(checkpoint_files(store)) == 1
    today = datetime.now(UTC).date()
    for days, left in ((6, 1), (8, 0)):
        day = orphan.parent
        orphan = orphan.parent.with_name((today - timedelta(days=days)).isoformat()) / orphan.name
        day.rename(orphan.parent)
        (folder / ".checkpoints.clean").unlink()
        with Store.open(folder) as store:
            assert len(store.files.set_aside()) == left
            assert len(checkpoint_files(store)) == 1


def test_a_file_set_aside_but_still_referenced_is_read_and_restored(tmp_path):
    folder = closed(tmp_path / "store")
    with Store.open(folder) as store:
        (path,) = checkpoint_files(store)
        trial = next(t.hash for t in store.trials() if t.checkpoint_step == 1)
    day = folder / "set-aside" / "2026-01-01"
    day.mkdir(parents=True)
    path.rename(day / path.name)
    with Store.open(folder, read_only=True) as store:
        assert same(store.load_checkpoint(trial)[1], arrays(1))
    with Store.open(folder) as store:
        assert checkpoint_files(store) == [path]
        assert same(store.load_checkpoint(trial)[1], arrays(1))
    assert not day.exists()


def test_leftovers_of_a_killed_writer_are_found_after_another_closed(tmp_path):
    with Store.open(tmp_path / "store") as first:
        killed(tmp_path / "store")
        (tmp_path / "store" / "checkpoints" / f"{'3' * 32}.safetensors").touch()
        first.add_run("s", SPECS)
    with Store.open(tmp_path / "store") as store:
        assert [path.name for path in store.files.set_aside()] == [f"{'3' * 32}.safetensors"]
        assert len(checkpoint_files(store)) == 3


def test_a_store_that_was_left_clean_is_not_searched(tmp_path, monkeypatch):
    folder = closed(tmp_path / "store")
    Store.open(folder).close()

    def search(*_):
        raise AssertionError("searched")

    monkeypatch.setattr(CheckpointFiles, "set_orphans_aside", search)
    with Store.open(folder) as store:
        store.checkpoint(store.trials()[0].hash, 2, arrays(2))
    Store.open(folder).close()
    (folder / "checkpoints" / f"{'2' * 32}.safetensors").touch()
    with pytest.raises(AssertionError, match="searched"):
        Store.open(folder)
