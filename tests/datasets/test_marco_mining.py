"""Candidate sets: against plain loops, each guard with a case that it alone must catch, nesting, seeds, cache."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from marco_tiny import ROW, bag, corpus, problems, write_compact

from headcount.core.errors import BadInput
from headcount.datasets.msmarco import mining as marco_mining
from headcount.datasets.msmarco.collection import read_marco
from headcount.datasets.msmarco.mining import LEXICAL, NEIGHBOUR, POSITIVE, mine, split_queries
from headcount.datasets.msmarco.search import Terms, Vectors, projected_vectors, unit


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """The tiny corpus with, for every query, whatever a careless search would take for a hard negative."""
    passages, queries = (json.loads(json.dumps(part)) for part in corpus())
    texts = {p["id"]: p["text"] for p in passages}
    for q in list(queries):
        text, n = texts[q["pos"][0]], q["id"]
        passages.append({"id": f"shout{n}", "text": text.upper().replace(".", " !")})  # equal but for case and marks
        passages.append(
            {"id": f"longer{n}", "text": f"extra {text} and some more words{n}"}
        )  # the text in a longer one
        passages.append({"id": f"other{n}", "text": " ".join(["exchanged", *text.split()[1:]])})  # all words but one
        passages.append({"id": f"titled{n}", "text": f"title{n}: {q['text']} {q['text']} unlike{n} it", "titled": True})
        passages.append({"id": f"judged{n}", "text": f"{q['text']} {q['text']} other{n} words{n}"})
        queries.append({**q, "split": "qa", "pos": [f"judged{n}"]})  # only another judgement calls it relevant
    folder = tmp_path_factory.mktemp("planted")
    return read_marco(write_compact(folder, passages, queries))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return read_marco(write_compact(tmp_path_factory.mktemp("tiny"), *corpus()))


def run(collection, length=16, **options):
    return mine(collection, length, **{"seed": 0, "quiet": True, **options})


def loop_row(collection, scores, near, query, positive, count):
    """What the set must hold, from all scores, one passage at a time."""
    known = set(collection.queries[query].relevant)
    bags = [bag(text) for text in collection.passages]

    def allowed(p):
        close = any(len(bags[p] & bags[r]) >= 0.85 * min(len(bags[p]), len(bags[r])) for r in known)
        return p not in known and not close and collection.titled[p] == collection.titled[positive]

    pool = [p for p in range(len(bags)) if allowed(p)]
    lexical = [p for p in sorted(pool, key=lambda p: (-scores[p], p)) if scores[p] > 0]
    neighbours = sorted(pool, key=lambda p: (-near[p], p))
    row, kinds, turn = [], [], 0
    while len(row) < count:
        source = neighbours if turn % 2 or all(p in row for p in lexical) else lexical
        row.append(next(p for p in source if p not in row))
        kinds.append(NEIGHBOUR if source is neighbours else LEXICAL)
        turn += 1
    return row, kinds


@pytest.mark.parametrize("given", [True, False], ids=["own embeddings", "words in random directions"])
def test_mining_against_loops(planted, given):
    rng = np.random.default_rng(1)
    terms = Terms(planted)
    vectors = projected_vectors(terms, 0)
    if given:
        shapes = (len(planted.passages), 8), (len(planted.queries), 8)
        vectors = Vectors(*(unit(rng.standard_normal(shape)) for shape in shapes))
    found = run(planted, 32, embeddings=vectors if given else None)
    for i in range(0, len(found.query), 5):
        q, place = found.query[i], found.place[i]
        near = [
            float(np.dot(vectors.queries[q].astype(float), v.astype(float))) for v in vectors.passages
        ]  # brute force
        row, kinds = loop_row(planted, terms.bm25(found.query[i : i + 1])[0], near, q, found.positives[i], 31)
        assert np.delete(found.passages[i], place).tolist() == row
        assert np.delete(found.kinds[i], place).tolist() == kinds
        assert found.kinds[i, place] == POSITIVE
        assert kinds.count(LEXICAL) <= 16


def test_the_sets_are_sound(planted):
    found = run(planted, 64)
    assert problems(planted, found) == set()
    assert found.passages.shape == (len(planted.queries), 64)
    assert found.validation.sum() == len(planted.queries) // 15


def spoil(found, rows, passage):
    """Put a passage in place of the negative that is first or second."""
    passages = found.passages.copy()
    passages[rows, (found.place[rows] + 1) % passages.shape[1]] = passage
    return dataclasses.replace(found, passages=passages)


def test_the_audit_catches_every_tampered_set(planted):
    found = run(planted)
    query = planted.queries[found.query[4]]
    known = [p for p in query.relevant if p not in query.positives]
    index = {ident: i for i, ident in enumerate(planted.passage_ids)}
    assert "relevant" in problems(planted, spoil(found, 4, known[0]))
    assert "near" in problems(planted, spoil(found, 4, index[f"shout{query.id}"]))
    assert "near" in problems(planted, spoil(found, 4, index[f"longer{query.id}"]))
    assert "near" in problems(planted, spoil(found, 4, index[f"other{query.id}"]))
    assert "titled" in problems(planted, spoil(found, 4, index[f"titled{query.id}"]))
    assert "twice" in problems(planted, spoil(found, 4, found.passages[4, (found.place[4] + 2) % 16]))
    assert "positive" in problems(planted, dataclasses.replace(found, place=(found.place + 1) % 16))
    shared = np.array([len(planted.queries[q].positives) > 1 for q in found.query])
    assert "leak" in problems(planted, dataclasses.replace(found, validation=shared))


def test_without_a_guard_the_audit_finds_the_planted_passages(planted, monkeypatch):
    forbidden = marco_mining._forbidden
    with monkeypatch.context() as patch:
        patch.setattr(marco_mining, "near_equal", lambda terms, found, relevant: np.zeros(found.shape, bool))
        assert problems(planted, run(planted)) == {"near"}
    with monkeypatch.context() as patch:
        untitled = dataclasses.replace(planted, titled=np.zeros_like(planted.titled))
        patch.setattr(marco_mining, "_forbidden", lambda c, p, r: forbidden(untitled, p, r))
        assert problems(planted, run(planted)) == {"titled"}
    with monkeypatch.context() as patch:
        patch.setattr(marco_mining, "_forbidden", lambda c, p, r: forbidden(c, p, [() for _ in r]))
        patch.setattr(marco_mining, "near_equal", lambda terms, found, relevant: np.zeros(found.shape, bool))
        assert "relevant" in problems(planted, run(planted))
    blind = [dataclasses.replace(q, relevant=q.positives) for q in planted.queries]
    assert problems(planted, run(dataclasses.replace(planted, queries=tuple(blind)))) >= {"relevant"}
    alone = [
        dataclasses.replace(q, relevant=(i,)) for i, q in enumerate(planted.queries)
    ]  # no passage ties two queries
    apart = split_queries(dataclasses.replace(planted, queries=tuple(alone)), 0, len(alone), len(alone) // 2)[1]
    found = run(planted)
    assert "leak" in problems(planted, dataclasses.replace(found, validation=apart))


def test_a_passage_without_words_is_never_a_negative(tmp_path):
    passages, queries = corpus()
    dots = [{"id": f"dots{i}", "text": "." * (i + 1)} for i in range(3)]
    collection = read_marco(write_compact(tmp_path, [*dots, *passages], queries))
    vectors = Vectors(np.ones((len(collection.passages), 1), np.float32), np.ones((len(queries), 1), np.float32))
    assert (run(collection, embeddings=vectors).passages >= 3).all()


def test_titled_positives_get_titled_negatives(tmp_path):
    passages, queries = (json.loads(json.dumps(part)) for part in corpus())
    for p in passages[::2]:
        p["titled"] = True
    collection = read_marco(write_compact(tmp_path, passages, queries), titled=True)
    found = run(collection)
    assert problems(collection, found) == set()
    assert {bool(t) for t in collection.titled[found.positives]} == {False, True}


def test_where_no_word_is_shared_the_neighbours_fill_the_set(tiny):
    rare = tuple(dataclasses.replace(q, text="unheard") for q in tiny.queries)
    found = run(dataclasses.replace(tiny, queries=rare))
    assert sorted(np.unique(found.kinds)) == [POSITIVE, NEIGHBOUR]


def test_no_passage_answers_both_sides(tiny):
    assert sum(len(q.positives) for q in tiny.queries) > len({p for q in tiny.queries for p in q.positives})
    for seed in range(5):
        chosen, apart = split_queries(tiny, seed, 40, 13)
        sides = [{p for q in chosen[apart == side] for p in tiny.queries[q].relevant} for side in (False, True)]
        assert not sides[0] & sides[1]
        assert apart.sum() == 13
        assert len(set(chosen)) == 40
    one = dataclasses.replace(tiny, queries=tuple(dataclasses.replace(q, relevant=(0,)) for q in tiny.queries))
    with pytest.raises(BadInput, match="only 0 queries can validate"):
        split_queries(one, 0, 40, 13)


def test_shorter_sets_are_the_longer_cut(tiny):
    sets = {length: run(tiny, length) for length in (8, 16, 32, 64)}
    for length, found in sets.items():
        assert problems(tiny, found) == set()
        for i in range(len(found.query)):
            rest = np.delete(sets[64].passages[i], sets[64].place[i])
            assert np.delete(found.passages[i], found.place[i]).tolist() == rest[: length - 1].tolist()
        assert (found.positives == sets[64].positives).all()
        assert (found.validation == sets[64].validation).all()
    assert len(set(sets[8].place.tolist())) == 8, "the positive takes every place"
    assert (sets[8].place != sets[16].place * 8 // 16).any(), "drawn for each length"


def test_seeds(tiny):
    one, same, other = run(tiny, seed=3), run(tiny, seed=3), run(tiny, seed=4)
    for field in ("query", "passages", "place", "kinds", "validation"):
        assert (getattr(one, field) == getattr(same, field)).all()
    assert (one.place != other.place).any()
    assert (one.validation != other.validation).any()
    twice = [i for i, q in enumerate(tiny.queries) if len(q.positives) > 1]
    drawn = {
        int(np.searchsorted(tiny.queries[i].positives, run(tiny, seed=s).positives[i]))
        for i in twice
        for s in (0, 1, 2)
    }
    assert drawn == {0, 1}, "where a query has two positives, either may be drawn"
    few = run(tiny, queries=20, validation=4)
    assert len(few.query) == 20
    assert few.validation.sum() == 4


def test_cache(tiny, tmp_path, monkeypatch):
    calls = []
    search = marco_mining._search
    monkeypatch.setattr(marco_mining, "_search", lambda *a: calls.append(1) or search(*a))
    first = run(tiny, cache=tmp_path)
    (path,) = tmp_path.iterdir()
    assert path.name == f"marco-{first.key[:16]}.npz"
    assert (run(tiny, cache=tmp_path).passages == first.passages).all()
    run(tiny, 64, cache=tmp_path)
    assert len(calls) == 1, "every length shares the file"
    vectors = Vectors(
        *(unit(np.random.default_rng(0).standard_normal((n, 4))) for n in (len(tiny.passages), len(tiny.queries)))
    )
    changed = dataclasses.replace(tiny, passages=("new words", *tiny.passages[1:]))
    others = [
        (tiny, {"seed": 1}),
        (tiny, {"queries": 30, "validation": 3}),
        (tiny, {"validation": 5}),
        (tiny, {"embeddings": vectors}),
    ]
    for collection, options in [*others, (changed, {})]:
        run(collection, cache=tmp_path, **options)
    assert len(calls) == 6
    assert len(list(tmp_path.iterdir())) == 6
    whole = path.read_bytes()
    with np.load(path) as file:
        arrays = dict(file)
    for damage in (
        lambda: path.write_bytes(whole[: len(whole) // 2]),
        lambda: path.write_bytes(b""),
        lambda: path.write_bytes(whole[:300] + bytes(b ^ 255 for b in whole[300:400]) + whole[400:]),
        lambda: np.savez(path, **{**arrays, "key": np.array("other")}),
        lambda: np.savez(path, **{**arrays, "negatives": arrays["negatives"][:, :5]}),
        lambda: np.savez(path, **{**arrays, "positive": arrays["positive"] + 10_000}),
        lambda: np.savez(path, **{**arrays, "negatives": np.repeat(arrays["positive"][:, None], 63, 1)}),
        lambda: np.savez(path, **{k: v for k, v in arrays.items() if k != "kinds"}),
    ):
        damage()
        before = len(calls)
        assert (run(tiny, cache=tmp_path).passages == first.passages).all()
        assert len(calls) == before + 1
        assert path.read_bytes() == whole, "a damaged file is made anew"


def test_bad_options(tiny):
    for options, pattern in (
        ({"length": 1}, "length is 1: a set has 2 to 64"),
        ({"length": 65}, "length is 65"),
        ({"seed": -1}, "seed is -1"),
        ({"cache": __file__}, "not a writable folder"),
        ({"queries": 0}, "queries is 0: it must be 1 to 48"),
        ({"queries": 49}, "queries is 49"),
        ({"queries": 5, "validation": 5}, "validation is 5"),
        (
            {"embeddings": Vectors(np.ones((3, 2), np.float32), np.ones((48, 2), np.float32))},
            "embeddings cover 3 passages",
        ),
    ):
        with pytest.raises(BadInput, match=pattern):
            run(tiny, **options)
    with pytest.raises(BadInput, match="have 2 dimensions and those of the queries 3"):
        Vectors(np.ones((3, 2), np.float32), np.ones((4, 3), np.float32))
    with pytest.raises(BadInput, match="finite"):
        Vectors(np.full((3, 2), np.nan, np.float32), np.ones((4, 2), np.float32))
    small = dataclasses.replace(
        tiny, passages=tiny.passages[: ROW * 2], titled=tiny.titled[: ROW * 2], queries=tiny.queries[:2]
    )
    with pytest.raises(BadInput, match=r"query '0' has only [4-9] passages that may be negatives, and a set of"):
        run(small)
