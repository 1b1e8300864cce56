"""What is measured of scores: the loss that trains, and the rank of the right answer, for accuracy and MRR."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn


def visible(
    scores: Float[Tensor, "*m b n"], mask: Bool[Tensor, "... t"] | None, read: Int64[Tensor, " n"] | None
) -> Float[Tensor, "*m b n"]:
    """Take padding out of the choice: its scores become −∞. `read` says which positions the scores belong to."""
    if mask is None:
        return scores
    return scores.masked_fill(~(mask if read is None else mask.index_select(-1, read)), -torch.inf)


def cross_entropy(
    scores: Float[Tensor, "m b n"], y: Int64[Tensor, "m b"], smoothing: float = 0.0
) -> Float[Tensor, " m"]:
    """Return every model's mean loss over its batch."""
    each = nn.functional.cross_entropy(scores.flatten(0, 1), y.flatten(), reduction="none", label_smoothing=smoothing)
    return each.reshape(y.shape).mean(1)


def ranks(scores: Float[Tensor, "m b n"], y: Int64[Tensor, "m b"]) -> Int64[Tensor, "m b"]:
    """Return the place of the right answer, 1 for the highest score; of equal scores the earlier one comes first.

    What does not lose to the right answer stands before it, so that a score that is not a number puts the right answer
    last instead of first.
    """
    own = scores.gather(2, y[..., None])
    later = torch.arange(scores.shape[2], device=scores.device) >= y[..., None]  # its own place included
    loses = (scores < own) | ((scores == own) & later)
    return 1 + (~loses).sum(2)
