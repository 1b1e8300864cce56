"""The store of trials: a folder that many processes fill at once, and that a kill at any moment leaves whole.

A trial is named by the content hash of its spec; a run is a name for a set of trials, and runs may share trials. Who
wants to train a trial claims it first, writes checkpoints while it runs, and finishes it once. What varies from one
training to the next (seconds, device) belongs in the provenance: metrics of one trial that differ are a conflict.
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
from headcount.store.claims import Claims, add_points, note
from headcount.store.database import COMMITS, Reader, Writer, accept_loss, counted, keep_before
from headcount.store.merge import MergeReport, merge
from headcount.store.query import log
from headcount.store.schema import CHECKPOINTS, DATABASE, WRITE_LOCK, LostTrial, StoreError, one_line
from headcount.store.trials import FINISHED, Outcome, State, as_json

FILES = (DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm", COMMITS, WRITE_LOCK, FILES_LOCK, CLEAN_MARK)
FOLDERS = (CHECKPOINTS, SET_ASIDE, WRITERS)
OURS = (*FILES, *FOLDERS)
"""What a store has at its top."""


def check_kinds(folder: Path) -> None:
    """Refuse a store with a pipe or a device in place of a file of ours: reading it might never end."""
    for name in FILES:
        path = folder / name
        with suppress(OSError):  # what cannot be looked at is for whoever opens it to report
            if path.exists() and not path.is_file():
                raise StoreError(f"{path} is no ordinary file, which headcount never makes: remove it")


def check_no_links(folder: Path) -> None:
    """Refuse to write to a store with a link in place of a file or folder of ours: what it leads to is not ours."""
    for name in OURS:
        if (folder / name).is_symlink():
            raise StoreError(
                f"{folder / name} is a link, which headcount never makes inside of a store: "
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
        """Open the store in a folder, or make it; wait at most `patience` seconds for others, here and later.

        With `read_only` nothing is made, changed or cleared away, so it works where nothing may be written.
        """
        path = Path(folder)
        check_kinds(path)
        if not read_only:
            check_no_links(path)
        database = Reader(path, patience) if read_only else Writer(path, create, patience)
        store = cls(path, database, patience)
        try:
            with one_line(path):
                lost = store.lost_commits()
                if lost is not None:
                    log.warning("%s", lost_line(path, *lost))
                if isinstance(database, Writer):
                    store._start(database, lost is not None)
        except BaseException:
            store.close()
            raise
        return store

    def _start(self, database: Writer, lost: bool) -> None:
        """Note lost commits, and clear away what killed writers left; a store that was left clean is not searched."""
        if lost or counted(self.folder) is None:
            accept_loss(self.folder, database)
        self.files.enter(self.owner)
        self._clean = self.files.is_clean()
        if not self._clean:
            with self.reading() as db:
                before = keep_before(db)
                rows = db.execute("SELECT count(*) FROM trials").fetchone()[0]
                seals = db.execute("SELECT count(*) FROM seals").fetchone()[0]
            if rows == seals:  # else rows are missing, and nobody knows what they named
                self._clean = self.files.clear_away(self.named_files, before)

    def close(self) -> None:
        """Give back what is still claimed, and close."""
        mine = os.getpid() == self._pid
        try:
            if self._lease and mine:
                try:
                    self.release()
                except StoreError:  # on a full disk, say: others take over when this process or its lease has ended
                    owners.end(self.owner)
            if mine and isinstance(self._database, Writer):
                self.files.leave(self.owner, self._clean)
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
        """Store how far a trial has come, and its points since the last time; LostTrial if it is no longer ours."""
        if self.checkpoint_many([Snapshot(trial, step, arrays, curve)]):
            raise LostTrial(self._why_lost(trial))

    def checkpoint_many(self, snapshots: Sequence[Snapshot]) -> list[str]:
        """Store a whole stack as one file in one commit; return the trials that are not ours, left as they are."""
        by_hash = {snapshot.hash: (snapshot, pack(snapshot.curve)) for snapshot in snapshots}
        if len(by_hash) != len(snapshots):
            raise BadInput("checkpoint_many: a trial occurs twice")
        lost: list[str] = []
        if not snapshots:
            return lost
        with self.reading(), self.files.writing():
            file, digests = self.files.write({snapshot.hash: snapshot.arrays for snapshot in snapshots})
            replaced = {file}
            try:
                with self.writing() as db:
                    for trial, (snapshot, points) in by_hash.items():
                        row = self._ours(db, trial)
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
                    self._prolong(db)
            finally:
                self.remove_unnamed(replaced)
        return lost

    def remove_unnamed(self, files: Iterable[str]) -> None:
        """Delete those of the files that no row names any more; what cannot be deleted now is swept later."""
        named = "SELECT 1 FROM trials WHERE checkpoint = ?1 UNION ALL SELECT 1 FROM seals WHERE checkpoint = ?1 LIMIT 1"
        with suppress(StoreError), self.reading() as db:
            self.files.remove([file for file in files if db.execute(named, (file,)).fetchone() is None])

    def load_checkpoint(self, trial: str) -> tuple[int, Arrays] | None:
        """Return step and arrays of the last checkpoint; None if there is none, or if it is damaged."""
        return self.load_checkpoints([trial]).get(trial)

    def load_checkpoints(self, trials: Iterable[str]) -> dict[str, tuple[int, Arrays]]:
        """Return step and arrays of the last checkpoints, each verified; those of a stack are read at once.

        A damaged one is left out and noted among the warnings, and its trial, unless finished, is one that has none:
        it starts again, and the others go on. The same holds for one whose curve is damaged. A store that was opened
        to read leaves them out, and notes nothing.
        """
        found: dict[str, tuple[int, Arrays]] = {}
        failed: dict[str, str] = {}
        wanted = list(dict.fromkeys(trials))
        while wanted:
            files: dict[str, dict[str, str]] = {}
            steps: dict[str, int] = {}
            with self.reading() as db:
                for trial in wanted:
                    row = self.own_row(db, trial)
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
                            self._forget(trial, file)
                        else:  # its owner may have replaced it between our look at the row and at the file
                            failed[trial] = file
                            wanted.append(trial)
        return found

    def _forget(self, trial: str, file: str) -> None:
        """Note a damaged checkpoint, and let its trial start again."""
        if isinstance(self._database, Reader):
            return
        with self.writing() as db:
            note(db, trial, f"checkpoint {file} is damaged or missing; an unfinished trial starts again")
            changed = db.execute(
                "UPDATE trials SET step = 0, checkpoint = NULL, checkpoint_hash = NULL, checkpoint_step = NULL "
                "WHERE hash = ? AND checkpoint = ? AND state IN ('pending', 'running')",
                (trial, file),
            )
            if changed.rowcount and self.flushes(db, trial) is None:
                db.execute("DELETE FROM curves WHERE trial = ?", (trial,))
        self.remove_unnamed([file])

    # -- endings --------------------------------------------------------------------------------------------

    def finish(
        self,
        trial: str,
        state: State,
        metrics: Mapping[str, Any] | None = None,
        provenance: Mapping[str, Any] | None = None,
        curve: Points = (),
    ) -> None:
        """Store how a trial ended; LostTrial if it ended otherwise before, or is no longer ours."""
        if self.finish_many([Outcome(trial, state, metrics, provenance, curve)]):
            raise LostTrial(self._why_lost(trial))

    def fail(self, trial: str, error: str, provenance: Mapping[str, Any] | None = None) -> None:
        """Store that a trial failed, and why; it is kept, and only `retry` starts it again."""
        if self.finish_many([Outcome(trial, "failed", provenance=provenance, error=error)]):
            raise LostTrial(self._why_lost(trial))

    def finish_many(self, outcomes: Sequence[Outcome]) -> list[str]:
        """Store many endings, with their final weights, in one commit; return the trials that were refused.

        The weights of all of them go into one file, written before the rows that name it.
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
                self.remove_unnamed(replaced)

    def _finish(
        self, outcomes: Sequence[Outcome], file: str, digests: Mapping[str, str], replaced: set[str]
    ) -> list[str]:
        """Write the rows of some endings; note which files are no longer needed."""
        texts = [(as_json(o.metrics, "metrics"), as_json(o.provenance, "provenance"), pack(o.curve)) for o in outcomes]
        refused: list[str] = []
        with self.writing() as db:
            for outcome, (metrics, provenance, points) in zip(outcomes, texts, strict=True):
                trial = outcome.hash
                row = self._ours(db, trial)
                if row is None:
                    had = db.execute("SELECT state, metrics, error FROM trials WHERE hash = ?", (trial,)).fetchone()
                    if had is None or tuple(had) != (outcome.state, metrics, outcome.error):
                        refused.append(trial)
                    continue
                step = row["step"] if outcome.last_step() is None else outcome.last_step()
                kept = (row["checkpoint"], row["checkpoint_hash"], row["checkpoint_step"])
                if trial in digests:
                    replaced.add(row["checkpoint"] or file)
                    kept = (file, digests[trial], step)
                db.execute(
                    "UPDATE trials SET state = ?, metrics = ?, provenance = ?, error = ?, step = ?, checkpoint = ?, "
                    "checkpoint_hash = ?, checkpoint_step = ?, owner = NULL, lease_until = NULL, updated = ? "
                    "WHERE hash = ?",
                    (outcome.state, metrics, provenance, outcome.error, step, *kept, time.time(), trial),
                )
                add_points(db, trial, points)
        return refused

    def _ours(self, db: sqlite3.Connection, trial: str) -> sqlite3.Row | None:
        """Return the row of a trial if this store object may write it: held by it, or by nobody, and unfinished."""
        row = self.own_row(db, trial)
        return None if row is None or row["state"] in FINISHED or row["owner"] not in (None, self.owner) else row

    def _why_lost(self, trial: str) -> str:
        """Say why a trial may not be written."""
        now = self.trial(trial)
        if now.finished:
            return f"trial {trial[:12]} has ended before as {now.state}: that result is kept, the new one is not stored"
        holder = (now.owner or "nobody").split("|")
        return f"trial {trial[:12]} was taken over by another process ({' '.join(holder[0::3])}): leave it to that one"

    def merge(self, folder: Path | str) -> MergeReport:
        """Join another store to this one, which is left as it is; see `merge`."""
        with one_line(self.folder):
            if Path(folder).exists() and Path(folder).samefile(self.folder):
                raise BadInput(f"{folder} is this store itself: name another one")
        with type(self).open(folder, read_only=True, patience=self._patience) as other:
            return merge(self, other)


def lost_line(folder: Path, inside: int, beside: int) -> str:
    """Say that rows are missing, and what can be done."""
    return (
        f"rows are missing from the store {folder}: its database has {inside:,} of {beside:,} commits; put back "
        f"{DATABASE}-wal or a newer {DATABASE} before the next sweep; all checkpoint files are kept"
    )
