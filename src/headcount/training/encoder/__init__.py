"""Training of encoder stacks: settings, trainer, session and evaluation measures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount.core import open_door

if TYPE_CHECKING:
    from headcount.training.encoder.session import MAX_TRAIN_EVALUATED as MAX_TRAIN_EVALUATED
    from headcount.training.encoder.session import EncoderJob as EncoderJob
    from headcount.training.encoder.session import EncoderSession as EncoderSession
    from headcount.training.encoder.session import RealTrialSpec as RealTrialSpec
    from headcount.training.encoder.settings import Feed as Feed
    from headcount.training.encoder.settings import RealTrain as RealTrain
    from headcount.training.encoder.stacked import EncoderTrainer as EncoderTrainer
    from headcount.training.encoder.stacked import choose_attention as choose_attention
    from headcount.training.encoder.stacked import stack_bytes as stack_bytes

__getattr__, __dir__ = open_door(__name__)
