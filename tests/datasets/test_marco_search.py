"""BM25, the choice of the best, and the rank of the positive, each against plain loops."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from marco_tiny import corpus, write_compact

from headcount.datasets.msmarco.collection import read_marco, words
from headcount.datasets.msmarco.mining import mine, positive_ranks
from headcount.datasets.msmarco.search import Terms, top


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return read_marco(write_compact(tmp_path_factory.mktemp("tiny"), *corpus()))


def loop_bm25(collection, query, passage):
    texts = [words(text) for text in collection.passages]
    mean = sum(map(len, texts)) / len(texts)
    counts, score = Counter(texts[passage]), 0.0
    for word in words(collection.queries[query].text):
        holding = sum(word in text for text in texts)
        idf = math.log(1 + (len(texts) - holding + 0.5) / (holding + 0.5))
        tf = counts[word]
        score += idf * tf / (tf + 0.9 * (1 - 0.4 + 0.4 * len(texts[passage]) / mean))
    return score


def test_bm25_against_a_loop(tiny):
    terms = Terms(tiny)
    queries = np.array([0, 5, 17])
    scores = terms.bm25(queries)
    for i, q in enumerate(queries):
        for p in (*tiny.queries[q].positives, 0, 9, 30, 31):
            assert scores[i, p] == pytest.approx(loop_bm25(tiny, q, p), rel=1e-5)
            assert terms.bm25_pairs(np.array([q]), np.array([p]))[0] == pytest.approx(scores[i, p], rel=1e-6)
    assert (scores > 0).any()


def test_top_against_a_sort():
    rng = np.random.default_rng(0)
    scores = rng.integers(0, 12, (40, 50)).astype(np.float32)  # many ties
    scores[rng.random(scores.shape) < 0.4] = -np.inf
    scores[3] = -np.inf
    for count in (1, 7, 50, 60):
        for row, found in zip(scores, top(scores, count), strict=True):
            order = [p for p in sorted(range(50), key=lambda p: (-row[p], p)) if row[p] > -np.inf][:count]
            assert found.tolist() == order + [-1] * (count - len(order))


def test_ranks_of_the_positive(tiny):
    found = mine(tiny, 8, seed=0, quiet=True)
    ranks = positive_ranks(tiny, found)
    for i in range(0, 48, 11):
        scores = [loop_bm25(tiny, found.query[i], p) for p in found.passages[i]]
        assert ranks[i] == 1 + sum(s > scores[found.place[i]] * (1 + 1e-6) for s in scores)
