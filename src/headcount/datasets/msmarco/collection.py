"""Read MS MARCO's passages, queries and judgements from a folder in one of three forms.

`read_marco` tells the forms apart by their file names; each text file may also be compressed, with the suffix .gz:

- official: collection.tsv, and for train or dev a pair queries.SPLIT.tsv, qrels.SPLIT.tsv (or …dev.small.tsv);
- Hugging Face: Parquet files of ms_marco v1.1 or v2.1, named train-….parquet and validation-….parquet;
- compact: passages.jsonl (one object per line: id, text, optionally titled) and queries.jsonl (id, split, text, pos
  with the ids of the positives, optionally rel with the grade of each judged passage).
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headcount.core import BadInput, canonical_json
from headcount.datasets.msmarco.formats import (
    FilePosition,
    JudgedQuery,
    Rows,
    compact_rows,
    find_file,
    official_rows,
    parquet_rows,
)

_WORD = re.compile(r"[^\W_]+")


def words(text: str) -> list[str]:
    """Return a text's lower-case words, which are all that BM25 and the comparison of texts use."""
    return _WORD.findall(text.lower())


@dataclass(frozen=True)
class Query:
    """A query and the passages that answer it, as indices into the collection's passages.

    `relevant` holds the positives and the passages that any other judgement of the same query (the same id, or the same
    words in any order, in any split) marks as relevant: none of these may be a negative.
    """

    id: str
    text: str
    split: str
    positives: tuple[int, ...]
    relevant: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Collection:
    """Passages with distinct texts, and the queries that have a positive among them.

    `titled` marks passages whose text begins with the title of their page: a surface cue, which mining must not leave
    in a set of candidates.
    """

    passage_ids: tuple[str, ...]
    passages: tuple[str, ...]
    titled: NDArray[np.bool_]  # [passages]
    queries: tuple[Query, ...]
    source: str  # the form and the folder

    @cached_property
    def content_hash(self) -> str:
        """The hash of texts in their order, flags, queries and judgements; not of the passages' ids or the source."""
        digest = hashlib.sha256()
        for text in self.passages:
            digest.update(canonical_json(text).encode() + b"\n")
        digest.update(np.packbits(self.titled).tobytes())
        for q in self.queries:
            digest.update(canonical_json([q.id, q.text, q.split, q.positives, q.relevant]).encode() + b"\n")
        return digest.hexdigest()


def read_marco(folder: Path | str, *, splits: Sequence[str] | None = None, titled: bool = False) -> Collection:
    """Read the passages, and those queries of the splits that have a positive.

    By default the splits are train and dev, if the folder has them; Hugging Face's validation split counts as dev.
    Queries with a titled positive are left out unless `titled` is true; their passages stay and are marked.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise BadInput(f"{folder} is not a folder: {_EXPECTED_FILES}")
    form, read = _form(folder)
    builder = _Builder()
    rows = read(folder, splits)
    for ident, text, flag, place in rows.passages:
        builder.add_passage(ident, text, flag, place)
    if not builder.texts:
        raise BadInput(f"{folder}: there is no passage in the files of the {form} form: fetch them again")
    for judged in rows.queries(builder.by_id):
        builder.add_query(judged)
    return builder.collection(folder, form, splits or ("train", "dev"), titled)


_EXPECTED_FILES = (
    "MS MARCO is looked for as passages.jsonl and queries.jsonl (compact), as collection.tsv with queries.train.tsv "
    "and qrels.train.tsv (official; dev or dev.small in place of train), each perhaps with .gz, or as "
    "train-….parquet and validation-….parquet (Hugging Face, ms_marco v1.1 or v2.1)"
)


def _form(folder: Path) -> tuple[str, Callable[[Path, Sequence[str] | None], Rows]]:
    """Return the form whose files are there, with its reader, which reports any missing files."""
    if any(find_file(folder, name) for name in ("passages.jsonl", "queries.jsonl")):
        return "compact", compact_rows
    if find_file(folder, "collection.tsv") or any(folder.glob("qrels.*.tsv*")):
        return "official", official_rows
    if next(folder.rglob("*.parquet"), None) is not None:
        return "Hugging Face", parquet_rows
    raise BadInput(f"{folder} holds no MS MARCO files: {_EXPECTED_FILES}")


class _Builder:
    """Collects passages and queries, merges equal texts, and rejects inconsistent data."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.texts: list[str] = []
        self.titled: list[bool] = []
        self.by_id: dict[str, int] = {}
        self.by_text: dict[str, int] = {}
        self.queries: list[tuple[JudgedQuery, tuple[int, ...]]] = []
        self.seen: set[tuple[str, str]] = set()
        self.relevant: defaultdict[str, set[int]] = defaultdict(set)

    def add_passage(self, ident: str, text: str, titled: bool, place: FilePosition) -> None:
        """Add a passage; a text that is already there keeps its index, and the new id also refers to it."""
        text = " ".join(text.split())
        if not text:
            raise BadInput(f"{place}: passage {ident!r} is empty: fill it or drop it, with its judgements")
        index = self.by_text.setdefault(text, len(self.texts))
        if self.by_id.setdefault(ident, index) != index:
            raise BadInput(f"{place}: passage id {ident!r} occurs twice, with different texts")
        if index == len(self.texts):
            self.ids.append(ident)
            self.texts.append(text)
            self.titled.append(titled)
        elif titled:
            self.titled[index] = True

    def add_query(self, query: JudgedQuery) -> None:
        """Add a query of any split, and its judgements."""
        text = " ".join(query.text.split())
        if not text:
            raise BadInput(f"{query.place}: query {query.id!r} is empty: fill it or drop it, with its judgements")
        if (query.split, query.id) in self.seen:
            raise BadInput(f"{query.place}: query id {query.id!r} occurs twice in split {query.split!r}")
        self.seen.add((query.split, query.id))
        positives = self._indices(query, query.positives)
        for key in _keys(query.id, text):
            self.relevant[key].update(positives, self._indices(query, query.relevant))
        if positives:
            self.queries.append((query._replace(text=text), positives))

    def _indices(self, query: JudgedQuery, idents: Iterable[str]) -> tuple[int, ...]:
        """Return the indices of the judged passages, each once."""
        for ident in idents:
            if ident not in self.by_id:
                raise BadInput(f"{query.place}: query {query.id!r} names passage {ident!r}, which is not there")
        return tuple(dict.fromkeys(self.by_id[ident] for ident in idents))

    def collection(self, folder: Path, form: str, splits: Sequence[str], titled: bool) -> Collection:
        """Return the collection: the queries of the splits, each with all passages known to be relevant to it."""
        kept: list[Query] = []
        for query, positives in self.queries:
            if query.split in splits and (titled or not any(self.titled[p] for p in positives)):
                known = set(positives).union(*(self.relevant[key] for key in _keys(query.id, query.text)))
                for p in sorted(known):
                    if not words(self.texts[p]):  # it would count as nearly equal to every other passage
                        raise BadInput(
                            f"{folder}: passage {self.ids[p]!r} ({self.texts[p][:20]!r}), judged relevant to query "
                            f"{query.id!r}, holds no word: fill it or drop it, with its judgements"
                        )
                kept.append(Query(query.id, query.text, query.split, positives, tuple(sorted(known))))
        if not kept:
            found = sorted({query.split for query, _ in self.queries})
            raise BadInput(
                f"{folder}: no query of {', '.join(splits)} has a positive that may be used; "
                f"splits with positives: {', '.join(found) or 'none'}"
            )
        return Collection(
            tuple(self.ids), tuple(self.texts), np.array(self.titled, np.bool_), tuple(kept), f"{form}: {folder}"
        )


def _keys(ident: str, text: str) -> tuple[str, str]:
    """Return two keys of a query, its id and its sorted words: queries that share a key share their judgements."""
    return f"id {ident}", "words " + " ".join(sorted(words(text)))
