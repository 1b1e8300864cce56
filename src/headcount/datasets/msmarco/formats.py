"""The three forms of MS MARCO on disk, each read into plain rows; whatever is wrong with a file gives one line."""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from headcount.core import BadInput, MissingExtra
from headcount.core.readers import check_size, parse_json, read_lines


class Place(NamedTuple):
    """Where a row stands, for errors."""

    path: Path
    line: int
    what: str = "line"

    def __str__(self) -> str:
        return f"{self.path}, {self.what} {self.line}"


class Judged(NamedTuple):
    """A query as found: ids of its positives, and of what else is judged relevant to some degree."""

    id: str
    split: str
    text: str
    positives: Sequence[str]
    relevant: Sequence[str]
    place: Place


class Rows(NamedTuple):
    """All passages (id, text, titled, place), read to the end first; then the queries, given the passages' ids."""

    passages: Iterable[tuple[str, str, bool, Place]]
    queries: Callable[[Container[str]], Iterable[Judged]]


def present(folder: Path, name: str) -> Path | None:
    """Find a file under its name, plain or compressed."""
    return next((p for p in (folder / name, folder / f"{name}.gz") if p.is_file()), None)


def _needed(folder: Path, form: str, names: Sequence[str]) -> list[Path]:
    """Find all these files, or say which are missing."""
    missing = [name for name in names if present(folder, name) is None]
    if missing:
        each = ", ".join(f"{name} (or {name}.gz)" for name in missing)
        raise BadInput(f"{folder}: the {form} form of MS MARCO lacks {each}")
    return [path for name in names if (path := present(folder, name)) is not None]


def _lines(path: Path) -> Iterator[tuple[str, Place]]:
    """Read a file line by line, decompressing by its name; blank lines are passed over."""
    for number, raw in enumerate(read_lines(path), 1):
        try:
            # some editors put a byte order mark before the first line
            line = raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
        except UnicodeDecodeError:
            raise BadInput(f"{Place(path, number)}: not UTF-8 text: it may be another kind of file") from None
        if line:
            yield line, Place(path, number)


def _fields(path: Path, count: int, what: str, separator: str | None = "\t") -> Iterator[tuple[list[str], Place]]:
    """Read a table without a head."""
    for line, place in _lines(path):
        fields = line.split(separator)
        if len(fields) != count:
            raise BadInput(f"{place}: {len(fields)} fields in place of {count} ({what})")
        yield fields, place


def official_rows(folder: Path, splits: Sequence[str] | None) -> Rows:
    """Read collection.tsv, and the queries and judgements of each split; a small dev set goes before the whole one."""
    found: dict[str, tuple[str, str]] = {}
    for split in splits or ("train", "dev"):
        pairs = [(f"queries.{split}{size}.tsv", f"qrels.{split}{size}.tsv") for size in (".small", "")]
        whole = [pair for pair in pairs if all(present(folder, name) for name in pair)]
        if whole or splits:
            found[split] = (whole or pairs[1:])[0]
    names = [name for pair in (found or {"train": ("queries.train.tsv", "qrels.train.tsv")}).values() for name in pair]
    collection, *others = _needed(folder, "official", ["collection.tsv", *names])

    def passages() -> Iterator[tuple[str, str, bool, Place]]:
        for (ident, text), place in _fields(collection, 2, "passage id, text"):
            yield ident, text, False, place

    def queries(ids: Container[str]) -> Iterator[Judged]:
        for split, queries_path, qrels_path in zip(found, others[::2], others[1::2], strict=True):
            yield from _official_queries(split, queries_path, qrels_path, ids)

    return Rows(passages(), queries)


def _official_queries(split: str, queries_path: Path, qrels_path: Path, ids: Container[str]) -> Iterator[Judged]:
    """Join the queries of a split with their judgements; those without one are left out."""
    found = [(ident, text, place) for (ident, text), place in _fields(queries_path, 2, "query id, text")]
    known = {ident for ident, _, _ in found}
    positives: defaultdict[str, list[str]] = defaultdict(list)
    for (query, _, passage, grade), place in _fields(qrels_path, 4, "query id, 0, passage id, grade", None):
        if query not in known:
            raise BadInput(f"{place}: query {query!r} is not in {queries_path.name}")
        if passage not in ids:
            raise BadInput(f"{place}: query {query!r} names passage {passage!r}, which is not in the collection")
        if not re.fullmatch("-?[0-9]{1,9}", grade):
            raise BadInput(f"{place}: the grade is {grade[:40]!r}: it must be a whole number of at most 9 digits")
        if int(grade) > 0:
            positives[query].append(passage)
    for ident, text, place in found:
        if ident in positives:
            yield Judged(ident, split, text, positives[ident], (), place)
        elif not text.strip():
            raise BadInput(f"{place}: query {ident!r} is empty: fill it or drop it")


def compact_rows(folder: Path, splits: Sequence[str] | None) -> Rows:
    """Read passages.jsonl and queries.jsonl; all splits are read, as each may judge a passage for another's query."""
    passages_path, queries_path = _needed(folder, "compact", ["passages.jsonl", "queries.jsonl"])
    del splits

    def passages() -> Iterator[tuple[str, str, bool, Place]]:
        for row, place in _objects(passages_path, {"id": str, "text": str}):
            yield row["id"], row["text"], row.get("titled") is True, place

    def queries(ids: Container[str]) -> Iterator[Judged]:
        del ids  # the lines of queries.jsonl name their passages themselves
        for row, place in _objects(queries_path, {"id": str, "split": str, "text": str, "pos": list}):
            grades = row.get("rel", {})
            if not isinstance(grades, dict) or not all(isinstance(g, int) for g in grades.values()):
                raise BadInput(f"{place}: 'rel' must give a whole number, the grade, for each passage id")
            graded = [str(ident) for ident, grade in grades.items() if grade > 0]
            yield Judged(row["id"], row["split"], row["text"], [str(p) for p in row["pos"]], graded, place)

    return Rows(passages(), queries)


def _objects(path: Path, kinds: dict[str, type]) -> Iterator[tuple[dict[str, Any], Place]]:
    """Read one JSON object a line, with these keys of these kinds and perhaps more."""
    for line, place in _lines(path):
        row = parse_json(line, str(place))
        for key, kind in kinds.items():
            if not isinstance(row, dict) or not isinstance(row.get(key), kind):
                raise BadInput(f"{place}: there must be an object with {key!r} as {_KINDS[kind]}")
        yield row, place


_KINDS = {str: "text", list: "a list"}


def parquet_rows(folder: Path, splits: Sequence[str] | None) -> Rows:
    """Read the Parquet files of Hugging Face's ms_marco; a passage has no id there, so its text's hash names it."""
    try:
        import pyarrow.parquet as pq
    except ImportError:
        raise MissingExtra("pyarrow", "parquet", "reading Parquet") from None
    files: list[tuple[str, Path]] = []
    for path in sorted(folder.rglob("*.parquet")):
        name = path.name.split("-")[0].removesuffix(".parquet")
        name = path.parent.name if path.parent != folder and name.isdecimal() else name  # train/0000.parquet
        split = {"validation": "dev"}.get(name, name)
        if split not in ("train", "dev", "test"):
            raise BadInput(f"{path}: the name, or its folder's, must be train, validation or test, to tell the split")
        if split in (splits or ("train", "dev")):
            files.append((split, path))
    tops = {path.parent.parent if path.stem.isdecimal() else path.parent for _, path in files}
    folders = sorted(str(top.relative_to(folder)) if top != folder else "." for top in tops)
    if len(folders) > 1:
        raise BadInput(f"{folder}: there are Parquet files in {' and '.join(folders)}: choose one of these folders")
    for split in splits or (() if files else ("train",)):
        if not any(found == split for found, _ in files):
            name = {"dev": "validation"}.get(split, split)
            raise BadInput(f"{folder}: the Hugging Face form of MS MARCO lacks {name}-*.parquet")
    judged: list[Judged] = []

    def passages() -> Iterator[tuple[str, str, bool, Place]]:
        for split, path in files:
            for row, place in _table(path, pq):
                texts, selected = _lists(row, place)
                idents = ["h" + hashlib.sha256(" ".join(text.split()).encode()).hexdigest()[:16] for text in texts]
                yield from ((ident, text, False, place) for ident, text in zip(idents, texts, strict=True))
                positives = [ident for ident, flag in zip(idents, selected, strict=True) if flag]
                if not isinstance(row["query"], str) or row["query_id"] is None:
                    raise BadInput(f"{place}: there is no query text, or no query_id")
                judged.append(Judged(str(row["query_id"]), split, row["query"], positives, (), place))

    return Rows(passages(), lambda _: judged)


def _table(path: Path, pq: Any) -> Iterator[tuple[dict[str, Any], Place]]:
    """Read a Parquet file row by row."""
    names = ["query_id", "query", "passages"]
    number = 0
    try:
        with pq.ParquetFile(path) as file:
            lacking = [name for name in names if name not in file.schema_arrow.names]
            if lacking:
                raise BadInput(f"{path}: there is no column {lacking[0]!r}: ms_marco has {', '.join(names)}")
            groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
            chunks = [group.column(i) for group in groups for i in range(group.num_columns)]
            needed = sum(8 * chunk.num_values + chunk.total_uncompressed_size for chunk in chunks)
            check_size(needed, path.stat().st_size, f"{path}: the table")
            for batch in file.iter_batches(batch_size=1024, columns=names):
                for row in batch.to_pylist():
                    yield row, Place(path, number, "row")  # from 0, as the readers of tables count
                    number += 1
    except (BadInput, MemoryError, GeneratorExit):
        raise
    except Exception as error:  # Arrow has many errors of its own
        raise BadInput(f"{path}: damaged or another kind of file after row {number}: fetch it again") from error


def _lists(row: dict[str, Any], place: Place) -> tuple[list[str], list[int]]:
    """Take passage_text and is_selected: lists side by side, or a list of pairs, as the writer chose."""
    found = row["passages"]
    if isinstance(found, list):
        found = {key: [one.get(key) for one in found] for key in ("passage_text", "is_selected")}
    texts, selected = ((found or {}).get(key) for key in ("passage_text", "is_selected"))
    if not isinstance(texts, list) or not isinstance(selected, list) or len(texts) != len(selected):
        raise BadInput(f"{place}: passages must hold passage_text and is_selected, equally long")
    if not all(isinstance(text, str) for text in texts):
        raise BadInput(f"{place}: passage_text must hold text only")
    return texts, selected
