"""MS MARCO: the collection in its public formats, a BM25 search, mined candidates, tokens as vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount.core import open_door

if TYPE_CHECKING:
    from headcount.datasets.msmarco.collection import read_marco as read_marco
    from headcount.datasets.msmarco.embeddings import Ragged as Ragged
    from headcount.datasets.msmarco.embeddings import Tables as Tables
    from headcount.datasets.msmarco.embeddings import Tokens as Tokens
    from headcount.datasets.msmarco.embeddings import read_model as read_model
    from headcount.datasets.msmarco.mining import MAX_CANDIDATES as MAX_CANDIDATES
    from headcount.datasets.msmarco.mining import MINING_VERSION as MINING_VERSION
    from headcount.datasets.msmarco.mining import Candidates as Candidates
    from headcount.datasets.msmarco.mining import mine as mine
    from headcount.datasets.msmarco.search import Ints as Ints
    from headcount.datasets.msmarco.wordpiece import WordPiece as WordPiece

__getattr__, __dir__ = open_door(__name__)
