"""The store: what goes in comes out; claims, checkpoints, endings, tables."""

from __future__ import annotations

import builtins
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from store_help import ORIGIN, SPECS, arrays, checkpoint_files, same

from headcount.core.errors import BadInput, HeadcountError
from headcount.core.hashing import content_hash
from headcount.store.checkpoints import Snapshot
from headcount.store.owners import is_dead, this_owner
from headcount.store.schema import LostTrial, StoreError
from headcount.store.store import Store
from headcount.store.trials import Outcome
from support import check_frame


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "store") as opened:
        yield opened


# -- runs -------------------------------------------------------------------------------------------------------


def test_a_run_names_trials_and_is_only_ever_extended(store):
    hashes = store.add_run("first", SPECS[:2], about={"title": "two"})
    assert hashes == [content_hash(spec) for spec in SPECS[:2]]
    assert store.add_run("first", SPECS[:2]) == hashes
    store.claim(hashes[:1])
    store.finish(hashes[0], "done", {"nmse": 0.5}, ORIGIN)
    more = store.add_run("first", [SPECS[3], SPECS[0], SPECS[3]])
    assert more[0] == more[2]
    assert [trial.hash for trial in store.trials("first")] == [*hashes, more[0]]
    assert store.trial(hashes[0]).metrics == {"nmse": 0.5}, "adding must not touch a trial that is there"
    store.add_run("second", SPECS[1:3])
    assert store.runs() == {"first": 3, "second": 2}
    assert len(store.trials()) == 4
    assert store.counts("first") == {"pending": 2, "running": 0, "done": 1, "diverged": 0, "failed": 0}
    assert store.about("first") == {"title": "two"}
    assert store.about("second") == {}


@pytest.mark.parametrize(
    ("name", "specs", "words"),
    [
        (" ", SPECS, "name"),
        ("a\nb", SPECS, "name"),
        ("a", [], "no trials"),
        ("a", [{"x": float("nan")}], "JSON"),
        ("a", [{"x": object()}], "JSON"),
    ],
)
def test_a_bad_run_adds_nothing(store, name, specs, words):
    with pytest.raises(BadInput, match=words):
        store.add_run(name, specs)
    assert store.runs() == {}


def test_unknown_names_suggest_the_nearest(store):
    with pytest.raises(BadInput, match="there are none"):
        store.trials("sweep")
    hashes = store.add_run("sweep", SPECS)
    with pytest.raises(BadInput, match="did you mean 'sweep'"):
        store.table("sweap")
    with pytest.raises(BadInput, match="did you mean 'done'"):
        store.trials(states=["dune"])
    assert store.trial(hashes[0][:8]).hash == hashes[0]
    for name in ("", "zz"):
        with pytest.raises(BadInput, match="trial"):
            store.trial(name)
    for call in (store.claim, store.load_checkpoints, lambda t: store.fail(t[0], "x"), store.retry):
        with pytest.raises(BadInput, match="nothere"):
            call(["nothere"])


def test_everything_survives_closing(tmp_path):
    with Store.open(tmp_path) as store:
        hashes = store.add_run("r", SPECS)
        store.claim(hashes)
        store.checkpoint(hashes[0], 5, arrays(1), [(1, 0.9), (5, 0.5)])
        store.finish(hashes[1], "diverged", None, ORIGIN, [(1, float("inf"))])
        store.fail(hashes[2], "out of memory", ORIGIN)
    with Store.open(tmp_path, create=False) as store:
        a, b, c, d = store.trials("r")
        assert (a.state, a.step, a.checkpoint_step, a.owner) == ("pending", 5, 5, None), "closing gives back"
        assert same(store.load_checkpoint(a.hash)[1], arrays(1))
        assert (b.state, b.metrics, b.provenance, b.step, b.finished) == ("diverged", None, ORIGIN, 1, True)
        assert store.curve(b.hash) == [(1, float("inf"))]
        assert (c.state, c.error) == ("failed", "out of memory")
        assert (d.state, store.load_checkpoint(d.hash), store.curve(d.hash)) == ("pending", None, [])
        assert [t.hash for t in store.trials(states=["failed", "diverged"])] == hashes[1:3]


# -- claims -----------------------------------------------------------------------------------------------------


def test_a_trial_is_claimed_once(store):
    hashes = store.add_run("r", SPECS)
    with Store.open(store.folder) as other:
        assert store.claim(hashes, limit=3) == hashes[:3]
        assert other.claim(hashes) == hashes[3:]
        assert store.claim(hashes) == []
        other.finish(hashes[3], "done", {}, ORIGIN)
        store.release()
        assert other.claim(hashes) == hashes[:3]
        assert store.renew() == []
        assert sorted(other.renew()) == sorted(hashes[:3])


def test_an_expired_lease_can_be_taken_over_and_its_old_owner_cannot_write(store):
    hashes = store.add_run("r", SPECS[:2])
    assert store.claim(hashes, lease_seconds=0.01) == hashes
    store.checkpoint(hashes[0], 1, arrays(1), [(1, 1.0)])
    with Store.open(store.folder) as other:
        time.sleep(0.03)
        assert other.claim(hashes[:1]) == hashes[:1]
        with pytest.raises(LostTrial, match="taken over"):
            store.checkpoint(hashes[0], 2, arrays(2), [(2, 2.0)])
        assert store.checkpoint_many([Snapshot(h, 2, arrays(2)) for h in hashes]) == hashes[:1]
        for end in (lambda: store.finish(hashes[0], "done", {}, ORIGIN), lambda: store.fail(hashes[0], "x")):
            with pytest.raises(LostTrial, match="taken over"):
                end()
        step, loaded = other.load_checkpoint(hashes[0])
        assert step == 1
        assert same(loaded, arrays(1))
        assert store.curve(hashes[0]) == [(1, 1.0)]
        assert store.load_checkpoint(hashes[1])[0] == 2
        other.finish(hashes[0], "done", {}, ORIGIN)


def test_a_checkpoint_renews_the_lease(store):
    trial = store.add_run("r", SPECS)[0]
    store.claim([trial], lease_seconds=50)
    first = store.trial(trial).lease_until
    store.checkpoint(trial, 1, arrays())
    assert store.trial(trial).lease_until > first


def test_the_trials_of_a_dead_process_are_free_at_once(store):
    hashes = store.add_run("r", SPECS)
    code = (
        "import sys, time; from headcount.store.store import Store; s = Store.open(sys.argv[1]); "
        "print(len(s.claim(sys.argv[2:], lease_seconds=1e6)), flush=True); time.sleep(60)"
    )
    child = subprocess.Popen([sys.executable, "-c", code, store.folder, *hashes], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout.readline().strip() == "4"
        assert store.claim(hashes) == [], "it is alive"
        child.send_signal(signal.SIGKILL)
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # still a zombie: dead, though it has a number
        assert store.claim(hashes) == hashes
    finally:
        child.kill()
        child.communicate()


def test_only_certain_deaths_count():
    me = this_owner().split("|")
    assert not is_dead("|".join(me))
    assert this_owner() != this_owner(), "two store objects are two owners"

    def with_part(index: int, value: str) -> str:
        return "|".join([*me[:index], value, *me[index + 1 :]])

    assert is_dead(with_part(1, "another boot"))
    assert not is_dead(with_part(0, "another host"))
    assert not is_dead("somebody")
    if me[2] and me[4]:
        assert is_dead(with_part(4, "1")), "the number was given to a later process"
        assert not is_dead(with_part(2, "another container"))


def test_a_store_is_not_used_across_a_fork(store, monkeypatch):
    monkeypatch.setattr(os, "getpid", lambda: 1)
    with pytest.raises(StoreError, match="fork"):
        store.runs()


# -- checkpoints ------------------------------------------------------------------------------------------------


def test_checkpoints_replace_each_other_and_stacks_share_a_file(store):
    hashes = store.add_run("r", SPECS)
    store.checkpoint_many([Snapshot(h, 3, arrays(i), [(1, 0.5), (3, i)]) for i, h in enumerate(hashes)])
    assert len(checkpoint_files(store)) == 1
    for i, (step, loaded) in enumerate(map(store.load_checkpoints(hashes).get, hashes)):
        assert step == 3
        assert same(loaded, arrays(i))
    for i, h in enumerate(hashes[:3]):
        store.checkpoint(h, 4, arrays(i + 10), [(4, 0.25)])
    assert len(checkpoint_files(store)) == 4, "the stack's file still serves one trial"
    assert same(store.load_checkpoint(hashes[3])[1], arrays(3))
    store.checkpoint_many([Snapshot(h, 5, arrays(i)) for i, h in enumerate(hashes)])
    assert len(checkpoint_files(store)) == 1
    assert store.curve(hashes[1]) == [(1, 0.5), (3, 1.0), (4, 0.25)]
    assert store.checkpoint_many([]) == []


@pytest.mark.parametrize("where", [0.0, 0.02, 0.1, 0.5, 0.999])
def test_one_flipped_byte_is_detected_and_the_trial_restarts(store, where):
    trial, spared = store.add_run("r", SPECS[:2])
    store.checkpoint(trial, 9, {"a": np.arange(1000.0)}, [(1, 1.0), (9, 9.0)])
    (path,) = checkpoint_files(store)
    content = bytearray(path.read_bytes())
    content[int(where * len(content))] ^= 1
    path.write_bytes(content)
    assert store.load_checkpoint(trial) is None
    assert [(w.trial, path.name in w.text) for w in store.warnings()] == [(trial, True)]
    assert store.trial(trial).step == 0
    assert store.trial(trial).checkpoint_step is None
    assert store.claim([trial, spared]) == [trial, spared]
    store.checkpoint(trial, 2, {"a": np.zeros(3)}, [(1, 1.0), (2, 2.0)])
    assert store.curve(trial) == [(1, 1.0), (2, 2.0)], "no point of the first attempt is left, or there twice"


def test_damage_in_a_stack_costs_one_trial(store):
    hashes = store.add_run("r", SPECS)
    store.checkpoint_many([Snapshot(h, 3, {"a": np.full(100, i, np.uint8)}) for i, h in enumerate(hashes)])
    (path,) = checkpoint_files(store)
    path.write_bytes(path.read_bytes().replace(bytes([2] * 100), bytes([2] * 99 + [3])))
    assert store.load_checkpoints(hashes).keys() == set(hashes) - {hashes[2]}
    assert len(store.warnings()) == 1


def test_a_finished_trial_keeps_its_result_when_its_checkpoint_is_gone(store):
    trial = store.add_run("r", SPECS)[0]
    store.checkpoint(trial, 9, arrays())
    store.finish(trial, "done", {"nmse": 0.5}, ORIGIN)
    checkpoint_files(store)[0].unlink()
    assert store.load_checkpoint(trial) is None
    assert store.load_checkpoint(trial) is None
    assert store.trial(trial).state == "done"
    assert len(store.warnings()) == 1


def test_a_checkpoint_replaced_during_reading_is_not_damage(store, monkeypatch):
    trial = store.add_run("r", SPECS)[0]
    store.checkpoint(trial, 1, arrays(1))
    read = store.files.read

    def late(file, wanted):
        monkeypatch.setattr(store.files, "read", read)
        with Store.open(store.folder) as other:
            other.checkpoint(trial, 2, arrays(2))
        return read(file, wanted)

    monkeypatch.setattr(store.files, "read", late)
    assert store.load_checkpoint(trial)[0] == 2
    assert store.warnings() == []


def test_orphans_are_swept_but_not_those_of_a_live_writer(store):
    trial = store.add_run("r", SPECS)[0]
    store.checkpoint(trial, 1, arrays(1))
    folder = store.folder / "checkpoints"
    orphans = [folder / f"{'0' * 32}.safetensors", folder / f".{'1' * 32}.safetensors.abc.part"]
    mine = folder / "notes.safetensors"
    for path in [*orphans, mine]:
        path.touch()
    with store.files.writing():
        Store.open(store.folder).close()
        assert all(path.exists() for path in orphans), "somebody is between a file and its row"
    Store.open(store.folder).close()
    assert not any(path.exists() for path in orphans)
    assert mine.exists()
    assert store.load_checkpoint(trial) is not None


@pytest.mark.parametrize("bad", [np.array(["a"]), np.array([None]), np.zeros(1, np.complex128)])
def test_arrays_that_cannot_be_stored_are_rejected(store, bad):
    trial = store.add_run("r", SPECS)[0]
    with pytest.raises(BadInput, match="64 bits"):
        store.checkpoint(trial, 1, {"a": bad})
    with pytest.raises(BadInput, match="increase"):
        store.checkpoint(trial, 1, {}, [(2, 0.0), (1, 0.0)])
    with pytest.raises(BadInput, match="twice"):
        store.checkpoint_many([Snapshot(trial, 1, {}), Snapshot(trial, 2, {})])
    assert checkpoint_files(store) == []


# -- endings ----------------------------------------------------------------------------------------------------


def test_an_ending_is_final(store):
    a, b, c, _ = store.add_run("r", SPECS)
    store.finish(a, "done", {"nmse": 0.5}, ORIGIN, [(1, 1.0)])
    store.finish(a, "done", {"nmse": 0.5}, {"commit": "other"})
    with pytest.raises(LostTrial, match="already ended as done"):
        store.finish(a, "done", {"nmse": 0.6}, ORIGIN)
    with pytest.raises(LostTrial, match="already ended"):
        store.fail(a, "late")
    with pytest.raises(LostTrial, match="already ended"):
        store.checkpoint(a, 5, arrays())
    assert checkpoint_files(store) == []
    assert (store.trial(a).metrics, store.trial(a).provenance) == ({"nmse": 0.5}, ORIGIN)
    outcomes = [Outcome(h, "done", {"nmse": 0.1}, ORIGIN, step=8) for h in (a, b, c)]
    assert store.finish_many(outcomes) == [a]
    assert [store.trial(h).step for h in (a, b, c)] == [1, 8, 8]
    for state, metrics in (("pending", {}), ("done", {"nmse": float("nan")})):
        with pytest.raises(BadInput):
            store.finish(b, state, metrics, ORIGIN)


def test_a_failed_trial_can_be_tried_again_from_its_checkpoint(store):
    a, b, *_ = store.add_run("r", SPECS)
    store.checkpoint(a, 5, arrays(1))
    store.fail(a, "out of memory")
    assert store.claim([a]) == []
    store.retry([a])
    assert store.claim([a]) == [a]
    assert store.load_checkpoint(a)[0] == 5
    assert "out of memory" in store.warnings()[0].text
    with pytest.raises(BadInput, match="not failed"):
        store.retry([b])


# -- tables -----------------------------------------------------------------------------------------------------


def test_the_table_is_flat_and_has_the_same_columns_in_every_row(store):
    hashes = store.add_run("r", SPECS)
    store.finish(hashes[1], "done", {"nmse": 0.5, "per": {"a": [1, 2]}}, ORIGIN)
    rows = store.table("r")
    assert [row["spec.model.heads"] for row in rows] == [1, 1, 2, 2]
    assert [row["metrics.nmse"] for row in rows] == [None, 0.5, None, None]
    assert rows[1]["metrics.per.a"] == [1, 2]
    assert rows[1]["provenance.commit"] == "abc"
    assert len({tuple(row) for row in rows}) == 1


def test_a_data_frame_without_pandas_explains_what_to_install(store, monkeypatch):
    store.add_run("r", SPECS)
    real = builtins.__import__

    def without(name, *args, **options):
        if name == "pandas":
            raise ImportError(name)
        return real(name, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(builtins, "__import__", without)
        with pytest.raises(HeadcountError, match="pip install pandas"):
            store.frame("r")

    frame = store.frame("r")
    assert frame.equals(check_frame(store.table("r")))
    assert frame["spec.model.heads"].tolist() == [1, 1, 2, 2]
