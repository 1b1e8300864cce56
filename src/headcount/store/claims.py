"""Runs, which name trials, and claims, by which no two processes train the same one."""

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
        """Change the database, all or nothing."""
        with self.reading(), self._database.writing() as db:
            yield db

    def add_run(
        self, name: str, specs: Sequence[Mapping[str, Any]], about: Mapping[str, Any] | None = None
    ) -> list[str]:
        """Name a set of trials, add those that are missing as pending, and return their hashes in the order given.

        Trials that exist are not touched. A run that exists is extended, never cut: sweeps grow, and a trial that was
        paid for stays. `about` is what else is to be known of the run; the latest wins.
        """
        if not name.strip() or not name.isprintable():
            raise BadInput(f"{name!r} cannot be the name of a run: use printable characters")
        if not specs:
            raise BadInput(f"run {name!r} has no trials: give at least one spec")
        texts = [as_json(spec, "spec") for spec in specs]
        hashes = [content_hash(spec) for spec in specs]
        said, now = as_json(about, "about"), time.time()
        with self.writing() as db:
            db.executemany(
                "INSERT INTO trials (hash, spec, state, created, updated) SELECT ?1, ?2, 'pending', ?3, ?3 "
                "WHERE NOT EXISTS (SELECT 1 FROM seals WHERE trial = ?1) ON CONFLICT (hash) DO NOTHING",
                [(trial, text, now) for trial, text in zip(hashes, texts, strict=True)],
            )  # one with a seal and no row was lost, and is not made anew
            join_run(db, name, hashes)
            if said is not None:
                db.execute(
                    "INSERT INTO abouts VALUES (?, ?, ?) ON CONFLICT (name) DO UPDATE "
                    "SET about = excluded.about, created = excluded.created",
                    (name, said, now),
                )
        return hashes

    def claim(self, hashes: Iterable[str], *, limit: int | None = None, lease_seconds: float = 600.0) -> list[str]:
        """Take up to `limit` of these trials for this store object, in order; no two ever hold the same one.

        Free are trials that are pending, and those of an owner whose lease is over or whose process has died. Each
        checkpoint renews the lease of all that the owner holds; whoever loses a trial cannot write it any more.
        Damaged trials are nobody's: what is wrong with them would be lost.
        """
        now = time.time()
        taken: list[str] = []
        dead: dict[str, bool] = {}
        with self.writing() as db:
            for trial in dict.fromkeys(hashes):
                if limit is not None and len(taken) >= limit:
                    break
                row = self.own_row(db, trial)
                if row is not None and row["state"] not in FINISHED and not is_held(row, now, dead):
                    taken.append(trial)
            db.executemany(
                "UPDATE trials SET state = 'running', owner = ?, lease_until = ?, updated = ? WHERE hash = ?",
                [(self.owner, now + lease_seconds, now, trial) for trial in taken],
            )
        if taken:
            self._lease, self._renewed = lease_seconds, 0.0
        return taken

    def own_row(self, db: sqlite3.Connection, trial: str) -> sqlite3.Row | None:
        """Return the row of a trial that was added here; None, and a line in the log, if it is damaged."""
        row = self.verified(db, trial)
        if not isinstance(row, str):
            return row
        tables = {"trials": "hash", "seals": "trial"} if self.sealed else {"trials": "hash"}
        asked = [f"SELECT 1 FROM {table} WHERE {column} = ?1" for table, column in tables.items()]
        if db.execute(" UNION ALL ".join(asked), (trial,)).fetchone() is None:
            raise BadInput(f"the store {self.folder} has no trial {trial!r}: add it to a run first")
        log.warning("trial %s of the store %s is damaged (%s), and left as it is", trial[:12], self.folder, row)
        return None

    def renew(self) -> list[str]:
        """Prolong the lease of all that this store object holds, and return what that is."""
        with self.writing() as db:
            self._prolong(db, at_once=True)
            return [row[0] for row in db.execute("SELECT hash FROM trials WHERE owner = ?", (self.owner,))]

    def _prolong(self, db: sqlite3.Connection, *, at_once: bool = False) -> None:
        """Prolong the lease within a transaction, when a good part of it is over: an owner may hold thousands."""
        now = time.time()
        if at_once or now - self._renewed > self._lease / 4:
            db.execute("UPDATE trials SET lease_until = ? WHERE owner = ?", (now + self._lease, self.owner))
            self._renewed = now

    def release(self) -> None:
        """Give back all that this store object holds: others may go on from the last checkpoints."""
        with self.writing() as db:
            db.execute(
                "UPDATE trials SET state = 'pending', owner = NULL, lease_until = NULL, updated = ? WHERE owner = ?",
                (time.time(), self.owner),
            )

    def retry(self, hashes: Iterable[str]) -> None:
        """Make failed trials pending again; their errors stay among the warnings."""
        with self.writing() as db:
            for trial in hashes:
                row = self.verified(db, trial)
                if isinstance(row, str) or row["state"] != "failed":
                    raise BadInput(f"trial {trial!r} has not failed: only failed trials can be tried again")
                note(db, trial, f"tried again after: {row['error']}")
                db.execute(
                    "UPDATE trials SET state = 'pending', error = NULL, updated = ? WHERE hash = ?",
                    (time.time(), trial),
                )


def is_held(row: sqlite3.Row, now: float, dead: dict[str, bool]) -> bool:
    """Say whether somebody is working on a trial; `dead` remembers the owners that were looked up."""
    if row["state"] != "running":
        return False
    owner = row["owner"]
    if owner not in dead:
        dead[owner] = is_dead(owner)
    return row["lease_until"] >= now and not dead[owner]


def join_run(db: sqlite3.Connection, name: str, hashes: Iterable[str]) -> None:
    """Add trials to the end of a run; those that it has already keep their place."""
    start = db.execute("SELECT coalesce(max(position) + 1, 0) FROM runs WHERE name = ?", (name,)).fetchone()[0]
    db.executemany(
        "INSERT INTO runs VALUES (?, ?, ?) ON CONFLICT (name, trial) DO NOTHING",
        [(name, trial, start + place) for place, trial in enumerate(dict.fromkeys(hashes))],
    )


def add_points(db: sqlite3.Connection, trial: str, points: bytes) -> None:
    """Append one flush to a curve."""
    if points:
        db.execute(
            "INSERT INTO curves SELECT ?, coalesce(max(sequence) + 1, 0), ? FROM curves WHERE trial = ?",
            (trial, points, trial),
        )


def note(db: sqlite3.Connection, trial: str, text: str) -> None:
    """Record what was noticed of a trial, once."""
    db.execute("INSERT OR IGNORE INTO warnings (time, trial, text) VALUES (?, ?, ?)", (time.time(), trial, text))
