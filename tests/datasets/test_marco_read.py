"""MS MARCO from three forms of folder: the same collection from each, and one line for everything that is wrong."""

from __future__ import annotations

import gzip
import json
import sys

import numpy as np
import pytest
from marco_tiny import DEV, TRAIN, corpus, write_compact, write_official, write_parquet

from headcount.core.errors import BadInput, MissingExtra
from headcount.datasets.msmarco.collection import read_marco, words


@pytest.fixture(scope="module")
def tiny():
    return corpus()


def refused(pattern: str, folder, **options) -> None:
    with pytest.raises(BadInput, match=pattern) as caught:
        read_marco(folder, **options)
    assert "\n" not in str(caught.value)
    assert folder.name in str(caught.value)


@pytest.mark.parametrize(
    "write",
    [
        write_compact,
        lambda *a: write_compact(*a, compress=False),
        write_official,
        write_parquet,
        lambda *a: write_parquet(*a, nested=True),
    ],
    ids=["compact", "compact plain", "official", "parquet", "parquet pairs"],
)
def test_all_forms_give_the_same_collection(tmp_path, tiny, write):
    passages, queries = tiny
    found = read_marco(write(tmp_path, passages, queries))
    index = {p["id"]: i for i, p in enumerate(passages)}
    assert found.passages == tuple(p["text"] for p in passages)
    assert [(q.id, q.text, q.split) for q in found.queries] == [(q["id"], q["text"], q["split"]) for q in queries]
    assert [q.positives for q in found.queries] == [tuple(index[p] for p in q["pos"]) for q in queries]
    assert all(q.relevant == q.positives for q in found.queries)
    assert not found.titled.any()
    (tmp_path / "other").mkdir()
    assert found.content_hash == read_marco(write_compact(tmp_path / "other", *tiny)).content_hash
    assert str(tmp_path) in found.source


def test_the_hash_sees_every_part(tmp_path, tiny):
    hashes = set()
    for k, change in enumerate(
        [
            lambda p, q: None,
            lambda p, q: p[3].update(text="another text"),
            lambda p, q: p[3].update(titled=True),
            lambda p, q: p.reverse(),
            lambda p, q: q[0].update(text="another question"),
            lambda p, q: q[0].update(pos=[p[9]["id"]]),
            lambda p, q: q[0].update(id="other"),
            lambda p, q: q[0].update(split="dev"),
        ]
    ):
        passages, queries = (json.loads(json.dumps(part)) for part in tiny)
        change(passages, queries)
        (tmp_path / str(k)).mkdir()
        hashes.add(read_marco(write_compact(tmp_path / str(k), passages, queries)).content_hash)
    assert len(hashes) == 8


def test_splits_titles_and_judgements_of_other_splits(tmp_path, tiny):
    passages, queries = (json.loads(json.dumps(part)) for part in tiny)
    shuffled = " ".join(reversed(words(queries[0]["text"]))).upper()
    twin = {"id": "x", "split": "qa", "text": shuffled, "pos": [passages[50]["id"]]}
    graded = {passages[60]["id"]: 1, passages[61]["id"]: 0}
    queries += [twin, {"id": "1", "split": "dl19", "text": "?!", "pos": [], "rel": graded}]
    titled = next(p for p in passages if p["id"] == queries[-3]["pos"][0])
    titled["titled"] = True
    write_compact(tmp_path, passages, queries)
    found = read_marco(tmp_path)
    assert len(found.queries) == TRAIN + DEV - 1, "the query with a titled positive is left out, the passage stays"
    assert found.titled.sum() == 1
    assert set(found.queries[0].relevant) == {*found.queries[0].positives, 50}
    assert set(found.queries[1].relevant) == {*found.queries[1].positives, 60}
    assert len(read_marco(tmp_path, titled=True).queries) == TRAIN + DEV
    assert {q.split for q in read_marco(tmp_path, splits=["dev"]).queries} == {"dev"}
    assert [q.id for q in read_marco(tmp_path, splits=["qa"]).queries] == ["x"]
    refused("no query of dl20 has a positive.*: dev, qa, train", tmp_path, splits=["dl20"])


def test_equal_texts_are_one_passage(tmp_path, tiny):
    passages, queries = tiny
    copy = {"id": "copy", "text": "  " + passages[4]["text"].replace(" ", "  "), "titled": True}
    found = read_marco(
        write_compact(tmp_path, [*passages, copy], [*queries[:9], {**queries[9], "pos": ["copy"]}]), titled=True
    )
    assert len(found.passages) == len(passages)
    assert found.queries[9].positives == (4,)
    assert np.flatnonzero(found.titled).tolist() == [4]


def test_what_is_missing_is_listed(tmp_path, tiny):
    refused("is not a folder: MS MARCO is looked for as passages.jsonl", tmp_path / "none")
    refused("holds no MS MARCO files: .*collection.tsv.*parquet", tmp_path)
    write_official(tmp_path, *tiny)
    (tmp_path / "qrels.dev.small.tsv").unlink()
    assert len(read_marco(tmp_path).queries) == TRAIN
    refused(r"official .* lacks qrels.dev.tsv \(or qrels.dev.tsv.gz\)|lacks queries.dev.tsv", tmp_path, splits=["dev"])
    (tmp_path / "collection.tsv").unlink()
    refused(r"official form of MS MARCO lacks collection.tsv \(or collection.tsv.gz\)$", tmp_path)
    (tmp_path / "compact").mkdir()
    write_compact(tmp_path / "compact", *tiny)
    (tmp_path / "compact" / "queries.jsonl.gz").unlink()
    refused(r"compact form of MS MARCO lacks queries.jsonl \(or", tmp_path / "compact")
    (tmp_path / "hf").mkdir()
    write_parquet(tmp_path / "hf", *tiny)
    (tmp_path / "hf" / "validation-00000-of-00001.parquet").unlink()
    assert len(read_marco(tmp_path / "hf").queries) == TRAIN
    refused("lacks validation-", tmp_path / "hf", splits=["dev"])


BAD_LINES = {
    "fields": ("collection.tsv", "7 no tab", "collection.tsv, line 3: 1 fields instead of 2"),
    "empty": ("collection.tsv", "7\t ", "line 3: passage '7' is empty"),
    "twice": ("collection.tsv", "100\tother", "line 3: passage id '100' occurs twice"),
    "query fields": ("queries.train.tsv", "a\tb\tc", "queries.train.tsv, line 3: 3 fields"),
    "empty query": ("queries.train.tsv", "77\t ", "line 3: query '77' is empty"),
    "query twice": ("queries.train.tsv", "0\tagain", "line 3: query id '0' occurs twice in split 'train'"),
    "qrels fields": ("qrels.train.tsv", "1 0 5", "qrels.train.tsv, line 3: 3 fields instead of 4"),
    "unknown query": ("qrels.train.tsv", "999 0 100 1", "line 3: query '999' is not in queries.train.tsv"),
    "unknown passage": ("qrels.train.tsv", "0 0 999 1", "qrels.train.tsv, line 3: .*'999', which is not in the coll"),
    "grade": ("qrels.train.tsv", "0 0 100 x", "line 3: the grade is 'x'"),
    "raised grade": ("qrels.train.tsv", "0 0 100 ²", "line 3: the grade is '²'"),
    "object": ("passages.jsonl", "[1]", "passages.jsonl, line 3: it must be an object with 'id' as text"),
    "kind": ("passages.jsonl", '{"id": 5, "text": "a"}', "line 3: it must be an object with 'id' as text"),
    "json": ("queries.jsonl", '{"id": "5', "queries.jsonl, line 3 is not valid JSON"),
    "unknown id": ("queries.jsonl", '{"id":"q","split":"dev","text":"a","pos":["zz"]}', "line 3: .*'zz', which is not"),
    "grades": ("queries.jsonl", '{"id":"q","split":"a","text":"a","pos":[],"rel":[1]}', "line 3: 'rel' must"),
}


@pytest.mark.parametrize("case", BAD_LINES)
def test_a_bad_line_is_named(tmp_path, tiny, case):
    name, line, pattern = BAD_LINES[case]
    (write_official if name.endswith("tsv") else lambda *a: write_compact(*a, compress=False))(tmp_path, *tiny)
    lines = (tmp_path / name).read_text().splitlines()
    (tmp_path / name).write_text("\n".join([*lines[:2], line, *lines[2:]]) + "\n")
    refused(pattern, tmp_path)


@pytest.mark.parametrize(
    ("damage", "pattern"),
    [
        (lambda raw: raw[: len(raw) // 2], "compressed data are truncated or damaged"),
        (lambda raw: b"plain text", "compressed data are truncated or damaged after line 0"),
        (
            lambda raw: raw[:200] + b"\0\xff" * 20 + raw[240:],
            "are truncated or damaged|not UTF-8|not valid",
        ),
        (lambda raw: gzip.compress(b"\xff\xfe\n"), "line 1: not UTF-8"),
    ],
)
def test_a_damaged_file_is_named(tmp_path, tiny, damage, pattern):
    path = write_compact(tmp_path, *tiny) / "passages.jsonl.gz"
    path.write_bytes(damage(path.read_bytes()))
    refused(pattern, tmp_path)


def test_parquet_files_that_do_not_fit(tmp_path, tiny, monkeypatch):
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = write_parquet(tmp_path, *tiny) / "train-00000-of-00001.parquet"
    whole = path.read_bytes()
    path.write_bytes(whole[:1000])
    refused("train-.*damaged or another kind of file after row 0", tmp_path)
    rows = pq.read_table(pa.BufferReader(whole)).to_pylist()
    for key, value, pattern in (
        ("passages", {"is_selected": [1], "passage_text": [" "]}, "row 2: passage .* is empty"),
        ("passages", {"is_selected": [1, 0], "passage_text": ["a"]}, "row 2: .*equally long"),
        ("passages", {"is_selected": [1], "passage_text": [None]}, "row 2: passage_text must hold text"),
        ("query", None, "row 2: the query text or"),
    ):
        pq.write_table(pa.Table.from_pylist([*rows[:2], {**rows[2], key: value}, *rows[3:]]), path)
        refused(pattern, tmp_path)
    pq.write_table(pa.Table.from_pylist([{"query": "a"}]), path)
    refused("the column 'query_id' is missing", tmp_path)
    path.write_bytes(whole)
    (tmp_path / "v1.1").mkdir()
    write_parquet(tmp_path / "v1.1", *tiny)
    refused("files in . and v1.1: choose one", tmp_path)
    (tmp_path / "v1.1" / "odd.parquet").write_bytes(whole)
    refused("odd.parquet: the file's or folder's name", tmp_path)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(MissingExtra, match="pyarrow"):
        read_marco(tmp_path)


def test_forms_that_differ_a_little_from_the_published_ones(tmp_path, tiny):
    """A byte order mark before the first line, and Parquet files whose folder names the split."""
    for name in ("plain", "marked", "hub"):
        (tmp_path / name).mkdir()
    plain = read_marco(write_compact(tmp_path / "plain", *tiny))
    marked = write_compact(tmp_path / "marked", *tiny)
    for path in list(marked.iterdir()):
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        path.unlink()
        path.with_name(path.name.removesuffix(".gz")).write_bytes(b"\xef\xbb\xbf" + raw)
    assert read_marco(marked).content_hash == plain.content_hash
    hub = write_parquet(tmp_path / "hub", *tiny)
    found = read_marco(hub).content_hash
    for path in list(hub.glob("*.parquet")):
        (hub / "default" / path.name.split("-")[0]).mkdir(parents=True)
        path.rename(hub / "default" / path.name.split("-")[0] / "0000.parquet")
    assert read_marco(hub).content_hash == found
    for name in ("passages.jsonl", "passages.jsonl.gz"):
        (tmp_path / "plain" / name).unlink(missing_ok=True)
    (tmp_path / "plain" / "passages.jsonl").write_text("")
    refused("there is no passage in the files of the compact form", tmp_path / "plain")
