"""Measures of scores: the training loss, and the rank of the right answer, from which accuracy and MRR follow."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn


def mask_padding_scores(
    scores: Float[Tensor, "*m b n"], mask: Bool[Tensor, "... t"] | None, read: Int64[Tensor, " n"] | None
) -> Float[Tensor, "*m b n"]:
    """Set the scores of padding to −∞. `read` gives the position of each score (None: every position has one)."""
    if mask is None:
        return scores
    return scores.masked_fill(~(mask if read is None else mask.index_select(-1, read)), -torch.inf)


def cross_entropy(
    scores: Float[Tensor, "m b n"], y: Int64[Tensor, "m b"], smoothing: float = 0.0
) -> Float[Tensor, " m"]:
    """Return every model's mean loss over its batch."""
    loss = nn.functional.cross_entropy(scores.flatten(0, 1), y.flatten(), reduction="none", label_smoothing=smoothing)
    return loss.reshape(y.shape).mean(1)


def ranks(scores: Float[Tensor, "m b n"], y: Int64[Tensor, "m b"]) -> Int64[Tensor, "m b"]:
    """Return the rank of the right answer, 1 for the highest score; ties go to the earlier position.

    An answer that does not lose to the right one ranks before it, so if the right answer's score is NaN, it ranks last
    instead of first.
    """
    right = scores.gather(2, y[..., None])
    later = torch.arange(scores.shape[2], device=scores.device) >= y[..., None]  # including the right answer itself
    loses = (scores < right) | ((scores == right) & later)
    return 1 + (~loses).sum(2)
