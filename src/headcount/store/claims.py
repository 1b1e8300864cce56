"""Runs, which are named sets of trials, and claims, which keep two processes from training the same trial."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headcount.core import BadInput, content_hash
from headcount.store.database import Reader, Writer
from headcount.store.owners import is_dead, this_owner
from headcount.store.query import Queries, log
from headcount.store.trials import FINISHED, as_json


class Claims(Queries):
    """The part of a store that adds runs and hands out trials."""

    def __init__(self, folder: Path, database: Writer | Reader) -> None:
        super().__init__(folder, database)
        self.owner = this_owner()
        self._lease, self._renewed = 0.0, 0.0

    @contextmanager
    def writing(self) -> Generator[sqlite3.Connection]:
        """Run one transaction, all or nothing."""
        with self.reading(), self._database.writing() as db:
            yield db

    def add_run(
        self, name: str, specs: Sequence[Mapping[str, Any]], about: Mapping[str, Any] | None = None
    ) -> list[str]:
        """Name a set of trials, add the missing ones as pending, and return their hashes in the order given.

        Existing trials are not touched. An existing run is extended, never cut: sweeps grow, and trials that were
        paid for stay. `about` is stored with the run, such as its spec; the latest wins.
        """
        if not name.strip() or not name.isprintable():
            raise BadInput(f"{name!r} cannot be the name of a run: use printable characters")
        if not specs:
            raise BadInput(f"run {name!r} has no trials: give at least one spec")
        texts = [as_json(spec, "spec") for spec in specs]
        hashes = [content_hash(spec) for spec in specs]
        about_json, now = as_json(about, "about"), time.time()
        with self.writing() as db:
            db.executemany(
                "INSERT INTO trials (hash, spec, state, created, updated) SELECT ?1, ?2, 'pending', ?3, ?3 "
                "WHERE NOT EXISTS (SELECT 1 FROM seals WHERE trial = ?1) ON CONFLICT (hash) DO NOTHING",
                [(trial, text, now) for trial, text in zip(hashes, texts, strict=True)],
            )  # a trial with a seal but no row was lost, and is not added again
            extend_run(db, name, hashes)
            if about_json is not None:
                db.execute(
                    "INSERT INTO abouts VALUES (?, ?, ?) ON CONFLICT (name) DO UPDATE "
                    "SET about = excluded.about, created = excluded.created",
                    (name, about_json, now),
                )
        return hashes

    def claim(self, hashes: Iterable[str], *, limit: int | None = None, lease_seconds: float = 600.0) -> list[str]:
        """Take up to `limit` of these trials for this store object, in order; no two objects ever hold the same trial.

        A trial is free if it is pending, or if its owner's lease has expired or its owner's process has died. Each
        checkpoint renews the lease on all trials of the owner, and an owner that lost a trial can no longer write it.
        Damaged trials are never handed out: training them again would hide the damage.
        """
        now = time.time()
        taken: list[str] = []
        dead: dict[str, bool] = {}
        with self.writing() as db:
            for trial in dict.fromkeys(hashes):
                if limit is not None and len(taken) >= limit:
                    break
                row = self.existing_row(db, trial)
                if row is not None and row["state"] not in FINISHED and not is_held(row, now, dead):
                    taken.append(trial)
            db.executemany(
                "UPDATE trials SET state = 'running', owner = ?, lease_until = ?, updated = ? WHERE hash = ?",
                [(self.owner, now + lease_seconds, now, trial) for trial in taken],
            )
        if taken:
            self._lease, self._renewed = lease_seconds, 0.0
        return taken

    def existing_row(self, db: sqlite3.Connection, trial: str) -> sqlite3.Row | None:
        """Return the row of a trial of this store; log a warning and return None if it is damaged."""
        row = self.verified(db, trial)
        if not isinstance(row, str):
            return row
        tables = {"trials": "hash", "seals": "trial"} if self.sealed else {"trials": "hash"}
        queries = [f"SELECT 1 FROM {table} WHERE {column} = ?1" for table, column in tables.items()]
        if db.execute(" UNION ALL ".join(queries), (trial,)).fetchone() is None:
            raise BadInput(f"the store {self.folder} has no trial {trial!r}: add it to a run first")
        log.warning("trial %s of the store %s is damaged (%s), and left as it is", trial[:12], self.folder, row)
        return None

    def renew(self) -> list[str]:
        """Renew the lease on all trials that this store object holds, and return their hashes."""
        with self.writing() as db:
            self._renew_lease(db, force=True)
            return [row[0] for row in db.execute("SELECT hash FROM trials WHERE owner = ?", (self.owner,))]

    def _renew_lease(self, db: sqlite3.Connection, *, force: bool = False) -> None:
        """Renew the lease in the current transaction, but not in its first quarter: an owner may hold thousands."""
        now = time.time()
        if force or now - self._renewed > self._lease / 4:
            db.execute("UPDATE trials SET lease_until = ? WHERE owner = ?", (now + self._lease, self.owner))
            self._renewed = now

    def release(self) -> None:
        """Release all trials that this store object holds: others may continue from their last checkpoints."""
        with self.writing() as db:
            db.execute(
                "UPDATE trials SET state = 'pending', owner = NULL, lease_until = NULL, updated = ? WHERE owner = ?",
                (time.time(), self.owner),
            )

    def retry(self, hashes: Iterable[str]) -> None:
        """Make failed trials pending again; their errors are kept as warnings."""
        with self.writing() as db:
            for trial in hashes:
                row = self.verified(db, trial)
                if isinstance(row, str) or row["state"] != "failed":
                    raise BadInput(f"trial {trial!r} has not failed: only failed trials can be retried")
                add_warning(db, trial, f"retried after: {row['error']}")
                db.execute(
                    "UPDATE trials SET state = 'pending', error = NULL, updated = ? WHERE hash = ?",
                    (time.time(), trial),
                )


def is_held(row: sqlite3.Row, now: float, dead: dict[str, bool]) -> bool:
    """Return whether a live owner holds a trial; `dead` caches which owners have ended."""
    if row["state"] != "running":
        return False
    owner = row["owner"]
    if owner not in dead:
        dead[owner] = is_dead(owner)
    return row["lease_until"] >= now and not dead[owner]


def extend_run(db: sqlite3.Connection, name: str, hashes: Iterable[str]) -> None:
    """Add trials to the end of a run; those already in it keep their position."""
    start = db.execute("SELECT coalesce(max(position) + 1, 0) FROM runs WHERE name = ?", (name,)).fetchone()[0]
    db.executemany(
        "INSERT INTO runs VALUES (?, ?, ?) ON CONFLICT (name, trial) DO NOTHING",
        [(name, trial, start + place) for place, trial in enumerate(dict.fromkeys(hashes))],
    )


def add_points(db: sqlite3.Connection, trial: str, points: bytes) -> None:
    """Append packed points to a curve, as one flush."""
    if points:
        db.execute(
            "INSERT INTO curves SELECT ?, coalesce(max(sequence) + 1, 0), ? FROM curves WHERE trial = ?",
            (trial, points, trial),
        )


def add_warning(db: sqlite3.Connection, trial: str, text: str) -> None:
    """Store a warning about a trial, unless the same one is there already."""
    db.execute("INSERT OR IGNORE INTO warnings (time, trial, text) VALUES (?, ?, ?)", (time.time(), trial, text))
