"""The paper's transformer: readable beside equation 4, and the same maths for stacks of models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount.core import open_door

if TYPE_CHECKING:
    from headcount.models.transformer.compiled import NO_MASK as NO_MASK
    from headcount.models.transformer.compiled import Compiled as Compiled
    from headcount.models.transformer.compiled import why_not_compiled as why_not_compiled
    from headcount.models.transformer.flat import PADDED_SIZES as PADDED_SIZES
    from headcount.models.transformer.flat import Flat as Flat
    from headcount.models.transformer.flat import covering_spec as covering_spec
    from headcount.models.transformer.flat import why_not_collapsed as why_not_collapsed
    from headcount.models.transformer.flat import why_not_pooled as why_not_pooled
    from headcount.models.transformer.reference import Attention as Attention
    from headcount.models.transformer.reference import FeedForward as FeedForward
    from headcount.models.transformer.reference import Layer as Layer
    from headcount.models.transformer.reference import Transformer as Transformer
    from headcount.models.transformer.spec import FeedForwardKind as FeedForwardKind
    from headcount.models.transformer.spec import ModelSpec as ModelSpec
    from headcount.models.transformer.spec import Positions as Positions
    from headcount.models.transformer.spec import Size as Size
    from headcount.models.transformer.stacked import forward as forward
    from headcount.models.transformer.stacked import loss_and_gradient as loss_and_gradient
    from headcount.models.transformer.stacked import split as split

__getattr__, __dir__ = open_door(__name__)
