"""Candidate batches against a slow twin: compose each pair, add the three embeddings, average by segment."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from headcount.core.errors import BadInput
from headcount.datasets.msmarco.collection import read_marco
from headcount.datasets.msmarco.embeddings import Tokens, read_model
from headcount.datasets.msmarco.mining import mine
from headcount.training.feeds.candidates import CandidateFeed, PairMeans, TokenFeed, check_sets
from real_tiny import DIM, POSITIONS, write_bert, write_corpus

LENGTHS = (2, 4, 8)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny")
    collection = read_marco(write_corpus(folder / "corpus"))
    pieces, tables = read_model(write_bert(folder / "bert"))
    tokens = Tokens.of(collection, pieces, quiet=True)
    sets = {T: mine(collection, T, seed=3, validation=12, quiet=True) for T in LENGTHS}
    return collection, tokens, tables, sets


def embedded(tokens, tables, query: int, passage: int, most: int):
    """Return, for one pair, the sum of the three embeddings at each token, and the segments."""
    pair = tokens.pairs(np.array([query]), np.array([passage]), most)
    ids, segments, mask = (torch.from_numpy(part[0].astype(np.int64)) for part in pair)
    summed = tables.words.double()[ids] + tables.positions.double()[: len(ids)] + tables.segments.double()[segments]
    return summed, segments, mask.bool()


def slow_means(world, most: int, T: int, row: int) -> torch.Tensor:
    _, tokens, tables, sets = world
    found = []
    for passage in sets[T].passages[row]:
        summed, segments, mask = embedded(tokens, tables, int(sets[T].query[row]), int(passage), most)
        found.append(torch.cat([summed[mask & (segments == s)].mean(0) for s in (0, 1)]))
    return torch.stack(found)


@pytest.mark.parametrize("most", [None, 30, 12, 5])
def test_means_are_those_of_the_twin(world, most):
    _, tokens, tables, sets = world
    means = PairMeans(tokens, tables, list(sets.values()), max_tokens=most, standard=False)
    cut = np.diff(tokens.passages.starts).max() + np.diff(tokens.queries.starts).max() + 3 > (most or POSITIONS)
    assert cut, "some passages of the corpus are cut, at every length tried"
    for T, one in sets.items():
        feed = CandidateFeed(means, one)
        assert (feed.tokens, feed.length, feed.inputs, feed.outputs, feed.readout) == (T, T, 2 * DIM, 1, "each")
        for name, chosen in (("train", ~one.validation), ("validation", one.validation)):
            rows = feed.part_rows(name, 0, 99).numpy()
            assert sorted(rows) == np.flatnonzero(chosen).tolist()
            X, y, mask = feed.part(name, 0, len(rows))
            assert mask is None
            assert y.tolist() == one.place[rows].tolist()
            for i, row in enumerate(rows):
                assert (X[i].double() - slow_means(world, most or POSITIONS, T, row)).abs().max() < 1e-6


def test_batches_are_gathered_by_index(world):
    _, tokens, tables, sets = world
    feed = CandidateFeed(PairMeans(tokens, tables, list(sets.values())), sets[4])
    assert feed.train_size + feed.validation_size == len(sets[4].query)
    whole, places, _ = feed.part("train", 0, feed.train_size)
    index = torch.tensor([[3, 0, 3], [1, feed.train_size - 1, 2]])
    X, y, _ = feed.train(index, 7, (0, 1))
    assert torch.equal(X, whole[index])
    assert torch.equal(y, places[index])
    assert torch.equal(feed.train(index[1:], 9, (4,))[0][0], X[1]), "neither step nor neighbours matter"
    assert torch.equal(feed.part("train", 5, 3)[0], whole[5:8])


def test_standard_scaling(world):
    _, tokens, tables, sets = world
    plain, scaled = (PairMeans(tokens, tables, list(sets.values()), standard=s) for s in (False, True))
    alone = PairMeans(tokens, tables, [sets[2]], standard=True)
    for T, one in sets.items():
        X, y, _ = CandidateFeed(scaled, one).part("train", 0, 99)
        positives = X[torch.arange(len(y)), y]
        assert positives.mean(0).abs().max() < 1e-5
        assert (positives.std(0, correction=0) - 1).abs().max() < 1e-5
        raw = CandidateFeed(plain, one).part("train", 0, 99)[0]
        best = raw[torch.arange(len(y)), y]
        assert torch.allclose(X, (raw - best.mean(0)) / best.std(0, correction=0), atol=1e-4)
        if T == 2:
            assert torch.allclose(CandidateFeed(alone, one).part("train", 0, 99)[0], X, atol=1e-6), "alone as together"


def test_half_precision_tables(world):
    _, tokens, tables, sets = world
    feeds = [CandidateFeed(PairMeans(tokens, tables, [sets[8]], dtype=d), sets[8]) for d in (torch.float32, torch.half)]
    one, other = (feed.part("validation", 0, 12)[0] for feed in feeds)
    assert other.dtype == torch.float32
    assert torch.allclose(one, other, atol=1e-2)
    assert not torch.equal(one, other)


@pytest.mark.parametrize("cut", [24, 9])
def test_tokens_are_those_of_the_twin(world, cut):
    _, tokens, tables, sets = world
    feed = TokenFeed(tokens, tables, sets[4], cut=cut, standard=False)
    assert (feed.tokens, feed.length, feed.inputs) == (4 * cut, 4, DIM)
    assert feed.read.tolist() == [0, cut, 2 * cut, 3 * cut]
    rows = feed.part_rows("train", 0, 99).numpy()
    assert sorted(rows) == np.flatnonzero(~sets[4].validation).tolist()
    X, y, mask = feed.part("train", 0, len(rows))
    assert y.tolist() == sets[4].place[rows].tolist()
    for i, row in enumerate(rows):
        pairs = [embedded(tokens, tables, int(sets[4].query[row]), int(p), cut) for p in sets[4].passages[row]]
        assert (X[i].double() - torch.cat([pair[0] for pair in pairs])).abs().max() < 1e-6
        assert torch.equal(mask[i], torch.cat([pair[2] for pair in pairs]))
    index = torch.tensor([[1, 0], [5, 5]])
    batch = feed.train(index, 0, (0, 1))
    assert torch.equal(batch[0], X[index])
    assert torch.equal(batch[2], mask[index])


def test_standard_tokens(world):
    _, tokens, tables, sets = world
    X, y, mask = TokenFeed(tokens, tables, sets[4]).part("train", 0, 99)
    own = [X[i].reshape(4, 24, DIM)[place][mask[i].reshape(4, 24)[place]] for i, place in enumerate(y.tolist())]
    assert torch.cat(own).mean(0).abs().max() < 1e-5
    assert (torch.cat(own).std(0, correction=0) - 1).abs().max() < 1e-5


def test_validation_never_sees_a_training_positive(world):
    collection, _, _, sets = world
    for one in sets.values():
        check_sets([one])
        known, unseen = (
            {p for q in one.query[part].tolist() for p in collection.queries[q].relevant}
            for part in (~one.validation, one.validation)
        )
        assert not known & unseen
    leaky = dataclasses.replace(sets[4], validation=np.arange(len(sets[4].query)) % 2 == 0)
    same = dataclasses.replace(leaky, passages=np.repeat(leaky.passages[:1], len(leaky.query), axis=0))
    with pytest.raises(BadInput, match="training and validation share a positive"):
        check_sets([same])


def test_what_does_not_belong_together(world):
    collection, tokens, tables, sets = world
    other = mine(collection, 4, seed=4, validation=12, quiet=True)
    with pytest.raises(BadInput, match="mined with different options"):
        PairMeans(tokens, tables, [sets[2], other])
    with pytest.raises(BadInput, match="mined with other options"):
        CandidateFeed(PairMeans(tokens, tables, [sets[2]]), other)
    with pytest.raises(BadInput, match="sets of 8 passages contain pairs that are not in the tables"):
        CandidateFeed(PairMeans(tokens, tables, [sets[2]]), sets[8])
    with pytest.raises(BadInput, match=f"4 tokens per sequence: use 5 to {POSITIONS}"):
        PairMeans(tokens, tables, [sets[2]], max_tokens=4)
    with pytest.raises(BadInput, match=f"41 tokens per sequence: use 5 to {POSITIONS}"):
        TokenFeed(tokens, tables, sets[2], cut=POSITIONS + 1)
    empty = dataclasses.replace(sets[2], validation=np.zeros(len(sets[2].query), np.bool_))
    with pytest.raises(BadInput, match="no queries for validation"):
        PairMeans(tokens, tables, [empty])
