"""Small models whose inputs are made to collide, for the tests of what verifies that."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flint import arb

from headcount.models.files import SavedModel
from headcount.models.transformer.reference import Transformer
from headcount.models.transformer.spec import ModelSpec
from headcount.recheck.weights import Weights, read_weights
from headcount.recheck.witness import verify_witness
from headcount.tasks.expressions.tree import Stack, variable
from headcount.tasks.retrieval import GeneralizedRetrieval

OPTIONS = [
    {"positions": positions, "beta": beta, "class_key": key}
    for positions in ("none", "additive", "concatenated", "gates")
    for beta in ("scaled", "learned", 2.5)
    for key in (False, True)
]


BOX = [[-1.0, -1.0], [1.0, 1.0]]


def random_model(seed: int = 0, dtype: torch.dtype = torch.float64, **options: Any) -> Transformer:
    """A model none of whose tensors is 0 or as it was initialised."""
    sizes = {"dim": 2, "length": 6, "out_dim": 2, "heads": 2, "head_dim": 2, "hidden": 8, **options}
    model = Transformer(ModelSpec(**sizes), seed=seed, dtype=dtype)
    with torch.no_grad():
        for k, (_, parameter) in enumerate(model.named_parameters()):
            parameter += 0.3 * torch.randn(
                parameter.shape, generator=torch.Generator().manual_seed(97 * seed + k), dtype=torch.float64
            ).to(dtype)
    return model


def task() -> GeneralizedRetrieval:
    x, z = variable(2), variable(2)
    F0 = Stack(args=(z[0] + z[1], 3.0 * z[0] * z[1] - z[1]))
    return GeneralizedRetrieval([x[0], x[0] * x[0] - x[1]], [[0, 1, 2, 3], [2, 3, 4, 5]], F0, length=6)


def read_by_F(model: Transformer, X: torch.Tensor) -> torch.Tensor:
    """The class token's row after the last attention, by the reference model; X[length, dim]."""
    seen: list[torch.Tensor] = []
    hook = model.layers[-1].norm_feedforward.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    model(X[None])
    hook.remove()
    return seen[0][0, 0]


def with_plain_output(model: Transformer) -> Transformer:
    """The model with W_O = I: what F reads is then c + o."""
    spec = model.spec
    plain = Transformer(spec, dtype=torch.float64)
    plain.load_state_dict(model.state_dict())
    with torch.no_grad():
        plain.layers[0].attention.output.copy_(
            torch.eye(spec.E, dtype=torch.float64).reshape(spec.E, spec.heads, spec.head_dim).permute(1, 0, 2)
        )
    return plain


def weights_of(model: Transformer, folder: Path, **more: Any) -> Weights:
    SavedModel(model, **more).save(folder)
    return read_weights(folder)


def balls(X: np.ndarray | torch.Tensor) -> list[list[arb]]:
    return [[arb(float(v)) for v in row] for row in X]


def collide(model: Transformer, X: torch.Tensor, limit: float = 0.95) -> np.ndarray:
    """Gauss-Newton in float64 on what F reads of X[0] and X[1]."""
    for _ in range(60):
        f = (read_by_F(model, X[0]) - read_by_F(model, X[1])).detach()
        if f.norm() < 1e-13:
            break
        parts = [torch.autograd.functional.jacobian(lambda Y: read_by_F(model, Y), Xs).flatten(1) for Xs in X]
        step = torch.linalg.lstsq(torch.cat([parts[0], -parts[1]], 1), f[:, None], driver="gelsd").solution
        X = (X - step.reshape(X.shape)).clamp(-limit, limit)
    else:
        raise AssertionError("no collision was found")
    return X.detach().numpy()


def drawn(seed: int) -> torch.Tensor:
    return 1.6 * torch.rand(2, 6, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) - 0.8


def change(folder: Path, **values: Any) -> None:
    """Write other values into a witness; `...` drops a key."""
    data = {**json.loads((folder / "witness.json").read_text()), **values}
    (folder / "witness.json").write_text(json.dumps({k: v for k, v in data.items() if v is not ...}))


def reason(folder: Path) -> str:
    """Say why a witness is rejected, which it must be."""
    verdict = verify_witness(folder)
    assert not verdict.holds
    assert verdict.proved is None
    assert len(verdict.reason) > 10
    return verdict.reason
