"""A peer: many models at once with torch.func.vmap over a functional model, torch.compile and fused Adam.

The attention is written out, because vmap cannot batch the kernels of nn.MultiheadAttention, and the class token is the
only query. The weights have the names of our reference's, so that the tests can compare the two functions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.peers.turns import LEARNING_RATE
from headcount.models.transformer import Flat, ModelSpec, Transformer, split
from headcount.training import Part


def stacked_weights(spec: ModelSpec, seeds: Sequence[int]) -> dict[str, Tensor]:
    """Return weights[name][models, ...], with which our own trials with these seeds start."""
    flat = Flat.of(spec)
    theta = torch.from_numpy(np.stack([flat.pack(Transformer(spec, seed=seed)) for seed in seeds]))
    return {name: tensor.clone() for name, tensor in split(flat, theta).items()}


def predict(w: Mapping[str, Tensor], X: Tensor) -> Tensor:
    """Return y[batch, out_dim] for X[batch, length, dim]: equation 4 for one model."""
    inner, outer, attention, F = "encoder.inner", "encoder.outer", "layers.0.attention", "layers.0.feedforward.layers"
    e = torch.relu(X @ w[f"{inner}.weight"].T + w[f"{inner}.bias"]) @ w[f"{outer}.weight"].T + w[f"{outer}.bias"]
    c = w["class_token"]
    q = torch.einsum("hne,e->hn", w[f"{attention}.query"], c)
    k, v = (torch.einsum("hne,bte->bhtn", w[f"{attention}.{name}"], e) for name in ("key", "value"))
    a = torch.softmax(torch.einsum("hn,bhtn->bht", q, k) / q.shape[1] ** 0.5, -1)
    o = torch.einsum("bht,bhtn->bhn", a, v)
    u = c + torch.einsum("hen,bhn->be", w[f"{attention}.output"], o)
    return nn.functional.gelu(u @ w[f"{F}.0.weight"].T + w[f"{F}.0.bias"]) @ w[f"{F}.1.weight"].T + w[f"{F}.1.bias"]


class VmapTraining:
    """A stack of models that are trained by one compiled step."""

    def __init__(self, weights: Mapping[str, Tensor], part: Part, batch: int, *, compiled: bool = True) -> None:
        device = part.X.device
        self.weights = {name: w.to(device, copy=True).requires_grad_() for name, w in weights.items()}
        self.models, self.batch, self.part = len(next(iter(weights.values()))), batch, part
        self.optimiser = torch.optim.Adam(self.weights.values(), lr=LEARNING_RATE, fused=True)

        def loss(w: dict[str, Tensor], index: Tensor, X: Tensor, y: Tensor) -> Tensor:
            return (predict(w, X[index]) - y[index]).square().mean()

        gradient = torch.func.vmap(torch.func.grad(loss), in_dims=(0, 0, None, None))
        if compiled:
            torch.compiler.reset()  # or it would compile for all lengths after another one, which is slower
            gradient = torch.compile(gradient, dynamic=False)
        self.gradient = gradient

    def run(self, steps: int) -> int:
        """Take some steps; return the number of model-steps."""
        X, y = self.part.X, self.part.y
        for _ in range(steps):
            index = torch.randint(len(X), (self.models, self.batch), device=X.device)
            found = self.gradient({name: w.detach() for name, w in self.weights.items()}, index, X, y)
            for name, w in self.weights.items():
                w.grad = found[name].contiguous()  # fused Adam reads memory in the order of the weights
            self.optimiser.step()
        return steps * self.models
