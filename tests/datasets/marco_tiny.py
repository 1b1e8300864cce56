"""A tiny MS MARCO made on the spot, in all three forms; a slow audit of candidate sets, apart from mining's code."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import numpy as np

from headcount.datasets.msmarco.collection import Collection
from headcount.datasets.msmarco.mining import Candidates

TRAIN, DEV, ROW = 36, 12, 5  # queries of each split, passages that come with each query
Passages = list[dict]
Queries = list[dict]


def corpus(seed: int = 0) -> tuple[Passages, Queries]:
    """Passages of random words around topics; query i is answered in its own five passages."""
    rng = np.random.default_rng(seed)
    vocabulary = np.array([f"w{i}" for i in range(400)])
    passages: Passages = []
    queries: Queries = []
    answer = 0
    for i in range(TRAIN + DEV):
        topic = rng.choice(vocabulary[:80], 12, replace=False)
        for j in range(ROW):
            text = rng.permutation([*rng.choice(topic, 5), *rng.choice(vocabulary, int(rng.integers(8, 20)))])
            passages.append({"id": str(100 + ROW * i + j), "text": " ".join(text) + "."})
        earlier, answer = answer, ROW * i + int(rng.integers(ROW))
        found = [answer, *([earlier] if i % 7 == 3 else [])]  # what answers the query before answers this one too
        words = passages[answer]["text"].strip(".").split()
        split = "train" if i < TRAIN else "dev"
        query = {"id": str(i), "split": split, "text": " ".join(rng.choice(words, 3, replace=False)) + "?"}
        queries.append({**query, "pos": [passages[p]["id"] for p in sorted(found)]})
    return passages, queries


def write_compact(folder: Path, passages: Passages, queries: Queries, compress: bool = True) -> Path:
    for name, rows in (("passages", passages), ("queries", queries)):
        text = "".join(json.dumps(row) + "\n" for row in rows).encode()
        if compress:
            (folder / f"{name}.jsonl.gz").write_bytes(gzip.compress(text))
        else:
            (folder / f"{name}.jsonl").write_bytes(text)
    return folder


def write_official(folder: Path, passages: Passages, queries: Queries) -> Path:
    (folder / "collection.tsv").write_text("".join(f"{p['id']}\t{p['text']}\n" for p in passages))
    for split, name in (("train", "train"), ("dev", "dev.small")):
        rows = [q for q in queries if q["split"] == split]
        (folder / f"queries.{name}.tsv").write_text("".join(f"{q['id']}\t{q['text']}\n" for q in rows))
        judged = "".join(f"{q['id']}\t0\t{p}\t1\n" for q in rows for p in q["pos"])
        judged += f"{rows[0]['id']}\t0\t{passages[9]['id']}\t0\n"  # judged, and not relevant
        (folder / f"qrels.{name}.tsv").write_text(judged)
    return folder


def write_parquet(folder: Path, passages: Passages, queries: Queries, nested: bool = False) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = {p["id"]: p["text"] for p in passages}
    for split, name in (("train", "train"), ("dev", "validation")):
        rows = []
        for i, q in enumerate(queries):
            own = [p["id"] for p in passages[ROW * i : ROW * (i + 1)]]
            shown = [*[p for p in q["pos"] if p not in own], *own]
            lists = {"is_selected": [int(p in q["pos"]) for p in shown], "passage_text": [texts[p] for p in shown]}
            pairs = [dict(zip(lists, pair, strict=True)) for pair in zip(*lists.values(), strict=True)]
            row = {"query_id": int(q["id"]), "query": q["text"], "passages": pairs if nested else lists}
            rows += [row] if q["split"] == split else []
        pq.write_table(pa.Table.from_pylist(rows), folder / f"{name}-00000-of-00001.parquet")
    return folder


def bag(text: str) -> set[str]:
    return set(re.findall(r"[a-z0-9]+", text.lower()))


def problems(collection: Collection, candidates: Candidates) -> set[str]:
    """All that is wrong with the sets, found by plain loops."""
    found: set[str] = set()
    sides: dict[bool, set[int]] = {False: set(), True: set()}
    for i, q in enumerate(candidates.query):
        query, row = collection.queries[q], candidates.passages[i].tolist()
        positive = row.pop(int(candidates.place[i]))
        sides[bool(candidates.validation[i])] |= set(query.positives)
        if positive not in query.positives:
            found.add("positive")
        if len({*row, positive}) != len(row) + 1:
            found.add("twice")
        same = [o for o in collection.queries if o.id == query.id or bag(o.text) == bag(query.text)]
        known = {p for other in same for p in (*other.positives, *other.relevant)}
        for p in row:
            if p in known:
                found.add("relevant")
            if collection.titled[p] != collection.titled[positive]:
                found.add("titled")
            mine = bag(collection.passages[p])
            for r in known:
                other = bag(collection.passages[r])
                if p not in known and len(mine & other) >= 0.85 * min(len(mine), len(other)):
                    found.add("near")
    if sides[False] & sides[True]:
        found.add("leak")
    return found
