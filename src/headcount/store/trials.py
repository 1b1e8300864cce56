"""What a store tells of a trial, and what it is told when one ends."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from numpy.typing import NDArray

from headcount.core import BadInput, canonical_json
from headcount.store.checkpoints import Points

State = Literal["pending", "running", "done", "diverged", "failed"]
STATES: tuple[State, ...] = ("pending", "running", "done", "diverged", "failed")
FINISHED: tuple[State, ...] = ("done", "diverged", "failed")


@dataclass(frozen=True)
class StoredTrial:
    """One trial as the store has it; times are seconds since 1970."""

    hash: str
    spec: dict[str, Any]
    state: State
    step: int
    """The last step that is stored."""
    metrics: dict[str, Any] | None
    error: str | None
    provenance: dict[str, Any] | None
    checkpoint_step: int | None
    """The step from which it can go on, or whose weights it has kept; None without a checkpoint."""
    owner: str | None
    lease_until: float | None
    created: float
    updated: float

    @property
    def finished(self) -> bool:
        """Whether nothing more is to be done."""
        return self.state in FINISHED

    @classmethod
    def of(cls, row: sqlite3.Row) -> Self | None:
        """Read a row of the table of trials; None if it cannot be read, as damage to a row without checksum may do."""
        values = {name: row[name] for name in cls.__dataclass_fields__}
        try:
            for name in ("spec", "metrics", "provenance"):
                values[name] = None if values[name] is None else dict(json.loads(values[name]))
        except (ValueError, TypeError, RecursionError):
            return None
        return cls(**values) if values["state"] in STATES and isinstance(values["step"], int) else None

    def flat(self) -> dict[str, Any]:
        """Return one level of columns: `spec.model.heads`, `metrics.nmse`, `provenance.commit`, …"""
        return {
            "hash": self.hash,
            "state": self.state,
            "step": self.step,
            **_flatten("spec", self.spec),
            **_flatten("metrics", self.metrics or {}),
            "error": self.error,
            **_flatten("provenance", self.provenance or {}),
            "created": self.created,
            "updated": self.updated,
        }


@dataclass(frozen=True)
class Outcome:
    """How a trial ended: done or diverged with its metrics, or failed with an error."""

    hash: str
    state: State
    metrics: Mapping[str, Any] | None = None
    provenance: Mapping[str, Any] | None = None
    curve: Points = field(default=())
    """The points since the last checkpoint; the whole curve will do as well."""
    step: int | None = None
    """The last step; by default that of the last point, or of the last checkpoint."""
    error: str | None = None
    arrays: Mapping[str, NDArray[Any]] | None = None
    """The final weights: kept as the trial's checkpoint, in the same commit as its end."""

    def __post_init__(self) -> None:
        if self.state not in FINISHED:
            raise BadInput(f"a trial cannot end as {self.state!r}: allowed: {', '.join(FINISHED)}")

    def last_step(self) -> int | None:
        """Return the step at which it ended, if it is known."""
        if self.step is not None:
            return self.step
        return self.curve[-1][0] if self.curve else None


@dataclass(frozen=True)
class Warned:
    """Something that was noticed, and dealt with, while the store was in use."""

    time: float
    trial: str
    text: str


def as_json(value: Mapping[str, Any] | None, what: str) -> str | None:
    """Write what is to be stored as JSON in its one canonical form; None stays None."""
    try:
        return None if value is None else canonical_json(value)
    except (TypeError, ValueError) as error:
        raise BadInput(f"{what} cannot be stored as JSON: {error}; use finite numbers, strings, lists, None") from None


def table(trials: Iterable[StoredTrial]) -> list[dict[str, Any]]:
    """Return a flat row per trial, all with the same columns."""
    rows = [trial.flat() for trial in trials]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    return [{name: row.get(name) for name in columns} for row in rows]


def _flatten(prefix: str, value: dict[str, Any]) -> dict[str, Any]:
    """Join nested names by dots; lists stay whole."""
    flat: dict[str, Any] = {}
    for name, item in value.items():
        if isinstance(item, dict) and item:
            flat.update(_flatten(f"{prefix}.{name}", item))
        else:
            flat[f"{prefix}.{name}"] = item
    return flat
