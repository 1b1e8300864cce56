"""The specification of a transformer, with every size independent of the others."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from headcount.core import Spec

Size = Annotated[int, Field(ge=1, le=1_000_000)]
Positions = Literal["none", "additive", "concatenated", "gates"]
FeedForwardKind = Literal["gelu2", "relu2", "relu5"]


class ModelSpec(Spec):
    """One transformer of the class H(h, n, d, T, M), with the options that the experiments vary.

    dim: numbers per token, d. length: tokens per sequence, T. out_dim: numbers per output. heads: number of heads, h.
    head_dim: numbers that a head returns, n. hidden: hidden units of the encoder, N. width: embedding width E (default
    n·h). hidden_ff: hidden units of F (default `hidden`). depth: number of layers. positions: none; additive (a learned
    vector per position is added to the embedding); concatenated (the one-hot position is appended to the token before
    the encoder); gates (a learned number per head and position is added to the score). beta: a fixed number, "learned"
    (one per head) or "scaled" (1/sqrt(n)). class_key: whether the class token is among its own keys. feedforward: two
    layers with GELU or ReLU, or five with ReLU. layer_norm: whether layer norms act on the inputs of attention and
    feed-forward blocks. residual: whether tokens have residual connections in the layers before the last.
    """

    dim: Size
    length: Size
    out_dim: Size = 1
    heads: Size
    head_dim: Size = 8
    hidden: Size = 32
    width: Size | None = None
    hidden_ff: Size | None = None
    depth: Annotated[int, Field(ge=1, le=1000)] = 1
    positions: Positions = "none"
    beta: Literal["scaled", "learned"] | Annotated[float, Field(gt=0)] = "scaled"
    class_key: bool = False
    feedforward: FeedForwardKind = "gelu2"
    layer_norm: bool = False
    residual: bool = False

    @model_validator(mode="before")
    @classmethod
    def _defaults(cls, value: Any) -> Any:
        """Fill in the sizes that default to others, so that equal models have equal specs and hashes."""
        if isinstance(value, dict):
            heads, head_dim = value.get("heads"), value.get("head_dim", cls.model_fields["head_dim"].default)
            if value.get("width") is None and isinstance(heads, int) and isinstance(head_dim, int):
                value = {**value, "width": heads * head_dim}
            if value.get("hidden_ff") is None:
                value = {**value, "hidden_ff": value.get("hidden", cls.model_fields["hidden"].default)}
        return value

    @property
    def E(self) -> int:
        """The width of the embedding."""
        assert self.width is not None
        return self.width

    @property
    def N_ff(self) -> int:
        """The hidden width of the feed-forward block."""
        assert self.hidden_ff is not None
        return self.hidden_ff
