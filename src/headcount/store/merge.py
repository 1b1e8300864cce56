"""Stores of several machines, joined by the hashes of their trials.

Finished beats unfinished, a result beats a failure, and of two unfinished ones the longer checkpoint wins. Two results
of one trial that differ are a conflict: it is reported, and the first is kept. A trial that somebody trains here at
this moment is left alone, and reported. Merging goes in batches of one file and one commit each; doing it again, after
a kill or for new trials, does only what is left.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from headcount.store.checkpoints import Arrays
from headcount.store.claims import is_held, join_run, note
from headcount.store.query import log
from headcount.store.schema import DamagedStore
from headcount.store.trials import FINISHED, as_json

if TYPE_CHECKING:
    from headcount.store.store import Store

BATCH_TRIALS = 500
BATCH_BYTES = 64 << 20

Verdict = Literal["added", "taken", "kept", "conflict", "busy"]


@dataclass
class MergeReport:
    """What a merge did; lists hold the hashes of trials."""

    added: list[str] = field(default_factory=list[str])
    taken: list[str] = field(default_factory=list[str])
    """Trials that were here, and were further there."""
    kept: list[str] = field(default_factory=list[str])
    conflict: list[str] = field(default_factory=list[str])
    """Trials with two different results: the one that was here is kept."""
    busy: list[str] = field(default_factory=list[str])
    """Trials that are further there, but are being trained here: merge again when they are not."""
    damaged: list[str] = field(default_factory=list[str])
    """Trials whose checkpoint there is damaged, and was not copied."""
    damaged_rows: list[str] = field(default_factory=list[str])
    """Trials whose row or curve is damaged, there or here: nothing of them was copied."""

    def __str__(self) -> str:
        """Say it in one line."""
        always = {"trials added": self.added, "brought forward": self.taken, "as they were": self.kept}
        at_need = {
            "in conflict": self.conflict,
            "busy": self.busy,
            "with a damaged checkpoint": self.damaged,
            "damaged and left out": self.damaged_rows,
        }
        parts = always | {what: hashes for what, hashes in at_need.items() if hashes}
        return ", ".join(f"{len(hashes)} {what}" for what, hashes in parts.items())


@dataclass(frozen=True)
class _Copy:
    """One trial of the other store: its row, its curve and the arrays of its checkpoint, of one moment."""

    row: sqlite3.Row
    points: list[tuple[int, bytes]]
    arrays: Arrays | None

    @property
    def step(self) -> int | None:
        """The step of the checkpoint, if it has one that is whole."""
        return None if self.arrays is None else self.row["checkpoint_step"]

    def size(self) -> int:
        """Return the bytes of the checkpoint."""
        return sum(array.nbytes for array in (self.arrays or {}).values())


def merge(store: Store, other: Store) -> MergeReport:
    """Bring all that the other store has into this one."""
    report = MergeReport()
    batch: list[_Copy] = []
    size = 0
    for copy in _worth_copying(store, other, report):
        batch.append(copy)
        size += copy.size()
        if len(batch) >= BATCH_TRIALS or size >= BATCH_BYTES:
            _write(store, batch, report)
            batch, size = [], 0
    _write(store, batch, report)
    for name in other.runs():
        try:
            members, about = other.members(name), other.about(name)
        except DamagedStore as error:  # its trials are copied all the same
            log.warning("%s", error)
            continue
        with store.writing() as db:
            known = store.states(members).keys()  # those that were left out have none
            join_run(db, name, [trial for trial in members if trial in known])
            if about:
                db.execute(
                    "INSERT INTO abouts SELECT ?1, ?2, ?3 WHERE EXISTS (SELECT 1 FROM runs WHERE name = ?1) "
                    "ON CONFLICT (name) DO NOTHING",
                    (name, as_json(about, "about"), time.time()),
                )
    return report


def _verdict(mine: sqlite3.Row | None, theirs: sqlite3.Row, step: int | None, dead: dict[str, bool]) -> Verdict:
    """Say what is to be done with a trial of the other store, whose checkpoint there is at `step`."""
    if mine is None:
        return "added"
    if theirs["state"] in FINISHED:
        if mine["state"] in ("done", "diverged"):
            same = (mine["state"], mine["metrics"]) == (theirs["state"], theirs["metrics"])
            return "kept" if same or theirs["state"] == "failed" else "conflict"
        better = not (mine["state"] == "failed" and theirs["state"] == "failed")
    else:
        have = -1 if mine["checkpoint_step"] is None else mine["checkpoint_step"]
        better = mine["state"] not in FINISHED and step is not None and step > have
    if not better:
        return "kept"
    return "busy" if is_held(mine, time.time(), dead) else "taken"


def _worth_copying(store: Store, other: Store, report: MergeReport) -> Iterator[_Copy]:
    """Read those trials of the other store that this one lacks or has less of; report the rest."""
    dead: dict[str, bool] = {}
    files: dict[str, dict[str, str]] = {}
    wanted: list[tuple[str, str | None]] = []
    for trial, theirs in other.scan():
        mine = _mine(store, trial)
        if isinstance(theirs, str) or isinstance(mine, str):
            report.damaged_rows.append(trial)
            continue
        verdict = _verdict(mine, theirs, theirs["checkpoint_step"], dead)
        if verdict in ("added", "taken"):
            wanted.append((trial, theirs["checkpoint"]))
            if theirs["checkpoint"] is not None:
                files.setdefault(theirs["checkpoint"], {})[trial] = theirs["checkpoint_hash"]
        else:
            getattr(report, verdict).append(trial)
    wanted.sort(key=lambda one: one[1] or "")  # the trials of a stack are read at once
    ready: dict[str, Arrays] = {}
    for trial, file in wanted:
        if file in files:
            with other.reading():
                ready = other.files.read(file, files.pop(file))
        copy = _read(other, trial, file, ready, report)
        if copy is None:
            report.damaged_rows.append(trial)
        else:
            yield copy


def _mine(store: Store, trial: str) -> sqlite3.Row | str | None:
    """Return what this store has of a trial, or what is wrong with it; None if it has nothing."""
    with store.reading() as db:
        row = store.verified(db, trial)
        sealed = db.execute("SELECT 1 FROM seals WHERE trial = ?", (trial,)).fetchone()
    return None if isinstance(row, str) and sealed is None and not store.states([trial]) else row


def _read(other: Store, trial: str, file: str | None, ready: dict[str, Arrays], report: MergeReport) -> _Copy | None:
    """Read one trial as it is at one moment, even while its owner goes on writing it; None if it is damaged."""
    failed: str | None = None
    while True:
        with other.reading() as db:
            db.execute("BEGIN")
            try:
                row, points = other.verified(db, trial), other.flushes(db, trial)
            finally:
                db.execute("ROLLBACK")
            if isinstance(row, str) or points is None:
                return None
            now = row["checkpoint"]
            if now is None:
                return _Copy(row, points, None)
            arrays = ready.get(trial) if now == file else None
            if arrays is None:
                arrays = other.files.read(now, {trial: row["checkpoint_hash"]}).get(trial)
        if arrays is not None:
            return _Copy(row, points, arrays)
        if failed == now:  # and not just replaced between our two looks
            report.damaged.append(trial)
            return _Copy(row, points if row["state"] in FINISHED else [], None)
        failed = now


def _write(store: Store, batch: list[_Copy], report: MergeReport) -> None:
    """Store a batch: one checkpoint file, then one commit, as any other writer does."""
    if not batch:
        return
    dead: dict[str, bool] = {}
    with store.reading(), store.files.writing():
        arrays = {copy.row["hash"]: copy.arrays for copy in batch if copy.arrays is not None}
        file, digests = store.files.write(arrays) if arrays else (None, {})
        replaced = set() if file is None else {file}
        done: list[tuple[Verdict, str]] = []
        try:
            with store.writing() as db:
                for copy in batch:
                    trial = copy.row["hash"]
                    mine = _mine(store, trial)  # again: this store may have gone on
                    if isinstance(mine, str):
                        report.damaged_rows.append(trial)
                        continue
                    verdict = _verdict(mine, copy.row, copy.step, dead)
                    done.append((verdict, trial))
                    if verdict not in ("added", "taken"):
                        continue
                    if mine is not None:
                        replaced.update([mine["checkpoint"]] if mine["checkpoint"] else [])
                        if mine["state"] == "failed":
                            note(db, trial, f"failed here before a result was merged: {mine['error']}")
                    _put(db, copy, (file, digests[trial], copy.step) if trial in digests else (None, None, None))
        finally:
            store.remove_unnamed(replaced)
    for verdict, trial in done:
        getattr(report, verdict).append(trial)


def _put(db: sqlite3.Connection, copy: _Copy, checkpoint: tuple[Any, Any, Any]) -> None:
    """Write the row and the curve of one trial; nobody here is training it."""
    row = copy.row
    over = row["state"] in FINISHED
    db.execute(
        "INSERT INTO trials (hash, spec, state, step, metrics, error, provenance, "
        "checkpoint, checkpoint_hash, checkpoint_step, created, updated) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
        "ON CONFLICT (hash) DO UPDATE SET (state, step, metrics, error, provenance, checkpoint, checkpoint_hash, "
        "checkpoint_step, owner, lease_until, updated) = (excluded.state, excluded.step, excluded.metrics, "
        "excluded.error, excluded.provenance, excluded.checkpoint, excluded.checkpoint_hash, "
        "excluded.checkpoint_step, NULL, NULL, excluded.updated)",
        (
            row["hash"],
            row["spec"],
            row["state"] if over else "pending",
            row["step"] if over else copy.step or 0,
            row["metrics"],
            row["error"],
            row["provenance"],
            *checkpoint,
            row["created"],
            time.time(),
        ),
    )
    db.execute("DELETE FROM curves WHERE trial = ?", (row["hash"],))  # what seals a curve starts afresh with this
    db.executemany("INSERT INTO curves VALUES (?, ?, ?)", [(row["hash"], *point) for point in copy.points])
