"""The database of a store, opened for writing or for reading.

SQLite runs in WAL mode with synchronous=FULL: a commit is on the disk when it returns, and readers wait for one commit
at most. All writes go through a file lock of our own, which can name the process that holds it, and which keeps writers
apart from WAL checkpoints: SQLite from 3.7.0 to 3.51.2 can lose commits when the two meet (sqlite.org/wal.html, "The
WAL-Reset Bug"), and most Python builds come with one of these versions.

WAL shares memory between processes, so only the processes of one machine can share a store; stores of several machines
are merged.

Each commit is counted in the database and then in a file beside it. If the count in the file is the higher one, commits
are lost: somebody deleted the log (trials.sqlite-wal), or put back an older database.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from headcount.core import BadInput, option, write_bytes
from headcount.store.schema import (
    CHECKPOINTS,
    DATABASE,
    SCHEMA_VERSION,
    WRITE_LOCK,
    StoreError,
    check_tables,
    damaged,
    locked,
    read_small_file,
    store_errors,
    tables_of,
)
from headcount.store.seals import keep_seals, seal_all

COMMIT_COUNT_FILE = "trials.commits"
COUNT_DIGITS = 18
MAX_CHECKED_AT_OPEN_BYTES = 16 << 20
"""Bytes. Only `headcount runs --check` checks the structure of a larger database: it takes a second per gigabyte."""


class Writer:
    """A connection that may write; several processes may each have one."""

    def __init__(self, folder: Path, create: bool, patience: float) -> None:
        self.folder, self._patience, self._pid = folder, patience, os.getpid()
        self._lock = folder / WRITE_LOCK
        path = _database_path(folder, create)
        with store_errors(folder):
            (folder / CHECKPOINTS).mkdir(parents=True, exist_ok=True)
            with locked(self._lock, patience=patience):
                if not path.exists():
                    _create(folder)
                self._db = _connect(folder, "mode=rw", patience)
                try:
                    self._db.execute("PRAGMA journal_mode = WAL")
                    self._db.execute("PRAGMA synchronous = FULL")
                    self._upgrade()
                    keep_seals(self._db)
                except BaseException:
                    self._db.close()
                    raise

    def _upgrade(self) -> None:
        """Check the tables, and upgrade old ones in one commit: a kill leaves either the old or the new version."""
        if _check(self.folder, self._db) < SCHEMA_VERSION:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                seal_all(self._db)
                self._db.execute("COMMIT")
            finally:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")

    @property
    def sealed(self) -> bool:
        """Whether the rows have checksums; always true, since a writer adds them when it opens the store."""
        return True

    @contextmanager
    def reading(self) -> Generator[sqlite3.Connection]:
        """Give the connection for reading."""
        yield self._db

    @contextmanager
    def writing(self) -> Generator[sqlite3.Connection]:
        """Run one transaction, all or nothing, while no other process writes."""
        db, number = self._db, None
        with locked(self._lock, patience=self._patience):
            db.execute("BEGIN IMMEDIATE")
            try:
                before = db.total_changes
                yield db
                if db.total_changes > before:
                    number = commit_count(self.folder, db) + 1
                    db.execute("UPDATE meta SET value = ? WHERE key = 'commits'", (str(number),))
                db.execute("COMMIT")
            finally:
                if db.in_transaction:
                    db.execute("ROLLBACK")
            if number is not None:
                _write_count(self.folder, number)

    def close(self) -> None:
        """Close the connection after moving the log into the database, under the lock like every write."""
        if os.getpid() != self._pid:  # a forked child shares the connection, and must not use it
            self._db.close()
            return
        try:
            with store_errors(self.folder), locked(self._lock, patience=self._patience), suppress(sqlite3.Error):
                self._db.execute("PRAGMA wal_checkpoint(PASSIVE)")
        except StoreError:
            pass  # such as a full disk: the log keeps all committed data
        finally:
            self._db.close()


class Reader:
    """A connection that writes nothing (no row, no lock file, no log), so it works on a read-only folder or mount.

    Without a log, SQLite is told that the file does not change, and our own lock ensures that during each query. With
    a log, a writer is at work or was killed, and SQLite reads the log as well. A log without its shared-memory file, as
    in some backups, is read from a temporary copy.
    """

    def __init__(self, folder: Path, patience: float) -> None:
        self.folder, self._patience = folder, patience
        self._lock = folder / WRITE_LOCK
        self._db: sqlite3.Connection | None = None
        self._immutable = False
        self._copy: tempfile.TemporaryDirectory[str] | None = None
        self.sealed = False
        _database_path(folder, create=False)
        with store_errors(folder), self.reading():
            pass

    @contextmanager
    def reading(self) -> Generator[sqlite3.Connection]:
        """Give the connection for reading; block writers only while the database file itself must not change."""
        with locked(self._lock, shared=True, create=False, patience=self._patience):
            db = self._connection()
            if self._immutable:
                yield db
                return
        yield db

    def _connection(self) -> sqlite3.Connection:
        """Return the connection, or a new one if a log has appeared since the last query."""
        log = self.folder / f"{DATABASE}-wal"
        has_log = log.exists() and log.stat().st_size > 0
        if self._db is not None and not (has_log and self._immutable):
            return self._db
        self.close()
        if has_log and not (self.folder / f"{DATABASE}-shm").exists():
            self._copy = tempfile.TemporaryDirectory(prefix="headcount-")
            for name in (DATABASE, log.name):
                shutil.copyfile(self.folder / name, Path(self._copy.name) / name)
        self._immutable = not has_log
        location = self.folder if self._copy is None else Path(self._copy.name)
        options = "mode=ro&immutable=1" if self._immutable else "mode=ro"
        self._db = _connect(location, options, self._patience, self.folder)
        self.sealed = _check(self.folder, self._db) > 1
        return self._db

    @contextmanager
    def writing(self) -> Generator[sqlite3.Connection]:
        """Raise StoreError: this connection only reads."""
        raise StoreError(f"the store {self.folder} was opened read-only: open it again for writing")
        yield

    def close(self) -> None:
        """Close, and remove the temporary copy if there was one."""
        if self._db is not None:
            self._db.close()
            self._db = None
        if self._copy is not None:
            self._copy.cleanup()
            self._copy = None


def _database_path(folder: Path, create: bool) -> Path:
    """Return the path of the database; reject a folder that has none, unless it may be created."""
    path = folder / DATABASE
    with store_errors(folder):
        if folder.exists() and not folder.is_dir():
            raise BadInput(f"{folder} is a file, not a folder: choose another {option('store')}")
        if not path.exists() and not create:
            raise BadInput(f"there is no store in {folder}: start a run first, or choose another {option('store')}")
        if path.exists() and path.stat().st_size == 0:  # SQLite would take it for a new one
            raise damaged(folder, "it is empty")
    return path


def _connect(location: Path, options: str, patience: float, folder: Path | None = None) -> sqlite3.Connection:
    """Connect to the database in `location`; errors name `folder`, the store, if the two differ."""
    uri = f"{(location / DATABASE).absolute().as_uri()}?{options}"
    with store_errors(folder or location):
        db = sqlite3.connect(uri, timeout=patience, isolation_level=None, uri=True)
    db.row_factory = sqlite3.Row
    return db


def _check(folder: Path, db: sqlite3.Connection) -> int:
    """Return the version of a database's tables; reject a damaged database and another program's."""
    pages, size = db.execute("PRAGMA page_count").fetchone()[0], db.execute("PRAGMA page_size").fetchone()[0]
    if pages * size <= MAX_CHECKED_AT_OPEN_BYTES:
        problem = str(db.execute("PRAGMA quick_check(1)").fetchone()[0])
        if problem != "ok":
            raise damaged(folder, " ".join(problem.split()))
    if db.execute("PRAGMA auto_vacuum").fetchone()[0] or db.execute("PRAGMA encoding").fetchone()[0] != "UTF-8":
        raise damaged(folder, "its header is not as headcount made it")
    return check_tables(folder, db)


def _create(folder: Path) -> None:
    """Create an empty database, which appears complete or not at all."""
    leftovers = [*(folder / CHECKPOINTS).glob("*.safetensors"), *folder.glob(f"{DATABASE}-wal")]
    if leftovers:
        raise StoreError(
            f"{folder} holds {leftovers[0].name} but no {DATABASE}: put it back, or choose another {option('store')}"
        )
    for part in folder.glob(f".{DATABASE}.*.part"):  # left by a writer that was killed here
        part.unlink()
    memory = sqlite3.connect(":memory:")
    memory.executescript(tables_of(SCHEMA_VERSION))
    memory.execute("INSERT INTO meta VALUES ('schema_version', ?), ('commits', '0')", (str(SCHEMA_VERSION),))
    memory.commit()
    _write_count(folder, 0)  # before the database, so that every database has a count beside it
    write_bytes(folder / DATABASE, memory.serialize())
    memory.close()


# -- the count of commits ---------------------------------------------------------------------------------------


def commit_count(folder: Path, db: sqlite3.Connection) -> int:
    """Return the number of commits according to a database of version 2."""
    row = db.execute("SELECT value FROM meta WHERE key = 'commits'").fetchone()
    if row is None or not (str(row[0]).isdecimal() and str(row[0]).isascii() and len(str(row[0])) <= COUNT_DIGITS):
        raise damaged(folder, "its count of commits is missing")
    return int(row[0])


def read_commit_count(folder: Path) -> int | None:
    """Return the number of commits according to the file beside the database; None if it is missing or unreadable."""
    try:
        text = read_small_file(folder / COMMIT_COUNT_FILE)
    except FileNotFoundError:
        return None
    return int(text) if text.isdecimal() and text.isascii() and len(text) <= COUNT_DIGITS else None


def _write_count(folder: Path, number: int) -> None:
    """Write the count after the commit is on the disk: a kill or a power cut may leave it too low, never too high."""
    with suppress(OSError):  # such as a full disk: then the count is too low
        descriptor = os.open(folder / COMMIT_COUNT_FILE, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.pwrite(descriptor, f"{number:<20}\n".encode(), 0)
        finally:
            os.close(descriptor)


def lost_commits(folder: Path, database: Writer | Reader) -> tuple[int, int] | None:
    """Return how many commits the database has and how many there were; None if none are lost."""
    if not database.sealed:
        return None
    in_file = read_commit_count(folder)  # first: a commit is counted in the database before it is in the file
    with database.reading() as db:
        in_database = commit_count(folder, db)
    return (in_database, in_file) if in_file is not None and in_file > in_database else None


def accept_loss(folder: Path, database: Writer) -> None:
    """Continue from the rows that are left, and never clear away files that lost rows may have named.

    All files that exist now stay, named or not; the count continues from that of the file.
    """
    in_file = read_commit_count(folder)
    with database.writing() as db:
        in_database = commit_count(folder, db)
        if in_file is None or in_file > in_database:
            db.execute("UPDATE meta SET value = ? WHERE key = 'commits'", (str(max(in_database, in_file or 0)),))
            db.execute("INSERT OR REPLACE INTO meta VALUES ('keep_before', ?)", (repr(time.time()),))


def keep_before(db: sqlite3.Connection) -> float:
    """Return the time before which unnamed files are kept, since rows that named them may be lost."""
    row = db.execute("SELECT value FROM meta WHERE key = 'keep_before'").fetchone()
    try:
        return 0.0 if row is None else float(row[0])
    except ValueError:
        return float("inf")
