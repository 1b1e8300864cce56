"""Feeds: batches of real data for a trainer (candidate passages of queries, images)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount.core import open_door

if TYPE_CHECKING:
    from headcount.training.feeds.candidates import DEFAULT_CUT_TOKENS as DEFAULT_CUT_TOKENS
    from headcount.training.feeds.candidates import CandidateFeed as CandidateFeed
    from headcount.training.feeds.candidates import PairMeans as PairMeans
    from headcount.training.feeds.candidates import TokenFeed as TokenFeed
    from headcount.training.feeds.candidates import check_max_tokens as check_max_tokens
    from headcount.training.feeds.candidates import check_sets as check_sets
    from headcount.training.feeds.images import ImageFeed as ImageFeed
    from headcount.training.feeds.images import ImagesOnDevice as ImagesOnDevice
    from headcount.training.feeds.images import frame_tokens as frame_tokens

__getattr__, __dir__ = open_door(__name__)
