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
from headcount.store.trials import FINISHED

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

    def __str__(self) -> str:
        """Say it in one line."""
        always = {"trials added": self.added, "brought forward": self.taken, "as they were": self.kept}
        at_need = {"in conflict": self.conflict, "busy": self.busy, "with a damaged checkpoint": self.damaged}
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
    with other.reading() as db:
        runs = db.execute("SELECT name, trial FROM runs ORDER BY name, position").fetchall()
        abouts = [tuple(row) for row in db.execute("SELECT * FROM abouts")]
    with store.writing() as db:
        known = {row[0] for row in db.execute("SELECT hash FROM trials")}  # it may have got new ones since we looked
        for name in dict.fromkeys(row["name"] for row in runs):
            join_run(db, name, [row["trial"] for row in runs if row["name"] == name and row["trial"] in known])
        db.executemany("INSERT OR IGNORE INTO abouts VALUES (?, ?, ?)", abouts)
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
    with store.reading() as db:
        mine = {row["hash"]: row for row in db.execute("SELECT * FROM trials")}
    with other.reading() as db:
        theirs = db.execute("SELECT * FROM trials ORDER BY checkpoint, rowid").fetchall()
    dead: dict[str, bool] = {}
    files: dict[str, dict[str, str]] = {}
    wanted: list[sqlite3.Row] = []
    for row in theirs:
        verdict = _verdict(mine.get(row["hash"]), row, row["checkpoint_step"], dead)
        if verdict in ("added", "taken"):
            wanted.append(row)
            if row["checkpoint"] is not None:
                files.setdefault(row["checkpoint"], {})[row["hash"]] = row["checkpoint_hash"]
        else:
            getattr(report, verdict).append(row["hash"])
    ready: dict[str, Arrays] = {}
    for row in wanted:
        file = row["checkpoint"]
        if file in files:  # the trials of a stack are read at once
            with other.reading():
                ready = other.files.read(file, files.pop(file))
        yield _read(other, row["hash"], file, ready, report)


def _read(other: Store, trial: str, file: str | None, ready: dict[str, Arrays], report: MergeReport) -> _Copy:
    """Read one trial as it is at one moment, even while its owner goes on writing it."""
    failed: str | None = None
    while True:
        with other.reading() as db:
            db.execute("BEGIN")
            try:
                row = db.execute("SELECT * FROM trials WHERE hash = ?", (trial,)).fetchone()
                found = db.execute("SELECT sequence, points FROM curves WHERE trial = ?", (trial,)).fetchall()
            finally:
                db.execute("ROLLBACK")
            points = [(p["sequence"], p["points"]) for p in found]
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
                    mine = db.execute("SELECT * FROM trials WHERE hash = ?", (trial,)).fetchone()
                    verdict = _verdict(mine, copy.row, copy.step, dead)  # again: this store may have gone on
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
            row["hash"], row["spec"], row["state"] if over else "pending", row["step"] if over else copy.step or 0,
            row["metrics"], row["error"], row["provenance"], *checkpoint, row["created"], time.time(),
        ),
    )  # fmt: skip
    db.execute("DELETE FROM curves WHERE trial = ?", (row["hash"],))
    db.executemany("INSERT INTO curves VALUES (?, ?, ?)", [(row["hash"], *point) for point in copy.points])
