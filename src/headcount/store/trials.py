"""A stored trial, the outcome of one, and how both are written."""

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
    """The step from which the trial can resume, or whose weights are stored; None without a checkpoint."""
    owner: str | None
    lease_until: float | None
    created: float
    updated: float

    @property
    def finished(self) -> bool:
        """Whether the trial has ended: done, diverged or failed."""
        return self.state in FINISHED

    @classmethod
    def of(cls, row: sqlite3.Row) -> Self | None:
        """Read a row of the table `trials`; None if it cannot be parsed, such as a damaged row without a checksum."""
        values = {name: row[name] for name in cls.__dataclass_fields__}
        try:
            for name in ("spec", "metrics", "provenance"):
                values[name] = None if values[name] is None else dict(json.loads(values[name]))
        except (ValueError, TypeError, RecursionError):
            return None
        return cls(**values) if values["state"] in STATES and isinstance(values["step"], int) else None

    def flat(self) -> dict[str, Any]:
        """Return all fields as one level of columns: `spec.model.heads`, `metrics.nmse`, `provenance.commit`, …"""
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
    """The points since the last checkpoint, or the whole curve."""
    step: int | None = None
    """The last step; by default that of the curve's last point, or else of the last checkpoint."""
    error: str | None = None
    arrays: Mapping[str, NDArray[Any]] | None = None
    """The final weights, stored as the trial's checkpoint in the same commit as its outcome."""

    def __post_init__(self) -> None:
        if self.state not in FINISHED:
            raise BadInput(f"a trial cannot end as {self.state!r}: allowed: {', '.join(FINISHED)}")

    def last_step(self) -> int | None:
        """Return the step at which the trial ended; None if it is unknown."""
        if self.step is not None:
            return self.step
        return self.curve[-1][0] if self.curve else None


@dataclass(frozen=True)
class StoredWarning:
    """A warning about a problem that the store noticed and dealt with; time in seconds since 1970."""

    time: float
    trial: str
    text: str


def as_json(value: Mapping[str, Any] | None, what: str) -> str | None:
    """Return a mapping as canonical JSON; None stays None. Errors call it `what`."""
    try:
        return None if value is None else canonical_json(value)
    except (TypeError, ValueError) as error:
        raise BadInput(f"{what} cannot be stored as JSON: {error}; use finite numbers, strings, lists, None") from None


def table(trials: Iterable[StoredTrial]) -> list[dict[str, Any]]:
    """Return one flat row per trial, all with the same columns."""
    rows = [trial.flat() for trial in trials]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    return [{name: row.get(name) for name in columns} for row in rows]


def _flatten(prefix: str, value: dict[str, Any]) -> dict[str, Any]:
    """Flatten nested dictionaries, joining keys with dots; lists are not flattened."""
    flat: dict[str, Any] = {}
    for name, item in value.items():
        if isinstance(item, dict) and item:
            flat.update(_flatten(f"{prefix}.{name}", item))
        else:
            flat[f"{prefix}.{name}"] = item
    return flat
