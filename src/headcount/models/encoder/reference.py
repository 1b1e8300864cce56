"""The encoder of the real experiments for one model, written to be read: the twin of `encoder_stacked.py`.

    e(t)   = W x(t) + b                                        a class token c may come before them
    s      = [c; e(1); …; e(T)] + positions
    s     += W_O [o_1; …; o_h],  o_i = Σ_t softmax_t(q_iᵀ k_i(t) / sqrt(n)) · v_i(t)  of  LN(s)
    s     += W_2 gelu(W_1 LN(s) + b_1) + b_2                   these two lines `depth` times
    y      = R LN(s) + r                                       of the class token, or of each token

Shapes as in `encoder_spec.shapes`: query, key, value[heads, head_dim, width], output[heads, width, head_dim].
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from headcount.core import BadInput
from headcount.models.encoder.spec import EncoderSpec

Drop = Callable[[Tensor], Tensor]


def encode(
    spec: EncoderSpec,
    w: Mapping[str, Tensor],
    X: Float[Tensor, "batch tokens_in inputs"],
    mask: Bool[Tensor, "batch tokens_in"] | None = None,
    drop: Drop = lambda added: added,
) -> Float[Tensor, "batch n"]:
    """Return logits[batch, outputs] (readout "class") or scores[batch, tokens] ("each").

    `mask` is False on padding, which nobody attends to; its own scores mean nothing. `drop` is applied to what each
    block adds to the stream.
    """
    check(spec, X, mask)
    s = X @ w["embed.weight"].T + w["embed.bias"]
    if spec.readout == "class":
        s = torch.cat([w["class_token"].expand(len(s), 1, -1), s], dim=1)
        mask = None if mask is None else nn.functional.pad(mask, (1, 0), value=True)
    if spec.positions:
        s = s + w["position"]
    for layer in range(spec.depth):
        at = f"layers.{layer}"
        s = s + drop(_attention(spec, w, f"{at}.attention", _norm(w, f"{at}.norm_attention", s), mask))
        s = s + drop(_feedforward(w, f"{at}.feedforward", _norm(w, f"{at}.norm_feedforward", s)))
    y = _norm(w, "norm", s) @ w["readout.weight"].T + w["readout.bias"]
    return y[:, 0] if spec.readout == "class" else y[:, :, 0]


def _norm(w: Mapping[str, Tensor], name: str, s: Float[Tensor, "b t e"]) -> Float[Tensor, "b t e"]:
    """LN: mean 0 and deviation 1 over the row, then a gain and a shift."""
    return nn.functional.layer_norm(s, s.shape[-1:], w[f"{name}.weight"], w[f"{name}.bias"])


def _attention(
    spec: EncoderSpec, w: Mapping[str, Tensor], name: str, u: Float[Tensor, "b t e"], mask: Bool[Tensor, "b t"] | None
) -> Float[Tensor, "b t e"]:
    """W_O [o_1; …; o_h], every row a query."""
    q, k, v = (torch.einsum("hne,bte->bhtn", w[f"{name}.{kind}"], u) for kind in ("query", "key", "value"))
    r = torch.einsum("bhqn,bhtn->bhqt", q, k) / math.sqrt(spec.head_dim)
    if mask is not None:
        r = r.masked_fill(~mask[:, None, None, :], -torch.inf)
    o = torch.einsum("bhqt,bhtn->bhqn", torch.softmax(r, dim=-1), v)
    return torch.einsum("hen,bhqn->bqe", w[f"{name}.output"], o)


def _feedforward(w: Mapping[str, Tensor], name: str, u: Float[Tensor, "b t e"]) -> Float[Tensor, "b t e"]:
    """W_2 gelu(W_1 u + b_1) + b_2."""
    hidden = nn.functional.gelu(u @ w[f"{name}.inner.weight"].T + w[f"{name}.inner.bias"])
    return hidden @ w[f"{name}.outer.weight"].T + w[f"{name}.outer.bias"]


def check(spec: EncoderSpec, X: Tensor, mask: Tensor | None) -> None:
    """Refuse inputs of another shape, and on a CPU sequences of padding alone: on a GPU a look would stop the queue."""
    room = (spec.tokens_in, spec.inputs)
    if X.ndim not in (3, 4) or X.shape[-2:] != room:
        raise BadInput(f"the encoder takes X[…, {room[0]}, {room[1]}], not {list(X.shape)}")
    if mask is None:
        return
    if mask.dtype != torch.bool or mask.shape != X.shape[:-1]:
        raise BadInput(f"the mask must be bool{list(X.shape[:-1])}, not {mask.dtype}{list(mask.shape)}")
    if spec.readout == "each" and mask.device.type == "cpu" and not bool(mask.any(-1).all()):
        raise BadInput("every sequence needs at least one token that is no padding")
