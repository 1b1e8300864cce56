"""BERT's uncased WordPiece, cut by the package `tokenizers` (the extra `text`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headcount.core import MissingExtra

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
WORD_MAX_CHARACTERS = 100
"""A longer word is unknown."""


class WordPiece:
    """Cuts text into pieces of a vocabulary: words by blanks and punctuation, then the longest piece first."""

    def __init__(self, pieces: Sequence[str]) -> None:
        try:
            from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
        except ImportError:
            raise MissingExtra("tokenizers", "text", "cutting texts into WordPiece tokens") from None
        self.pieces = tuple(pieces)
        self.ids = {piece: i for i, piece in enumerate(self.pieces)}
        self._cutter = Tokenizer(
            models.WordPiece(vocab=self.ids, unk_token="[UNK]", max_input_chars_per_word=WORD_MAX_CHARACTERS)
        )
        self._cutter.normalizer = normalizers.BertNormalizer(
            clean_text=True, handle_chinese_chars=True, strip_accents=True, lowercase=True
        )
        self._cutter.pre_tokenizer = pre_tokenizers.BertPreTokenizer()

    def encode(self, texts: Iterable[str]) -> list[list[int]]:
        """Cut each text into the ids of its pieces, without [CLS] and [SEP]."""
        whole = [text.encode("utf-8", "ignore").decode() for text in texts]  # half a surrogate pair is no character
        return [found.ids for found in self._cutter.encode_batch_fast(whole, add_special_tokens=False)]
