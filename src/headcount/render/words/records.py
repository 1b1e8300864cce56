"""The sentences of the records that `analysis` makes of codes and numbers."""

from __future__ import annotations

from headcount.analysis import Analysis, Dimension, Grounds
from headcount.render.words.errors import notice_text
from headcount.render.words.fits import law_text, theory_text
from headcount.render.words.heads_needed import answer_in_words


def in_words(record: Analysis | Dimension, grounds: Grounds | None = None) -> Analysis | Dimension:
    """Return a record with its sentences; those of a `Dimension` are made from its grounds too."""
    if isinstance(record, Analysis):
        return run_in_words(record)
    assert grounds is not None
    return answer_in_words(record, grounds)


def run_in_words(found: Analysis) -> Analysis:
    """Return the analysis of a run with its notes in words, those on its slopes and laws included."""
    return found.model_copy(
        update={
            "notes": [notice_text(notice, found.on) for notice in found.notices],
            "scaling": [line.model_copy(update={"theory_note": theory_text(line)}) for line in found.scaling],
            "laws": [law.model_copy(update={"note": law_text(law)}) for law in found.laws],
        }
    )
