"""Training stacks of encoders: settings, the trainer, what is measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount.core import open_door

if TYPE_CHECKING:
    from headcount.training.encoder.session import EVALUATED as EVALUATED
    from headcount.training.encoder.session import EncoderJob as EncoderJob
    from headcount.training.encoder.session import EncoderSession as EncoderSession
    from headcount.training.encoder.session import RealTrialSpec as RealTrialSpec
    from headcount.training.encoder.settings import Feed as Feed
    from headcount.training.encoder.settings import RealTrain as RealTrain
    from headcount.training.encoder.stacked import EncoderTrainer as EncoderTrainer
    from headcount.training.encoder.stacked import chosen_attention as chosen_attention
    from headcount.training.encoder.stacked import stack_bytes as stack_bytes

__getattr__, __dir__ = open_door(__name__)
