"""Headlines: the answer and its certainty, nothing else; the grounds are below it."""

from __future__ import annotations

from typing import NamedTuple


class Headline(NamedTuple):
    """A sentence in two parts: the claim, set large, and its grounds, on a line of their own."""

    claim: str
    mark: str = ""
    """The punctuation between the two, for readers who hear or copy the sentence."""
    grounds: str = ""


def split(sentence: str) -> Headline:
    """Split a sentence at its first colon or semicolon."""
    cuts = [sentence.find(mark) for mark in (": ", "; ") if mark in sentence]
    at = min(cuts) if cuts else len(sentence)
    return Headline(sentence[:at], sentence[at : at + 1], sentence[at + 1 :].strip())
