"""The encoders of the paper's real tasks: a readable reference, and stacks of encoders."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount.core import open_door

if TYPE_CHECKING:
    from headcount.models.encoder.spec import EncoderSpec as EncoderSpec
    from headcount.models.encoder.spec import Readout as Readout
    from headcount.models.encoder.spec import flat_size as flat_size
    from headcount.models.encoder.spec import has_weight_decay as has_weight_decay
    from headcount.models.encoder.spec import initial_weights as initial_weights
    from headcount.models.encoder.spec import pack as pack
    from headcount.models.encoder.spec import parameter_counts as parameter_counts
    from headcount.models.encoder.spec import tensor_shapes as tensor_shapes
    from headcount.models.encoder.stacked import forward as forward
    from headcount.models.encoder.stacked import step_peak_numbers as step_peak_numbers

__getattr__, __dir__ = open_door(__name__)
