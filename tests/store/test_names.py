"""Names of files that come from a store lead nowhere but to files of the form that we write."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from store_help import SPECS, arrays, checkpoint_files, same

from headcount.cli.runs import runs
from headcount.store.checkpoints import CLEAN_MARK, SET_ASIDE, WRITERS
from headcount.store.database import COMMIT_COUNT_FILE
from headcount.store.schema import CHECKPOINTS, StoreError
from headcount.store.store import STORE_ENTRIES, STORE_FILES, Store


def crafted(folder: Path, name: str) -> str:
    """A store whose first trial names a file of somebody's choice, with checksums that fit; return the trial."""
    with Store.open(folder) as store:
        trial = store.add_run("r", SPECS)[0]
        store.checkpoint(trial, 1, arrays(1))
        with store.writing() as db:  # this connection seals what it writes
            db.execute("UPDATE trials SET checkpoint = ? WHERE hash = ?", (name, trial))
    return trial


@pytest.mark.parametrize("form", ["{victim}", "../../victim.safetensors", "{hex}.safetensors/../../victim", "a b", ""])
def test_a_crafted_name_is_damage_and_its_file_is_never_touched(tmp_path, form, capsys):
    victim = tmp_path / "victim.safetensors"
    victim.write_bytes(b"mine")
    folder = tmp_path / "sub" / "store"
    folder.parent.mkdir()
    trial = crafted(folder, form.format(victim=victim, hex="0" * 32))
    with Store.open(folder) as store:
        assert [t.hash for t in store.trials()] != []
        assert trial not in [t.hash for t in store.trials()]
        assert store.claim([trial]) == []
        assert store.load_checkpoints([trial]) == {}
        with store.writing() as db:  # even where a row lets go of the name
            db.execute("UPDATE trials SET checkpoint = NULL, checkpoint_hash = NULL, checkpoint_step = NULL")
        store.remove_unreferenced([form.format(victim=victim, hex="0" * 32)])
    with Store.open(folder) as store:
        store.add_run("r", SPECS)
    assert victim.read_bytes() == b"mine"
    crafted(tmp_path / "again", form.format(victim=victim, hex="0" * 32))
    assert runs(store=tmp_path / "again", check=True) == 1
    assert "of a form that headcount never writes" in capsys.readouterr().out


def test_a_well_formed_name_is_read(tmp_path):
    with Store.open(tmp_path) as store:
        trial = store.add_run("r", SPECS)[0]
        store.checkpoint(trial, 1, arrays(1))
        (path,) = checkpoint_files(store)
        with store.writing() as db:
            db.execute("UPDATE trials SET checkpoint = ? WHERE hash = ?", (f"{'a' * 32}.safetensors", trial))
        path.rename(path.with_name(f"{'a' * 32}.safetensors"))
        assert same(store.load_checkpoint(trial)[1], arrays(1))


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_a_checkpoint_that_is_not_a_regular_file_is_damage(tmp_path, kind, capsys):
    with Store.open(tmp_path / "store") as store:
        trial = store.add_run("r", SPECS)[0]
        store.checkpoint(trial, 1, arrays(1))
        (path,) = checkpoint_files(store)
        moved = tmp_path / "elsewhere.safetensors"
        path.rename(moved)
        if kind == "link":
            path.symlink_to(moved)
        elif kind == "pipe":
            os.mkfifo(path)
        else:
            path.mkdir()
        assert runs(store=tmp_path / "store", check=True) == 1
        assert "not a regular file" in capsys.readouterr().out
        if kind != "folder":
            assert store.load_checkpoint(trial) is None
    assert moved.exists(), "what a link leads to is left alone"


@pytest.mark.parametrize(
    "made",
    [
        "CREATE TRIGGER t AFTER UPDATE ON trials BEGIN DELETE FROM runs; END",
        "CREATE VIEW v AS SELECT 1",
        "DROP INDEX trials_owner",
        "CREATE INDEX mine ON trials (state)",
    ],
)
def test_a_foreign_schema_is_rejected(tmp_path, made):
    with Store.open(tmp_path) as store:
        store.add_run("r", SPECS)
        with store.writing() as db:
            db.execute(made)
    if "mine" in made:  # an index of the user's own changes no answer
        Store.open(tmp_path).close()
        return
    for read_only in (True, False):
        with pytest.raises(Exception, match="in its schema is not as headcount made it"):
            Store.open(tmp_path, read_only=read_only)


@pytest.mark.parametrize("name", STORE_ENTRIES)
def test_a_link_in_place_of_a_store_file_is_never_written_through(tmp_path, name):
    """Locks, marks, counts and folders: what a link leads to stays as it is; without the link the store opens."""
    folder, victim = tmp_path / "store", tmp_path / "victim"
    with Store.open(folder) as store:
        store.add_run("r", SPECS)
    kept = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    is_folder = name in (CHECKPOINTS, SET_ASIDE, WRITERS)
    if is_folder:
        victim.mkdir()
        (victim / "download.part").write_text("mine")
    else:
        victim.write_text("mine")
    place = folder / name
    if place.is_dir():
        shutil.rmtree(place)
    place.unlink(missing_ok=True)
    place.symlink_to(victim)
    with pytest.raises(StoreError, match="is a link, and headcount makes no links"):
        Store.open(folder)
    assert (victim / "download.part" if is_folder else victim).read_text() == "mine"
    place.unlink()
    if place in kept:
        place.write_bytes(kept[place])
    with Store.open(folder) as store:
        assert len(store.trials()) == len(SPECS)


@pytest.mark.parametrize("name", STORE_FILES)
@pytest.mark.parametrize("read_only", [True, False])
def test_a_pipe_in_place_of_a_store_file_is_not_opened(tmp_path, name, read_only):
    """Opening one would wait for ever; whoever packs a store into an archive can put one there."""
    with Store.open(tmp_path) as store:
        store.add_run("r", SPECS)
    kept = (tmp_path / name).read_bytes() if (tmp_path / name).exists() else None
    (tmp_path / name).unlink(missing_ok=True)
    os.mkfifo(tmp_path / name)
    with pytest.raises(StoreError, match="is not a regular file"):
        Store.open(tmp_path, read_only=read_only)
    (tmp_path / name).unlink()
    if kept is not None:
        (tmp_path / name).write_bytes(kept)
    with Store.open(tmp_path, read_only=read_only) as store:
        assert len(store.trials()) == len(SPECS)


def test_odd_entries_among_the_writers_are_left_alone(tmp_path):
    with Store.open(tmp_path) as store:
        store.add_run("r", SPECS)
    (tmp_path / CLEAN_MARK).write_text("0")  # so that the next writer looks for what killed ones left
    os.mkfifo(tmp_path / WRITERS / "pipe")
    (tmp_path / WRITERS / "folder").mkdir()
    (tmp_path / WRITERS / "endless").symlink_to("/dev/zero")
    (tmp_path / COMMIT_COUNT_FILE).unlink()
    (tmp_path / COMMIT_COUNT_FILE).symlink_to("/dev/zero")
    with pytest.raises(StoreError, match="is not a regular file"):
        Store.open(tmp_path, read_only=True)
    (tmp_path / COMMIT_COUNT_FILE).unlink()
    with Store.open(tmp_path) as store:
        assert len(store.trials()) == len(SPECS)
    assert {"pipe", "folder", "endless"} <= {p.name for p in (tmp_path / WRITERS).iterdir()}


def test_a_link_to_a_store_is_followed(tmp_path):
    with Store.open(tmp_path / "store") as store:
        store.add_run("r", SPECS)
    (tmp_path / "link").symlink_to(tmp_path / "store")
    with Store.open(tmp_path / "link") as store:
        assert len(store.trials()) == len(SPECS)
