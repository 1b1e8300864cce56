"""Sets of candidates as batches for training: which of T passages answers the query?

The paper does not say how candidates enter the encoder. `CandidateFeed` takes each candidate, [CLS] query [SEP]
passage [SEP], to one vector: the mean of word + position + segment embedding over the tokens of the first segment
([CLS], query, [SEP]) and the same over the second (passage, [SEP]), side by side. The encoder then attends over the T
candidates. `TokenFeed` is the alternative: the tokens of all candidates one after the other, each candidate read at its
first token.

What is cut is what `Tokens.pairs` cuts: a sequence has at most `most` tokens, a query keeps at most half of the room
beside the three special ones, and the passage's end is cut to what is left.
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

CUT = 24  # tokens of a candidate in a TokenFeed, unless stated
Floats = NDArray[np.float32]


def check_sets(sets: Sequence[Candidates]) -> None:
    """Refuse sets that do not belong together, an empty part, and a positive that both parts have."""
    first = sets[0]
    if any(other.key != first.key for other in sets):
        raise BadInput("the sets of candidates were mined with different options: mine all lengths with the same ones")
    apart = first.validation
    for name, count in (("training", int((~apart).sum())), ("validation", int(apart.sum()))):
        if count == 0:
            raise BadInput(f"no query is left for {name}: {len(apart)} queries, {int(apart.sum())} of them set apart")
    if np.intersect1d(first.positives[apart], first.positives[~apart]).size:
        raise BadInput("training and validation share a positive passage: mine the sets again")


class _Sets:
    """What both feeds share: rows by part, and the place of the positive as the answer."""

    outputs = 1
    readout: Literal["class", "each"] = "each"
    captured = True  # a gather on the device: nothing comes from the host

    def __init__(self, candidates: Candidates, device: torch.device | str) -> None:
        check_sets([candidates])
        self.device = torch.device(device)
        self.length = int(candidates.passages.shape[1])
        # training sets in a fixed order of chance: the first ones, on which the training error is measured, stand for
        # all, while the collection's order is one of splits and often of the alphabet
        known, unseen = np.flatnonzero(~candidates.validation), np.flatnonzero(candidates.validation)
        known = generator(0, "candidate order").permutation(known)
        self._rows = {"train": _on(known, device), "validation": _on(unseen, device)}
        self._place = _on(candidates.place, device)
        self.train_size, self.validation_size = (len(self._rows[name]) for name in ("train", "validation"))

    def part_rows(self, name: Literal["train", "validation"], first: int, count: int) -> Tensor:
        """Return which sets of all a stretch of one part is."""
        return self._rows[name][first : first + count]


class PairMeans:
    """Means of embeddings on a device, which the feeds of all lengths share.

    A pair's second mean depends on the query by its length alone, which shifts the positions and, in a long passage,
    the cut. So there is a row for each (passage, tokens kept) that occurs, and one for each stretch of positions.
    """

    def __init__(
        self,
        tokens: Tokens,
        tables: Tables,
        sets: Sequence[Candidates],
        *,
        most: int | None = None,
        standard: bool = True,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """Compute the means of every pair in the sets; `standard` brings each number to mean 0 and deviation 1.

        It is measured on the training queries with their positives, the same for every length, and is a linear map
        that the encoder's projection could undo: it changes how fast models learn, not what they can say.
        """
        check_sets(sets)
        self.most = most = check_most(tables, most)
        self.device, self.dim, self.key = torch.device(device), tables.words.shape[1], sets[0].key
        self._asked = np.minimum(np.diff(tokens.queries.starts), (most - 3) // 2)
        self._sizes = np.diff(tokens.passages.starts)
        pairs = [self._codes(one) for one in sets]
        self._kept, self._spots = (np.unique(np.concatenate([pair[n].ravel() for pair in pairs])) for n in (0, 1))
        chosen = np.unique(sets[0].query)
        words, special = tables.words.numpy(), tokens.pieces.ids
        asked, (passages, given) = self._asked[chosen], np.divmod(self._kept, most)
        first = _means(tokens.queries, chosen, asked, words, [special["[CLS]"], special["[SEP]"]])
        second = _means(tokens.passages, passages, given, words, [special["[SEP]"]])
        before, after = np.divmod(self._spots, most)
        first = first + _stretches(tables, np.zeros_like(asked), asked + 2) + tables.segments[0].numpy()
        shifts = _stretches(tables, before + 2, after + 1) + tables.segments[1].numpy()
        if standard:
            training = ~sets[0].validation
            own = np.searchsorted(chosen, sets[0].query[training])
            first = _scaled(first, *_moments(first[own]))
            rows, spots = self._lookup(sets[0], training, sets[0].place[training])
            middle, deviation = _moments(second[rows] + shifts[spots])
            second, shifts = second / deviation, _scaled(shifts, middle, deviation)
        self._chosen = chosen
        self.first, self.second, self.shifts = (_on(t, device).to(dtype) for t in (first, second, shifts))

    def _codes(self, sets: Candidates) -> tuple[Ints, Ints]:
        """Number each pair's (passage, tokens kept), and its stretch of positions (query's tokens, tokens kept)."""
        asked = self._asked[sets.query][:, None]
        given = np.minimum(self._sizes[sets.passages], self.most - 3 - asked)
        return sets.passages * self.most + given, asked * self.most + given

    def _lookup(self, sets: Candidates, rows: Any, places: Ints) -> tuple[Ints, Ints]:
        """Find the table rows of one candidate in each of some sets."""
        kept, spots = (np.take_along_axis(t[rows], places[:, None], axis=1)[:, 0] for t in self.find(sets))
        return kept, spots

    def find(self, sets: Candidates) -> tuple[Ints, Ints]:
        """Return the rows of `second` and of `shifts` for each candidate, [n, T] each."""
        if sets.key != self.key:
            raise BadInput("these candidates were mined with other options than the tables: make the tables from them")
        kept, spots = self._codes(sets)
        found = np.searchsorted(self._kept, kept), np.searchsorted(self._spots, spots)
        for at, table, codes in ((found[0], self._kept, kept), (found[1], self._spots, spots)):
            if not (table[np.minimum(at, len(table) - 1)] == codes).all():
                raise BadInput(f"sets of {sets.passages.shape[1]} passages hold pairs that the tables do not have")
        return found

    def find_queries(self, sets: Candidates) -> Ints:
        """Return the rows of `first` for each set, [n]."""
        return np.searchsorted(self._chosen, sets.query)


class CandidateFeed(_Sets):
    """Sets of T candidates, each candidate one vector of 2·dim numbers."""

    read: Tensor | None = None

    def __init__(self, means: PairMeans, candidates: Candidates) -> None:
        """Take tables on their device, and sets of one length."""
        super().__init__(candidates, means.device)
        self.means = means
        self.inputs, self.tokens = 2 * means.dim, self.length
        self._first = _on(means.find_queries(candidates), means.device)
        self._second, self._shift = (_on(found, means.device) for found in means.find(candidates))

    def train(
        self, index: Int64[Tensor, "models batch"], step: int | Tensor, seeds: Sequence[int]
    ) -> tuple[Float[Tensor, "models batch T inputs"], Int64[Tensor, "models batch"], None]:
        """Return the vectors of the chosen training sets, and the place of each positive; nothing is augmented."""
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
        return X, self._place[rows], None


class TokenFeed(_Sets):
    """Sets of T candidates as one sequence of T·cut tokens, each candidate cut or padded to `cut` tokens.

    Positions and segments are BERT's within the candidate. All first tokens are the same, so an encoder must add
    positions of its own, or no candidate could be told from another.
    """

    def __init__(
        self,
        tokens: Tokens,
        tables: Tables,
        candidates: Candidates,
        *,
        cut: int = CUT,
        standard: bool = True,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """Compose all pairs; `standard` scales by the tokens of the training queries with their positives."""
        super().__init__(candidates, device)
        self.cut = cut = check_most(tables, cut)
        self.inputs, self.tokens = tables.words.shape[1], self.length * cut
        self.read: Tensor | None = torch.arange(self.length, device=self.device) * cut
        count = len(candidates.query)
        pairs = tokens.pairs(np.repeat(candidates.query, self.length), candidates.passages.ravel(), cut)
        shape = (count, self.length * cut)
        self._ids = _on(pairs.ids.astype(np.int32).reshape(shape), device)
        self._segments = _on(pairs.segments.reshape(shape), device)
        self._mask = _on(pairs.mask.reshape(shape), device)
        words, positions, segments = (t.numpy() for t in (tables.words, tables.positions[:cut], tables.segments))
        if standard:
            training = ~candidates.validation
            own = tokens.pairs(candidates.query[training], candidates.positives[training], cut)
            middle, deviation = _moments((words[own.ids] + positions + segments[own.segments])[own.mask])
            words, positions, segments = _scaled(words, middle, deviation), positions / deviation, segments / deviation
        # position and segment in one table, [2·cut, dim]: a token's row is segment·cut + place
        spots = (segments[:, None] + positions[None]).reshape(2 * cut, -1)
        self._words, self._spots = (_on(t, device).to(dtype) for t in (words, spots))
        self._at = torch.arange(cut, device=self.device).repeat(self.length)

    def train(
        self, index: Int64[Tensor, "models batch"], step: int | Tensor, seeds: Sequence[int]
    ) -> tuple[
        Float[Tensor, "models batch tokens inputs"], Int64[Tensor, "models batch"], Bool[Tensor, "models batch tokens"]
    ]:
        """Return the tokens of the chosen training sets, the place of each positive, and where there is no padding."""
        del step, seeds
        return self._gather(self._rows["train"][index])

    def part(
        self, name: Literal["train", "validation"], first: int, count: int
    ) -> tuple[Float[Tensor, "b tokens inputs"], Int64[Tensor, " b"], Bool[Tensor, "b tokens"]]:
        """Return the sets of one part in order."""
        return self._gather(self.part_rows(name, first, count))

    def _gather(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        spots = self._segments[rows].long() * self.cut + self._at
        X = self._words[self._ids[rows]].float() + self._spots[spots].float()
        return X, self._place[rows], self._mask[rows]


def check_most(tables: Tables, most: int | None) -> int:
    """Return how many tokens a sequence may have: as stated, or as many as the model has positions."""
    longest = len(tables.positions)
    if longest < 5:
        raise BadInput(f"the embeddings have {longest} positions: a query and a passage with marks need 5 or more")
    most = longest if most is None else most
    if not 5 <= most <= longest:
        raise BadInput(f"a sequence of {most} tokens: give 5 to {longest}, the positions of this model")
    return most


def _on(array: NDArray[Any], device: torch.device | str) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array)).to(device)


def _means(texts: Ragged, rows: Ints, counts: Ints, words: Floats, special: list[int]) -> Floats:
    """Average word embeddings over the first tokens of some texts, so many of each, and the special ones."""
    ends = np.concatenate([[0], np.cumsum(counts + len(special))])
    indices = np.empty(ends[-1], np.int64)
    inside = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)  # 0, 1, … within each text
    owner = np.repeat(np.arange(len(rows)), counts)
    indices[ends[:-1][owner] + inside] = texts.flat[texts.starts[:-1][rows][owner] + inside]
    for n, token in enumerate(special):
        indices[ends[1:] - 1 - n] = token
    sums = sparse.csr_matrix((np.ones(len(indices), np.float32), indices, ends), (len(rows), len(words))) @ words
    return np.asarray(sums / (counts + len(special))[:, None], np.float32)


def _stretches(tables: Tables, start: Ints, count: Ints) -> Floats:
    """Average the positions of stretches, from sums in double precision up to each position."""
    positions = tables.positions.double().numpy()
    sums = np.concatenate([np.zeros((1, positions.shape[1])), np.cumsum(positions, axis=0)])
    return ((sums[start + count] - sums[start]) / count[:, None]).astype(np.float32)


def _moments(rows: NDArray[Any]) -> tuple[Floats, Floats]:
    """Return mean and deviation of each column; a column that is constant keeps its scale."""
    deviation = rows.std(axis=0, dtype=np.float64)
    scale = np.where(deviation > 0, deviation, 1.0)
    return rows.mean(axis=0, dtype=np.float64).astype(np.float32), scale.astype(np.float32)


def _scaled(rows: Floats, middle: Floats, deviation: Floats) -> Floats:
    return (rows - middle) / deviation
