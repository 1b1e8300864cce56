"""Tasks and models for the adversary: random weights, an encoder without structure, a head that retrieves."""

from __future__ import annotations

import math

import numpy as np
import torch

import headcount as hc
from headcount.models.transformer.reference import Transformer
from headcount.models.transformer.spec import ModelSpec
from headcount.tasks.retrieval import GeneralizedRetrieval
from headcount.theory.adversary.basins import find_basins


def basin_task(length: int, intrinsic: int = 2, **options) -> GeneralizedRetrieval:
    task = hc.make_task("quadratic-basins", intrinsic=intrinsic, dim=2, length=length, **options)
    assert isinstance(task, GeneralizedRetrieval)
    return task


def random_model(length: int, seed: int = 0, **options) -> Transformer:
    """Weights by seed, and everything that sees positions drawn as well."""
    sizes = {"heads": 1, "head_dim": 2, "hidden": 32, **options}
    model = Transformer(ModelSpec(dim=2, length=length, **sizes), seed=seed, dtype=torch.float64)
    g = np.random.default_rng([3, seed])
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith(("gates", "position", "hidden_bias")):
                weight.copy_(torch.from_numpy(0.5 * g.standard_normal(tuple(weight.shape))))
    return model


def rough_model(length: int, seed: int = 0) -> Transformer:
    """An encoder that bends between any two points of a grid, at every position elsewhere: no structure to use.

    Of 512 units each changes sign somewhere else in the box, and the position shifts all of these places.
    """
    model = random_model(length, seed, hidden=512, positions="concatenated", beta=4.0)
    g, N = np.random.default_rng([5, seed]), 512
    W = g.standard_normal((N, 2))
    W /= np.linalg.norm(W, axis=1, keepdims=True)
    with torch.no_grad():
        for weight, values in (
            (model.encoder.inner.weight, W),
            (model.encoder.inner.bias, -(W * g.random((N, 2))).sum(1)),
            (model.encoder.hidden_bias, 0.3 * g.standard_normal((length, N))),
            (model.encoder.outer.weight, g.standard_normal((2, N)) / math.sqrt(N)),
        ):
            weight.copy_(torch.from_numpy(values))
    return model


def retriever_model(length: int, basin: int, beta: float = 40.0) -> Transformer:
    """What training tends to find, written down: a head with score −β·Ψ and value Ψ, where Ψ interpolates one f_i."""
    task, knots = basin_task(length), np.linspace(0.0, 1.0, 9)[:-1]
    model = random_model(length, hidden=16, beta=beta)
    centre = np.array(find_basins(task)[0][basin].minimiser)
    slopes = knots[None] + 1 / 16 - centre[:, None]  # of (x − c)²/2 between neighbouring knots, one row a coordinate
    bends = np.diff(slopes, axis=1, prepend=0.0).ravel()
    weights = {
        "encoder.inner.weight": np.repeat(np.eye(2), 8, 0),
        "encoder.inner.bias": -np.tile(knots, 2),
        "encoder.outer.weight": np.stack([bends, 0 * bends]),
        "encoder.outer.bias": np.zeros(2),
        "class_token": np.array([1.0, 0.0]),
        "layers.0.attention.query": -np.eye(2)[None],
        "layers.0.attention.key": np.eye(2)[None],
        "layers.0.attention.value": np.eye(2)[None],
    }
    with torch.no_grad():
        for name, value in weights.items():
            model.get_parameter(name).copy_(torch.from_numpy(value))
    return model


def equal_heads(length: int) -> Transformer:
    """Two heads with the same weights: both want the same token at the same position."""
    model = random_model(length, 7, heads=2, positions="gates")
    attention = model.layers[0].attention
    with torch.no_grad():
        for weight in (attention.query, attention.key, attention.value, attention.gates):
            weight[1] = weight[0]
    return model


def tent_model(length: int, centre: np.ndarray, direction: np.ndarray, bend: float, peak: float) -> Transformer:
    """A head whose score rises along a line from the centre, more steeply from `bend` on, and falls from `peak` on."""
    model = random_model(length, hidden=3, beta=1.0)
    start = float(direction @ centre)
    weights = {
        "encoder.inner.weight": np.repeat(direction[None], 3, 0),
        "encoder.inner.bias": -start - np.array([0.0, bend, peak]),
        "encoder.outer.weight": np.array([[1.0, 0.1, -2.0], [0.0, 0.0, 1.0]]),
        "encoder.outer.bias": np.zeros(2),
        "class_token": np.array([1.0, 0.0]),
        "layers.0.attention.query": np.eye(2)[None],
        "layers.0.attention.key": np.eye(2)[None],
    }
    with torch.no_grad():
        for name, value in weights.items():
            model.get_parameter(name).copy_(torch.from_numpy(value))
    return model


CASES = {
    "none": (basin_task(32), random_model(32)),
    "additive": (basin_task(32), random_model(32, 1, positions="additive")),
    "gates": (basin_task(24, sets="halves"), random_model(24, 2, positions="gates", beta=6.0)),
    "concatenated": (basin_task(20), random_model(20, 3, positions="concatenated", beta="learned")),
    "two heads": (basin_task(28, 3), random_model(28, 4, heads=2, positions="gates")),
    "bands": (basin_task(30, 3, sets="bands", outer="product"), random_model(30, 5, heads=2, positions="gates")),
    "outputs": (basin_task(16, outer="vector"), random_model(16, 6, out_dim=2)),
    "equal heads": (basin_task(18, 3), equal_heads(18)),
    "rough": (basin_task(12), rough_model(12)),
}
