"""Layers, inputs and masks for the tests of attention, and what it means that two layers are the same."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from headcount import Attention

BATCH, QUERIES, KEYS, HEADS, EMBED = 3, 4, 5, 3, 6
CLOSE = {"rtol": 0, "atol": 1e-12}
MASKS = {
    "none": (None, None),
    "padding": ("bool", None),
    "padding floats": ("float", None),
    "attention": (None, "bool"),
    "attention floats": (None, "float"),
    "both": ("bool", "bool"),
    "both floats": ("float", "float"),
    "each head": (None, "bool3"),
    "each head floats": ("float", "float3"),
}


def pair(seed: int = 0, **options) -> tuple[nn.MultiheadAttention, Attention]:
    """Torch's layer with every weight drawn, also those that begin at zero, and ours with the same weights."""
    torch.manual_seed(seed)
    theirs = nn.MultiheadAttention(EMBED, HEADS, **{"batch_first": True, **options}, dtype=torch.float64)
    with torch.no_grad():
        for p in theirs.parameters():
            p.copy_(torch.randn_like(p))
    return theirs, Attention.from_torch(theirs)


def inputs(*, batch_first: bool = True, batched: bool = True, kdim: int = EMBED, vdim: int = EMBED) -> list[Tensor]:
    torch.manual_seed(1)
    found = [torch.randn(BATCH, n, d, dtype=torch.float64) for n, d in ((QUERIES, EMBED), (KEYS, kdim), (KEYS, vdim))]
    if not batched:
        return [x[0] for x in found]
    return found if batch_first else [x.transpose(0, 1).contiguous() for x in found]


def masks(kind: str, *, batched: bool = True) -> dict[str, Tensor | None]:
    """A padding mask and an attention mask that leave every query the first key."""
    torch.manual_seed(2)
    batch = BATCH if batched else 1
    made: list[Tensor | None] = []
    for what, shape in zip(MASKS[kind], ((batch, KEYS), (QUERIES, KEYS)), strict=True):
        if what is None:
            made.append(None)
            continue
        full = (batch * HEADS, *shape) if what.endswith("3") else shape
        hidden = torch.rand(full) < 0.5
        hidden[..., 0] = False
        if what.startswith("float"):
            made.append(torch.randn(full, dtype=torch.float64).masked_fill(hidden, -torch.inf))
        else:
            made.append(hidden)
    padding, attention = made
    if padding is not None and not batched:
        padding = padding[0]
    return {"key_padding_mask": padding, "attn_mask": attention}


def results(layer: nn.Module, given: list[Tensor], **options) -> list[Tensor]:
    """The output, the weights where asked for, and the gradients of a fixed function of both by the inputs."""
    given = [x.clone().requires_grad_() for x in given]
    out, weights = layer(*given, **options)
    assert (weights is not None) == options.get("need_weights", True)
    loss = sum(
        (x**2 * torch.linspace(0.1, 1, x.numel(), dtype=x.dtype).view_as(x)).mean()
        for x in (out, weights)
        if x is not None
    )
    layer.zero_grad()
    loss.backward()
    return [out, *([] if weights is None else [weights]), *(x.grad for x in given)]


def same(theirs: nn.MultiheadAttention, ours: Attention, given: list[Tensor], **options) -> None:
    """Outputs, weights and all gradients agree; those of the weights are compared in torch's form."""
    for mine, other in zip(results(ours, given, **options), results(theirs, given, **options), strict=True):
        torch.testing.assert_close(mine, other, **CLOSE)
    slopes = copy.deepcopy(ours)
    with torch.no_grad():
        for slope, p in zip(slopes.parameters(), ours.parameters(), strict=True):
            slope.copy_(torch.zeros_like(p) if p.grad is None else p.grad)
    assert all(slope.abs().max() > 1e-6 for name, slope in slopes.named_parameters() if name != "k_bias")
    for (name, mine), p in zip(slopes.to_torch().named_parameters(), theirs.parameters(), strict=True):
        other = torch.zeros_like(p) if p.grad is None else p.grad
        torch.testing.assert_close(mine.data, other, **CLOSE, msg=lambda text, name=name: f"gradient of {name}: {text}")


def causal(queries: int, keys: int) -> Tensor:
    return torch.ones(queries, keys, dtype=torch.bool).triu(1)
