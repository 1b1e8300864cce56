"""Candidate sets for MS MARCO: for each query one positive passage and hard negatives, none of them a known answer.

Half of the negatives come from BM25 and half from the nearest embeddings, alternately and hardest first, so a shorter
set is the beginning of a longer one. A passage is never used as a negative if any judgement calls it relevant to the
query, if it nearly equals such a passage, if it has no words, or if having or lacking a title before its text
distinguishes it from the positive.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from headcount.core import BadInput, Progress, arrays_hash, check_writable, content_hash, generator, option, write_bytes
from headcount.core.readers import read_npz
from headcount.datasets.msmarco.collection import Collection
from headcount.datasets.msmarco.search import Ints, Terms, Vectors, projected_vectors, top

MAX_CANDIDATES = 64  # passages in the longest set; shorter sets are cut from it
POSITIVE, LEXICAL, NEIGHBOUR = 0, 1, 2  # how a passage came into its set

MINING_VERSION = 1  # part of the sets' identity: raise it when the same options produce different sets
_SEARCH_DEPTH = 96  # how far each search is followed: 63 cover every overlap of the two, the rest what the guards drop
_MAX_SCORES_AT_ONCE = 20_000_000  # scores at a time, 80 MB: 256 queries for 70,000 passages
_CACHED_ARRAYS = ("query", "positive", "validation", "negatives", "kinds")


@dataclass(frozen=True, eq=False)
class Candidates:
    """Candidate sets, one per row; the rows are in the order of the collection's queries."""

    query: Ints  # [n], index into the collection's queries
    passages: Ints  # [n, T], indices into its passages
    place: Ints  # [n], index of the positive within its set, 0..T−1
    kinds: NDArray[np.int8]  # [n, T], POSITIVE, LEXICAL or NEIGHBOUR
    validation: NDArray[np.bool_]  # [n], False on the training queries
    key: str  # hash of the collection and the options, without T

    @property
    def positives(self) -> Ints:
        """The positive of each row, [n]."""
        return self.passages[np.arange(len(self.place)), self.place]


def mine(
    collection: Collection,
    length: int,
    *,
    seed: int,
    queries: int | None = None,
    validation: int | None = None,
    embeddings: Vectors | None = None,
    cache: Path | str | None = None,
    quiet: bool = False,
) -> Candidates:
    """Mine a set of `length` passages for each of `queries` queries (default: all), chosen by the seed.

    `validation` of the queries (default: a fifteenth) are held out such that no passage is relevant both to one of them
    and to a training query. Half of the negatives are nearest neighbours in `embeddings`: `Tokens.vectors` makes these
    from frozen word embeddings; by default, random projections of the words are used. The negatives of a shorter set
    are the first ones of a longer set; the position of the positive is drawn for each length. All lengths share one
    file in the folder `cache`.
    """
    if not 2 <= length <= MAX_CANDIDATES:
        raise BadInput(f"length is {length}: a set has 2 to {MAX_CANDIDATES} passages")
    if seed < 0:
        raise BadInput(f"seed is {seed}: it must be 0 or more")
    if embeddings is not None:
        shape = (len(embeddings.passages), len(embeddings.queries))
        if shape != (len(collection.passages), len(collection.queries)):
            raise BadInput(
                f"the embeddings cover {shape[0]} passages and {shape[1]} queries, but the collection has "
                f"{len(collection.passages)} and {len(collection.queries)}: they are those of another collection"
            )
    count = len(collection.queries) if queries is None else queries
    apart = count // 15 if validation is None else validation
    made = "words" if embeddings is None else arrays_hash({"p": embeddings.passages, "q": embeddings.queries})
    options = {"seed": seed, "queries": count, "validation": apart, "embeddings": made, "version": MINING_VERSION}
    key = content_hash({"collection": collection.content_hash, **options})
    path = None if cache is None else Path(cache) / f"marco-{key[:16]}.npz"
    mined = _load(path, key, collection)
    if mined is None:
        if path is not None:
            check_writable(path.parent, option("store"))  # before the work, not after it
        mined = _search(collection, seed, count, apart, embeddings, quiet)
        cut = _cut(collection, mined, length, seed, key)  # first, since sets that are too short are not cached
        if path is not None:
            buffer = io.BytesIO()
            content = np.array(arrays_hash(mined))
            np.savez_compressed(buffer, allow_pickle=False, key=np.array(key), content=content, **mined)
            write_bytes(path, buffer.getvalue())
        return cut
    return _cut(collection, mined, length, seed, key)


def _cut(collection: Collection, mined: dict[str, NDArray[Any]], length: int, seed: int, key: str) -> Candidates:
    """Return sets of `length` passages: the first negatives, with the positive at a random position."""
    negatives, kinds = mined["negatives"][:, : length - 1], mined["kinds"][:, : length - 1]
    short = np.flatnonzero((negatives < 0).any(axis=1))
    if short.size:
        few = int((negatives[short[0]] >= 0).sum())
        name = collection.queries[int(mined["query"][short[0]])].id
        raise BadInput(
            f"query {name!r} has only {few} passages that may be negatives, and a set of {length} candidates needs "
            f"{length - 1}: use a larger collection or shorter sets"
        )
    rows = len(negatives)
    place = generator(seed, f"marco place {length}").integers(length, size=rows)
    others = np.arange(length - 1)[None] + (np.arange(length - 1)[None] >= place[:, None])  # [n, T−1], around the place
    passages = np.empty((rows, length), np.int64)
    found = np.full((rows, length), POSITIVE, np.int8)
    passages[np.arange(rows), place] = mined["positive"]
    np.put_along_axis(passages, others, negatives.astype(np.int64), axis=1)
    np.put_along_axis(found, others, kinds, axis=1)
    return Candidates(mined["query"].astype(np.int64), passages, place, found, mined["validation"], key)


def _load(path: Path | None, key: str, collection: Collection) -> dict[str, NDArray[Any]] | None:
    """Return the cached arrays; None if they are missing, damaged or were mined with other options."""
    if path is None or not path.is_file():
        return None
    try:
        file = read_npz(path)
        found = {name: file[name] for name in _CACHED_ARRAYS}
        if str(file["key"]) != key or str(file["content"]) != arrays_hash(found):
            return None
    except (BadInput, KeyError):
        return None
    rows, passages = len(found["query"]), len(collection.passages)
    shapes = {name: found[name].shape for name in _CACHED_ARRAYS}
    wide = (rows, MAX_CANDIDATES - 1)
    fits = shapes == dict(zip(_CACHED_ARRAYS, [(rows,), (rows,), (rows,), wide, wide], strict=True))
    return found if fits and all(found[n].max(initial=-1) < passages for n in ("positive", "negatives")) else None


def split_queries(collection: Collection, seed: int, count: int, validation: int) -> tuple[Ints, NDArray[np.bool_]]:
    """Return the chosen queries, and which of them validate: the two parts share no relevant passage."""
    total = len(collection.queries)
    if not 1 <= count <= total:
        raise BadInput(f"queries is {count}: it must be 1 to {total}, as many as the collection has")
    if not 0 <= validation < count:
        raise BadInput(f"validation is {validation}: it must be at least 0 and less than the {count} queries")
    rng = generator(seed, "marco split")
    chosen = np.sort(rng.permutation(total)[:count])
    edges = [(i, count + p) for i, q in enumerate(chosen) for p in collection.queries[int(q)].relevant]
    one, other = np.array(edges).T
    size = count + len(collection.passages)
    graph = sparse.coo_matrix((np.ones(len(one), np.int8), (one, other)), (size, size))
    groups = sparse.csgraph.connected_components(graph, directed=False)[1][:count]  # queries that share a passage
    apart, left = np.zeros(count, np.bool_), validation
    members: dict[int, list[int]] = {}
    for i, group in enumerate(groups.tolist()):
        members.setdefault(group, []).append(i)
    names = sorted(members)
    for g in rng.permutation(len(names)):
        if len(members[names[g]]) <= left:
            apart[members[names[g]]] = True
            left -= len(members[names[g]])
    if left:
        raise BadInput(
            f"only {validation - left} queries can validate without sharing a passage with the others: ask for fewer"
        )
    return chosen, apart


def _search(
    collection: Collection, seed: int, count: int, validation: int, embeddings: Vectors | None, quiet: bool
) -> dict[str, NDArray[Any]]:
    """Run both searches for every query, drop forbidden passages, and take negatives from the two lists alternately."""
    chosen, apart = split_queries(collection, seed, count, validation)
    draws = generator(seed, "marco positive").random(len(collection.queries))
    choices = [collection.queries[q].positives for q in chosen.tolist()]
    positive = np.array([p[int(len(p) * draws[q])] for q, p in zip(chosen.tolist(), choices, strict=True)], np.int64)
    negatives = np.full((count, MAX_CANDIDATES - 1), -1, np.int32)
    kinds = np.full((count, MAX_CANDIDATES - 1), LEXICAL, np.int8)
    with Progress("mining negatives", count, quiet=quiet) as progress:
        progress.start(f"counting the words of {len(collection.passages)} passages")
        terms = Terms(collection)
        vectors = projected_vectors(terms, seed) if embeddings is None else embeddings
        chunk = max(1, min(256, _MAX_SCORES_AT_ONCE // len(collection.passages)))
        for start in range(0, count, chunk):
            rows = slice(start, start + chunk)
            relevant = [collection.queries[q].relevant for q in chosen[rows].tolist()]
            forbidden = _forbidden(collection, positive[rows], relevant)
            lists: list[Ints] = []
            near = vectors.queries[chosen[rows]] @ vectors.passages.T
            for scores, least in ((terms.bm25(chosen[rows]), 0.0), (near, -2.0)):
                scores[
                    forbidden | (scores <= least)
                ] = -np.inf  # a passage without a word of the query is no find of BM25
                found = top(scores, _SEARCH_DEPTH)
                found[near_equal(terms, found, relevant)] = -1
                lists.append(found)
            for i, (lexical, neighbours) in enumerate(zip(*lists, strict=True), start):
                taken = _alternate(lexical.tolist(), neighbours.tolist(), MAX_CANDIDATES - 1)
                negatives[i, : len(taken)] = list(taken)
                kinds[i, : len(taken)] = list(taken.values())
            done = len(relevant)
            progress.advance(done, f"{min(start + done, count)} of {count} queries")
    return {"query": chosen, "positive": positive, "validation": apart, "negatives": negatives, "kinds": kinds}


def _forbidden(collection: Collection, positive: Ints, relevant: list[tuple[int, ...]]) -> NDArray[np.bool_]:
    """Return which passages may not be negatives, whatever their score: [rows, passages]."""
    forbidden = collection.titled[None] != collection.titled[positive][:, None]
    for i, known in enumerate(relevant):
        forbidden[i, list(known)] = True
    return forbidden


NEAR_EQUAL_FRACTION = (
    0.85  # of the words of the shorter text: above it we read only copies and forms filled in, below it new texts
)


def near_equal(terms: Terms, found: Ints, relevant: list[tuple[int, ...]]) -> NDArray[np.bool_]:
    """Return which of the found passages nearly equal a relevant one of their row; −1 stands for no passage.

    Passages are cut from pages at varying places, so the criterion is the fraction of the shorter text's distinct words
    that the longer text also has. Case, punctuation and order do not matter. A passage without words counts as equal.
    """
    owner = np.repeat(np.arange(len(relevant)), [len(known) for known in relevant])
    other = np.repeat(np.concatenate([np.array(known, np.int64) for known in relevant]), found.shape[1])
    one = found[owner].ravel()
    shared = terms.shared(np.maximum(one, 0), other)
    close = shared >= NEAR_EQUAL_FRACTION * np.minimum(terms.sizes[np.maximum(one, 0)], terms.sizes[other])
    marked = np.zeros(found.shape, np.bool_)
    np.logical_or.at(marked, owner, (close & (one >= 0)).reshape(len(owner), -1))
    return marked


def _alternate(lexical: list[int], neighbours: list[int], count: int) -> dict[int, int]:
    """Return `count` passages taken alternately from the two lists, each once, as a mapping to the list's kind."""
    taken: dict[int, int] = {}
    sources = [(LEXICAL, iter(lexical)), (NEIGHBOUR, iter(neighbours))]
    while sources and len(taken) < count:
        kind, source = sources.pop(0)
        passage = next((p for p in source if p >= 0 and p not in taken), None)
        if passage is not None:
            taken[passage] = kind
            sources.append((kind, source))  # an exhausted list leaves its turns to the other
    return taken


def positive_ranks(collection: Collection, candidates: Candidates, terms: Terms | None = None) -> Ints:
    """Return the BM25 rank of the positive within each set, 1 for the best: a measure of how hard the negatives are."""
    terms = Terms(collection) if terms is None else terms
    ranks = np.empty(len(candidates.query), np.int64)
    for start in range(0, len(ranks), 256):
        rows = slice(start, start + 256)
        passages, place = candidates.passages[rows], candidates.place[rows]
        queries = np.repeat(candidates.query[rows], passages.shape[1])
        scores = terms.bm25_pairs(queries, passages.ravel()).reshape(passages.shape)
        ranks[rows] = 1 + (scores > np.take_along_axis(scores, place[:, None], axis=1)).sum(axis=1)
    return ranks
