"""The hot operations as other rooms call them; each runs the implementation that `dispatch.py` chooses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jaxtyping import Bool, Float, Int64
from torch import Tensor

from headcount.kernels.dispatch import ADAM_AT, ADD_NORM, ATTEND, POOL_TOKENS, STEP_ON_CORE, WHOLE_STEP


def pool_tokens(
    x: Float[Tensor, "samples length dim"],
    index: Int64[Tensor, "models batch"],
    W1: Float[Tensor, "models dim hidden"],
    hidden_bias: Float[Tensor, "models rows hidden"],
    score: Float[Tensor, "models heads hidden"],
    score_bias: Float[Tensor, "models heads length"] | None = None,
    mask: Bool[Tensor, "samples length"] | None = None,
) -> Float[Tensor, "models batch heads hidden"]:
    """Return the pooled hidden state of every model, sequence and head.

    hidden_bias has one row for all positions, or one row per position; mask is True at the real tokens.
    """
    return POOL_TOKENS.choose(x, score).load()(x, index, W1, hidden_bias, score, score_bias, mask)


def whole_step(theta: Float[Tensor, "models size"], sizes: tuple[int, ...]) -> Callable[..., Any] | None:
    """Return a function for loss and gradient of a whole step (arguments as in `step/plain.py`); None for autograd.

    sizes: dim, length, hidden, width, heads, head_dim, hidden_ff, out_dim, as from `models/transformer/flat.py`.
    """
    return WHOLE_STEP.choose(theta, sizes).load()


def step_on_core(beyond: str | None = None) -> Callable[..., Any] | None:
    """Return the compiled steps of one model on one core (`run` of `step/numba.py`); None for autograd.

    beyond: the feature of the model that the kernels do not cover, or None. Before a call, `load_kernels` must have
    loaded the kernels for the precision.
    """
    return STEP_ON_CORE.choose(beyond).load()


def load_kernels(dtype: str) -> None:
    """Load the CPU kernels for a precision: takes half a second from disk, half a minute the first time."""
    from headcount.kernels.step import numba_cache

    numba_cache.load_kernels(dtype)


def attend(
    packed: Float[Tensor, "sequences tokens 3 heads n"], seen: Bool[Tensor, "sequences tokens"] | None = None
) -> Float[Tensor, "sequences tokens heads n"]:
    """Return every head's output from packed queries, keys and values; keys where `seen` is False are ignored."""
    return ATTEND.choose(packed).load()(packed, seen)


def add_norm(
    s: Float[Tensor, "*rows e"],
    added: Float[Tensor, "*rows e"] | None = None,
    keep: Float[Tensor, "*rows e"] | None = None,
    dropout: float = 0.0,
) -> tuple[Float[Tensor, "*rows e"], Float[Tensor, "*rows e"]]:
    """Return s' = s + keep · added / (1 − dropout), and s' normalised; `keep` is 1 where a number is kept."""
    return ADD_NORM.choose(s).load()(s, added, keep, dropout)


def adam_at(
    theta: Float[Tensor, "models size"],
    grad: Float[Tensor, "models size"],
    first: Float[Tensor, "models size"],
    second: Float[Tensor, "models size"],
    rates: Float[Tensor, "steps 4 models"],
    alive: Bool[Tensor, " models"],
    cursor: Int64[Tensor, " 1"],
    loss: Float[Tensor, " models"],
    losses: Float[Tensor, "steps models"],
) -> None:
    """Take the step at the cursor of a block: record losses, freeze models with a non-finite loss, update the rest."""
    ADAM_AT.choose(theta).load()(theta, grad, first, second, rates, alive, cursor, loss, losses)
