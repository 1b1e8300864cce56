"""Models and tasks for the tests of bounds: random ones with every option, small and saturated."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import headcount as hc
from headcount.tasks.retrieval import GeneralizedRetrieval
from headcount.theory.certify.over_minima import LevelBoxes
from headcount.theory.certify.over_tokens import TokenBoxes
from headcount.theory.certify.token_cells import fold

OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "relu2": {"feedforward": "relu2"},
    "relu5": {"feedforward": "relu5"},
    "additive": {"positions": "additive"},
    "concatenated": {"positions": "concatenated", "beta": "learned"},
    "gates": {"positions": "gates", "beta": 3.0},
    "learned": {"beta": "learned", "heads": 3},
    "sharp": {"beta": 1e3},
    "saturated": {"beta": 1e6, "positions": "gates"},
    "one head": {"heads": 1, "head_dim": 3},
}


def random_model(task: GeneralizedRetrieval, seed: int = 0, **options: Any) -> hc.SavedModel:
    """A model with random weights, none of them 0, and a standardisation that is not trivial."""
    sizes = {"heads": 2, "head_dim": 2, "hidden": 6, **options}
    spec = hc.ModelSpec(dim=task.dim, length=task.length, out_dim=task.out_dim, **sizes)
    model = hc.Transformer(spec, seed=seed)
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(("gates", "position", "hidden_bias")):
                torch.nn.init.normal_(parameter, std=0.5)
            elif "encoder" in name:
                parameter.mul_(2.0)
    low, high = task.box or ((0.0,) * task.dim, (1.0,) * task.dim)
    return hc.SavedModel(model, task.data(), (low, high), (0.3,) * task.out_dim, (1.7,) * task.out_dim)


def ways(saved: hc.SavedModel, task: GeneralizedRetrieval) -> tuple[LevelBoxes, TokenBoxes]:
    """Both branch and bounds of a model."""
    assert saved.box is not None
    low, high = (np.array(side) for side in saved.box)
    model, placed = fold(saved.transformer), saved.transformer.spec.positions != "none"
    rest = (np.array(saved.mean), np.array(saved.std), placed)
    return LevelBoxes(saved, model, task, low, high, *rest, 0), TokenBoxes(model, task, low, high, *rest)


def tasks() -> dict[str, GeneralizedRetrieval]:
    """Tasks of one and two dimensions, with F0 and f_i that bend, several outputs, and index sets that differ."""
    return {  # type: ignore[return-value]
        "min-plus-max": hc.make_task("min-plus-max", length=3),
        "basins": hc.make_task("quadratic-basins", intrinsic=2, dim=1, length=4, outer="square"),
        "plane": hc.make_task("quadratic-basins", intrinsic=2, dim=2, length=3, outer="tanh"),
        "vector": hc.make_task("quadratic-basins", intrinsic=3, dim=1, length=4, outer="vector"),
        "sets": hc.make_task("quadratic-basins", intrinsic=2, dim=1, length=4, sets="random", outer="product"),
        "single": hc.make_task("quadratic-basins", intrinsic=1, dim=1, length=2, outer="exp"),
    }
