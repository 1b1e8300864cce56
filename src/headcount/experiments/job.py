"""A trial as a trainer gets it: task, model, recipe, seed and data, with a checkpoint where it goes on."""

from __future__ import annotations

from dataclasses import dataclass, field

from headcount.experiments.data import Dataset
from headcount.experiments.moments import Moments
from headcount.experiments.train_spec import TrainSpec
from headcount.models.spec import ModelSpec
from headcount.tasks.arrays import ArrayTask
from headcount.tasks.task import Task


@dataclass(frozen=True)
class Job:
    """One trial to be trained, from its start or from a checkpoint."""

    task: Task | ArrayTask
    model: ModelSpec
    train: TrainSpec
    seed: int
    data: Dataset
    moments: Moments | None = field(default=None, compare=False)
