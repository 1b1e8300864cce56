"""The encoder of the real experiments for one model, written to be read: the twin of `stacked.py`.

    e(t)   = W x(t) + b                                        with a class token c: before e(1)
    s      = [c; e(1); …; e(T)] + positions
    s     += W_O [o_1; …; o_h],  o_i = Σ_t softmax_t(q_iᵀ k_i(t) / sqrt(n)) · v_i(t)  of  LN(s)
    s     += W_2 gelu(W_1 LN(s) + b_1) + b_2                   these two lines are repeated `depth` times
    y      = R LN(s) + r                                       of the class token, or of each token

Shapes as in `spec.tensor_shapes`: query, key, value[heads, head_dim, width], output[heads, width, head_dim].
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

    `mask` is False on padding, which no token attends to; the scores of padding are meaningless. `drop` is applied to
    each block's addition to the residual stream.
    """
    check_inputs(spec, X, mask)
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
    """Return the layer norm: each row scaled to mean 0 and deviation 1, then a gain and a shift."""
    return nn.functional.layer_norm(s, s.shape[-1:], w[f"{name}.weight"], w[f"{name}.bias"])


def _attention(
    spec: EncoderSpec, w: Mapping[str, Tensor], name: str, u: Float[Tensor, "b t e"], mask: Bool[Tensor, "b t"] | None
) -> Float[Tensor, "b t e"]:
    """Return W_O [o_1; …; o_h] with every row as a query."""
    q, k, v = (torch.einsum("hne,bte->bhtn", w[f"{name}.{kind}"], u) for kind in ("query", "key", "value"))
    r = torch.einsum("bhqn,bhtn->bhqt", q, k) / math.sqrt(spec.head_dim)
    if mask is not None:
        r = r.masked_fill(~mask[:, None, None, :], -torch.inf)
    o = torch.einsum("bhqt,bhtn->bhqn", torch.softmax(r, dim=-1), v)
    return torch.einsum("hen,bhqn->bqe", w[f"{name}.output"], o)


def _feedforward(w: Mapping[str, Tensor], name: str, u: Float[Tensor, "b t e"]) -> Float[Tensor, "b t e"]:
    """Return W_2 gelu(W_1 u + b_1) + b_2."""
    hidden = nn.functional.gelu(u @ w[f"{name}.inner.weight"].T + w[f"{name}.inner.bias"])
    return hidden @ w[f"{name}.outer.weight"].T + w[f"{name}.outer.bias"]


def check_inputs(spec: EncoderSpec, X: Tensor, mask: Tensor | None) -> None:
    """Raise BadInput if shapes are wrong or, on a CPU only, if a sequence is all padding (a GPU would have to wait)."""
    expected = (spec.tokens_in, spec.inputs)
    if X.ndim not in (3, 4) or X.shape[-2:] != expected:
        raise BadInput(f"the encoder takes X[…, {expected[0]}, {expected[1]}], not {list(X.shape)}")
    if mask is None:
        return
    if mask.dtype != torch.bool or mask.shape != X.shape[:-1]:
        raise BadInput(f"the mask must be bool{list(X.shape[:-1])}, not {mask.dtype}{list(mask.shape)}")
    if spec.readout == "each" and mask.device.type == "cpu" and not bool(mask.any(-1).all()):
        raise BadInput("every sequence needs at least one token that is not padding")
