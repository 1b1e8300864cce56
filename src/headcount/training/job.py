"""A trial as a trainer receives it: task, model, recipe, seed and data, and a checkpoint if it resumes from one."""

from __future__ import annotations

from dataclasses import dataclass, field

from headcount.models.transformer import ModelSpec
from headcount.tasks import Task
from headcount.tasks.arrays import ArrayTask
from headcount.training.checkpoint import Moments
from headcount.training.data import Dataset
from headcount.training.spec import TrainSpec


@dataclass(frozen=True)
class Job:
    """One trial to be trained, from the beginning or from a checkpoint (`moments`)."""

    task: Task | ArrayTask
    model: ModelSpec
    train: TrainSpec
    seed: int
    data: Dataset
    moments: Moments | None = field(default=None, compare=False)
