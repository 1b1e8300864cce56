"""What pages and terminals say: of a task, of a run, of the answer that its trials give."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount.core import open_door

if TYPE_CHECKING:
    from headcount.render.words.headline import Headline as Headline
    from headcount.render.words.headline import split as split
    from headcount.render.words.heads_needed import in_words as in_words
    from headcount.render.words.run import summary as summary

__getattr__, __dir__ = open_door(__name__)
