"""Questions to a store: trials as records, as a table, as a data frame; curves, counts, runs."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headcount.base.errors import BadInput, HeadcountError, nearest
from headcount.store.checkpoints import unpack
from headcount.store.schema import StoreError, one_line
from headcount.store.trials import STATES, State, StoredTrial, Warned, table


class Queries:
    """The part of a store that only reads."""

    def __init__(self, folder: Path, db: sqlite3.Connection) -> None:
        self.folder, self._db, self._pid = folder, db, os.getpid()

    @contextmanager
    def reading(self) -> Generator[sqlite3.Connection]:
        """Ask the database, with errors in one line."""
        if os.getpid() != self._pid:
            raise StoreError(f"the store {self.folder} was opened before a fork: open it again in the child process")
        with one_line(self.folder):
            yield self._db

    def runs(self) -> dict[str, int]:
        """Return the names of the runs, with the number of trials of each."""
        with self.reading() as db:
            return {row[0]: row[1] for row in db.execute("SELECT name, count(*) FROM runs GROUP BY name")}

    def about(self, run: str) -> dict[str, Any]:
        """Return what was said of a run when it was added; {} if nothing was."""
        self._known(run)
        with self.reading() as db:
            row = db.execute("SELECT about FROM abouts WHERE name = ?", (run,)).fetchone()
        return {} if row is None else json.loads(row[0])

    def trials(self, run: str | None = None, states: Iterable[State] | None = None) -> list[StoredTrial]:
        """Return the trials of a run in its order, or all in the order in which they came; of all states or some."""
        wanted = set(STATES if states is None else states)
        if wanted - set(STATES):
            raise BadInput(f"no such state: {nearest(sorted(wanted - set(STATES))[0], STATES)}")
        where, order, values = self._scope(run)
        with self.reading() as db:
            rows = db.execute(f"SELECT trials.* FROM trials {where} ORDER BY {order}", values).fetchall()
        return [StoredTrial.of(row) for row in rows if row["state"] in wanted]

    def trial(self, name: str) -> StoredTrial:
        """Return the trial with this hash, or with the only hash that begins so."""
        with self.reading() as db:
            rows = db.execute("SELECT * FROM trials WHERE substr(hash, 1, ?) = ? LIMIT 2", (len(name), name)).fetchall()
        if len(rows) != 1 or not name:
            raise BadInput(f"the store {self.folder} has {'more than one' if rows else 'no'} trial {name!r}")
        return StoredTrial.of(rows[0])

    def table(self, run: str | None = None) -> list[dict[str, Any]]:
        """Return a flat row per trial, all with the same columns: `spec.…`, `metrics.…`, `provenance.…`."""
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
        """Return the (step, value) points of a trial."""
        with self.reading() as db:
            rows = db.execute("SELECT points FROM curves WHERE trial = ? ORDER BY sequence", (trial,)).fetchall()
        return unpack(row[0] for row in rows)

    def counts(self, run: str | None = None) -> dict[State, int]:
        """Return how many trials are in each state."""
        where, _, values = self._scope(run)
        with self.reading() as db:
            found = dict(db.execute(f"SELECT state, count(*) FROM trials {where} GROUP BY state", values).fetchall())
        return {state: found.get(state, 0) for state in STATES}

    def warnings(self) -> list[Warned]:
        """Return what was noticed and dealt with, oldest first."""
        with self.reading() as db:
            return [Warned(*row) for row in db.execute("SELECT time, trial, text FROM warnings ORDER BY id")]

    def named_files(self) -> set[str]:
        """Return the checkpoint files that rows name."""
        with self.reading() as db:
            return {row[0] for row in db.execute("SELECT checkpoint FROM trials WHERE checkpoint IS NOT NULL")}

    def _known(self, run: str) -> None:
        """Refuse a run that does not exist, and name the nearest."""
        runs = self.runs()
        if run not in runs:
            hint = nearest(run, runs) if runs else "there are none yet"
            raise BadInput(f"the store {self.folder} has no run {run!r}: {hint}")

    def _scope(self, run: str | None) -> tuple[str, str, tuple[str, ...]]:
        """Return the SQL that selects and orders the trials of a run, or all."""
        if run is None:
            return "", "trials.rowid", ()
        self._known(run)
        return "JOIN runs ON runs.trial = trials.hash WHERE runs.name = ?", "runs.position", (run,)
