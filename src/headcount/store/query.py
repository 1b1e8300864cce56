"""Queries to a store: trials as records, as a table or as a data frame; curves, counts, runs."""

from __future__ import annotations

import functools
import itertools
import json
import logging
import operator
import os
import sqlite3
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headcount.core import BadInput, HeadcountError, nearest
from headcount.store.checkpoints import unpack
from headcount.store.database import Reader, Writer, lost_commits
from headcount.store.schema import DamagedStore, StoreError, store_errors
from headcount.store.seals import DIGEST_BYTES, TRIAL_COLUMNS, digest, is_checkpoint_name
from headcount.store.trials import STATES, State, StoredTrial, StoredWarning, table

log = logging.getLogger("headcount")

READ_BATCH_TRIALS = 500
"""Rows read at once: writers wait for at most one batch, and only one is held in memory."""


class Queries:
    """The part of a store that only reads."""

    def __init__(self, folder: Path, database: Writer | Reader) -> None:
        self.folder, self._database, self._pid = folder, database, os.getpid()

    @contextmanager
    def reading(self) -> Generator[sqlite3.Connection]:
        """Give the connection for reading; errors become one line that says what to do."""
        if os.getpid() != self._pid:
            raise StoreError(f"the store {self.folder} was opened before a fork: open it again in the child process")
        with store_errors(self.folder), self._database.reading() as db:
            yield db

    @property
    def sealed(self) -> bool:
        """Whether rows have checksums; a store of an older headcount has none until it is opened for writing."""
        return self._database.sealed

    # -- runs ------------------------------------------------------------------------------------------------

    def runs(self) -> dict[str, int]:
        """Return the number of trials of each run, by name."""
        with self.reading() as db:
            found = dict(db.execute("SELECT name, count(*) FROM runs GROUP BY name").fetchall())
            sealed = dict(db.execute("SELECT name, trials FROM run_seals").fetchall()) if self.sealed else found
        if found != sealed:
            damaged = sorted(name for name in found.keys() | sealed.keys() if found.get(name) != sealed.get(name))
            log.warning("%s", self._damaged_run_line(damaged[0]))
        return {name: found.get(name, 0) for name in sorted(found.keys() | sealed.keys())}

    def members(self, run: str) -> list[str]:
        """Return the hashes of a run's trials in the run's order, verified."""
        self._check_run(run)
        with self.reading() as db:
            rows = db.execute("SELECT trial, position FROM runs WHERE name = ?", (run,)).fetchall()
            seal = None
            if self.sealed:
                seal = db.execute("SELECT trials, members FROM run_seals WHERE name = ?", (run,)).fetchone()
        if self.sealed:
            digests = [int.from_bytes(digest(run, row[0], row[1])) for row in rows]
            mixed = functools.reduce(operator.xor, digests, 0).to_bytes(DIGEST_BYTES)
            if seal is None or tuple(seal) != (len(rows), mixed):
                raise DamagedStore(self._damaged_run_line(run))
        return [row[0] for row in sorted(rows, key=lambda row: (row[1], row[0]))]

    def about(self, run: str) -> dict[str, Any]:
        """Return the data that were stored with a run, such as its spec; {} if there are none."""
        self._check_run(run)
        with self.reading() as db:
            row = db.execute("SELECT name, about, created FROM abouts WHERE name = ?", (run,)).fetchone()
            seal = None
            if self.sealed:
                seal = db.execute("SELECT about FROM run_seals WHERE name = ?", (run,)).fetchone()
        if self.sealed and (seal is None or seal[0] != (b"" if row is None else digest(*row))):
            raise DamagedStore(self._damaged_run_line(run))
        try:
            return {} if row is None else dict(json.loads(row[1]))
        except (ValueError, TypeError, RecursionError):
            raise DamagedStore(self._damaged_run_line(run)) from None

    # -- trials ----------------------------------------------------------------------------------------------

    def scan(
        self, run: str | None = None, names: Sequence[str] | None = None
    ) -> Iterator[tuple[str, sqlite3.Row | str]]:
        """Yield the hash of each trial with its verified row, or with what is wrong with it; rows are read in batches.

        `names` lists the trials; by default those of the run, in its order, or all, in the order they were added.
        """
        if names is None:
            names = self._all_names() if run is None else self.members(run)
        for start in range(0, len(names), READ_BATCH_TRIALS):
            with self.reading() as db:
                batch = [(name, self.verified(db, name)) for name in names[start : start + READ_BATCH_TRIALS]]
            yield from batch

    def verified(self, db: sqlite3.Connection, trial: str) -> sqlite3.Row | str:
        """Return the row of a trial, or a text that says what is wrong with it, such as a missing row."""
        try:
            row = db.execute(_SEALED_ROW if self.sealed else _PLAIN_ROW, (trial,)).fetchone()
        except sqlite3.OperationalError as error:
            if "decode to UTF-8" not in str(error):
                raise
            return "its text cannot be read"
        if row["hash"] is None:
            return "its row is missing"
        if self.sealed and row["sealed"] != digest(*tuple(row)[: len(TRIAL_COLUMNS)]):
            return "its row has no checksum" if row["sealed"] is None else "its row is not what was written"
        if row["checkpoint"] is not None and not is_checkpoint_name(row["checkpoint"]):
            return "it names a checkpoint file of a form that headcount never writes"
        return row

    def _all_names(self) -> list[str]:
        """Return the hashes of all trials in the order they were added, then those whose rows are missing."""
        with self.reading() as db:
            names = [row[0] for row in db.execute("SELECT hash FROM trials NOT INDEXED ORDER BY rowid")]
            if not self.sealed:
                return names
            have = set(names)
            return names + [row[0] for row in db.execute("SELECT trial FROM seals") if row[0] not in have]

    def trials(self, run: str | None = None, states: Iterable[State] | None = None) -> list[StoredTrial]:
        """Return the trials of a run in its order, or all in the order in which they came; of all states or some.

        Damaged ones are left out, and the log says so.
        """
        wanted = set(STATES if states is None else states)
        if wanted - set(STATES):
            raise BadInput(f"no such state: {nearest(sorted(wanted - set(STATES))[0], STATES)}")
        return list(self.each(run, states=wanted))

    def each(
        self, run: str | None = None, names: Sequence[str] | None = None, states: Collection[str] = STATES
    ) -> Iterator[StoredTrial]:
        """Yield the trials of a run or, of it, those that are named, in that order; only a batch is kept in memory."""
        damaged = 0
        for _, row in self.scan(run, names):
            if isinstance(row, str):
                damaged += 1
            elif row["state"] in states or row["state"] not in STATES:
                trial = StoredTrial.of(row)
                if trial is None:
                    damaged += 1
                else:
                    yield trial
        if damaged:
            log.warning("%s", left_out_line(damaged, self.folder))

    def states(self, trials: Iterable[str]) -> dict[str, State]:
        """Return the states of those of the trials that the store has and that are not damaged, by hash."""
        found: dict[str, State] = {}
        names = list(trials)
        for start in range(0, len(names), READ_BATCH_TRIALS):
            with self.reading() as db:
                for name in names[start : start + READ_BATCH_TRIALS]:
                    row = self.verified(db, name)
                    if not isinstance(row, str) and row["state"] in STATES:
                        found[name] = row["state"]
        return found

    def trial(self, name: str) -> StoredTrial:
        """Return the trial with this hash, or the only one whose hash begins with this text."""
        with self.reading() as db:
            bounds = (name, f"{name}g")  # hashes are hexadecimal, and g follows f
            rows = db.execute("SELECT hash FROM trials WHERE hash >= ? AND hash < ? LIMIT 2", bounds).fetchall()
            row = self.verified(db, rows[0][0]) if len(rows) == 1 and name else None
        if row is None:
            raise BadInput(f"the store {self.folder} has {'more than one' if rows else 'no'} trial {name!r}")
        found = None if isinstance(row, str) else StoredTrial.of(row)
        if found is None:
            why = row if isinstance(row, str) else "it cannot be read"
            raise DamagedStore(f"trial {rows[0][0][:12]} of the store {self.folder} is damaged: {why}")
        return found

    def table(self, run: str | None = None) -> list[dict[str, Any]]:
        """Return one flat row per trial, all with the same columns: `spec.…`, `metrics.…`, `provenance.…`."""
        return table(self.trials(run))

    def frame(self, run: str | None = None) -> Any:
        """Return the table as a pandas DataFrame."""
        try:
            import pandas  # pyright: ignore[reportMissingImports, reportMissingModuleSource]
        except ImportError:
            raise HeadcountError(
                "a data frame needs the package pandas, which is not installed: pip install pandas, or use table()"
            ) from None
        return pandas.DataFrame(self.table(run))

    def curve(self, trial: str) -> list[tuple[int, float]]:
        """Return the (step, value) points of a trial, verified."""
        with self.reading() as db:
            flushes = self.flushes(db, trial)
        if flushes is None:
            raise DamagedStore(f"the curve of trial {trial[:12]} in the store {self.folder} is not what was written")
        return unpack(points for _, points in flushes)

    def flushes(self, db: sqlite3.Connection, trial: str) -> list[tuple[int, bytes]] | None:
        """Return the flushes of a trial's curve as (sequence number, packed points); None if they are damaged."""
        rows = db.execute("SELECT sequence, points FROM curves WHERE trial = ? ORDER BY sequence", (trial,)).fetchall()
        found = [(row[0], row[1]) for row in rows]
        if self.sealed:
            seal = db.execute("SELECT curve FROM seals WHERE trial = ?", (trial,)).fetchone()
            chain = functools.reduce(lambda before, flush: digest(before, *flush), found, b"")
            return found if (b"" if seal is None else seal[0]) == chain else None
        return found if all(isinstance(p, bytes) and len(p) % 16 == 0 for _, p in found) else None

    def counts(self, run: str | None = None) -> dict[State, int]:
        """Return how many trials are in each state; a trial whose state is damaged is not counted."""
        if run is not None:
            self._check_run(run)
            return self.counts_by_run().get(run, dict.fromkeys(STATES, 0))
        with self.reading() as db:
            rows = db.execute(_SEALED_COUNTS if self.sealed else _PLAIN_COUNTS).fetchall()
        return _by_state((row[0], row[1]) for row in rows if row[0] == row[2])

    def counts_by_run(self) -> dict[str, dict[State, int]]:
        """Return how many trials of every run are in each state; a trial whose state is damaged is not counted."""
        with self.reading() as db:
            rows = db.execute(_SEALED_RUN_COUNTS if self.sealed else _PLAIN_RUN_COUNTS).fetchall()
        return {
            name: _by_state((row[1], row[2]) for row in some if row[1] == row[3])
            for name, some in itertools.groupby(rows, key=lambda row: row[0])
        }

    def warnings(self) -> list[StoredWarning]:
        """Return the stored warnings, oldest first."""
        with self.reading() as db:
            return [StoredWarning(*row) for row in db.execute("SELECT time, trial, text FROM warnings ORDER BY id")]

    def named_files(self) -> set[str]:
        """Return the checkpoint files that rows or their seals name: a single fault in either never orphans a file."""
        with self.reading() as db:
            found = {row[0] for row in db.execute("SELECT checkpoint FROM trials WHERE checkpoint IS NOT NULL")}
            if self.sealed:
                found |= {row[0] for row in db.execute("SELECT checkpoint FROM seals WHERE checkpoint IS NOT NULL")}
        return {name for name in found if is_checkpoint_name(name)}

    def lost_commits(self) -> tuple[int, int] | None:
        """Return how many commits the database has and how many there were; None if none are lost."""
        with store_errors(self.folder):
            return lost_commits(self.folder, self._database)

    def _check_run(self, run: str) -> None:
        """Raise BadInput if a run does not exist, and suggest the nearest name."""
        with self.reading() as db:
            found = db.execute("SELECT 1 FROM runs WHERE name = ? LIMIT 1", (run,)).fetchone()
            if found is None and self.sealed:
                found = db.execute("SELECT 1 FROM run_seals WHERE name = ?", (run,)).fetchone()
        if found is None:
            runs = self.runs()
            hint = nearest(run, runs) if runs else "there are none yet"
            raise BadInput(f"the store {self.folder} has no run {run!r}: {hint}")

    def _damaged_run_line(self, run: str) -> str:
        """Return the message that a run's own data (its list of trials, its spec) are damaged."""
        return f"run {run!r} of the store {self.folder} is damaged: headcount runs --check says what is left"


def left_out_line(damaged: int, folder: Path | None = None) -> str:
    """Return the message that damaged trials are left out."""
    where = "" if folder is None else f" of the store {folder}"
    noun, verb = ("trial", "is") if damaged == 1 else ("trials", "are")
    return f"{damaged:,} {noun}{where} {verb} damaged and left out: headcount runs --check"


def _by_state(found: Iterable[tuple[str, int]]) -> dict[State, int]:
    """Return the counts by state, with 0 for states that are not found."""
    numbers = dict(found)
    return {state: numbers.get(state, 0) for state in STATES}


_ROW = ", ".join(f"trials.{name}" for name in TRIAL_COLUMNS)
_PLAIN_ROW = f"SELECT {_ROW} FROM (SELECT ? AS wanted) LEFT JOIN trials ON trials.hash = wanted"
_SEALED_ROW = (
    f"SELECT {_ROW}, seals.row AS sealed FROM (SELECT ? AS wanted) "
    "LEFT JOIN trials ON trials.hash = wanted LEFT JOIN seals ON seals.trial = wanted"
)
_PLAIN_COUNTS = "SELECT state, count(*), state FROM trials GROUP BY state"
_SEALED_COUNTS = (
    "SELECT trials.state, count(*), seals.state FROM trials JOIN seals ON seals.trial = trials.hash GROUP BY 1, 3"
)
_PLAIN_RUN_COUNTS = (
    "SELECT runs.name, state, count(*), state FROM runs JOIN trials ON trials.hash = runs.trial "
    "GROUP BY runs.name, state ORDER BY runs.name"
)
_SEALED_RUN_COUNTS = (
    "SELECT runs.name, trials.state, count(*), seals.state FROM runs LEFT JOIN trials ON trials.hash = runs.trial "
    "LEFT JOIN seals ON seals.trial = runs.trial GROUP BY 1, 2, 4 ORDER BY 1"
)
