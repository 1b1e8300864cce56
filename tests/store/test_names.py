"""Names of files that come from a store lead nowhere but to files of the form that we write."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from store_help import SPECS, arrays, checkpoint_files, same

from headcount.cli.runs import runs
from headcount.store.store import Store


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
        store.remove_unnamed([form.format(victim=victim, hex="0" * 32)])
    with Store.open(folder) as store:
        store.add_run("r", SPECS)
    assert victim.read_bytes() == b"mine"
    crafted(tmp_path / "again", form.format(victim=victim, hex="0" * 32))
    assert runs(store=tmp_path / "again", check=True) == 1
    assert "of a form that headcount never writes" in capsys.readouterr().out


def test_a_name_of_our_form_is_read(tmp_path):
    with Store.open(tmp_path) as store:
        trial = store.add_run("r", SPECS)[0]
        store.checkpoint(trial, 1, arrays(1))
        (path,) = checkpoint_files(store)
        with store.writing() as db:
            db.execute("UPDATE trials SET checkpoint = ? WHERE hash = ?", (f"{'a' * 32}.safetensors", trial))
        path.rename(path.with_name(f"{'a' * 32}.safetensors"))
        assert same(store.load_checkpoint(trial)[1], arrays(1))


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_what_is_no_plain_file_is_damage(tmp_path, kind, capsys):
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
        assert "no plain file" in capsys.readouterr().out
        if kind != "folder":
            assert store.load_checkpoint(trial) is None
    assert moved.exists(), "what a link leads to is left alone"


def test_a_link_instead_of_the_folder_of_set_aside_files_is_not_followed(tmp_path):
    Store.open(tmp_path / "store").close()
    theirs = tmp_path / "theirs" / "2020-01-01"
    theirs.mkdir(parents=True)
    (theirs / f"{'0' * 32}.safetensors").touch()
    (tmp_path / "store" / "set-aside").symlink_to(theirs.parent)
    (tmp_path / "store" / "checkpoints" / f"{'1' * 32}.safetensors").touch()
    Store.open(tmp_path / "store").close()
    assert len(list(theirs.iterdir())) == 1
    assert len(list((tmp_path / "store" / "checkpoints").iterdir())) == 1


@pytest.mark.parametrize("made", [
    "CREATE TRIGGER t AFTER UPDATE ON trials BEGIN DELETE FROM runs; END", "CREATE VIEW v AS SELECT 1",
    "DROP INDEX trials_owner", "CREATE INDEX mine ON trials (state)",
])  # fmt: skip
def test_a_schema_that_we_never_made_is_refused(tmp_path, made):
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
