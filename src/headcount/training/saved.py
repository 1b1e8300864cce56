"""From a trained model to a model that can be saved: with its task, box and standardisation."""

from __future__ import annotations

from typing import Any

from headcount.models.files import SavedModel
from headcount.tasks.arrays.task import ArrayTask
from headcount.tasks.task import Task
from headcount.training.loop import Trained


def saved_model(task: Task | ArrayTask, trained: Trained) -> SavedModel:
    """Bundle a trained model; arrays are named by their hash, never copied into the model's folder."""
    mean, std = tuple(trained.data.mean.tolist()), tuple(trained.data.std.tolist())
    if isinstance(task, ArrayTask):
        data: dict[str, Any] = {"kind": "arrays", "name": task.name, "hash": task.hash()}
        if task.classes is not None:  # in the order of the outputs
            data["classes"] = list(task.classes)
        return SavedModel(trained.model, data, None, mean, std)
    return SavedModel(trained.model, task.data(), task.box, mean, std)
