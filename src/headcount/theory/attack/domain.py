"""Where an attack searches: the box, and within it the inputs of the task, which are the support of its law.

Of a box law or the Gaussian that is the box itself; tokens of the sphere move along it, and coordinates with isolated
values, such as marks, stay as they were drawn (`pairs.Moves`). `box` searches all of the box, whatever the law.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from headcount.core import BadInput
from headcount.models import SavedModel
from headcount.tasks import Box, Task
from headcount.theory.attack.pairs import Moves

Among = Literal["all", "typical", "box"]
"""Of which sequences: all inputs of the task, typical ones (`target`), or all of the box, inputs of the task or not."""


def domain(model: SavedModel, task: Task | None, box: Box | None, among: Among) -> tuple[tuple[Tensor, Tensor], Moves]:
    """Return the box of the search, as two corners, and how tokens move in it; refuse what holds no input."""
    dim = model.transformer.spec.dim
    sides = box or model.box or (task.box if task is not None else None)
    if sides is None:
        name = task.name if task is not None else "the surrogate's task"
        raise BadInput(f"{name} has unbounded tokens: state the box of the attack, --box LOW,HIGH")
    low, high = (torch.tensor(side, dtype=torch.float64) for side in sides)
    if low.shape != (dim,) or high.shape != (dim,) or not bool((low < high).all()):
        raise BadInput(f"the box needs {dim} numbers below {dim} others, not {sides}")
    if task is None or task.box is None or among == "box":
        return (low, high), Moves()
    moves = Moves(task.law.sphere, task.law.fixed(dim))
    bottom, top = (torch.tensor(side, dtype=torch.float64) for side in task.box)
    rigid = list(range(dim)) if moves.sphere else list(moves.fixed)
    if bool(((low > bottom) | (high < top))[rigid].any()):
        raise BadInput(
            f"the box {sides} leaves out inputs of {task.name} between which no search can move: it must hold all "
            f"of {task.box} (or search all of the box, inputs of the task or not, with --among box)"
        )
    low, high = torch.maximum(low, bottom), torch.minimum(high, top)
    if not bool((low < high).all()):
        raise BadInput(
            f"no input of {task.name} lies inside of the box {sides}: its tokens lie in {task.box} "
            "(--among box searches all of the box, inputs of the task or not)"
        )
    return (low, high), moves


def check_sizes(model: SavedModel, task: Task | None, surrogate: SavedModel | None) -> None:
    """Refuse in one line a task or surrogate that does not fit the model, or none at all."""
    spec = model.transformer.spec
    if task is None and surrogate is None:
        raise BadInput(
            "the model carries no task whose value is known: state one, --task, or a model that stands in for it, "
            "--surrogate"
        )
    sizes = spec.dim, spec.length, spec.out_dim
    other = None if surrogate is None else surrogate.transformer.spec
    if other is not None and (other.dim, other.length, other.out_dim) != sizes:
        raise BadInput("the surrogate reads other sequences or gives other outputs than the model")
    if task is not None and (task.dim, task.length, spec.out_dim if surrogate else task.out_dim) != sizes:
        raise BadInput(
            f"the model reads {spec.length} tokens of dimension {spec.dim} and gives {spec.out_dim} numbers, "
            f"{task.name} has {task.length}, {task.dim} and {task.out_dim}"
        )
