"""The reference transformer: equation 4, written to be read beside it. Slow and plain; the twin of all fast versions.

    e(t)   = P(x(t), t)                                        embedding, a two-layer ReLU network
    r_i(t) = (W_Q,i c)ᵀ W_K,i e(t)                             score of head i
    o_i    = Σ_t softmax_t(β·r_i)(t) · W_V,i e(t)              output of head i
    y      = F( c + W_O [o_1; …; o_h] )

Heads are a separate axis of every weight. Shapes: query, key, value[heads, head_dim, width] and
output[heads, width, head_dim], so that W_O [o_1; …; o_h] = Σ_i W_O,i o_i.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from headcount.core import BadInput, generator
from headcount.models.transformer.spec import ModelSpec


def _weight(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.empty(*shape))


class Affine(nn.Module):
    """u → W u + b."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = _weight(outputs, inputs)
        self.bias = _weight(outputs)

    def forward(self, u: Float[Tensor, "*batch inputs"]) -> Float[Tensor, "*batch outputs"]:
        return u @ self.weight.T + self.bias


class FeedForward(nn.Module):
    """F: two layers with GELU or ReLU, or five with ReLU; the last layer is affine."""

    def __init__(self, kind: str, width: int, hidden: int, out_dim: int) -> None:
        super().__init__()
        self.activation = nn.functional.gelu if kind == "gelu2" else torch.relu
        sizes = [width] + [hidden] * (4 if kind == "relu5" else 1) + [out_dim]
        self.layers = nn.ModuleList(Affine(a, b) for a, b in pairwise(sizes))

    def forward(self, u: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch out"]:
        *inner, last = self.layers
        for layer in inner:
            u = self.activation(layer(u))
        return last(u)


class Encoder(nn.Module):
    """P: e(t) = W2 relu(W1 x(t) + b1) + b2, which also gets the position if the spec says so."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.inner = Affine(spec.dim, spec.hidden)
        self.outer = Affine(spec.hidden, spec.E)
        # W1 [x; one-hot(t)] is W1 x plus the t-th extra column of W1: a hidden bias per position
        self.hidden_bias = _weight(spec.length, spec.hidden) if spec.positions == "concatenated" else None
        self.position = _weight(spec.length, spec.E) if spec.positions == "additive" else None

    def forward(self, X: Float[Tensor, "batch length dim"]) -> Float[Tensor, "batch length width"]:
        pre = self.inner(X)
        if self.hidden_bias is not None:
            pre = pre + self.hidden_bias
        e = self.outer(torch.relu(pre))
        return e if self.position is None else e + self.position


class Attention(nn.Module):
    """W_O [o_1; …; o_h] for given queries: the class token alone, or all rows of the stream."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        h, n, E = spec.heads, spec.head_dim, spec.E
        self.query, self.key, self.value = _weight(h, n, E), _weight(h, n, E), _weight(h, n, E)
        self.output = _weight(h, E, n)
        self.gates = _weight(h, spec.length) if spec.positions == "gates" else None
        self.log_beta = _weight(h) if spec.beta == "learned" else None
        self.fixed_beta = spec.beta if isinstance(spec.beta, float) else 1.0 / math.sqrt(n)

    def beta(self) -> Float[Tensor, "heads 1 1"] | float:
        """Return the inverse temperature: one number, or one per head if it is learned."""
        return self.fixed_beta if self.log_beta is None else self.log_beta.exp()[:, None, None]

    def forward(
        self,
        queries: Float[Tensor, "batch queries width"],
        keys: Float[Tensor, "batch positions width"],
        mask: Bool[Tensor, "batch positions"] | None = None,
    ) -> Float[Tensor, "batch queries width"]:
        q = torch.einsum("hne,bqe->bhqn", self.query, queries)
        k = torch.einsum("hne,bte->bhtn", self.key, keys)
        v = torch.einsum("hne,bte->bhtn", self.value, keys)
        r = torch.einsum("bhqn,bhtn->bhqt", q, k)
        if self.gates is not None:  # if the class token is a key, it comes first and has no gate
            r = r + nn.functional.pad(self.gates, (keys.shape[1] - self.gates.shape[1], 0))[:, None, :]
        r = self.beta() * r
        if mask is not None:
            r = r.masked_fill(~mask[:, None, None, :], -torch.inf)
        o = torch.einsum("bhqt,bhtn->bhqn", torch.softmax(r, dim=-1), v)
        return torch.einsum("hen,bhqn->bqe", self.output, o)


class Layer(nn.Module):
    """Attention and the feed-forward block that follows it, with layer norms if the spec has them."""

    def __init__(self, spec: ModelSpec, out_dim: int) -> None:
        super().__init__()
        self.attention = Attention(spec)
        self.feedforward = FeedForward(spec.feedforward, spec.E, spec.N_ff, out_dim)
        self.norm_attention = nn.LayerNorm(spec.E) if spec.layer_norm else nn.Identity()
        self.norm_feedforward = nn.LayerNorm(spec.E) if spec.layer_norm else nn.Identity()


class Transformer(nn.Module):
    """The model class H(h, n, d, T, M), of any depth.

    The stream is [c; e(1); …; e(T)]. In every layer but the last all rows attend, and then the feed-forward block is
    applied to all of them; in the last layer only the class token attends, and F gives the output. The class token
    keeps the residual "c +" of equation 4 in every attention; the tokens have one only with the option `residual`,
    which also adds residuals around the inner feed-forward blocks. Layer norms act on the inputs of attention and
    feed-forward blocks. With depth 1 and no options this is exactly equation 4.

    spec: the sizes and options. seed: draws the weights, the same on every device. dtype: that of the weights.
    """

    def __init__(self, spec: ModelSpec, *, seed: int = 0, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.spec = spec
        self.encoder = Encoder(spec)
        self.class_token = _weight(spec.E)
        inner = [Layer(spec, spec.E) for _ in range(spec.depth - 1)]
        self.layers = nn.ModuleList([*inner, Layer(spec, spec.out_dim)])
        self.to(dtype)
        self.initialise(seed)

    @torch.no_grad()
    def initialise(self, seed: int) -> None:
        """Draw all weights by seed: uniform within ±1/sqrt(fan-in), as torch's linear layers do.

        The class token is standard normal, since with a small one all scores would learn slowly at first; gates and
        position tables start at 0, learned betas at 1/sqrt(n).
        """
        rng = generator(seed, "weights")
        for name, parameter in self.named_parameters():
            kind = name.rsplit(".", 1)[-1]
            if "norm_" in name:
                parameter.fill_(1.0 if kind == "weight" else 0.0)
            elif kind in ("gates", "position", "hidden_bias"):
                parameter.zero_()
            elif kind == "log_beta":
                parameter.fill_(-0.5 * math.log(self.spec.head_dim))
            elif kind == "class_token":
                parameter.copy_(torch.from_numpy(rng.standard_normal(tuple(parameter.shape))))
            else:
                if kind == "bias":
                    fan_in = self.get_parameter(name.removesuffix("bias") + "weight").shape[-1]
                elif kind == "output":
                    fan_in = self.spec.heads * self.spec.head_dim
                else:
                    fan_in = parameter.shape[-1]
                draw = rng.uniform(-1.0, 1.0, tuple(parameter.shape)) / math.sqrt(fan_in)
                parameter.copy_(torch.from_numpy(draw))

    def forward(
        self, X: Float[Tensor, "batch length dim"], mask: Bool[Tensor, "batch length"] | None = None
    ) -> Float[Tensor, "batch out_dim"]:
        """Return y[batch, out_dim] for X[batch, length, dim].

        mask: True at the real tokens, for sequences that are shorter than `length`.
        """
        spec = self.spec
        self._check(X, mask)
        batch, skip = X.shape[0], 0 if spec.class_key else 1  # skip: rows of the stream that are not keys
        stream = torch.cat([self.class_token.expand(batch, 1, -1), self.encoder(X)], dim=1)
        if mask is not None and spec.class_key:
            mask = nn.functional.pad(mask, (1, 0), value=True)
        keep = 1.0 if spec.residual else 0.0
        *inner, last = cast("list[Layer]", list(self.layers))
        for layer in inner:
            normed = layer.norm_attention(stream)
            attended = layer.attention(normed, normed[:, skip:], mask)
            stream = torch.cat([stream[:, :1], keep * stream[:, 1:]], dim=1) + attended
            stream = keep * stream + layer.feedforward(layer.norm_feedforward(stream))
        normed = last.norm_attention(stream)
        u = stream[:, :1] + last.attention(normed[:, :1], normed[:, skip:], mask)
        return last.feedforward(last.norm_feedforward(u))[:, 0]

    def _check(self, X: Tensor, mask: Tensor | None) -> None:
        """Raise BadInput if inputs have a wrong shape; without positions any length is allowed."""
        fits = X.ndim == 3 and X.shape[2] == self.spec.dim and X.shape[1] >= 1
        if not fits or (self.spec.positions != "none" and X.shape[1] != self.spec.length):
            length = self.spec.length if self.spec.positions != "none" else "any length"
            raise BadInput(f"the model takes X[batch, {length}, {self.spec.dim}], not {tuple(X.shape)}")
        if mask is not None and (mask.shape != X.shape[:2] or not bool(mask.any(1).all())):
            raise BadInput("the mask must be bool[batch, length] with at least one token in every sequence")

    def counts(self) -> dict[str, int]:
        """Return parameter counts: `paper` is M, those of P and F; `total` is all of them.

        P includes the position, so position tables and gates count towards it.
        """
        return count_parameters({name: parameter.numel() for name, parameter in self.named_parameters()})

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the weights by the names of docs/format.md."""
        yield from self.state_dict().items()


def count_parameters(sizes: Mapping[str, int]) -> dict[str, int]:
    """Return the counts of `Transformer.counts` from the size of every tensor."""
    paper = sum(size for name, size in sizes.items() if _in_paper_count(name))
    return {"paper": paper, "total": sum(sizes.values())}


def _in_paper_count(name: str) -> bool:
    return name.startswith("encoder.") or ".feedforward." in name or name.endswith(".gates")
