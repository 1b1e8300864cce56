"""The domain of an attack: the box, and within it the inputs of the task, which are the support of its law.

For a box law or the Gaussian these are all points of the box. Tokens on the sphere move along it, and coordinates with
isolated values, such as marks, stay as they were drawn (`pairs.Moves`). With `among="box"` the law is ignored.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from headcount.core import BadInput, option
from headcount.models import SavedModel
from headcount.tasks import Box, Task
from headcount.theory.attack.pairs import Moves

Among = Literal["all", "typical", "box"]
"""The sequences to search: all inputs of the task, typical ones (`target`), or the whole box whatever the law."""


def domain(model: SavedModel, task: Task | None, box: Box | None, among: Among) -> tuple[tuple[Tensor, Tensor], Moves]:
    """Return the box of the search, as two corners, and how tokens may move in it; reject a box without inputs."""
    dim = model.transformer.spec.dim
    sides = box or model.box or (task.box if task is not None else None)
    if sides is None:
        name = task.name if task is not None else "the surrogate's task"
        raise BadInput(f"{name} has unbounded tokens: state the box of the attack with {option('box')}")
    try:
        low, high = (torch.tensor(side, dtype=torch.float64) for side in sides)
    except (TypeError, ValueError):
        raise BadInput(
            f"the box needs two corners with a number per token coordinate ({dim}), not {sides!r:.60}"
        ) from None
    if low.shape != (dim,) or high.shape != (dim,) or not bool((low < high).all()):
        raise BadInput(f"the box needs {dim} numbers below {dim} others, not {sides}")
    if task is None or task.box is None or among == "box":
        return (low, high), Moves()
    moves = Moves(task.law.sphere, task.law.fixed(dim))
    task_low, task_high = (torch.tensor(side, dtype=torch.float64) for side in task.box)
    fixed_axes = list(range(dim)) if moves.sphere else list(moves.fixed)
    if bool(((low > task_low) | (high < task_high))[fixed_axes].any()):
        raise BadInput(
            f"the box {sides} leaves out inputs of {task.name}, whose tokens cannot be moved into it: it must contain "
            f"{task.box} (or use --among box to search the whole box, whether inputs of the task or not)"
        )
    low, high = torch.maximum(low, task_low), torch.minimum(high, task_high)
    if not bool((low < high).all()):
        raise BadInput(
            f"no input of {task.name} lies inside the box {sides}: its tokens lie in {task.box} "
            "(use --among box to search the whole box, whether inputs of the task or not)"
        )
    return (low, high), moves


def check_sizes(model: SavedModel, task: Task | None, surrogate: SavedModel | None) -> None:
    """Reject a task or surrogate that does not fit the model, or the lack of both."""
    spec = model.transformer.spec
    if task is None and surrogate is None:
        raise BadInput(
            "the model has no task with known values: state one with --task, or a model that stands in for it with "
            "--surrogate"
        )
    sizes = spec.dim, spec.length, spec.out_dim
    other = None if surrogate is None else surrogate.transformer.spec
    if other is not None and (other.dim, other.length, other.out_dim) != sizes:
        raise BadInput("the surrogate's sequences or outputs have other sizes than the model's")
    if task is not None and (task.dim, task.length, spec.out_dim if surrogate else task.out_dim) != sizes:
        raise BadInput(
            f"the model takes {spec.length} tokens of dimension {spec.dim} and returns {spec.out_dim} numbers, but "
            f"{task.name} has {task.length}, {task.dim} and {task.out_dim}"
        )
