"""Read the three forms of MS MARCO on disk into the same rows; a bad file gives a one-line error."""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from headcount.core import BadInput, MissingExtra
from headcount.core.readers import check_size, parse_json, read_lines


class FilePosition(NamedTuple):
    """The position of a row in its file, for error messages."""

    path: Path
    line: int
    what: str = "line"

    def __str__(self) -> str:
        return f"{self.path}, {self.what} {self.line}"


class JudgedQuery(NamedTuple):
    """A query as read: with the ids of its positives, and of other passages that are judged relevant to some degree."""

    id: str
    split: str
    text: str
    positives: Sequence[str]
    relevant: Sequence[str]
    place: FilePosition


class Rows(NamedTuple):
    """The rows of a collection: passages (id, text, titled, position), and queries, given the passages' ids.

    The passages must be read to the end before the queries.
    """

    passages: Iterable[tuple[str, str, bool, FilePosition]]
    queries: Callable[[Container[str]], Iterable[JudgedQuery]]


def find_file(folder: Path, name: str) -> Path | None:
    """Return the path of a file, plain or compressed; None if there is neither."""
    return next((p for p in (folder / name, folder / f"{name}.gz") if p.is_file()), None)


def _find_files(folder: Path, form: str, names: Sequence[str]) -> list[Path]:
    """Return the paths of these files; raise BadInput if some are missing."""
    missing = [name for name in names if find_file(folder, name) is None]
    if missing:
        listed = ", ".join(f"{name} (or {name}.gz)" for name in missing)
        raise BadInput(f"{folder}: the {form} form of MS MARCO lacks {listed}")
    return [path for name in names if (path := find_file(folder, name)) is not None]


def _lines(path: Path) -> Iterator[tuple[str, FilePosition]]:
    """Yield the lines of a file, decompressed if its name ends in .gz; blank lines are skipped."""
    for number, raw in enumerate(read_lines(path), 1):
        try:
            # some editors write a byte order mark before the first line
            line = raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
        except UnicodeDecodeError:
            raise BadInput(f"{FilePosition(path, number)}: not UTF-8 text: it may be another kind of file") from None
        if line:
            yield line, FilePosition(path, number)


def _fields(
    path: Path, count: int, what: str, separator: str | None = "\t"
) -> Iterator[tuple[list[str], FilePosition]]:
    """Yield the rows of a table without a header, each with `count` fields."""
    for line, place in _lines(path):
        fields = line.split(separator)
        if len(fields) != count:
            raise BadInput(f"{place}: {len(fields)} fields instead of {count} ({what})")
        yield fields, place


def official_rows(folder: Path, splits: Sequence[str] | None) -> Rows:
    """Read collection.tsv, and the queries and judgements of each split; dev.small is preferred to dev."""
    found: dict[str, tuple[str, str]] = {}
    for split in splits or ("train", "dev"):
        pairs = [(f"queries.{split}{size}.tsv", f"qrels.{split}{size}.tsv") for size in (".small", "")]
        complete = [pair for pair in pairs if all(find_file(folder, name) for name in pair)]
        if complete or splits:
            found[split] = (complete or pairs[1:])[0]
    names = [name for pair in (found or {"train": ("queries.train.tsv", "qrels.train.tsv")}).values() for name in pair]
    collection, *others = _find_files(folder, "official", ["collection.tsv", *names])

    def passages() -> Iterator[tuple[str, str, bool, FilePosition]]:
        for (ident, text), place in _fields(collection, 2, "passage id, text"):
            yield ident, text, False, place

    def queries(ids: Container[str]) -> Iterator[JudgedQuery]:
        for split, queries_path, qrels_path in zip(found, others[::2], others[1::2], strict=True):
            yield from _official_queries(split, queries_path, qrels_path, ids)

    return Rows(passages(), queries)


def _official_queries(split: str, queries_path: Path, qrels_path: Path, ids: Container[str]) -> Iterator[JudgedQuery]:
    """Yield the queries of a split with their judgements; queries without positives are left out."""
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
            yield JudgedQuery(ident, split, text, positives[ident], (), place)
        elif not text.strip():
            raise BadInput(f"{place}: query {ident!r} is empty: fill it or drop it")


def compact_rows(folder: Path, splits: Sequence[str] | None) -> Rows:
    """Read passages.jsonl and queries.jsonl; all splits, since each may judge passages for a query of another."""
    passages_path, queries_path = _find_files(folder, "compact", ["passages.jsonl", "queries.jsonl"])
    del splits

    def passages() -> Iterator[tuple[str, str, bool, FilePosition]]:
        for row, place in _json_objects(passages_path, {"id": str, "text": str}):
            yield row["id"], row["text"], row.get("titled") is True, place

    def queries(ids: Container[str]) -> Iterator[JudgedQuery]:
        del ids  # the lines of queries.jsonl name their passages themselves
        for row, place in _json_objects(queries_path, {"id": str, "split": str, "text": str, "pos": list}):
            grades = row.get("rel", {})
            if not isinstance(grades, dict) or not all(isinstance(g, int) for g in grades.values()):
                raise BadInput(f"{place}: 'rel' must give a whole number, the grade, for each passage id")
            graded = [str(ident) for ident, grade in grades.items() if grade > 0]
            yield JudgedQuery(row["id"], row["split"], row["text"], [str(p) for p in row["pos"]], graded, place)

    return Rows(passages(), queries)


def _json_objects(path: Path, kinds: dict[str, type]) -> Iterator[tuple[dict[str, Any], FilePosition]]:
    """Yield one JSON object per line; each must have these keys with values of these types, and may have more."""
    for line, place in _lines(path):
        row = parse_json(line, str(place))
        for key, kind in kinds.items():
            if not isinstance(row, dict) or not isinstance(row.get(key), kind):
                raise BadInput(f"{place}: it must be an object with {key!r} as {_TYPE_NAMES[kind]}")
        yield row, place


_TYPE_NAMES = {str: "text", list: "a list"}


def parquet_rows(folder: Path, splits: Sequence[str] | None) -> Rows:
    """Read the Parquet files of Hugging Face's ms_marco, where passages have no ids: the hash of the text serves."""
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
            raise BadInput(f"{path}: the file's or folder's name must begin with the split: train, validation or test")
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
    judged: list[JudgedQuery] = []

    def passages() -> Iterator[tuple[str, str, bool, FilePosition]]:
        for split, path in files:
            for row, place in _parquet_table(path, pq):
                texts, selected = _lists(row, place)
                idents = ["h" + hashlib.sha256(" ".join(text.split()).encode()).hexdigest()[:16] for text in texts]
                yield from ((ident, text, False, place) for ident, text in zip(idents, texts, strict=True))
                positives = [ident for ident, flag in zip(idents, selected, strict=True) if flag]
                if not isinstance(row["query"], str) or row["query_id"] is None:
                    raise BadInput(f"{place}: the query text or the query_id is missing")
                judged.append(JudgedQuery(str(row["query_id"]), split, row["query"], positives, (), place))

    return Rows(passages(), lambda _: judged)


def _parquet_table(path: Path, pq: Any) -> Iterator[tuple[dict[str, Any], FilePosition]]:
    """Yield the rows of a Parquet file."""
    names = ["query_id", "query", "passages"]
    number = 0
    try:
        with pq.ParquetFile(path) as file:
            missing = [name for name in names if name not in file.schema_arrow.names]
            if missing:
                raise BadInput(f"{path}: the column {missing[0]!r} is missing: ms_marco has {', '.join(names)}")
            groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
            chunks = [group.column(i) for group in groups for i in range(group.num_columns)]
            needed = sum(8 * chunk.num_values + chunk.total_uncompressed_size for chunk in chunks)
            check_size(needed, path.stat().st_size, f"{path}: the table")
            for batch in file.iter_batches(batch_size=1024, columns=names):
                for row in batch.to_pylist():
                    yield row, FilePosition(path, number, "row")  # from 0, as programs that read tables count
                    number += 1
    except (BadInput, MemoryError, GeneratorExit):
        raise
    except Exception as error:  # Arrow has many errors of its own
        raise BadInput(f"{path}: damaged or another kind of file after row {number}: fetch it again") from error


def _lists(row: dict[str, Any], place: FilePosition) -> tuple[list[str], list[int]]:
    """Return passage_text and is_selected, which may be stored as two lists or as a list of pairs."""
    found = row["passages"]
    if isinstance(found, list):
        found = {key: [one.get(key) for one in found] for key in ("passage_text", "is_selected")}
    texts, selected = ((found or {}).get(key) for key in ("passage_text", "is_selected"))
    if not isinstance(texts, list) or not isinstance(selected, list) or len(texts) != len(selected):
        raise BadInput(f"{place}: passages must hold passage_text and is_selected, equally long")
    if not all(isinstance(text, str) for text in texts):
        raise BadInput(f"{place}: passage_text must hold text only")
    return texts, selected
