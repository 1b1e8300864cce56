"""The database of a store, opened to write or to read.

SQLite in WAL mode with synchronous=FULL: what was committed is on the disk when the commit returns, and readers wait
for one commit at most. All writing goes through one file lock of our own, which can name the process that holds it,
and keeps writers and checkpoints of the log apart: SQLite from 3.7.0 to 3.51.2 can lose commits when these meet
(sqlite.org/wal.html, "The WAL-Reset Bug"), and most Pythons come with one of them.

WAL shares memory between processes, so a store belongs to the processes of one machine; stores of several machines
are merged.

Each commit is counted, in the database and, after it, in a file beside it. A count in the file above that in the
database means that commits are lost: somebody dropped the log (trials.sqlite-wal), or put back an older database.
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

from headcount.core import BadInput, write_bytes
from headcount.store.schema import (
    CHECKPOINTS,
    DATABASE,
    VERSION,
    WRITE_LOCK,
    StoreError,
    check_tables,
    damaged,
    locked,
    one_line,
    read_small,
    tables_of,
)
from headcount.store.seals import keep_seals, seal_all

COMMITS = "trials.commits"
COUNT_DIGITS = 18
CHECKED_AT_OPEN_BYTES = 16 << 20
"""The structure of a larger database is checked by `headcount runs --check` alone: it takes a second a gigabyte."""


class Writer:
    """A connection that may write; several processes may have one."""

    def __init__(self, folder: Path, create: bool, patience: float) -> None:
        self.folder, self._patience, self._pid = folder, patience, os.getpid()
        self._lock = folder / WRITE_LOCK
        path = _find(folder, create)
        with one_line(folder):
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
        """Check the tables, and bring old ones up to date: all of it in one commit, which a kill leaves out whole."""
        if _check(self.folder, self._db) < VERSION:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                seal_all(self._db)
                self._db.execute("COMMIT")
            finally:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")

    @property
    def sealed(self) -> bool:
        """Whether the rows have checksums: a writer sees to it."""
        return True

    @contextmanager
    def reading(self) -> Generator[sqlite3.Connection]:
        """Ask the database."""
        yield self._db

    @contextmanager
    def writing(self) -> Generator[sqlite3.Connection]:
        """Write all or nothing, alone among all processes."""
        db, number = self._db, None
        with locked(self._lock, patience=self._patience):
            db.execute("BEGIN IMMEDIATE")
            try:
                before = db.total_changes
                yield db
                if db.total_changes > before:
                    number = commits(self.folder, db) + 1
                    db.execute("UPDATE meta SET value = ? WHERE key = 'commits'", (str(number),))
                db.execute("COMMIT")
            finally:
                if db.in_transaction:
                    db.execute("ROLLBACK")
            if number is not None:
                _write_count(self.folder, number)

    def close(self) -> None:
        """Close; whoever is the last moves the log into the database, under the lock as all writing."""
        if os.getpid() != self._pid:  # a forked child shares the connection, and must not use it
            self._db.close()
            return
        try:
            with one_line(self.folder), locked(self._lock, patience=self._patience), suppress(sqlite3.Error):
                self._db.execute("PRAGMA wal_checkpoint(PASSIVE)")
        except StoreError:
            pass  # a full disk, say: the log keeps all that was committed
        finally:
            self._db.close()


class Reader:
    """A connection that writes nothing: no row, no lock file, no log; it works where nothing can be written.

    Where there is no log, SQLite is told that the file does not change, and our own lock sees to it for as long as a
    question takes. Where there is one, a writer is at work, or was killed, and SQLite reads the log with it. A log
    without its shared memory, as in some copies, is read from a temporary copy.
    """

    def __init__(self, folder: Path, patience: float) -> None:
        self.folder, self._patience = folder, patience
        self._lock = folder / WRITE_LOCK
        self._db: sqlite3.Connection | None = None
        self._still = False
        self._copy: tempfile.TemporaryDirectory[str] | None = None
        self.sealed = False
        _find(folder, create=False)
        with one_line(folder), self.reading():
            pass

    @contextmanager
    def reading(self) -> Generator[sqlite3.Connection]:
        """Ask the database; hold up writers only where the file itself is read and must not change."""
        with locked(self._lock, shared=True, create=False, patience=self._patience):
            db = self._connection()
            if self._still:
                yield db
                return
        yield db

    def _connection(self) -> sqlite3.Connection:
        """Return the connection, or a new one where a log has appeared since the last question."""
        log = self.folder / f"{DATABASE}-wal"
        hot = log.exists() and log.stat().st_size > 0
        if self._db is not None and not (hot and self._still):
            return self._db
        self.close()
        if hot and not (self.folder / f"{DATABASE}-shm").exists():
            self._copy = tempfile.TemporaryDirectory(prefix="headcount-")
            for name in (DATABASE, log.name):
                shutil.copyfile(self.folder / name, Path(self._copy.name) / name)
        self._still = not hot
        place = self.folder if self._copy is None else Path(self._copy.name)
        self._db = _connect(place, "mode=ro&immutable=1" if self._still else "mode=ro", self._patience, self.folder)
        self.sealed = _check(self.folder, self._db) > 1
        return self._db

    @contextmanager
    def writing(self) -> Generator[sqlite3.Connection]:
        """Refuse: this one only reads."""
        raise StoreError(f"the store {self.folder} was opened to read: open it again to write")
        yield

    def close(self) -> None:
        """Close, and remove the temporary copy if there was one."""
        if self._db is not None:
            self._db.close()
            self._db = None
        if self._copy is not None:
            self._copy.cleanup()
            self._copy = None


def _find(folder: Path, create: bool) -> Path:
    """Return the path of the database; refuse a folder that cannot have one."""
    path = folder / DATABASE
    with one_line(folder):
        if folder.exists() and not folder.is_dir():
            raise BadInput(f"{folder} is a file, not a folder: choose another --store")
        if not path.exists() and not create:
            raise BadInput(f"there is no store in {folder}: start a run first, or choose another --store")
        if path.exists() and path.stat().st_size == 0:  # SQLite would take it for a new one
            raise damaged(folder, "it is empty")
    return path


def _connect(place: Path, how: str, patience: float, folder: Path | None = None) -> sqlite3.Connection:
    """Connect to the database in a place."""
    path = place / DATABASE
    with one_line(folder or place):
        db = sqlite3.connect(f"{path.absolute().as_uri()}?{how}", timeout=patience, isolation_level=None, uri=True)
    db.row_factory = sqlite3.Row
    return db


def _check(folder: Path, db: sqlite3.Connection) -> int:
    """Refuse a damaged database and another program's; return the version of its tables."""
    pages, size = db.execute("PRAGMA page_count").fetchone()[0], db.execute("PRAGMA page_size").fetchone()[0]
    if pages * size <= CHECKED_AT_OPEN_BYTES:
        problem = str(db.execute("PRAGMA quick_check(1)").fetchone()[0])
        if problem != "ok":
            raise damaged(folder, " ".join(problem.split()))
    if db.execute("PRAGMA auto_vacuum").fetchone()[0] or db.execute("PRAGMA encoding").fetchone()[0] != "UTF-8":
        raise damaged(folder, "its header is not as headcount made it")
    return check_tables(folder, db)


def _create(folder: Path) -> None:
    """Make an empty database, which appears whole or not at all."""
    left = [*(folder / CHECKPOINTS).glob("*.safetensors"), *folder.glob(f"{DATABASE}-wal")]
    if left:
        raise StoreError(f"{folder} holds {left[0].name} but no {DATABASE}: put it back, or choose another --store")
    for part in folder.glob(f".{DATABASE}.*.part"):  # of a writer that was killed here
        part.unlink()
    memory = sqlite3.connect(":memory:")
    memory.executescript(tables_of(VERSION))
    memory.execute("INSERT INTO meta VALUES ('schema_version', ?), ('commits', '0')", (str(VERSION),))
    memory.commit()
    _write_count(folder, 0)  # before the database: one that is there has its count beside it
    write_bytes(folder / DATABASE, memory.serialize())
    memory.close()


# -- the count of commits ---------------------------------------------------------------------------------------


def commits(folder: Path, db: sqlite3.Connection) -> int:
    """Return how many commits a database of version 2 has seen."""
    row = db.execute("SELECT value FROM meta WHERE key = 'commits'").fetchone()
    if row is None or not (str(row[0]).isdecimal() and str(row[0]).isascii() and len(str(row[0])) <= COUNT_DIGITS):
        raise damaged(folder, "its count of commits is missing")
    return int(row[0])


def counted(folder: Path) -> int | None:
    """Return how many commits the file beside the database has counted; None where it is missing or unreadable."""
    try:
        text = read_small(folder / COMMITS)
    except FileNotFoundError:
        return None
    return int(text) if text.isdecimal() and text.isascii() and len(text) <= COUNT_DIGITS else None


def _write_count(folder: Path, number: int) -> None:
    """Count a commit, once it is on the disk: after a kill or a power cut the file may be behind, never ahead."""
    with suppress(OSError):  # a full disk, say: the file is behind then
        descriptor = os.open(folder / COMMITS, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.pwrite(descriptor, f"{number:<20}\n".encode(), 0)
        finally:
            os.close(descriptor)


def lost_commits(folder: Path, database: Writer | Reader) -> tuple[int, int] | None:
    """Return how many commits the database has and how many there were, where some are lost; else None."""
    if not database.sealed:
        return None
    beside = counted(folder)  # first: a commit counts in the database before it counts in the file
    with database.reading() as db:
        inside = commits(folder, db)
    return (inside, beside) if beside is not None and beside > inside else None


def accept_loss(folder: Path, database: Writer) -> None:
    """Go on from what the database has, and never clear away what lost rows may have named.

    The files that are there now stay, whatever names them; the count goes on above that of the file.
    """
    beside = counted(folder)
    with database.writing() as db:
        inside = commits(folder, db)
        if beside is None or beside > inside:
            db.execute("UPDATE meta SET value = ? WHERE key = 'commits'", (str(max(inside, beside or 0)),))
            db.execute("INSERT OR REPLACE INTO meta VALUES ('keep_before', ?)", (repr(time.time()),))


def keep_before(db: sqlite3.Connection) -> float:
    """Return the time before which unnamed files are kept, since rows that named them may be lost."""
    row = db.execute("SELECT value FROM meta WHERE key = 'keep_before'").fetchone()
    try:
        return 0.0 if row is None else float(row[0])
    except ValueError:
        return float("inf")
