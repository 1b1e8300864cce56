"""What F sees of a sequence: the outputs of all heads as one vector, with its Jacobian, batched in float64.

In a model of one layer the class token is the only query. With the hidden units u(t) = relu(W1 x(t) + b(t)),

    o_i = Σ_t w_i(t)·v_i(t),   w_i = softmax of s_i(t) = score_i·u(t) + shift_i(t),   v_i(t) = A_i u(t) + place_i(t)
    ∂o_i/∂x(t) = w_i(t)·( (v_i(t) − o_i) ⊗ ∂s_i/∂x(t) + ∂v_i/∂x(t) ),   ∂u/∂x(t) = [u > 0]·W1

For deeper models it is the class token's state after the last attention, differentiated by torch.
"""

from __future__ import annotations

import copy
from typing import cast

import torch
from torch import Tensor

from headcount.models.transformer import Attention, Layer, ModelSpec, Transformer


class HeadMap:
    """The map X[batch, length, dim] → o[batch, heads·head_dim] of one layer without layer norm."""

    def __init__(self, model: Transformer, device: str = "cpu") -> None:
        twin = copy.deepcopy(model).double().requires_grad_(False).to(device)
        encoder, attention = twin.encoder, cast("Attention", twin.layers[0].attention)
        spec, c = twin.spec, twin.class_token
        q = torch.einsum("hne,e->hn", attention.query, c)
        beta = attention.fixed_beta if attention.log_beta is None else attention.log_beta.exp()[:, None]
        to_score = beta * torch.einsum("hn,hne->he", q, attention.key)
        self.W1, self.bias = encoder.inner.weight, encoder.inner.bias.expand(spec.length, -1)
        if encoder.hidden_bias is not None:
            self.bias = self.bias + encoder.hidden_bias
        self.score, self.value = to_score @ encoder.outer.weight, attention.value @ encoder.outer.weight
        table = encoder.outer.bias.expand(spec.length, -1)
        if encoder.position is not None:
            table = table + encoder.position
        self.shift = to_score @ table.T  # [heads, length]
        self.place = torch.einsum("hne,te->htn", attention.value, table)
        if attention.gates is not None:
            self.shift = self.shift + beta * attention.gates
        self.class_key = (to_score @ c, attention.value @ c) if spec.class_key else None
        self.size = spec.heads * spec.head_dim
        # ∂(v, s)/∂x sums (value or score) ⊗ W1 over the active units: one matrix product for all tokens
        rows = torch.cat([self.value, self.score[:, None]], dim=1)  # [heads, head_dim + 1, hidden]
        self.slopes = torch.einsum("hkn,nd->nhkd", rows, self.W1).flatten(1)

    def __call__(self, X: Tensor) -> Tensor:
        return self._parts(X)[0].flatten(1)

    def weights(self, X: Tensor) -> Tensor:
        """Return the attention weights [batch, heads, length]; a class token among the keys has the rest."""
        return self._parts(X)[1]

    def scores(self, x: Tensor) -> Tensor:
        """Return β·score [heads, count] of single tokens x[count, dim], ignoring their position."""
        return self.score @ torch.relu(x @ self.W1.T + self.bias.mean(0)).T

    def logits(self, X: Tensor) -> Tensor:
        """Return the logarithms of the attention weights before normalisation: [batch, heads, length]."""
        return torch.einsum("btn,hn->bht", torch.relu(X @ self.W1.T + self.bias), self.score) + self.shift

    def _parts(self, X: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        pre = X @ self.W1.T + self.bias
        u = torch.relu(pre)
        s = torch.einsum("btn,hn->bht", u, self.score) + self.shift
        v = torch.einsum("btn,hkn->bhtk", u, self.value) + self.place
        if self.class_key is None:
            w = torch.softmax(s, dim=-1)
            return torch.einsum("bht,bhtk->bhk", w, v), w, v, pre
        score, value = self.class_key
        w = torch.softmax(torch.cat([s, score.expand(len(X), -1)[..., None]], dim=-1), dim=-1)
        o = torch.einsum("bht,bhtk->bhk", w[..., :-1], v) + w[..., -1:] * value
        return o, w[..., :-1], v, pre

    def jacobian(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return o[batch, size] and ∂o/∂X[batch, size, length·dim]."""
        o, w, v, pre = self._parts(X)
        h, k, d = *self.value.shape[:2], X.shape[2]
        both = ((pre > 0).to(X.dtype) @ self.slopes).view(*X.shape[:2], h, k + 1, d).permute(0, 2, 3, 1, 4)
        ds, dv = both[:, :, -1:], both[:, :, :-1]  # [batch, heads, 1 or head_dim, length, dim]
        middle = (v - o[:, :, None]).transpose(2, 3)  # [batch, heads, head_dim, length]
        J = w[:, :, None, :, None] * (middle[..., None] * ds + dv)
        return o.flatten(1), J.flatten(1, 2).flatten(2)


class StateMap:
    """The class token's state after the last attention, for models of any kind, with the Jacobian from torch."""

    def __init__(self, model: Transformer, device: str = "cpu") -> None:
        self.model = copy.deepcopy(model).double().requires_grad_(False).to(device)
        self.size = model.spec.E

    def __call__(self, X: Tensor) -> Tensor:
        model, spec = self.model, self.model.spec
        skip, keep = 0 if spec.class_key else 1, 1.0 if spec.residual else 0.0
        stream = torch.cat([model.class_token.expand(len(X), 1, -1), model.encoder(X)], dim=1)
        *inner, last = cast("list[Layer]", list(model.layers))
        for layer in inner:
            normed = layer.norm_attention(stream)
            attended = layer.attention(normed, normed[:, skip:])
            stream = torch.cat([stream[:, :1], keep * stream[:, 1:]], dim=1) + attended
            stream = keep * stream + layer.feedforward(layer.norm_feedforward(stream))
        normed = last.norm_attention(stream)
        return (stream[:, :1] + last.attention(normed[:, :1], normed[:, skip:]))[:, 0]

    def jacobian(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return the state and its Jacobian with respect to X[batch, length·dim]."""
        J = torch.func.vmap(torch.func.jacrev(lambda x: self(x[None])[0]))(X)
        return self(X), J.flatten(2)


def state_map(model: Transformer, device: str = "cpu") -> HeadMap | StateMap:
    """Return the map to F's view of a sequence: F cannot tell apart two sequences with equal values."""
    return HeadMap(model, device) if has_heads_only(model.spec) else StateMap(model, device)


def has_heads_only(spec: ModelSpec) -> bool:
    """Whether F sees the heads' outputs: one layer, no layer norm, and an embedding at least as wide as the outputs."""
    return spec.depth == 1 and not spec.layer_norm and spec.heads * spec.head_dim <= spec.E
