"""Models with a known irreducible gap, and a plain search for colliding pairs: a lower bound that is measured."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

import headcount as hc
from headcount.models.transformer.reference import Attention
from headcount.tasks.retrieval import GeneralizedRetrieval


def planted(task: GeneralizedRetrieval, *, separated: bool = False, blind: bool = False) -> hc.SavedModel:
    """Return a model with uniform attention over the values x(t), one number per output; separated: x(t) in block t."""
    T, d = task.length, task.dim
    width = T * d if separated else d
    sizes: dict[str, Any] = {"heads": 1, "head_dim": width, "hidden": width, "beta": 1.0}
    spec = hc.ModelSpec(dim=d, length=T, positions="concatenated" if separated else "none", **sizes)
    model = hc.Transformer(spec, dtype=torch.float64)
    attention = model.layers[0].attention
    with torch.no_grad():
        encoder = model.encoder
        encoder.inner.weight.copy_(torch.eye(d).repeat(width // d, 1))
        encoder.inner.bias.fill_(1.0)  # relu(x + 1): no kink on the box's edge
        if encoder.hidden_bias is not None:  # units of other positions are off: x + 1 ≤ 2
            encoder.hidden_bias.copy_(-3.0 + 3.0 * torch.eye(T).repeat_interleave(d, 1))
        encoder.outer.weight.copy_(torch.eye(width))
        encoder.outer.bias.fill_(-1.0)
        attention.query.zero_()
        attention.value.copy_(torch.eye(width)[None] * (0.0 if blind else 1.0))
    return hc.SavedModel(model, task.data(), ((0.0,) * d, (1.0,) * d), (0.0,), (1.0,))


def outputs(saved: hc.SavedModel, X: Tensor) -> Tensor:
    """Return o_1, …, o_h of sequences X[..., T, d], from the stored weights: [..., h·n]."""
    model = saved.transformer.double()
    attention = model.layers[0].attention
    assert isinstance(attention, Attention)
    lead = X.shape[:-2]
    e = model.encoder(X.reshape(-1, *X.shape[-2:]))
    q = torch.einsum("hne,e->hn", attention.query, model.class_token)
    r = torch.einsum("hn,hne,bte->bht", q, attention.key, e)
    if attention.gates is not None:
        r = r + attention.gates
    beta = attention.beta()
    beta = beta[:, 0] if isinstance(beta, Tensor) else beta
    o = torch.einsum("bht,hne,bte->bhn", torch.softmax(beta * r, -1), attention.value, e)
    return o.reshape(*lead, -1)


def search(
    saved: hc.SavedModel, task: GeneralizedRetrieval, *, starts: int = 256, steps: int = 60, seed: int = 0
) -> tuple[float, np.ndarray]:
    """Return the largest |H(X) − H(X')| found by ascent among pairs whose outputs agree to 1e-12."""
    assert saved.box is not None
    low, high = (torch.tensor(side, dtype=torch.float64) for side in saved.box)
    g = torch.Generator().manual_seed(seed)
    X = low + (high - low) * torch.rand(starts, 2, task.length, task.dim, generator=g, dtype=torch.float64)
    X[: starts // 4] = X[: starts // 4].round()
    X[starts // 4 : starts // 3, 1] = X[starts // 4 : starts // 3, 0].flip(1)

    def apart(pair: Tensor) -> Tensor:
        o = outputs(saved, pair)
        return o[..., 0, :] - o[..., 1, :]

    def jacobian(pair: Tensor) -> Tensor:
        with torch.enable_grad():
            leaf = pair.detach().requires_grad_(True)
            d = apart(leaf)
            rows = [torch.autograd.grad(d[:, k].sum(), leaf, retain_graph=True)[0] for k in range(d.shape[1])]
        return torch.stack(rows, 1).flatten(2)

    def collide(pair: Tensor, rounds: int = 6) -> Tensor:
        for _ in range(rounds):
            move = torch.linalg.pinv(jacobian(pair)) @ apart(pair)[..., None]
            pair = (pair - move.reshape(pair.shape)).clamp(low, high)
        return pair

    def gap(pair: Tensor) -> Tensor:
        H = task.value(pair)[..., 0]
        return torch.where(apart(pair).detach().abs().amax(-1) <= 1e-12, H[:, 0] - H[:, 1], -torch.inf)

    with torch.no_grad():
        X = collide(X, 12)
        best, size = gap(X), torch.full((starts,), 0.3, dtype=torch.float64)
        for step in range(steps):
            d = task.gradient(X)[:, :, 0]
            d[:, 1] *= -1
            if step % 2:
                d = torch.randn(X.shape, generator=g, dtype=torch.float64)
            J = jacobian(X)
            free = d - (torch.linalg.pinv(J) @ (J @ d.flatten(1)[..., None])).reshape(d.shape)
            free = free / free.flatten(1).norm(dim=1).clamp(min=1e-12)[:, None, None, None]
            new = collide((X + size[:, None, None, None] * free).clamp(low, high))
            value = gap(new)
            better = value > best
            X[better], best = new[better], torch.where(better, value, best)
            size = torch.where(better, (size * 1.5).clamp(max=0.5), size * 0.7).clamp(min=1e-4)
        k = int(best.argmax())
    return max(float(best[k]), 0.0), X[k].numpy()
