"""Checksums ("seals") of all rows, in tables of their own, so that bit rot is noticed and never read as a result.

The seal of a trial holds a digest of its row, a digest of its curve (chained over the flushes), and copies of its
state and of the name of its checkpoint file. The seal of a run holds its number of trials, the XOR of the digests of
its rows, and a digest of its spec. A row that was changed, is missing, or reappeared with an old page differs from its
seal, since a single fault changes only one of the two.

Every connection that writes has temporary triggers, which renew a seal in the statement that changes its row. A row
that does not match its seal is never sealed again: once damaged, always damaged.
"""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
from typing import Any

from headcount.store.schema import SCHEMA_VERSION, SEAL_TABLES

TRIAL_COLUMNS = (
    "hash",
    "spec",
    "state",
    "step",
    "metrics",
    "error",
    "provenance",
    "checkpoint",
    "checkpoint_hash",
    "checkpoint_step",
    "owner",
    "lease_until",
    "created",
    "updated",
)
CHECKPOINT_NAME = re.compile(r"[0-9a-f]{32}\.safetensors")
"""The form of every checkpoint file's name; a row with any other name is damaged, and its file is never touched."""
DIGEST_BYTES = 16
ZERO_DIGEST = bytes(DIGEST_BYTES)
"""The XOR of no digests."""


def digest(*values: Any) -> bytes:
    """Return a digest of values as SQLite returns them: text, numbers, bytes, None; 1 and 1.0 differ."""
    return hashlib.blake2b(ascii(values).encode(), digest_size=DIGEST_BYTES).digest()


def xor_digests(one: bytes, other: bytes) -> bytes:
    """Return the XOR of two digests: it does not depend on the order of rows, and a row is added in one step."""
    return bytes(a ^ b for a, b in zip(one, other, strict=True))


def row_fault(row: tuple[Any, ...]) -> str | None:
    """Return what is wrong with a trial's row, regardless of its seal; None if it is sound."""
    trial, spec, checkpoint = row[0], row[1], row[7]
    if not isinstance(spec, str) or hashlib.sha256(spec.encode(errors="replace")).hexdigest() != trial:
        return "its spec does not match its hash"
    if checkpoint is not None and not is_checkpoint_name(checkpoint):
        return "it names a checkpoint file of a form that headcount never writes"
    try:
        for text in (row[1], row[4], row[6]):
            if text is not None and not isinstance(json.loads(text), dict):
                return "its JSON is not an object"
    except (ValueError, TypeError, RecursionError):
        return "its JSON cannot be read"
    return None


def is_checkpoint_name(name: object) -> bool:
    """Return whether a value from a row has the form of a checkpoint file's name."""
    return isinstance(name, str) and CHECKPOINT_NAME.fullmatch(name) is not None


def _first_seal(*row: Any) -> bytes:
    """Return the first seal of a row of version 1; for a damaged row, a seal that no row matches."""
    return digest(*row) if row_fault(row) is None else b""


def _columns(prefix: str) -> str:
    return ", ".join(f"{prefix}.{name}" for name in TRIAL_COLUMNS)


_MEMBER = "seal_digest(NEW.name, NEW.trial, NEW.position)"
_ABOUT = "seal_digest(NEW.name, NEW.about, NEW.created)"
_KNOWN_ABOUT = "coalesce((SELECT seal_digest(name, about, created) FROM abouts WHERE name = NEW.name), x'')"
_TRIGGERS = f"""
CREATE TEMP TRIGGER seal_new_trial AFTER INSERT ON main.trials BEGIN
    INSERT INTO seals VALUES (NEW.hash, NEW.state, seal_digest({_columns("NEW")}), x'', NEW.checkpoint);
END;
CREATE TEMP TRIGGER seal_trial AFTER UPDATE ON main.trials BEGIN
    UPDATE seals SET state = NEW.state, row = seal_digest({_columns("NEW")}), checkpoint = NEW.checkpoint
    WHERE trial = NEW.hash AND row = seal_digest({_columns("OLD")});
END;
CREATE TEMP TRIGGER seal_flush AFTER INSERT ON main.curves BEGIN
    UPDATE seals SET curve = seal_digest(curve, NEW.sequence, NEW.points) WHERE trial = NEW.trial;
END;
CREATE TEMP TRIGGER seal_no_curve AFTER DELETE ON main.curves BEGIN
    UPDATE seals SET curve = x'' WHERE trial = OLD.trial;
END;
CREATE TEMP TRIGGER seal_member AFTER INSERT ON main.runs BEGIN
    INSERT INTO run_seals VALUES (NEW.name, 1, {_MEMBER}, {_KNOWN_ABOUT})
    ON CONFLICT (name) DO UPDATE SET trials = trials + 1, members = seal_mix(members, excluded.members);
END;
CREATE TEMP TRIGGER seal_new_about AFTER INSERT ON main.abouts BEGIN
    UPDATE run_seals SET about = {_ABOUT} WHERE name = NEW.name;
END;
CREATE TEMP TRIGGER seal_about AFTER UPDATE ON main.abouts BEGIN
    UPDATE run_seals SET about = {_ABOUT} WHERE name = NEW.name;
END;
"""


def keep_seals(db: sqlite3.Connection) -> None:
    """Make this connection renew the seals of all rows that it writes from now on."""
    db.create_function("seal_digest", -1, digest, deterministic=True)
    db.create_function("seal_mix", 2, xor_digests, deterministic=True)
    db.executescript(_TRIGGERS)


def seal_all(db: sqlite3.Connection) -> None:
    """Upgrade a database from version 1 to version 2, in a transaction of the caller's.

    Damage from before the upgrade is only noticed in specs, JSON and file names.
    """
    db.create_function("seal_first", -1, _first_seal)
    db.create_function("seal_digest", -1, digest, deterministic=True)
    db.create_aggregate("seal_xor", 1, _Xor)  # pyright: ignore[reportArgumentType]
    db.create_aggregate("seal_chain", 2, _Chain)  # pyright: ignore[reportArgumentType]
    for statement in SEAL_TABLES.split(";")[:-1]:
        db.execute(statement)
    db.execute(
        f"INSERT INTO seals SELECT hash, state, seal_first({_columns('trials')}), "
        "coalesce((SELECT seal_chain(sequence, points) FROM (SELECT sequence, points FROM curves WHERE trial = hash "
        "ORDER BY sequence)), x''), checkpoint FROM trials"
    )
    db.execute(
        "INSERT INTO run_seals SELECT name, count(*), seal_xor(seal_digest(name, trial, position)), "
        "coalesce((SELECT seal_digest(abouts.name, about, created) FROM abouts WHERE abouts.name = runs.name), x'') "
        "FROM runs GROUP BY name"
    )
    db.execute("INSERT OR REPLACE INTO meta VALUES ('commits', '0')")
    db.execute("UPDATE meta SET value = ? WHERE key = 'schema_version'", (str(SCHEMA_VERSION),))


class _Xor:
    """An SQLite aggregate: the XOR of many digests."""

    def __init__(self) -> None:
        self.value = ZERO_DIGEST

    def step(self, one: bytes) -> None:
        """Add one digest."""
        self.value = xor_digests(self.value, one)

    def finalize(self) -> bytes:
        """Return the XOR of all digests."""
        return self.value


class _Chain:
    """An SQLite aggregate: the digest of a curve, chained over its flushes."""

    def __init__(self) -> None:
        self.value = b""

    def step(self, sequence: int, points: bytes) -> None:
        """Add one flush."""
        self.value = digest(self.value, sequence, points)

    def finalize(self) -> bytes:
        """Return the digest of all flushes."""
        return self.value
