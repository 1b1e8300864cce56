"""The hot operation with a leading model axis: tokens → pooled hidden state per head, and who computes it.

    u(t)   = relu(x(t) W1 + hidden_bias(t))                  hidden layer of the encoder
    a_i(t) = softmax over t of score_i·u(t) + score_bias_i(t)
    p_i    = Σ_t a_i(t)·u(t)                                 pooled

The sequences are held once, X[samples, length, dim], and every model reads its own rows of it by index[models, batch].
"""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

_LOG = logging.getLogger(__name__)
_CHOSEN = "the caller wants none"
_plain = ContextVar("plain", default=False)


@contextmanager
def without_kernels() -> Generator[None]:
    """Compute in plain PyTorch inside: to compile kernels, for every shape anew, takes longer than a short run."""
    token = _plain.set(True)
    try:
        yield
    finally:
        _plain.reset(token)


def kernels_wanted() -> bool:
    """Whether kernels that would be compiled may be used here."""
    return not _plain.get()


def pool(
    x: Float[Tensor, "samples length dim"],
    index: Int64[Tensor, "models batch"],
    W1: Float[Tensor, "models dim hidden"],
    hidden_bias: Float[Tensor, "models rows hidden"],
    score: Float[Tensor, "models heads hidden"],
    score_bias: Float[Tensor, "models heads length"] | None = None,
    mask: Bool[Tensor, "samples length"] | None = None,
) -> Float[Tensor, "models batch heads hidden"]:
    """Return the pooled hidden state of every model, sequence and head, by the fastest way that applies.

    hidden_bias has one row for all positions, or one for each; mask is True on the real tokens.
    """
    reason = _why_plain(x, score)
    if reason is None:
        from headcount.kernels.pool.triton import pool_triton

        return pool_triton(x, index, W1, hidden_bias, score, score_bias, mask)
    _say("pooling runs in plain PyTorch", reason)
    return pool_plain(x, index, W1, hidden_bias, score, score_bias, mask)


def pool_plain(
    x: Float[Tensor, "samples length dim"],
    index: Int64[Tensor, "models batch"],
    W1: Float[Tensor, "models dim hidden"],
    hidden_bias: Float[Tensor, "models rows hidden"],
    score: Float[Tensor, "models heads hidden"],
    score_bias: Float[Tensor, "models heads length"] | None = None,
    mask: Bool[Tensor, "samples length"] | None = None,
) -> Float[Tensor, "models batch heads hidden"]:
    """The readable twin: any device, any dtype, gradients by autograd, everything written to memory."""
    u = torch.relu(torch.einsum("mbtd,mdk->mbtk", x[index], W1) + hidden_bias[:, None])
    r = torch.einsum("mhk,mbtk->mbht", score, u)
    if score_bias is not None:
        r = r + score_bias[:, None]
    if mask is not None:
        r = r.masked_fill(~mask[index][:, :, None, :], -torch.inf)
    return torch.einsum("mbht,mbtk->mbhk", torch.softmax(r, dim=-1), u)


def whole_step(theta: Float[Tensor, "models size"], sizes: tuple[int, ...]) -> Callable[..., Any] | None:
    """Return the kernels for a whole step (`step_triton.loss_and_gradient`); None, and one line why, without them.

    Where none are wanted it is the same step in plain PyTorch, `step_plain.loss_and_gradient`. `sizes` is what
    `models/transformer/flat.py` gives: dim, length, hidden, width, heads, head_dim, hidden_ff, out_dim.
    """
    if not kernels_wanted():
        from headcount.kernels.step import plain as step_plain

        return step_plain.loss_and_gradient
    reason = _why_no_kernel(theta)
    if reason is None:
        from headcount.kernels.step import triton as step_triton

        reason = step_triton.why_not(sizes)
        if reason is None:
            return step_triton.loss_and_gradient
    _say("the step goes through autograd", reason)
    return None


def _why_plain(x: Tensor, score: Tensor) -> str | None:
    """Say why the pooling kernel does not apply; None where it does."""
    reason = _why_no_kernel(x)
    if reason is None:
        from headcount.kernels.pool.triton import why_not

        return why_not(x.shape[2], score.shape[2], score.shape[1])
    return reason


def _why_no_kernel(x: Tensor) -> str | None:
    """Say why no kernel can take such tensors."""
    if _plain.get():
        return _CHOSEN
    if x.device.type != "cuda":
        return f"the tensors are on the {x.device.type}"
    if x.dtype != torch.float32:
        return f"the kernel computes in float32, not {str(x.dtype).removeprefix('torch.')}"
    return None if has_triton() else "triton is not installed"


@cache
def has_triton() -> bool:
    """Whether Triton can be imported."""
    return importlib.util.find_spec("triton") is not None


def _say(what: str, reason: str) -> None:
    """Tell why kernels do not apply, where somebody may have expected them."""
    if reason != _CHOSEN:
        _say_once(what, reason)


@cache
def _say_once(what: str, reason: str) -> None:
    _LOG.info("%s: %s", what, reason)
