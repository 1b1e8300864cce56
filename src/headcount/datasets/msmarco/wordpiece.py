"""BERT's uncased WordPiece tokenizer, using the package `tokenizers` (the extra `text`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headcount.core import MissingExtra

SPECIAL_PIECES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
MAX_WORD_CHARACTERS = 100
"""A longer word becomes [UNK]."""


class WordPiece:
    """Splits text into words at blanks and punctuation, and each word into pieces, always the longest that fits."""

    def __init__(self, pieces: Sequence[str]) -> None:
        try:
            from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
        except ImportError:
            raise MissingExtra("tokenizers", "text", "cutting texts into WordPiece tokens") from None
        self.pieces = tuple(pieces)
        self.ids = {piece: i for i, piece in enumerate(self.pieces)}
        self._tokenizer = Tokenizer(
            models.WordPiece(vocab=self.ids, unk_token="[UNK]", max_input_chars_per_word=MAX_WORD_CHARACTERS)
        )
        self._tokenizer.normalizer = normalizers.BertNormalizer(
            clean_text=True, handle_chinese_chars=True, strip_accents=True, lowercase=True
        )
        self._tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()

    def encode(self, texts: Iterable[str]) -> list[list[int]]:
        """Return the ids of each text's pieces, without [CLS] and [SEP]."""
        valid = [text.encode("utf-8", "ignore").decode() for text in texts]  # without lone surrogates
        return [encoding.ids for encoding in self._tokenizer.encode_batch_fast(valid, add_special_tokens=False)]
