"""BERT's uncased WordPiece: the same pieces as the `tokenizers` package gives, without the package.

The two differ only in rare signs that entered Unicode after the package's tables were made.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufffd]")  # dropped first, as some of them split words
_ASCII = re.compile(r"[a-z0-9]+|[^a-z0-9]")
_LONGEST = 100  # characters; a longer word is unknown
_CJK = ((0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F),
        (0x2B920, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F))  # fmt: skip


class WordPiece:
    """Cuts text into pieces of a vocabulary: words by blanks and punctuation, then the longest piece first."""

    def __init__(self, pieces: Sequence[str]) -> None:
        self.pieces = tuple(pieces)
        self.ids = {piece: i for i, piece in enumerate(self.pieces)}
        self._known: dict[str, tuple[int, ...]] = {}  # text repeats its words: each is cut once

    def encode(self, text: str) -> list[int]:
        """Cut a text into the ids of its pieces, without [CLS] and [SEP]."""
        found: list[int] = []
        for word in _CONTROL.sub("", text).split():
            known = self._known.get(word)
            if known is None:
                known = self._known[word] = tuple(i for part in _parts(word) for i in self._cut(part))
            found.extend(known)
        return found

    def _cut(self, word: str) -> list[int]:
        """Take the longest piece that the word begins with, then the longest of the rest with ## before it."""
        found: list[int] = []
        start = 0
        while start < len(word):
            mark = "##" if start else ""
            ends = range(len(word), start, -1)
            end = next((e for e in ends if mark + word[start:e] in self.ids), None)
            if end is None or len(word) > _LONGEST:
                return [self.ids["[UNK]"]]
            found.append(self.ids[mark + word[start:end]])
            start = end
        return found


def _parts(word: str) -> list[str]:
    """Lower the case, drop accents and invisible characters, and split at punctuation and Chinese characters."""
    if word.isascii():  # nearly all words, and five times as fast
        return _ASCII.findall(word.lower())
    parts = [""]
    for char in unicodedata.normalize("NFD", word):
        kind = unicodedata.category(char)
        if kind == "Mn" or kind[0] == "C":
            continue
        if kind[0] == "P" or (char.isascii() and not char.isalnum()) or any(a <= ord(char) <= b for a, b in _CJK):
            parts += [char.lower(), ""]
        else:
            parts[-1] += char.lower()
    return [part for part in parts if part]
