"""The records of a trial and of a run, which is a named list of trials and is saved as one JSON file."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from headcount.core import Spec, write_json
from headcount.core.readers import read_json

State = Literal["done", "diverged"]
Measure = Literal["nmse", "error rate"]


class Trial(Spec):
    """One model trained once.

    `nmse` is its error in the run's measure: NMSE = MSE/Var(y) = 1 − R² on fresh sequences, or 1 − top-1 accuracy.
    """

    heads: int = Field(ge=1)
    seed: int = Field(ge=0)
    state: State
    nmse: float | None = Field(ge=0)
    """The validation error at the end of training; None for a diverged trial."""
    train_nmse: float | None = Field(ge=0)
    accuracy: float | None = Field(default=None, ge=0, le=1)
    """Top-1 accuracy on validation, where the run's measure is the error rate."""
    train_accuracy: float | None = Field(default=None, ge=0, le=1)
    mrr: float | None = Field(default=None, ge=0, le=1)
    """The mean reciprocal rank of the right answer on validation, where the run's measure is the error rate."""
    train_mrr: float | None = Field(default=None, ge=0, le=1)
    steps: int = Field(ge=0)
    """Steps taken."""
    seconds: float = Field(ge=0)
    parameters: int = Field(ge=0)
    """The paper's count M: encoder and feed-forward block only."""
    parameters_total: int = Field(ge=0)
    curve: list[tuple[int, float]] = Field(default_factory=list[tuple[int, float]])
    """(step, validation error), in order; may end early for a diverged trial."""


class Run(Spec):
    """A named set of trials of one task: everything that analysis and reports read."""

    name: str
    title: str = ""
    task: dict[str, Any]
    """The task's JSON data: name, length, dim, …"""
    intrinsic: int | None
    """The task's known D, if it has one; for comparison only: no estimate uses it."""
    spec: dict[str, Any]
    """The spec that produced the run, as JSON data."""
    sweep: dict[str, Any] = Field(default_factory=dict[str, Any])
    """The whole sweep that the run is a part of, as in a sweep file; empty if no file can express it."""
    values: dict[str, Any] = Field(default_factory=dict[str, Any])
    """What sets this run apart from the others of one sweep: length, hidden, …"""
    measure: Measure = "nmse"
    samples: dict[str, int] = Field(default_factory=dict[str, int])
    """Numbers of samples that the errors were measured on, "train" and "validation"; only for the error rate."""
    trials: list[Trial]
    left_out: dict[str, int] = Field(default_factory=dict[str, int])
    """Trials that have no record, by state: failed, pending, running."""
    blind: bool = False
    """Whether the target depends on the tokens' positions although the models do not see them."""
    provenance: dict[str, Any]
    seconds: float = Field(ge=0)

    def save(self, path: Path) -> None:
        """Write the run as one JSON file."""
        write_json(path, self.data())

    @classmethod
    def load(cls, path: Path) -> Run:
        """Read a run from the file that `save` wrote."""
        return cls.parse(read_json(path), where=str(path))
