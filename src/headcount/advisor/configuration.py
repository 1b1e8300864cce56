"""From advice to code: sizes for torch's attention, whose heads must divide the width, and for ours, whose need not.

nn.MultiheadAttention(E, h) has 4·E² + 4·E parameters for any h, and h must divide E. hc.Attention(E, h, head_dim=n) has
4·h·n·E + 3·h·n + E, and E, h and n are independent.
"""

from __future__ import annotations

from typing import Any

from headcount.advisor.record import AdviceRecord
from headcount.advisor.words.configuration import Answer, answers, torch_note
from headcount.core import BadInput, Spec
from headcount.render.words import heads_text

MAX_WIDTH = 1_000_000
MIN_HEAD_DIM = 2
"""Smallest recommended head size: a head of size 1 passes on a single number."""


class LayerSizes(Spec):
    """The sizes of one attention layer, with its exact parameter count."""

    embed_dim: int
    num_heads: int
    head_dim: int
    parameters: int


class Configuration(Spec):
    """Sizes for both layers, answers to common questions about them, and Python source that builds them."""

    recommended_heads: int
    head_dim: int
    """The size of a head in the models that were measured."""
    embed_dim: int | None
    """The width that the user requires; None if any will do."""
    torch: LayerSizes
    """For nn.MultiheadAttention and nn.TransformerEncoderLayer."""
    free: LayerSizes
    """For hc.Attention, with exactly the recommended heads of the measured size."""
    note: str
    """How torch's head count differs from the recommended one, and why."""
    answers: list[Answer]
    code: str


def configuration(record: AdviceRecord, embed_dim: int | None = None) -> Configuration:
    """Return the configuration for an advice, at a given width or at the one that was measured."""
    heads = record.named
    if heads is None:
        raise BadInput(f"the advice names no number of heads, so there is nothing to configure: {record.sentence}")
    head_dim = int(record.model["head_dim"])
    theirs = torch_sizes(heads, head_dim, embed_dim)
    ours = free_sizes(theirs.embed_dim, heads, head_dim)
    note = torch_note(heads, head_dim, theirs.embed_dim, theirs.num_heads, embed_dim is not None)
    return Configuration(
        recommended_heads=heads,
        head_dim=head_dim,
        embed_dim=embed_dim,
        torch=theirs,
        free=ours,
        note=note,
        answers=answers(record, heads, (theirs.num_heads, theirs.head_dim, theirs.parameters), ours.data()),
        code=_code(theirs, ours),
    )


def torch_sizes(heads: int, head_dim: int, embed_dim: int | None = None) -> LayerSizes:
    """Return sizes for torch's layer: the fewest heads that are enough and divide the width (default: heads × size)."""
    width = _check_size("heads", heads) * _check_size("head_dim", head_dim)
    if embed_dim is not None:
        width, low = _check_size("embed_dim", embed_dim), heads
        heads = next((h for h in range(heads, width // MIN_HEAD_DIM + 1) if width % h == 0), 0)
        if not heads and low == 1:
            heads = 1  # the width is 1: one head of size 1
        if not heads:
            wider = low * max(MIN_HEAD_DIM, -(-width // low))
            raise BadInput(
                f"embed_dim {width} is not divided by {heads_text(low)} or any larger number that leaves heads of size "
                f"{MIN_HEAD_DIM} or more: take embed_dim {wider}, or hc.Attention({width}, {low}, head_dim={head_dim})"
            )
    return LayerSizes(
        embed_dim=width, num_heads=heads, head_dim=width // heads, parameters=4 * width * width + 4 * width
    )


def free_sizes(embed_dim: int, heads: int, head_dim: int) -> LayerSizes:
    """Return the sizes of our layer, whose heads need not divide the width."""
    E, h, n = _check_size("embed_dim", embed_dim), _check_size("heads", heads), _check_size("head_dim", head_dim)
    return LayerSizes(embed_dim=E, num_heads=h, head_dim=n, parameters=4 * h * n * E + 3 * h * n + E)


def check_width(embed_dim: int | None, name: str = "embed_dim") -> None:
    """Raise BadInput for an invalid width, before the work."""
    if embed_dim is not None:
        _check_size(name, embed_dim)


def _check_size(name: str, value: Any) -> int:
    """Return a size; raise BadInput unless it is a whole number within the limits."""
    if type(value) is not int or not 1 <= value <= MAX_WIDTH:
        raise BadInput(f"{name} must be a whole number from 1 to {MAX_WIDTH}, not {value!r}")
    return value


def _code(theirs: LayerSizes, ours: LayerSizes) -> str:
    """Return Python source that builds both layers, and a full block around each."""
    h, n = ours.num_heads, ours.head_dim
    return f"""from torch import nn

import headcount as hc

embed_dim = {ours.embed_dim}
options = {{"dim_feedforward": 4 * embed_dim, "batch_first": True}}

# torch's own layer: {theirs.num_heads} × {theirs.head_dim} = {ours.embed_dim}
attention = nn.MultiheadAttention(embed_dim, num_heads={theirs.num_heads}, batch_first=True)
block = nn.TransformerEncoderLayer(embed_dim, nhead={theirs.num_heads}, **options)

# the same call with {heads_text(h)} of size {n}, whatever the width
free_attention = hc.Attention(embed_dim, num_heads={h}, head_dim={n}, batch_first=True)
free_block = nn.TransformerEncoderLayer(embed_dim, nhead=1, **options)
free_block.self_attn = free_attention
"""
