"""Merge the stores of several machines, matching trials by their hashes.

A finished trial beats an unfinished one, a result beats a failure, and of two unfinished trials the later checkpoint
wins. Two different results for one trial are a conflict: it is reported, and the local result is kept. A trial that is
being trained in this store is left alone and reported. Trials are copied in batches of one file and one commit each;
merging again, after a kill or for new trials, copies only what is missing.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from headcount.store.checkpoints import Arrays
from headcount.store.claims import add_warning, extend_run, is_held
from headcount.store.query import log
from headcount.store.schema import DamagedStore
from headcount.store.trials import FINISHED, as_json

if TYPE_CHECKING:
    from headcount.store.store import Store

MERGE_BATCH_TRIALS = 500
MERGE_BATCH_BYTES = 64 << 20

Verdict = Literal["added", "taken", "kept", "conflict", "busy"]


@dataclass
class MergeReport:
    """What a merge did; the lists hold hashes of trials."""

    added: list[str] = field(default_factory=list[str])
    taken: list[str] = field(default_factory=list[str])
    """Trials that both stores have, and that were further in the other store."""
    kept: list[str] = field(default_factory=list[str])
    conflict: list[str] = field(default_factory=list[str])
    """Trials with two different results: the one in this store is kept."""
    busy: list[str] = field(default_factory=list[str])
    """Trials that are further in the other store but are being trained in this one: merge again later."""
    damaged: list[str] = field(default_factory=list[str])
    """Trials whose checkpoint in the other store is damaged and was not copied."""
    damaged_rows: list[str] = field(default_factory=list[str])
    """Trials whose row or curve is damaged in either store: nothing of them was copied."""

    def __str__(self) -> str:
        """Return a one-line summary."""
        always = {"trials added": self.added, "brought forward": self.taken, "as they were": self.kept}
        if_any = {
            "in conflict": self.conflict,
            "busy": self.busy,
            "with a damaged checkpoint": self.damaged,
            "damaged and left out": self.damaged_rows,
        }
        parts = always | {what: hashes for what, hashes in if_any.items() if hashes}
        return ", ".join(f"{len(hashes)} {what}" for what, hashes in parts.items())


@dataclass(frozen=True)
class _TrialCopy:
    """A trial of the other store: its row, its curve and the arrays of its checkpoint, all read at the same moment."""

    row: sqlite3.Row
    points: list[tuple[int, bytes]]
    arrays: Arrays | None

    @property
    def step(self) -> int | None:
        """The step of the checkpoint; None if there is none, or it is damaged."""
        return None if self.arrays is None else self.row["checkpoint_step"]

    def size(self) -> int:
        """Return the bytes of the checkpoint."""
        return sum(array.nbytes for array in (self.arrays or {}).values())


def merge(store: Store, other: Store) -> MergeReport:
    """Copy the trials and runs of another store into this one."""
    report = MergeReport()
    batch: list[_TrialCopy] = []
    size = 0
    for copy in _worth_copying(store, other, report):
        batch.append(copy)
        size += copy.size()
        if len(batch) >= MERGE_BATCH_TRIALS or size >= MERGE_BATCH_BYTES:
            _write(store, batch, report)
            batch, size = [], 0
    _write(store, batch, report)
    for name in other.runs():
        try:
            members, about = other.members(name), other.about(name)
        except DamagedStore as error:  # its trials are copied nevertheless
            log.warning("%s", error)
            continue
        with store.writing() as db:
            known = store.states(members).keys()  # trials that were left out have no state here
            extend_run(db, name, [trial for trial in members if trial in known])
            if about:
                db.execute(
                    "INSERT INTO abouts SELECT ?1, ?2, ?3 WHERE EXISTS (SELECT 1 FROM runs WHERE name = ?1) "
                    "ON CONFLICT (name) DO NOTHING",
                    (name, as_json(about, "about"), time.time()),
                )
    return report


def _verdict(local: sqlite3.Row | None, other: sqlite3.Row, step: int | None, dead: dict[str, bool]) -> Verdict:
    """Return what to do with a trial of the other store, whose checkpoint there is at `step`."""
    if local is None:
        return "added"
    if other["state"] in FINISHED:
        if local["state"] in ("done", "diverged"):
            same = (local["state"], local["metrics"]) == (other["state"], other["metrics"])
            return "kept" if same or other["state"] == "failed" else "conflict"
        better = not (local["state"] == "failed" and other["state"] == "failed")
    else:
        local_step = -1 if local["checkpoint_step"] is None else local["checkpoint_step"]
        better = local["state"] not in FINISHED and step is not None and step > local_step
    if not better:
        return "kept"
    return "busy" if is_held(local, time.time(), dead) else "taken"


def _worth_copying(store: Store, other: Store, report: MergeReport) -> Iterator[_TrialCopy]:
    """Yield the trials that this store lacks, or that are further in the other one; report the rest."""
    dead: dict[str, bool] = {}
    files: dict[str, dict[str, str]] = {}
    wanted: list[tuple[str, str | None]] = []
    for trial, row in other.scan():
        local = _local_row(store, trial)
        if isinstance(row, str) or isinstance(local, str):
            report.damaged_rows.append(trial)
            continue
        verdict = _verdict(local, row, row["checkpoint_step"], dead)
        if verdict in ("added", "taken"):
            wanted.append((trial, row["checkpoint"]))
            if row["checkpoint"] is not None:
                files.setdefault(row["checkpoint"], {})[trial] = row["checkpoint_hash"]
        else:
            getattr(report, verdict).append(trial)
    wanted.sort(key=lambda item: item[1] or "")  # by file: the trials of a stack are read together
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


def _local_row(store: Store, trial: str) -> sqlite3.Row | str | None:
    """Return the row of a trial in this store, or what is wrong with it; None if the store does not have the trial."""
    with store.reading() as db:
        row = store.verified(db, trial)
        sealed = db.execute("SELECT 1 FROM seals WHERE trial = ?", (trial,)).fetchone()
    return None if isinstance(row, str) and sealed is None and not store.states([trial]) else row


def _read(
    other: Store, trial: str, file: str | None, ready: dict[str, Arrays], report: MergeReport
) -> _TrialCopy | None:
    """Return a consistent copy of one trial, even while its owner is writing it; None if the trial is damaged."""
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
            checkpoint = row["checkpoint"]
            if checkpoint is None:
                return _TrialCopy(row, points, None)
            arrays = ready.get(trial) if checkpoint == file else None
            if arrays is None:
                arrays = other.files.read(checkpoint, {trial: row["checkpoint_hash"]}).get(trial)
        if arrays is not None:
            return _TrialCopy(row, points, arrays)
        if failed == checkpoint:  # unreadable twice, so it was not merely replaced in between
            report.damaged.append(trial)
            return _TrialCopy(row, points if row["state"] in FINISHED else [], None)
        failed = checkpoint


def _write(store: Store, batch: list[_TrialCopy], report: MergeReport) -> None:
    """Store a batch like any other writer: one checkpoint file, then one commit."""
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
                    local = _local_row(store, trial)  # again, since it may have changed
                    if isinstance(local, str):
                        report.damaged_rows.append(trial)
                        continue
                    verdict = _verdict(local, copy.row, copy.step, dead)
                    done.append((verdict, trial))
                    if verdict not in ("added", "taken"):
                        continue
                    if local is not None:
                        replaced.update([local["checkpoint"]] if local["checkpoint"] else [])
                        if local["state"] == "failed":
                            add_warning(db, trial, f"failed here before a result was merged: {local['error']}")
                    _put(db, copy, (file, digests[trial], copy.step) if trial in digests else (None, None, None))
        finally:
            store.remove_unreferenced(replaced)
    for verdict, trial in done:
        getattr(report, verdict).append(trial)


def _put(db: sqlite3.Connection, copy: _TrialCopy, checkpoint: tuple[Any, Any, Any]) -> None:
    """Write the row and the curve of one trial, which no process is training in this store."""
    row = copy.row
    finished = row["state"] in FINISHED
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
            row["state"] if finished else "pending",
            row["step"] if finished else copy.step or 0,
            row["metrics"],
            row["error"],
            row["provenance"],
            *checkpoint,
            row["created"],
            time.time(),
        ),
    )
    db.execute("DELETE FROM curves WHERE trial = ?", (row["hash"],))  # this also resets the curve's seal
    db.executemany("INSERT INTO curves VALUES (?, ?, ?)", [(row["hash"], *point) for point in copy.points])
