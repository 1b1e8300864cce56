"""MS MARCO passages, queries and judgements from a folder, whichever of three forms the folder has.

`read_marco` tells the forms apart by their file names; each file of text may also be compressed, with .gz at its end:

- official: collection.tsv, and for train or dev a pair queries.SPLIT.tsv, qrels.SPLIT.tsv (or …dev.small.tsv);
- Hugging Face: Parquet files of ms_marco v1.1 or v2.1, named train-….parquet and validation-….parquet;
- compact: passages.jsonl (an object a line: id, text, perhaps titled) and queries.jsonl (id, split, text, pos with
  the ids of the positives, perhaps rel with the grade of each judged passage).
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
from headcount.datasets.msmarco.formats import Judged, Place, Rows, compact_rows, official_rows, parquet_rows, present

_WORD = re.compile(r"[^\W_]+")


def words(text: str) -> list[str]:
    """Split a text into lower-case words: all that BM25 and the comparison of texts look at."""
    return _WORD.findall(text.lower())


@dataclass(frozen=True)
class Query:
    """A question and the passages that answer it, as indices into the collection's passages.

    `relevant` holds the positives and whatever any other judgement of the same question (the same id, or the same
    words in any order, in any split) marks relevant: none of these may serve as a negative.
    """

    id: str
    text: str
    split: str
    positives: tuple[int, ...]
    relevant: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Collection:
    """Passages of distinct texts, and the queries that have a positive among them.

    `titled` marks passages that carry the title of their page before the text: a surface cue, which mining must not
    leave in a set of candidates.
    """

    passage_ids: tuple[str, ...]
    passages: tuple[str, ...]
    titled: NDArray[np.bool_]  # [passages]
    queries: tuple[Query, ...]
    source: str  # which form, and the folder

    @cached_property
    def content_hash(self) -> str:
        """Identity: texts in their order, flags, queries and judgements; not the passages' ids, nor the source."""
        digest = hashlib.sha256()
        for text in self.passages:
            digest.update(canonical_json(text).encode() + b"\n")
        digest.update(np.packbits(self.titled).tobytes())
        for q in self.queries:
            digest.update(canonical_json([q.id, q.text, q.split, q.positives, q.relevant]).encode() + b"\n")
        return digest.hexdigest()


def read_marco(folder: Path | str, *, splits: Sequence[str] | None = None, titled: bool = False) -> Collection:
    """Read the passages, and the queries of these splits that have a positive.

    Splits: train and dev, as far as the folder has them, unless stated; Hugging Face's validation counts as dev.
    Queries with a titled positive are left out unless `titled`: their passages stay, marked.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise BadInput(f"{folder} is not a folder: {_LOOKED_FOR}")
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


_LOOKED_FOR = (
    "MS MARCO is looked for as passages.jsonl and queries.jsonl (compact), as collection.tsv with queries.train.tsv "
    "and qrels.train.tsv (official; dev or dev.small in place of train), each perhaps with .gz, or as "
    "train-….parquet and validation-….parquet (Hugging Face, ms_marco v1.1 or v2.1)"
)


def _form(folder: Path) -> tuple[str, Callable[[Path, Sequence[str] | None], Rows]]:
    """Tell the form by the files that are there; a form begun and not complete is that form's reader's to report."""
    if any(present(folder, name) for name in ("passages.jsonl", "queries.jsonl")):
        return "compact", compact_rows
    if present(folder, "collection.tsv") or any(folder.glob("qrels.*.tsv*")):
        return "official", official_rows
    if next(folder.rglob("*.parquet"), None) is not None:
        return "Hugging Face", parquet_rows
    raise BadInput(f"{folder} holds no MS MARCO files: {_LOOKED_FOR}")


class _Builder:
    """Gathers passages and queries, merges equal texts, and refuses what does not fit together."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.texts: list[str] = []
        self.titled: list[bool] = []
        self.by_id: dict[str, int] = {}
        self.by_text: dict[str, int] = {}
        self.queries: list[tuple[Judged, tuple[int, ...]]] = []
        self.seen: set[tuple[str, str]] = set()
        self.relevant: defaultdict[str, set[int]] = defaultdict(set)

    def add_passage(self, ident: str, text: str, titled: bool, place: Place) -> None:
        """Take a passage; a text that is there already keeps its first index, and the new id leads to it."""
        text = " ".join(text.split())
        if not text:
            raise BadInput(f"{place}: passage {ident!r} is empty: fill it or drop it, with its judgements")
        index = self.by_text.setdefault(text, len(self.texts))
        if self.by_id.setdefault(ident, index) != index:
            raise BadInput(f"{place}: passage id {ident!r} occurs a second time, with another text")
        if index == len(self.texts):
            self.ids.append(ident)
            self.texts.append(text)
            self.titled.append(titled)
        elif titled:
            self.titled[index] = True

    def add_query(self, query: Judged) -> None:
        """Take a query of any split, and what its judgements say of passages."""
        text = " ".join(query.text.split())
        if not text:
            raise BadInput(f"{query.place}: query {query.id!r} is empty: fill it or drop it, with its judgements")
        if (query.split, query.id) in self.seen:
            raise BadInput(f"{query.place}: query id {query.id!r} occurs a second time in split {query.split!r}")
        self.seen.add((query.split, query.id))
        positives = self._indices(query, query.positives)
        for key in _keys(query.id, text):
            self.relevant[key].update(positives, self._indices(query, query.relevant))
        if positives:
            self.queries.append((query._replace(text=text), positives))

    def _indices(self, query: Judged, idents: Iterable[str]) -> tuple[int, ...]:
        """Find the judged passages, each once."""
        for ident in idents:
            if ident not in self.by_id:
                raise BadInput(f"{query.place}: query {query.id!r} names passage {ident!r}, which is not there")
        return tuple(dict.fromkeys(self.by_id[ident] for ident in idents))

    def collection(self, folder: Path, form: str, splits: Sequence[str], titled: bool) -> Collection:
        """Close: keep the queries that are wanted, with all that is known to be relevant to each."""
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
    """Name a question twice, by id and by its words in any order: whoever shares a name shares the judgements."""
    return f"id {ident}", "words " + " ".join(sorted(words(text)))
