"""Candidate sets as training batches: which of T passages answers the query?

The paper does not say how candidates enter the encoder. `CandidateFeed` maps each candidate, [CLS] query [SEP]
passage [SEP], to one vector: the mean of word + position + segment embeddings over the tokens of the first segment
([CLS], query, [SEP]), concatenated with the same mean over the second (passage, [SEP]). The encoder then attends over
the T candidates. `TokenFeed` is the alternative: it concatenates the tokens of all candidates, and each candidate is
read at its first token.

Pairs are truncated as by `Tokens.pairs`: to at most `max_tokens` tokens, of which the query gets at most half after the
three special ones, and the passage the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from headcount.core import BadInput, generator
from headcount.datasets.msmarco import Candidates, Ints, Ragged, Tables, Tokens

DEFAULT_CUT_TOKENS = 24  # tokens per candidate in a TokenFeed
MIN_TOKENS = 5  # of a pair: three special tokens, one of the query and one of the passage
Floats = NDArray[np.float32]


def check_sets(sets: Sequence[Candidates]) -> None:
    """Raise BadInput if sets were mined differently, a part is empty, or both parts share a positive passage."""
    first = sets[0]
    if any(other.key != first.key for other in sets):
        raise BadInput("the candidate sets were mined with different options: mine all lengths with the same options")
    validation = first.validation
    train_count, validation_count = int((~validation).sum()), int(validation.sum())
    for name, count in (("training", train_count), ("validation", validation_count)):
        if count == 0:
            raise BadInput(f"no queries for {name}: {validation_count} of {len(validation)} queries are for validation")
    if np.intersect1d(first.positives[validation], first.positives[~validation]).size:
        raise BadInput("training and validation share a positive passage: mine the sets again")


class _CandidateSets:
    """The common part of both feeds: the rows of each part, and the place of the positive as the answer."""

    outputs = 1
    readout: Literal["class", "each"] = "each"
    captured = True  # a gather on the device: nothing is copied from the host

    def __init__(self, candidates: Candidates, device: torch.device | str) -> None:
        check_sets([candidates])
        self.device = torch.device(device)
        self.length = int(candidates.passages.shape[1])
        # shuffle the training sets once: the training error is measured on the first ones, which must represent all,
        # and collections are often sorted by split or alphabetically
        train, validation = np.flatnonzero(~candidates.validation), np.flatnonzero(candidates.validation)
        train = generator(0, "candidate order").permutation(train)
        self._rows = {"train": _to_device(train, device), "validation": _to_device(validation, device)}
        self._positive_place = _to_device(candidates.place, device)
        self.train_size, self.validation_size = (len(self._rows[name]) for name in ("train", "validation"))

    def part_rows(self, name: Literal["train", "validation"], first: int, count: int) -> Tensor:
        """Return the rows of up to `count` sets of one part, from its `first` set on."""
        return self._rows[name][first : first + count]


class PairMeans:
    """Mean embeddings on a device, shared by the feeds of all lengths.

    A pair's second mean depends on the query only through its length, which shifts the positions and may truncate a
    long passage. So the tables have a row for each (passage, tokens kept) that occurs and for each range of positions.
    """

    def __init__(
        self,
        tokens: Tokens,
        tables: Tables,
        sets: Sequence[Candidates],
        *,
        max_tokens: int | None = None,
        standard: bool = True,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """Compute the means of every pair in the sets; `standard` scales each coordinate to mean 0 and deviation 1.

        Mean and deviation are those of the training queries with their positives, the same for every length. The
        scaling is a linear map that the encoder's projection could undo: it changes how fast models learn, not what
        they can express.
        """
        check_sets(sets)
        self.max_tokens = max_tokens = check_max_tokens(tables, max_tokens)
        self.device, self.dim, self.key = torch.device(device), tables.words.shape[1], sets[0].key
        self._query_sizes = np.minimum(np.diff(tokens.queries.starts), (max_tokens - 3) // 2)
        self._passage_sizes = np.diff(tokens.passages.starts)
        codes = [self._codes(one) for one in sets]
        self._passage_codes = np.unique(np.concatenate([passages.ravel() for passages, _ in codes]))
        self._position_codes = np.unique(np.concatenate([positions.ravel() for _, positions in codes]))
        self._queries = queries = np.unique(sets[0].query)
        words, special = tables.words.numpy(), tokens.pieces.ids
        query_sizes, (passages, kept) = self._query_sizes[queries], np.divmod(self._passage_codes, max_tokens)
        first = _mean_embeddings(tokens.queries, queries, query_sizes, words, [special["[CLS]"], special["[SEP]"]])
        second = _mean_embeddings(tokens.passages, passages, kept, words, [special["[SEP]"]])
        before, after = np.divmod(self._position_codes, max_tokens)
        first = (
            first + _mean_positions(tables, np.zeros_like(query_sizes), query_sizes + 2) + tables.segments[0].numpy()
        )
        shifts = _mean_positions(tables, before + 2, after + 1) + tables.segments[1].numpy()
        if standard:
            training = ~sets[0].validation
            query_rows = np.searchsorted(queries, sets[0].query[training])
            first = _standardise(first, *_moments(first[query_rows]))
            rows, shift_rows = self._lookup(sets[0], training, sets[0].place[training])
            mean, deviation = _moments(second[rows] + shifts[shift_rows])
            second, shifts = second / deviation, _standardise(shifts, mean, deviation)
        self.first, self.second, self.shifts = (_to_device(t, device).to(dtype) for t in (first, second, shifts))

    def _codes(self, sets: Candidates) -> tuple[Ints, Ints]:
        """Encode each pair's (passage, tokens kept) and its range of positions (query tokens, tokens kept) as ints."""
        query_sizes = self._query_sizes[sets.query][:, None]
        kept = np.minimum(self._passage_sizes[sets.passages], self.max_tokens - 3 - query_sizes)
        return sets.passages * self.max_tokens + kept, query_sizes * self.max_tokens + kept

    def _lookup(self, sets: Candidates, rows: Any, places: Ints) -> tuple[Ints, Ints]:
        """Return the rows of `second` and of `shifts` of one candidate in each of the chosen sets."""
        second, shifts = (np.take_along_axis(t[rows], places[:, None], axis=1)[:, 0] for t in self.find(sets))
        return second, shifts

    def find(self, sets: Candidates) -> tuple[Ints, Ints]:
        """Return the rows of `second` and of `shifts` for each candidate, [n, T] each."""
        if sets.key != self.key:
            raise BadInput("the tables are of candidates mined with other options: compute them from these candidates")
        passages, positions = self._codes(sets)
        found = np.searchsorted(self._passage_codes, passages), np.searchsorted(self._position_codes, positions)
        for row, table, codes in (
            (found[0], self._passage_codes, passages),
            (found[1], self._position_codes, positions),
        ):
            if not (table[np.minimum(row, len(table) - 1)] == codes).all():
                raise BadInput(f"sets of {sets.passages.shape[1]} passages contain pairs that are not in the tables")
        return found

    def find_queries(self, sets: Candidates) -> Ints:
        """Return the row of `first` for each set, [n]."""
        return np.searchsorted(self._queries, sets.query)


class CandidateFeed(_CandidateSets):
    """Sets of T candidates, each candidate one vector of 2·dim numbers."""

    read: Tensor | None = None

    def __init__(self, means: PairMeans, candidates: Candidates) -> None:
        """Take the tables, on their device, and candidate sets of one length."""
        super().__init__(candidates, means.device)
        self.means = means
        self.inputs, self.tokens = 2 * means.dim, self.length
        self._first = _to_device(means.find_queries(candidates), means.device)
        self._second, self._shift = (_to_device(found, means.device) for found in means.find(candidates))

    def train(
        self, index: Int64[Tensor, "models batch"], step: int | Tensor, seeds: Sequence[int]
    ) -> tuple[Float[Tensor, "models batch T inputs"], Int64[Tensor, "models batch"], None]:
        """Return the vectors of the chosen training sets and the place of each positive, without augmentation."""
        del step, seeds
        return self._gather(self._rows["train"][index])

    def part(
        self, name: Literal["train", "validation"], first: int, count: int
    ) -> tuple[Float[Tensor, "b T inputs"], Int64[Tensor, " b"], None]:
        """Return the sets of one part in order."""
        return self._gather(self.part_rows(name, first, count))

    def _gather(self, rows: Tensor) -> tuple[Tensor, Tensor, None]:
        means = self.means
        second = means.second[self._second[rows]].float() + means.shifts[self._shift[rows]].float()
        first = means.first[self._first[rows]].float()
        X = torch.cat([first.unsqueeze(-2).expand(second.shape), second], dim=-1)
        return X, self._positive_place[rows], None


class TokenFeed(_CandidateSets):
    """Sets of T candidates as one sequence of T·cut tokens, each candidate truncated or padded to `cut` tokens.

    Positions and segments are BERT's within each candidate. The first tokens of all candidates are equal, so the
    encoder must add positions of its own to tell the candidates apart.
    """

    def __init__(
        self,
        tokens: Tokens,
        tables: Tables,
        candidates: Candidates,
        *,
        cut: int = DEFAULT_CUT_TOKENS,
        standard: bool = True,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """Prepare all pairs; `standard` standardises by the tokens of the training queries with their positives."""
        super().__init__(candidates, device)
        self.cut = cut = check_max_tokens(tables, cut)
        self.inputs, self.tokens = tables.words.shape[1], self.length * cut
        self.read: Tensor | None = torch.arange(self.length, device=self.device) * cut
        count = len(candidates.query)
        pairs = tokens.pairs(np.repeat(candidates.query, self.length), candidates.passages.ravel(), cut)
        shape = (count, self.length * cut)
        self._ids = _to_device(pairs.ids.astype(np.int32).reshape(shape), device)
        self._segments = _to_device(pairs.segments.reshape(shape), device)
        self._mask = _to_device(pairs.mask.reshape(shape), device)
        words, positions, segments = (t.numpy() for t in (tables.words, tables.positions[:cut], tables.segments))
        if standard:
            training = ~candidates.validation
            positives = tokens.pairs(candidates.query[training], candidates.positives[training], cut)
            embeddings = words[positives.ids] + positions + segments[positives.segments]
            mean, deviation = _moments(embeddings[positives.mask])
            words, positions, segments = (
                _standardise(words, mean, deviation),
                positions / deviation,
                segments / deviation,
            )
        # position and segment in one table, [2·cut, dim]: a token's row is segment·cut + position
        offsets = (segments[:, None] + positions[None]).reshape(2 * cut, -1)
        self._words, self._offsets = (_to_device(t, device).to(dtype) for t in (words, offsets))
        self._positions = torch.arange(cut, device=self.device).repeat(self.length)

    def train(
        self, index: Int64[Tensor, "models batch"], step: int | Tensor, seeds: Sequence[int]
    ) -> tuple[
        Float[Tensor, "models batch tokens inputs"], Int64[Tensor, "models batch"], Bool[Tensor, "models batch tokens"]
    ]:
        """Return the tokens of the chosen training sets, the place of each positive, and the mask of real tokens."""
        del step, seeds
        return self._gather(self._rows["train"][index])

    def part(
        self, name: Literal["train", "validation"], first: int, count: int
    ) -> tuple[Float[Tensor, "b tokens inputs"], Int64[Tensor, " b"], Bool[Tensor, "b tokens"]]:
        """Return the sets of one part in order."""
        return self._gather(self.part_rows(name, first, count))

    def _gather(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        offset_rows = self._segments[rows].long() * self.cut + self._positions
        X = self._words[self._ids[rows]].float() + self._offsets[offset_rows].float()
        return X, self._positive_place[rows], self._mask[rows]


def check_max_tokens(tables: Tables, max_tokens: int | None) -> int:
    """Return the maximum number of tokens per sequence (default: the number of positions), or raise BadInput."""
    positions = len(tables.positions)
    if positions < MIN_TOKENS:
        raise BadInput(f"the embeddings have {positions} positions: a query and a passage need at least {MIN_TOKENS}")
    max_tokens = positions if max_tokens is None else max_tokens
    if not MIN_TOKENS <= max_tokens <= positions:
        raise BadInput(f"{max_tokens} tokens per sequence: use {MIN_TOKENS} to {positions} (the model's positions)")
    return max_tokens


def _to_device(array: NDArray[Any], device: torch.device | str) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array)).to(device)


def _mean_embeddings(texts: Ragged, rows: Ints, counts: Ints, words: Floats, special: list[int]) -> Floats:
    """Return mean word embeddings over the first counts[i] tokens of text rows[i] and the special tokens."""
    ends = np.concatenate([[0], np.cumsum(counts + len(special))])
    indices = np.empty(ends[-1], np.int64)
    place = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)  # 0, 1, … within each text
    text = np.repeat(np.arange(len(rows)), counts)
    indices[ends[:-1][text] + place] = texts.flat[texts.starts[:-1][rows][text] + place]
    for n, token in enumerate(special):
        indices[ends[1:] - 1 - n] = token
    sums = sparse.csr_matrix((np.ones(len(indices), np.float32), indices, ends), (len(rows), len(words))) @ words
    return np.asarray(sums / (counts + len(special))[:, None], np.float32)


def _mean_positions(tables: Tables, start: Ints, count: Ints) -> Floats:
    """Return mean position embeddings over the ranges [start, start + count), by prefix sums in double precision."""
    positions = tables.positions.double().numpy()
    sums = np.concatenate([np.zeros((1, positions.shape[1])), np.cumsum(positions, axis=0)])
    return ((sums[start + count] - sums[start]) / count[:, None]).astype(np.float32)


def _moments(rows: NDArray[Any]) -> tuple[Floats, Floats]:
    """Return the mean and deviation of each column; the deviation of a constant column counts as 1."""
    deviation = rows.std(axis=0, dtype=np.float64)
    scale = np.where(deviation > 0, deviation, 1.0)
    return rows.mean(axis=0, dtype=np.float64).astype(np.float32), scale.astype(np.float32)


def _standardise(rows: Floats, mean: Floats, deviation: Floats) -> Floats:
    return (rows - mean) / deviation
