"""Stores joined by the hashes of their trials."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from store_help import ORIGIN, SPECS, arrays, checkpoint_files, same

from headcount.core.errors import BadInput
from headcount.store import merge as merging
from headcount.store.checkpoints import Snapshot
from headcount.store.store import Store
from headcount.store.trials import Outcome


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "here") as store:
        yield store


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "there") as store:
        yield store


def content(store: Store) -> dict[str, object]:
    """All that a store says of its trials, less the times of writing."""
    rows = {row["hash"]: {k: v for k, v in row.items() if k not in ("created", "updated")} for row in store.table()}
    curves = {trial: store.curve(trial) for trial in rows}
    checkpoints = {
        trial: (step, {name: array.tobytes() for name, array in loaded.items()})
        for trial, (step, loaded) in store.load_checkpoints(rows).items()
    }
    return {"rows": rows, "curves": curves, "checkpoints": checkpoints, "runs": store.runs()}


def test_an_empty_store_becomes_the_same_as_the_other(here, there):
    hashes = there.add_run("r", SPECS, about={"title": "t"})
    there.add_run("s", SPECS[:1])
    there.checkpoint_many([Snapshot(h, 4, arrays(i), [(2, 0.5), (4, i)]) for i, h in enumerate(hashes)])
    there.checkpoint(hashes[1], 5, arrays(9), [(5, 0.1)])
    there.finish(hashes[1], "done", {"nmse": 0.5}, ORIGIN)
    there.fail(hashes[2], "no memory", ORIGIN)
    report = here.merge(there.folder)
    assert sorted(report.added) == sorted(hashes)
    assert str(report) == "4 trials added, 0 brought forward, 0 as they were"
    assert content(here) == content(there)
    assert here.about("r") == {"title": "t"}
    assert [t.hash for t in here.trials("r")] == hashes
    again = here.merge(there.folder)
    assert (again.added, again.taken, sorted(again.kept)) == ([], [], sorted(hashes))
    assert content(here) == content(there)
    assert len(checkpoint_files(here)) == 1, "one batch is one file"


def test_finished_beats_unfinished_and_the_longer_checkpoint_wins(here, there):
    finished, longer, shorter, failed = hashes = here.add_run("r", SPECS)
    there.add_run("r", SPECS)
    here.checkpoint(finished, 9, arrays(1), [(9, 1.0)])
    there.finish(finished, "done", {"nmse": 0.5}, ORIGIN, [(1, 2.0)])
    here.checkpoint(longer, 3, arrays(3), [(3, 3.0)])
    there.checkpoint(longer, 4, arrays(4), [(1, 1.0), (4, 4.0)])
    here.checkpoint(shorter, 4, arrays(4), [(4, 4.0)])
    there.checkpoint(shorter, 3, arrays(3), [(3, 3.0)])
    here.fail(failed, "no memory", ORIGIN)
    there.finish(failed, "diverged", None, ORIGIN)
    report = here.merge(there.folder)
    assert sorted(report.taken) == sorted([finished, longer, failed])
    assert report.kept == [shorter]
    assert (here.trial(finished).state, here.trial(finished).metrics) == ("done", {"nmse": 0.5})
    assert here.curve(finished) == [(1, 2.0)]
    assert here.load_checkpoint(finished) is None
    step, loaded = here.load_checkpoint(longer)
    assert step == 4
    assert same(loaded, arrays(4))
    assert here.curve(longer) == [(1, 1.0), (4, 4.0)]
    assert here.load_checkpoint(shorter)[0] == 4
    assert here.trial(failed).state == "diverged"
    assert here.trial(failed).error is None
    assert "no memory" in here.warnings()[0].text
    assert [t.hash for t in here.trials()] == hashes, "they keep their order"
    assert len(checkpoint_files(here)) == 2, "what was replaced is gone"
    back = there.merge(here.folder)
    assert back.taken == [shorter]
    assert back.conflict == []
    assert content(here) == content(there)


def test_a_failed_or_unfinished_trial_does_not_replace_a_result(here, there):
    a, b, *_ = here.add_run("r", SPECS)
    there.add_run("r", SPECS)
    here.finish(a, "done", {"nmse": 0.5}, ORIGIN)
    there.fail(a, "no memory")
    here.fail(b, "one")
    there.fail(b, "two")
    report = here.merge(there.folder)
    assert len(report.kept) == 4
    assert here.trial(a).state == "done"
    assert here.trial(b).error == "one"


@pytest.mark.parametrize(("state", "metrics"), [("done", {"nmse": 0.6}), ("diverged", {"nmse": 0.5})])
def test_differing_results_are_reported_and_the_first_is_kept(here, there, state, metrics):
    a, b, *_ = here.add_run("r", SPECS)
    there.add_run("r", SPECS)
    for trial in (a, b):
        here.finish(trial, "done", {"nmse": 0.5}, ORIGIN)
    there.finish(a, state, metrics, ORIGIN)
    there.finish(b, "done", {"nmse": 0.5}, {"commit": "another"})
    for _ in range(2):
        report = here.merge(there.folder)
        assert report.conflict == [a]
        assert "1 in conflict" in str(report)
        assert here.trial(a).metrics == {"nmse": 0.5}


def test_a_trial_in_training_here_is_merged_only_after_it_ends(here, there):
    a, b, *_ = here.add_run("r", SPECS)
    there.add_run("r", SPECS)
    here.claim([a, b], lease_seconds=0.2)
    there.finish(a, "done", {"nmse": 0.5}, ORIGIN)
    there.checkpoint(b, 5, arrays())
    assert sorted(here.merge(there.folder).busy) == sorted([a, b])
    here.finish(a, "done", {"nmse": 0.5}, ORIGIN)
    time.sleep(0.25)
    assert here.merge(there.folder).taken == [b]
    assert (here.trial(b).state, here.trial(b).owner) == ("pending", None)


def test_a_trial_in_training_there_can_be_claimed_here(here, there):
    a = there.add_run("r", SPECS)[0]
    there.claim([a])
    there.checkpoint(a, 5, arrays(5))
    here.merge(there.folder)
    assert there.trial(a).state == "running"
    assert here.claim([a]) == [a]
    assert here.load_checkpoint(a)[0] == 5


def test_a_damaged_checkpoint_is_not_copied(here, there):
    a, b, c, _ = there.add_run("r", SPECS)
    for trial in (a, b, c):
        there.checkpoint(trial, 5, arrays(5), [(5, 0.5)])
    there.finish(b, "done", {"nmse": 0.5}, ORIGIN)
    here.add_run("r", SPECS)
    here.checkpoint(c, 2, arrays(2), [(2, 0.2)])
    for path in checkpoint_files(there):
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    report = here.merge(there.folder)
    assert sorted(report.damaged) == sorted([a, b, c])
    assert report.taken == [b]
    assert (here.trial(a).step, here.curve(a), here.load_checkpoint(a)) == (0, [], None)
    assert (here.trial(b).state, here.curve(b), here.load_checkpoint(b)) == ("done", [(5, 0.5)], None)
    assert here.load_checkpoint(c)[0] == 2


def test_merging_works_in_batches_and_resumes_after_interruption(here, there, monkeypatch):
    hashes = there.add_run("r", [{"seed": seed} for seed in range(20)])
    there.checkpoint_many([Snapshot(h, 4, arrays(i), [(4, i)]) for i, h in enumerate(hashes)])
    there.finish_many([Outcome(h, "done", {"n": i}, ORIGIN) for i, h in enumerate(hashes[:10])])
    monkeypatch.setattr(merging, "MERGE_BATCH_TRIALS", 6)
    put, left = merging._put, [9]

    def fail_at_the_tenth(*args):
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        put(*args)

    with monkeypatch.context() as patch:
        patch.setattr(merging, "_put", fail_at_the_tenth)
        with pytest.raises(KeyboardInterrupt):
            here.merge(there.folder)
    assert len(here.trials()) == 6, "whole batches only"
    assert len(checkpoint_files(here)) == 1
    assert len(here.merge(there.folder).added) == 14
    assert content(here) == content(there)


def test_a_trial_that_changes_during_reading_is_read_again(here, there, monkeypatch):
    a = there.add_run("r", SPECS)[0]
    there.checkpoint(a, 1, arrays(1), [(1, 1.0)])
    read = merging._read

    def late(other, *args):
        with Store.open(there.folder) as writer:
            writer.checkpoint(a, 2, arrays(2), [(2, 2.0)])
        monkeypatch.setattr(merging, "_read", read)
        return read(other, *args)

    monkeypatch.setattr(merging, "_read", late)
    assert here.merge(there.folder).damaged == []
    step, loaded = here.load_checkpoint(a)
    assert step == 2
    assert same(loaded, arrays(2))
    assert here.curve(a) == [(1, 1.0), (2, 2.0)]


def test_a_store_is_not_merged_with_itself_or_with_nothing(here, tmp_path):
    with pytest.raises(BadInput, match="itself"):
        here.merge(here.folder)
    with pytest.raises(BadInput, match="no store"):
        here.merge(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()


def test_a_copied_store_merges_back(here, tmp_path):
    hashes = here.add_run("r", SPECS)
    here.checkpoint(hashes[0], 1, arrays(1))
    shutil.copytree(here.folder, tmp_path / "copy")
    with Store.open(tmp_path / "copy") as copy:
        copy.finish(hashes[0], "done", {}, ORIGIN)
        copy.add_run("r", [{"seed": "new"}])
    assert str(here.merge(tmp_path / "copy")) == "1 trials added, 1 brought forward, 3 as they were"
