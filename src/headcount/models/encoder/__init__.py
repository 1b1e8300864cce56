"""The encoders of the paper's real tasks: a readable reference, and stacks of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount.core import open_door

if TYPE_CHECKING:
    from headcount.models.encoder.kernel_choice import KERNELS as KERNELS
    from headcount.models.encoder.kernel_choice import attention as attention
    from headcount.models.encoder.kernel_choice import fastest as fastest
    from headcount.models.encoder.spec import EncoderSpec as EncoderSpec
    from headcount.models.encoder.spec import Readout as Readout
    from headcount.models.encoder.spec import counts as counts
    from headcount.models.encoder.spec import decayed as decayed
    from headcount.models.encoder.spec import initial as initial
    from headcount.models.encoder.spec import pack as pack
    from headcount.models.encoder.spec import shapes as shapes
    from headcount.models.encoder.spec import size as size
    from headcount.models.encoder.stacked import SHORT as SHORT
    from headcount.models.encoder.stacked import forward as forward
    from headcount.models.encoder.stacked import step_numbers as step_numbers

__getattr__, __dir__ = open_door(__name__)
