"""Whatever happens to the store's files and disk is told in one line, and nothing that was stored is lost."""

from __future__ import annotations

import os
import resource
import sqlite3
import subprocess
from pathlib import Path

import numpy as np
import pytest
from store_help import ORIGIN, SPECS, arrays, checkpoint_files, same

from headcount.core.errors import BadInput, HeadcountError
from headcount.store.schema import StoreError, locked
from headcount.store.store import Store


def filled(folder: Path) -> Path:
    """A closed store with something in it."""
    with Store.open(folder) as store:
        hashes = store.add_run("r", [{"seed": seed, "text": "x" * 200} for seed in range(100)])
        store.checkpoint(hashes[0], 1, arrays())
    return folder / "trials.sqlite"


def damage_text(path: Path) -> None:
    path.write_text("this is not a database " * 1000)


def damage_half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def damage_page(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 4096)


def damage_empty(path: Path) -> None:
    path.write_bytes(b"")


def damage_middle(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[4096 * 2 : 4096 * 4] = os.urandom(4096 * 2)
    path.write_bytes(content)


def damage_newer(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("UPDATE meta SET value = '99'")
    db.close()


def damage_other(path: Path) -> None:
    path.unlink()
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE songs (title TEXT)")
    db.close()


DAMAGE = {
    damage_text: "damaged",
    damage_half: "damaged",
    damage_page: "damaged",
    damage_empty: "damaged",
    damage_middle: "damaged",
    damage_newer: "upgrade",
    damage_other: "not one of trials",
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_or_foreign_database_is_rejected_in_one_line_and_left_alone(tmp_path, damage):
    path = filled(tmp_path)
    with Store.open(tmp_path) as store:
        assert len(store.trials("r")) == 100
    damage(path)
    before = path.read_bytes()
    with pytest.raises(StoreError, match=DAMAGE[damage]) as caught:
        Store.open(tmp_path)
    assert "\n" not in str(caught.value)
    if damage is not damage_other:  # a whole database of another program may get another journal
        assert path.read_bytes() == before
    assert len(list((tmp_path / "checkpoints").iterdir())) == 1, "checkpoints must outlive their table"


def test_a_missing_table_is_not_replaced_while_checkpoints_are_there(tmp_path):
    filled(tmp_path).unlink()
    with pytest.raises(StoreError, match="put it back"):
        Store.open(tmp_path)
    assert len(list((tmp_path / "checkpoints").iterdir())) == 1


def test_places_that_are_not_a_store(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match="is a file"):
        Store.open(tmp_path / "file")
    with pytest.raises(HeadcountError, match="Not a directory"):
        Store.open(tmp_path / "file" / "below")
    with pytest.raises(BadInput, match="there is no store"):
        Store.open(tmp_path / "none", create=False)
    assert not (tmp_path / "none").exists()


def test_a_locked_store_says_who_holds_it(tmp_path):
    store = Store.open(tmp_path)
    with locked(store.folder / ".trials.lock"), pytest.raises(StoreError, match=rf"locked .*pid {os.getpid()}"):
        Store.open(store.folder, patience=0.05)
    foreign = sqlite3.connect(store.folder / "trials.sqlite", isolation_level=None)
    foreign.execute("BEGIN IMMEDIATE")
    try:
        with Store.open(store.folder, patience=0.05) as other, pytest.raises(StoreError, match="locked by another"):
            other.add_run("r", SPECS)
    finally:
        foreign.close()
    store.add_run("r", SPECS)


def fill_until_refused(store: Store, hashes: list[str], curve: list[tuple[int, float]]) -> list[str]:
    """Finish trials until the disk is full; return those that were stored."""
    done: list[str] = []
    said = ""
    for trial in hashes:
        try:
            store.finish(trial, "done", {"n": len(done)}, ORIGIN, curve)
        except StoreError as error:
            said = str(error)
            break
        done.append(trial)
    assert " space" in said
    assert "\n" not in said
    return done


def check_nothing_lost(folder: Path, hashes: list[str], done: list[str]) -> None:
    with Store.open(folder) as store:
        assert [t.hash for t in store.trials("r", ["done"])] == done
        assert [store.trial(h).metrics for h in done] == [{"n": n} for n in range(len(done))]
        step, loaded = store.load_checkpoint(hashes[0])
        assert step == 1
        assert same(loaded, arrays(1))
        assert store.claim(hashes[-1:]) == hashes[-1:], "a closed store holds nothing, even if it could not say so"
        store.finish(hashes[-1], "done", {"n": -1}, ORIGIN)


def test_a_full_disk_loses_nothing(small_disk):
    folder = small_disk / "store"
    store = Store.open(folder)
    hashes = store.add_run("r", [{"seed": seed} for seed in range(300)])
    store.claim(hashes)
    store.checkpoint(hashes[0], 1, arrays(1))
    with pytest.raises(StoreError, match="is full: free some space"):
        store.checkpoint(hashes[0], 2, {"large": np.zeros(1 << 17)})
    assert len(checkpoint_files(store)) == 1, "what could not be written whole is not there"
    done = fill_until_refused(store, hashes[1:], [(i, 0.5) for i in range(1000)])
    assert len(done) > 5
    store.close()
    subprocess.run(["mount", "-o", "remount,size=8m", str(small_disk)], check=True)
    check_nothing_lost(folder, hashes, done)


def test_a_limit_on_file_sizes_loses_nothing(tmp_path):
    store = Store.open(tmp_path)
    hashes = store.add_run("r", [{"seed": seed} for seed in range(300)])
    store.checkpoint(hashes[0], 1, arrays(1))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
    try:
        with pytest.raises(StoreError, match="is full: free some space"):
            store.checkpoint(hashes[0], 2, {"large": np.zeros(1 << 18)})
        done = fill_until_refused(store, hashes[1:], [(i, 0.5) for i in range(1000)])
        store.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert len(done) > 5
    check_nothing_lost(tmp_path, hashes, done)


def test_a_read_only_disk_can_be_read_and_says_so_to_writers(small_disk):
    filled(small_disk / "store")
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(StoreError, match="is not writable"):
        Store.open(small_disk / "store")
    with pytest.raises(StoreError, match="is not writable"):
        Store.open(small_disk / "new")
    with Store.open(small_disk / "store", read_only=True) as store:
        assert len(store.trials("r")) == 100
        with pytest.raises(StoreError, match="opened read-only"):
            store.add_run("r", SPECS)
