"""The store of trials: a folder that many processes can write to at once, and that survives a kill at any moment.

A trial is named by the content hash of its spec; a run is a named set of trials, and runs may share trials. A process
claims a trial before training it, writes checkpoints while training, and finishes it once. Whatever varies from one
training to the next (seconds, device) belongs in the provenance: different metrics for one trial are a conflict.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from numpy.typing import NDArray

from headcount.core import BadInput
from headcount.store import owners
from headcount.store.checkpoints import (
    CLEAN_MARK,
    FILES_LOCK,
    SET_ASIDE,
    WRITERS,
    Arrays,
    CheckpointFiles,
    Points,
    Snapshot,
    pack,
)
from headcount.store.claims import Claims, add_points, add_warning
from headcount.store.database import COMMIT_COUNT_FILE, Reader, Writer, accept_loss, keep_before, read_commit_count
from headcount.store.merge import MergeReport, merge
from headcount.store.query import log
from headcount.store.schema import CHECKPOINTS, DATABASE, WRITE_LOCK, LostTrial, StoreError, store_errors
from headcount.store.trials import FINISHED, Outcome, State, as_json

STORE_FILES = (DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm", COMMIT_COUNT_FILE, WRITE_LOCK, FILES_LOCK, CLEAN_MARK)
STORE_FOLDERS = (CHECKPOINTS, SET_ASIDE, WRITERS)
STORE_ENTRIES = (*STORE_FILES, *STORE_FOLDERS)
"""Everything at the top level of a store."""


def check_regular_files(folder: Path) -> None:
    """Reject a store with a pipe or a device in place of one of its files: reading it might never end."""
    for name in STORE_FILES:
        path = folder / name
        with suppress(OSError):  # a file that cannot be examined is reported when it is opened
            if path.exists() and not path.is_file():
                raise StoreError(f"{path} is not a regular file, and headcount did not make it: remove it")


def check_no_links(folder: Path) -> None:
    """Reject a store with a link in place of one of its files or folders: writing would change what it points to."""
    for name in STORE_ENTRIES:
        if (folder / name).is_symlink():
            raise StoreError(
                f"{folder / name} is a link, and headcount makes no links inside a store: "
                "move the whole store and link that folder, or remove the link"
            )


class Store(Claims):
    """An open store; use it as a context manager, in the thread and process that opened it."""

    def __init__(self, folder: Path, database: Writer | Reader, patience: float) -> None:
        super().__init__(folder, database)
        self.files = CheckpointFiles(folder, patience)
        self._patience, self._clean = patience, False

    @classmethod
    def open(
        cls,
        folder: Path | str = "headcount-runs",
        create: bool = True,
        *,
        read_only: bool = False,
        patience: float = 60.0,
    ) -> Self:
        """Open the store in a folder, creating it unless `create` is false.

        This and later calls wait at most `patience` seconds for other processes. With `read_only` nothing is created,
        changed or cleared away, so it also works on a folder or mount that cannot be written to.
        """
        path = Path(folder)
        check_regular_files(path)
        if not read_only:
            check_no_links(path)
        database = Reader(path, patience) if read_only else Writer(path, create, patience)
        store = cls(path, database, patience)
        try:
            with store_errors(path):
                lost = store.lost_commits()
                if lost is not None:
                    log.warning("%s", lost_rows_line(path, *lost))
                if isinstance(database, Writer):
                    store._start(database, lost is not None)
        except BaseException:
            store.close()
            raise
        return store

    def _start(self, database: Writer, lost: bool) -> None:
        """Record lost commits, and set aside what killed writers left; a store that was left clean is not searched."""
        if lost or read_commit_count(self.folder) is None:
            accept_loss(self.folder, database)
        self.files.register_writer(self.owner)
        self._clean = self.files.is_clean()
        if not self._clean:
            with self.reading() as db:
                before = keep_before(db)
                rows = db.execute("SELECT count(*) FROM trials").fetchone()[0]
                seals = db.execute("SELECT count(*) FROM seals").fetchone()[0]
            if rows == seals:  # otherwise rows are missing, and the files they named are unknown
                self._clean = self.files.set_orphans_aside(self.named_files, before)

    def close(self) -> None:
        """Release the trials that are still claimed, and close the store."""
        same_process = os.getpid() == self._pid
        try:
            if self._lease and same_process:
                try:
                    self.release()
                except StoreError:  # such as a full disk: others take over when this process or its lease has ended
                    owners.mark_ended(self.owner)
            if same_process and isinstance(self._database, Writer):
                self.files.unregister_writer(self.owner, self._clean)
        finally:
            self._lease, self._clean = 0.0, False
            self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- checkpoints ----------------------------------------------------------------------------------------

    def checkpoint(self, trial: str, step: int, arrays: Mapping[str, NDArray[Any]], curve: Points = ()) -> None:
        """Store a trial's state and its curve since the last checkpoint; raise LostTrial if it is no longer ours."""
        if self.checkpoint_many([Snapshot(trial, step, arrays, curve)]):
            raise LostTrial(self._why_lost(trial))

    def checkpoint_many(self, snapshots: Sequence[Snapshot]) -> list[str]:
        """Store a whole stack as one file in one commit; return the trials that are not ours, which stay unchanged."""
        by_hash = {snapshot.hash: (snapshot, pack(snapshot.curve)) for snapshot in snapshots}
        if len(by_hash) != len(snapshots):
            raise BadInput("checkpoint_many: a trial occurs twice: give one snapshot for each trial")
        lost: list[str] = []
        if not snapshots:
            return lost
        with self.reading(), self.files.writing():
            file, digests = self.files.write({snapshot.hash: snapshot.arrays for snapshot in snapshots})
            replaced = {file}
            try:
                with self.writing() as db:
                    for trial, (snapshot, points) in by_hash.items():
                        row = self._writable_row(db, trial)
                        if row is None:
                            lost.append(trial)
                            continue
                        replaced.add(row["checkpoint"] or file)
                        db.execute(
                            "UPDATE trials SET step = ?, checkpoint = ?, checkpoint_hash = ?, checkpoint_step = ?, "
                            "updated = ? WHERE hash = ?",
                            (snapshot.step, file, digests[trial], snapshot.step, time.time(), trial),
                        )
                        add_points(db, trial, points)
                    self._renew_lease(db)
            finally:
                self.remove_unreferenced(replaced)
        return lost

    def remove_unreferenced(self, files: Iterable[str]) -> None:
        """Delete those of the files that no row names any more; a file that cannot be deleted now is swept later."""
        named = "SELECT 1 FROM trials WHERE checkpoint = ?1 UNION ALL SELECT 1 FROM seals WHERE checkpoint = ?1 LIMIT 1"
        with suppress(StoreError), self.reading() as db:
            self.files.remove([file for file in files if db.execute(named, (file,)).fetchone() is None])

    def load_checkpoint(self, trial: str) -> tuple[int, Arrays] | None:
        """Return step and arrays of the last checkpoint; None if it is missing or damaged."""
        return self.load_checkpoints([trial]).get(trial)

    def load_checkpoints(self, trials: Iterable[str]) -> dict[str, tuple[int, Arrays]]:
        """Return step and arrays of the last checkpoints, each verified; those of a stack are read together.

        A checkpoint that is damaged, or whose curve is, is left out. A store open for writing also stores a warning
        and forgets the checkpoint, so that the trial, unless finished, starts again.
        """
        found: dict[str, tuple[int, Arrays]] = {}
        failed: dict[str, str] = {}
        wanted = list(dict.fromkeys(trials))
        while wanted:
            files: dict[str, dict[str, str]] = {}
            steps: dict[str, int] = {}
            with self.reading() as db:
                for trial in wanted:
                    row = self.existing_row(db, trial)
                    if row is not None and row["checkpoint"] is not None:
                        files.setdefault(row["checkpoint"], {})[trial] = row["checkpoint_hash"]
                        steps[trial] = row["checkpoint_step"]
                wanted = []
                for file, digests in files.items():
                    arrays = self.files.read(file, digests)
                    arrays = {trial: loaded for trial, loaded in arrays.items() if self.flushes(db, trial) is not None}
                    found.update({trial: (steps[trial], arrays[trial]) for trial in arrays})
                    for trial in digests.keys() - arrays.keys():
                        if failed.get(trial) == file:
                            self._drop_damaged_checkpoint(trial, file)
                        else:  # its owner may have replaced it after we read the row and before we read the file
                            failed[trial] = file
                            wanted.append(trial)
        return found

    def _drop_damaged_checkpoint(self, trial: str, file: str) -> None:
        """Store a warning about a damaged checkpoint, and reset its trial unless that is finished."""
        if isinstance(self._database, Reader):
            return
        with self.writing() as db:
            add_warning(db, trial, f"checkpoint {file} is damaged or missing; an unfinished trial starts again")
            changed = db.execute(
                "UPDATE trials SET step = 0, checkpoint = NULL, checkpoint_hash = NULL, checkpoint_step = NULL "
                "WHERE hash = ? AND checkpoint = ? AND state IN ('pending', 'running')",
                (trial, file),
            )
            if changed.rowcount and self.flushes(db, trial) is None:
                db.execute("DELETE FROM curves WHERE trial = ?", (trial,))
        self.remove_unreferenced([file])

    # -- endings --------------------------------------------------------------------------------------------

    def finish(
        self,
        trial: str,
        state: State,
        metrics: Mapping[str, Any] | None = None,
        provenance: Mapping[str, Any] | None = None,
        curve: Points = (),
    ) -> None:
        """Store the outcome of a trial; raise LostTrial if it already ended differently or is no longer ours."""
        if self.finish_many([Outcome(trial, state, metrics, provenance, curve)]):
            raise LostTrial(self._why_lost(trial))

    def fail(self, trial: str, error: str, provenance: Mapping[str, Any] | None = None) -> None:
        """Store that a trial failed, and why; only `retry` starts it again."""
        if self.finish_many([Outcome(trial, "failed", provenance=provenance, error=error)]):
            raise LostTrial(self._why_lost(trial))

    def finish_many(self, outcomes: Sequence[Outcome]) -> list[str]:
        """Store many outcomes, with their final weights, in one commit; return the trials that were refused.

        All weights go into one file, which is written before the rows that name it.
        """
        with_weights = {o.hash: o.arrays for o in outcomes if o.arrays is not None}
        if not with_weights:
            return self._finish(outcomes, "", {}, set())
        with self.reading(), self.files.writing():
            file, digests = self.files.write(with_weights)
            replaced = {file}
            try:
                return self._finish(outcomes, file, digests, replaced)
            finally:
                self.remove_unreferenced(replaced)

    def _finish(
        self, outcomes: Sequence[Outcome], file: str, digests: Mapping[str, str], replaced: set[str]
    ) -> list[str]:
        """Write the rows of some outcomes; add the files that are no longer needed to `replaced`."""
        texts = [(as_json(o.metrics, "metrics"), as_json(o.provenance, "provenance"), pack(o.curve)) for o in outcomes]
        refused: list[str] = []
        with self.writing() as db:
            for outcome, (metrics, provenance, points) in zip(outcomes, texts, strict=True):
                trial = outcome.hash
                row = self._writable_row(db, trial)
                if row is None:
                    stored = db.execute("SELECT state, metrics, error FROM trials WHERE hash = ?", (trial,)).fetchone()
                    if stored is None or tuple(stored) != (outcome.state, metrics, outcome.error):
                        refused.append(trial)
                    continue
                step = row["step"] if outcome.last_step() is None else outcome.last_step()
                checkpoint = (row["checkpoint"], row["checkpoint_hash"], row["checkpoint_step"])
                if trial in digests:
                    replaced.add(row["checkpoint"] or file)
                    checkpoint = (file, digests[trial], step)
                db.execute(
                    "UPDATE trials SET state = ?, metrics = ?, provenance = ?, error = ?, step = ?, checkpoint = ?, "
                    "checkpoint_hash = ?, checkpoint_step = ?, owner = NULL, lease_until = NULL, updated = ? "
                    "WHERE hash = ?",
                    (outcome.state, metrics, provenance, outcome.error, step, *checkpoint, time.time(), trial),
                )
                add_points(db, trial, points)
        return refused

    def _writable_row(self, db: sqlite3.Connection, trial: str) -> sqlite3.Row | None:
        """Return the row of a trial if this store object may write it: it is unfinished and not held by another."""
        row = self.existing_row(db, trial)
        return None if row is None or row["state"] in FINISHED or row["owner"] not in (None, self.owner) else row

    def _why_lost(self, trial: str) -> str:
        """Return the reason why a trial may not be written."""
        stored = self.trial(trial)
        if stored.finished:
            return f"trial {trial[:12]} has already ended as {stored.state}: that result is kept, the new one is not"
        holder = (stored.owner or "nobody").split("|")
        return f"trial {trial[:12]} was taken over by another process ({' '.join(holder[0::3])}): leave it to that one"

    def merge(self, folder: Path | str) -> MergeReport:
        """Copy the trials and runs of another store into this one; the other store is not changed."""
        with store_errors(self.folder):
            if Path(folder).exists() and Path(folder).samefile(self.folder):
                raise BadInput(f"{folder} is this store itself: name another one")
        with type(self).open(folder, read_only=True, patience=self._patience) as other:
            return merge(self, other)


def lost_rows_line(folder: Path, in_database: int, in_file: int) -> str:
    """Return the warning that rows are missing, with what can be done; commits as counted in database and file."""
    return (
        f"rows are missing from the store {folder}: its database has {in_database:,} of {in_file:,} commits; put back "
        f"{DATABASE}-wal or a newer {DATABASE} before the next sweep; all checkpoint files are kept"
    )
