"""A saved model as a plain function in float64: by the reference transformer, or folded for speed and gradients."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor

from headcount.models import SavedModel
from headcount.models.transformer import Attention, FeedForward

Predict = Callable[[Tensor], Tensor]


def reference(saved: SavedModel) -> Predict:
    """Return the saved model, in its task's units, evaluated by the reference transformer in float64."""
    twin = SavedModel(copy.deepcopy(saved.transformer).double(), None, None, saved.mean, saved.std)
    return lambda X: twin.predict(X.double())


def folded(saved: SavedModel) -> tuple[Predict, float]:
    """Return the same function for gradients and speed, and its cost in multiply-adds a sequence.

    With depth 1 the scores are fixed vectors dotted with the hidden layer, and values are projected after pooling:
    W_O,i W_V,i (W2 Σ_t w_i(t) u(t) + b2). Models with more layers, layer norms or the class token among the keys are
    evaluated by the reference model.
    """
    twin = copy.deepcopy(saved.transformer).double().requires_grad_(False)
    spec = twin.spec
    mean, std = torch.tensor(saved.mean, dtype=torch.float64), torch.tensor(saved.std, dtype=torch.float64)
    if spec.depth > 1 or spec.layer_norm or spec.class_key:
        tokens = (spec.length + 1) * (spec.E + spec.N_ff + spec.hidden) * spec.E * spec.depth
        return (lambda X: twin(X) * std + mean), 4.0 * tokens
    encoder, attention, F = twin.encoder, twin.layers[0].attention, twin.layers[0].feedforward
    assert isinstance(attention, Attention)
    assert isinstance(F, FeedForward)
    q = torch.einsum("hne,e->hn", attention.query, twin.class_token)
    beta = attention.fixed_beta if attention.log_beta is None else attention.log_beta.exp()[:, None]
    to_score = beta * torch.einsum("hn,hne->he", q, attention.key)  # [heads, width]
    to_width = torch.einsum("hwn,hne->hwe", attention.output, attention.value)  # [heads, width, width]
    score, value = to_score @ encoder.outer.weight, to_width @ encoder.outer.weight
    fixed = twin.class_token + to_width.sum(0) @ encoder.outer.bias
    shift = None if attention.gates is None else beta * attention.gates
    placed = None
    if encoder.position is not None:
        shift, placed = to_score @ encoder.position.T, torch.einsum("hwe,te->htw", to_width, encoder.position)

    def predict(X: Tensor) -> Tensor:
        pre = encoder.inner(X)
        hidden = torch.relu(pre if encoder.hidden_bias is None else pre + encoder.hidden_bias)  # [batch, length, N]
        r = torch.einsum("btn,hn->bht", hidden, score)
        a = torch.softmax(r if shift is None else r + shift, dim=-1)
        u = fixed + torch.einsum("bhn,hwn->bw", a @ hidden, value)
        if placed is not None:
            u = u + torch.einsum("bht,htw->bw", a, placed)
        return F(u) * std + mean

    per_token = spec.hidden * (spec.dim + 2 * spec.heads + 4)
    return predict, float(spec.length * per_token + spec.heads * spec.hidden * spec.E + 4 * spec.E * spec.N_ff)
