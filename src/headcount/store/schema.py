"""The tables of a store, the check that a database has them, its file locks, and its errors in one line."""

from __future__ import annotations

import errno
import fcntl
import functools
import os
import re
import sqlite3
import stat
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from headcount.core import HeadcountError, option

DATABASE = "trials.sqlite"
CHECKPOINTS = "checkpoints"
WRITE_LOCK = ".trials.lock"
MAX_SMALL_FILE_BYTES = 4096
"""Bytes read at most of a count, a mark or a writer's name; such a file holds 20 to 150."""
SCHEMA_VERSION = 2
"""The version of the tables. Version 1 had no checksums: a writer upgrades it, a reader leaves it as it is."""

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
"""The tables of version 1; version 2 adds `SEAL_TABLES`."""

SEAL_TABLES = """
CREATE TABLE seals (
    trial TEXT NOT NULL PRIMARY KEY, state TEXT NOT NULL, row BLOB NOT NULL, curve BLOB NOT NULL, checkpoint TEXT
) WITHOUT ROWID;
CREATE INDEX seals_checkpoint ON seals (checkpoint) WHERE checkpoint IS NOT NULL;
CREATE TABLE run_seals (
    name TEXT NOT NULL PRIMARY KEY, trials INTEGER NOT NULL, members BLOB NOT NULL, about BLOB NOT NULL
) WITHOUT ROWID;
"""
"""The checksums of version 2, in tables of their own, so that one damaged page cannot hold a row and its checksum."""


class StoreError(HeadcountError):
    """The store cannot complete an operation; everything stored before is still there."""


class DamagedStore(StoreError):
    """Stored data differ from what was written."""


class LostTrial(StoreError):
    """A process may not write a trial: another one took it over, or it has already ended."""


@contextmanager
def store_errors(folder: Path) -> Generator[None]:
    """Turn errors of SQLite and the file system into StoreError: one line that says what to do."""
    try:
        yield
    except sqlite3.Error as error:
        if _kind(error) in ("NOTADB", "CORRUPT") or "decode to UTF-8" in str(error):
            raise damaged(folder, str(error)) from error
        raise StoreError(_sqlite_line(folder, error)) from error
    except UnicodeDecodeError as error:  # raised for SQLite's own message, which quotes the damaged text
        raise damaged(folder, "its schema cannot be read") from error
    except OSError as error:
        raise StoreError(_system_line(folder, error)) from error


def _kind(error: sqlite3.Error) -> str:
    """Return the name of SQLite's error code without prefix and details, such as BUSY or IOERR."""
    return str(getattr(error, "sqlite_errorname", "")).removeprefix("SQLITE_").split("_")[0]


def _sqlite_line(folder: Path, error: sqlite3.Error) -> str:
    """Return the message for an SQLite error."""
    kind = _kind(error)
    if kind in ("BUSY", "LOCKED"):
        return f"the store {folder} is locked by another program: close what has {DATABASE} open, and try again"
    if kind == "FULL":
        return _full(folder)
    if kind in ("READONLY", "PERM", "AUTH"):
        return _read_only(folder)
    if kind == "CANTOPEN":
        return f"cannot open {folder / DATABASE}: check that the folder exists and may be read and written"
    if kind == "IOERR":
        return f"cannot read or write {folder / DATABASE} ({error}): check the disk and its free space"
    return f"the store {folder} cannot do this: {error}"


def _system_line(folder: Path, error: OSError) -> str:
    """Return the message for an error of the operating system."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return _full(folder)
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return _read_only(folder)
    if error.errno in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
        return f"the file system of {folder} has no file locks: keep the store on a local disk ({option('store')})"
    return f"cannot read or write the store {folder}: {error.strerror or error}"


def _full(folder: Path) -> str:
    return f"the disk of the store {folder} is full: free some space and start again; all committed data are safe"


def _read_only(folder: Path) -> str:
    return f"the store {folder} is not writable: change its permissions, or choose or copy to another {option('store')}"


def damaged(folder: Path, why: str) -> DamagedStore:
    """Return the error for a damaged database; it says what can be done."""
    return DamagedStore(
        f"{folder / DATABASE} is damaged ({why}), and was left as it is: put back a copy, "
        f"rescue what is readable with `sqlite3 {DATABASE} .recover`, or choose another {option('store')}"
    )


@contextmanager
def locked(path: Path, *, shared: bool = False, create: bool = True, patience: float = 60.0) -> Generator[None]:
    """Hold a file lock, waiting for it at most `patience` seconds; the system frees it if the process dies.

    The file is reopened each time: forked children would inherit a descriptor that stays open, and the lock with it.
    With `create` false nothing is written, and if the file does not exist nothing is locked.
    """
    try:
        flags = (os.O_RDWR | os.O_CREAT) if create else os.O_RDONLY
        descriptor = os.open(path, flags | os.O_CLOEXEC, 0o644)
    except FileNotFoundError:
        if create:
            raise
        yield
        return
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
            with suppress(OSError):  # such as a full disk: the pid only serves the message above
                os.pwrite(descriptor, f"{os.getpid():<20}".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def read_small_file(path: Path) -> str:
    """Return the text of a small file of the store; a link, a pipe or the like counts as missing and is not opened."""
    if not stat.S_ISREG(path.lstat().st_mode):
        raise FileNotFoundError(errno.ENOENT, "not a regular file", str(path))
    with path.open("rb") as handle:
        return handle.read(MAX_SMALL_FILE_BYTES).decode("utf-8", errors="replace").strip()


def tables_of(version: int) -> str:
    """Return the SQL that creates the tables of a version."""
    return TABLES if version == 1 else TABLES + SEAL_TABLES


@functools.cache
def _expected(version: int) -> dict[str, tuple[str, str, str]]:
    """Return the schema of a new database of this version, as `_schema` reads it."""
    memory = sqlite3.connect(":memory:")
    memory.executescript(tables_of(version))
    found = _schema(memory)
    memory.close()
    return found


def _schema(db: sqlite3.Connection) -> dict[str, tuple[str, str, str]]:
    """Return type, table and SQL of each object in a database, by name."""
    rows = db.execute("SELECT name, type, tbl_name, sql FROM sqlite_master").fetchall()
    return {str(name): (str(kind), str(table), " ".join(str(sql).split())) for name, kind, table, sql in rows}


def check_tables(folder: Path, db: sqlite3.Connection) -> int:
    """Return the version of a store's tables; reject another program's database, a newer version and a changed schema.

    The text of the schema is compared too: a damaged or crafted one could change what the same query means.
    """
    found = _schema(db)
    stated = db.execute("SELECT value FROM meta WHERE key = 'schema_version'").fetchone() if "meta" in found else None
    if stated is None:
        if found.keys() & (_expected(SCHEMA_VERSION).keys() - {"meta"}):
            raise damaged(folder, "its table meta does not state a version")
        raise StoreError(f"{folder / DATABASE} is a database, but not one of trials: choose another {option('store')}")
    text = str(stated[0])
    if not re.fullmatch("[1-9][0-9]?", text):
        raise damaged(folder, f"its version is {text!r}")
    if int(text) > SCHEMA_VERSION:
        raise StoreError(
            f"the store {folder} was written by a newer headcount (tables of version {text}, "
            f"this one reads up to {SCHEMA_VERSION}): upgrade headcount, or choose another {option('store')}"
        )
    expected = _expected(int(text))
    active = [name for name, (kind, _, _) in found.items() if kind in ("trigger", "view")]
    changed = [name for name in expected if found.get(name) != expected[name]]
    newer = [name for name in _expected(SCHEMA_VERSION) if name not in expected and name in found]
    for name in (*changed, *newer, *active):
        raise damaged(folder, f"{name!r} in its schema is not as headcount made it")
    return int(text)
