"""What pages and terminals say: of a task, of a run, of the answer that its trials give."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount.core import open_door

if TYPE_CHECKING:
    from headcount.render.words.errors import BLIND as BLIND
    from headcount.render.words.errors import blind_note as blind_note
    from headcount.render.words.errors import error_terms as error_terms
    from headcount.render.words.errors import terms_of as terms_of
    from headcount.render.words.headline import Headline as Headline
    from headcount.render.words.headline import split as split
    from headcount.render.words.numbers import error_text as error_text
    from headcount.render.words.numbers import heads_text as heads_text
    from headcount.render.words.numbers import percent as percent
    from headcount.render.words.numbers import times_text as times_text
    from headcount.render.words.records import in_words as in_words
    from headcount.render.words.run import summary as summary

__getattr__, __dir__ = open_door(__name__)
