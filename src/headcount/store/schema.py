"""The database of a store: its tables, how it is opened, locked and written, and its errors in one line.

SQLite in WAL mode with synchronous=FULL: what was committed is on the disk when the commit returns, and readers never
wait. All writing goes through one file lock of our own, which can name the process that holds it, and keeps writers
and checkpoints of the log apart: SQLite from 3.7.0 to 3.51.2 can lose commits when these meet (sqlite.org/wal.html,
"The WAL-Reset Bug"), and most Pythons come with one of them.

WAL shares memory between processes, so a store belongs to the processes of one machine; stores of several machines
are merged.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import sqlite3
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from headcount.base.errors import BadInput, HeadcountError
from headcount.base.files import write_bytes

DATABASE = "trials.sqlite"
CHECKPOINTS = "checkpoints"
WRITE_LOCK = ".trials.lock"
VERSION = 1

TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE trials (
    hash TEXT NOT NULL PRIMARY KEY,
    spec TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('pending', 'running', 'done', 'diverged', 'failed')),
    step INTEGER NOT NULL DEFAULT 0,
    metrics TEXT, error TEXT, provenance TEXT,
    checkpoint TEXT, checkpoint_hash TEXT, checkpoint_step INTEGER,
    owner TEXT, lease_until REAL,
    created REAL NOT NULL, updated REAL NOT NULL,
    CHECK ((state = 'running') = (owner IS NOT NULL)),
    CHECK ((checkpoint IS NULL) = (checkpoint_hash IS NULL) AND (checkpoint IS NULL) = (checkpoint_step IS NULL))
);
CREATE INDEX trials_checkpoint ON trials (checkpoint) WHERE checkpoint IS NOT NULL;
CREATE INDEX trials_owner ON trials (owner) WHERE owner IS NOT NULL;
CREATE TABLE curves (
    trial TEXT NOT NULL, sequence INTEGER NOT NULL, points BLOB NOT NULL, PRIMARY KEY (trial, sequence)
) WITHOUT ROWID;
CREATE TABLE runs (
    name TEXT NOT NULL, trial TEXT NOT NULL, position INTEGER NOT NULL, PRIMARY KEY (name, trial)
) WITHOUT ROWID;
CREATE TABLE abouts (name TEXT PRIMARY KEY, about TEXT NOT NULL, created REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE warnings (
    id INTEGER PRIMARY KEY, time REAL NOT NULL, trial TEXT NOT NULL, text TEXT NOT NULL, UNIQUE (trial, text)
);
"""


class StoreError(HeadcountError):
    """The store cannot do what was asked; whatever it had stored before is still there."""


class LostTrial(StoreError):
    """A trial that this process may not write: another one took it over, or it has ended already."""


@contextmanager
def one_line(folder: Path) -> Generator[None]:
    """Turn what SQLite and the file system complain about into one line that says what to do."""
    try:
        yield
    except sqlite3.Error as error:
        raise StoreError(_sqlite_line(folder, error)) from error
    except UnicodeDecodeError as error:  # of a message of SQLite's that quotes the schema
        raise StoreError(damaged(folder, "its schema is not UTF-8 text")) from error
    except OSError as error:
        raise StoreError(_system_line(folder, error)) from error


def _sqlite_line(folder: Path, error: sqlite3.Error) -> str:
    """Say what an error of SQLite means here."""
    kind = str(getattr(error, "sqlite_errorname", "")).removeprefix("SQLITE_").split("_")[0]
    if kind in ("BUSY", "LOCKED"):
        return f"the store {folder} is locked by another program: close what has {DATABASE} open, and try again"
    if kind == "FULL":
        return _full(folder)
    if kind in ("NOTADB", "CORRUPT"):
        return damaged(folder, str(error))
    if kind in ("READONLY", "PERM", "AUTH"):
        return _read_only(folder)
    if kind == "CANTOPEN":
        return f"cannot open {folder / DATABASE}: check that the folder exists and may be read and written"
    if kind == "IOERR":
        return f"cannot read or write {folder / DATABASE} ({error}): check the disk and its free space"
    return f"the store {folder} cannot do this: {error}"


def _system_line(folder: Path, error: OSError) -> str:
    """Say what an error of the operating system means here."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return _full(folder)
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return _read_only(folder)
    if error.errno in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
        return f"the file system of {folder} has no file locks: keep the store on a local disk (--store)"
    return f"cannot read or write the store {folder}: {error.strerror or error}"


def _full(folder: Path) -> str:
    return f"the disk of the store {folder} is full: free some space and start again; all that was committed is safe"


def _read_only(folder: Path) -> str:
    return f"the store {folder} may not be written to: change its permissions, or choose or copy to another --store"


def damaged(folder: Path, why: str) -> str:
    """Say that the database is damaged, and what can be done."""
    return (
        f"{folder / DATABASE} is damaged ({why}), and was left as it is: put back a copy, "
        f"rescue what is readable with `sqlite3 {DATABASE} .recover`, or choose another --store"
    )


@contextmanager
def locked(path: Path, *, shared: bool = False, patience: float = 60.0) -> Generator[None]:
    """Hold a file lock, which ends with the process however it ends; wait for it at most `patience` seconds.

    The file is opened anew each time: a kept descriptor would be inherited by forked children, and the lock with it.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        wanted = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB
        end = time.monotonic() + patience
        while True:
            try:
                fcntl.flock(descriptor, wanted)
                break
            except BlockingIOError:
                if time.monotonic() >= end:
                    holder = os.pread(descriptor, 20, 0).decode(errors="replace").strip() or "unknown"
                    raise StoreError(
                        f"the store {path.parent} is locked by another process (pid {holder}) for more than "
                        f"{patience:g} s: wait for it or end it, and try again"
                    ) from None
                time.sleep(0.001)
        if not shared:
            with suppress(OSError):  # a full disk, say: it is for the line above only
                os.pwrite(descriptor, f"{os.getpid():<20}".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def open_database(folder: Path, create: bool, patience: float) -> sqlite3.Connection:
    """Open the database of a store, or make it; refuse what is not one in one line."""
    path = folder / DATABASE
    with one_line(folder):
        if folder.exists() and not folder.is_dir():
            raise BadInput(f"{folder} is a file, not a folder: choose another --store")
        if not path.exists() and not create:
            raise BadInput(f"there is no store in {folder}: start a run first, or choose another --store")
        (folder / CHECKPOINTS).mkdir(parents=True, exist_ok=True)
        with locked(folder / WRITE_LOCK, patience=patience):
            if not path.exists():
                _create(folder)
            elif path.stat().st_size == 0:  # SQLite would take it for a new one, and the checkpoints for orphans
                raise StoreError(damaged(folder, "it is empty"))
            db = sqlite3.connect(
                f"{path.absolute().as_uri()}?mode=rw", timeout=patience, isolation_level=None, uri=True
            )
            try:
                db.execute("PRAGMA journal_mode = WAL")
                db.execute("PRAGMA synchronous = FULL")
                _check(folder, db)
            except BaseException:
                db.close()
                raise
        db.row_factory = sqlite3.Row
        return db


def _create(folder: Path) -> None:
    """Make an empty database, which appears whole or not at all."""
    left = [*(folder / CHECKPOINTS).glob("*.safetensors"), *folder.glob(f"{DATABASE}-wal")]
    if left:
        raise StoreError(f"{folder} holds {left[0].name} but no {DATABASE}: put it back, or choose another --store")
    for part in folder.glob(f".{DATABASE}.*.part"):  # of a writer that was killed here
        part.unlink()
    memory = sqlite3.connect(":memory:")
    memory.executescript(TABLES)
    memory.execute("INSERT INTO meta VALUES ('schema_version', ?)", (str(VERSION),))
    memory.commit()
    write_bytes(folder / DATABASE, memory.serialize())
    memory.close()


def _check(folder: Path, db: sqlite3.Connection) -> None:
    """Refuse a damaged database, another program's, and one of a newer version."""
    problem = str(db.execute("PRAGMA quick_check(1)").fetchone()[0])
    if problem != "ok":
        raise StoreError(damaged(folder, " ".join(problem.split())))
    ours = {row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE name IN ('meta', 'trials')")}
    version = db.execute("SELECT value FROM meta WHERE key = 'schema_version'").fetchone() if len(ours) == 2 else None
    if version is None:
        raise StoreError(f"{folder / DATABASE} is a database, but not one of trials: choose another --store")
    if not re.fullmatch("[0-9]{1,9}", str(version[0])):
        raise StoreError(damaged(folder, f"its schema_version is {str(version[0])[:40]!r}, not a whole number"))
    if int(version[0]) > VERSION:
        raise StoreError(
            f"the store {folder} was written by a newer headcount (tables of version {version[0]}, "
            f"this one reads {VERSION}): upgrade headcount, or choose another --store"
        )


@contextmanager
def transaction(db: sqlite3.Connection, folder: Path, patience: float) -> Generator[None]:
    """Write all or nothing, alone among all processes."""
    with one_line(folder), locked(folder / WRITE_LOCK, patience=patience):
        db.execute("BEGIN IMMEDIATE")
        try:
            yield
            db.execute("COMMIT")
        finally:
            if db.in_transaction:
                db.execute("ROLLBACK")
