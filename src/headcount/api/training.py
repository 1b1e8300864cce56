"""`hc.train(task, model)`: trains one model on the compiled engine."""

from __future__ import annotations

import logging
from collections.abc import Callable

from headcount.core import BadInput
from headcount.models.transformer import ModelSpec
from headcount.render.words import BLIND
from headcount.sweeps import default_positions
from headcount.tasks import Task, check_task
from headcount.tasks.arrays import ArrayTask
from headcount.training import Trained, TrainSpec, train_fast

log = logging.getLogger("headcount")


def train(
    task: Task | ArrayTask,
    model: ModelSpec,
    recipe: TrainSpec | None = None,
    *,
    seed: int = 0,
    on_step: Callable[[int, float | None], None] | None = None,
) -> Trained:
    """Train one model on the compiled engine and return it with its record; `.save(folder)` keeps it.

    The same arguments give the same weights. task: what is learned, a task or arrays. model: its sizes and options.
    recipe: how it is trained (default: `TrainSpec()`). seed: draws weights and batches. `on_step(steps done, validation
    error or None)` is called from time to time.
    """
    check_task(task)
    if not isinstance(model, ModelSpec):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise BadInput(f"model must be a ModelSpec, not {model!r:.60}")
    if model.positions == "none" and default_positions(task) != "none":
        log.warning(BLIND)
    return train_fast(task, model, recipe, seed=seed, on_step=on_step)
