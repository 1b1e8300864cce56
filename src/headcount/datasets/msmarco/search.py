"""Two searches over the passages of MS MARCO: BM25 by words, and nearest neighbours by embeddings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from headcount.core import BadInput, generator
from headcount.datasets.msmarco.collection import Collection, words

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

BM25_K1, BM25_B = 0.9, 0.4  # the usual values for this collection (Anserini's for its passages)


def count_terms(texts: Iterable[Sequence[str]], vocabulary: dict[str, int], *, grow: bool) -> Any:
    """Return term counts as a CSR matrix [texts, terms]; new terms join the vocabulary if `grow`, or are ignored."""
    indices: list[int] = []
    ends = [0]
    for terms in texts:
        if grow:
            indices.extend([vocabulary.setdefault(term, len(vocabulary)) for term in terms])
        else:
            indices.extend([vocabulary[term] for term in terms if term in vocabulary])
        ends.append(len(indices))
    ones = np.ones(len(indices), np.float32)
    counts = sparse.csr_matrix((ones, np.array(indices, np.int32), np.array(ends)), (len(ends) - 1, len(vocabulary)))
    counts.sum_duplicates()
    return counts


class Terms:
    """Word counts of the passages and the queries, and the BM25 weight of every word in every passage."""

    def __init__(self, collection: Collection) -> None:
        vocabulary: dict[str, int] = {}
        self.passages = count_terms(map(words, collection.passages), vocabulary, grow=True)  # [passages, terms]
        self.queries = count_terms((words(q.text) for q in collection.queries), vocabulary, grow=False)
        self.sizes = np.diff(self.passages.indptr)  # distinct words of each passage
        frequency = np.bincount(self.passages.indices, minlength=len(vocabulary))
        self.idf = np.log1p((len(self.sizes) - frequency + 0.5) / (frequency + 0.5)).astype(np.float32)
        lengths = np.asarray(self.passages.sum(1)).ravel()
        damping = BM25_K1 * (1 - BM25_B + BM25_B * lengths / max(float(lengths.mean()), 1.0))
        counts = self.passages.data
        data = self.idf[self.passages.indices] * counts / (counts + np.repeat(damping, self.sizes))
        shape = self.passages.shape
        self.weights = sparse.csr_matrix((data.astype(np.float32), self.passages.indices, self.passages.indptr), shape)
        self._by_term = self.weights.T.tocsr()

    def bm25(self, queries: Ints) -> Floats:
        """Return the scores of all passages for these queries: the summed weights of the query's words."""
        return (self.queries[queries] @ self._by_term).toarray()

    def bm25_pairs(self, queries: Ints, passages: Ints) -> Floats:
        """Return the score of each pair of query and passage."""
        return np.asarray(self.queries[queries].multiply(self.weights[passages]).sum(1), np.float32).ravel()

    def shared(self, one: Ints, other: Ints) -> NDArray[np.int64]:
        """Return the number of distinct words that each pair of passages shares."""
        return np.diff(self.passages[one].multiply(self.passages[other]).tocsr().indptr).astype(np.int64)


@dataclass(frozen=True, eq=False)
class Vectors:
    """One vector for each passage and each query of a collection, of norm 1 (or 0, for a text without words)."""

    passages: Floats  # [passages, dim]
    queries: Floats  # [queries, dim]

    def __post_init__(self) -> None:
        for name, array in (("passages", self.passages), ("queries", self.queries)):
            if array.dtype != np.float32 or array.ndim != 2 or not np.isfinite(array).all():
                raise BadInput(f"the embeddings of the {name} must be a matrix of finite float32 numbers")
        if self.passages.shape[1] != self.queries.shape[1]:
            raise BadInput(
                f"the embeddings of the passages have {self.passages.shape[1]} dimensions and those of the queries "
                f"{self.queries.shape[1]}: they must come from one table"
            )


def unit(rows: NDArray[Any]) -> Floats:
    """Return the rows scaled to norm 1; rows of zeros stay."""
    norms = np.sqrt(np.einsum("ij,ij->i", rows, rows))[:, None]
    return np.ascontiguousarray(rows / np.where(norms > 0, norms, 1), np.float32)


def projected_vectors(terms: Terms, seed: int, dim: int = 256) -> Vectors:
    """Return random projections of TF-IDF vectors, for use without embeddings.

    A random projection nearly preserves the cosines: it captures no meaning beyond shared words, but its order differs
    from BM25's through the length normalisation and the noise.
    """
    directions = generator(seed, "marco projection").standard_normal((len(terms.idf), dim), dtype=np.float32)
    directions *= terms.idf[:, None]
    return Vectors(unit(terms.passages.power(0.5) @ directions), unit(terms.queries.power(0.5) @ directions))


def top(scores: Floats, count: int) -> Ints:
    """Return the columns of the highest scores of each row, best first, ties by column; −1 where none is finite."""
    rows, columns = scores.shape
    found = np.full((rows, count), -1, np.int64)
    keep = min(count, columns)
    # find the lowest score that counts, then all columns that reach it: argpartition alone breaks ties arbitrarily
    edges = np.partition(scores, columns - keep, axis=1)[:, columns - keep]
    for i in range(rows):
        reach = np.flatnonzero((scores[i] >= edges[i]) & (scores[i] > -np.inf))
        order = np.lexsort((reach, -scores[i, reach]))[:keep]
        found[i, : len(order)] = reach[order]
    return found
