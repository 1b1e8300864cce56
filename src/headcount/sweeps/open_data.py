"""Real data from their folders: read once, described for the spec, and handed out as feeds, one for each length.

source = open_marco("data/msmarco", lengths=[8, 16], queries=2000, validation=500)
spec = RealSpec(name="marco", kind="marco", source=source.data, heads=[1, 2], lengths=[8, 16])
run_on_store(spec, store, feeds=source.feeds("cuda"), device="cuda")
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from headcount.core import BadInput, arrays_hash, content_hash
from headcount.datasets.cifar10 import Images, read_cifar
from headcount.datasets.msmarco import MINING_VERSION as VERSION
from headcount.datasets.msmarco import Candidates, Tables, Tokens, WordPiece, mine, read_marco, read_model
from headcount.sweeps.encoder_spec import CifarData, MarcoData, RealPanel
from headcount.training import find_device
from headcount.training.encoder import Feed
from headcount.training.feeds import (
    DEFAULT_CUT_TOKENS,
    CandidateFeed,
    ImageFeed,
    ImagesOnDevice,
    PairMeans,
    TokenFeed,
    check_max_tokens,
    check_sets,
)

Feeds = Callable[[RealPanel], Feed]
LENGTHS = (8, 16, 32, 64)  # the paper's sets
_OTHER = "the spec was made from other data, or with other options, than these: put the source's data into the spec"


@dataclass(frozen=True, eq=False)
class MarcoSource:
    """Candidate sets of some lengths with their tokens and embeddings, and what a spec says of them."""

    data: MarcoData
    tokens: Tokens
    tables: Tables
    sets: dict[int, Candidates]

    def feeds(self, device: str = "cpu", *, dtype: torch.dtype = torch.float32) -> Feeds:
        """Return what makes the feed of a panel on a device; the tables go there once, as `dtype`."""
        where, data, made = find_device(device), self.data, dict[str, PairMeans]()

        def feed(panel: RealPanel) -> Feed:
            if panel.source != data:
                raise BadInput(_OTHER)
            if panel.size not in self.sets:
                known = ", ".join(map(str, self.sets))
                raise BadInput(f"no sets of {panel.size} candidates were mined, only of {known}: open the data with it")
            sets = self.sets[panel.size]
            settings: dict[str, Any] = {"standard": data.standard, "device": where, "dtype": dtype}
            if data.entry == "tokens":
                return TokenFeed(self.tokens, self.tables, sets, cut=data.most, **settings)
            if "means" not in made:
                sets_of_all = list(self.sets.values())
                made["means"] = PairMeans(self.tokens, self.tables, sets_of_all, max_tokens=data.most, **settings)
            return CandidateFeed(made["means"], sets)

        return feed


def open_marco(
    folder: Path | str,
    model: Path | str | None = None,
    *,
    lengths: Sequence[int] = LENGTHS,
    queries: int | None = None,
    validation: int | None = None,
    seed: int = 0,
    entry: Literal["means", "tokens"] = "means",
    most: int | None = None,
    standard: bool = True,
    cache: Path | str | None = None,
    quiet: bool = False,
) -> MarcoSource:
    """Read MS MARCO and a BERT-family model, and mine sets of these lengths for some queries (all, unless stated).

    `validation` of the queries are set apart, a fifteenth unless stated. `most` is how many tokens a candidate may
    have: all that the model has positions for where it becomes one vector, 24 where its tokens enter one by one.
    """
    if not lengths:
        raise BadInput("no length is given: list how many candidates a set has, such as 8, 16, 32, 64")
    pieces, tables = read_model(model)
    # before the mining, not after it
    most = check_max_tokens(tables, DEFAULT_CUT_TOKENS if entry == "tokens" and most is None else most)
    collection = read_marco(folder)
    total = len(collection.queries)
    if queries is not None and not 2 <= queries <= total:
        raise BadInput(
            f"{folder} has {total} queries with a positive that may be used, and {queries} are asked for: give --train "
            f"and --validation (queries and validation, in Python) that add up to no more"
        )
    if len(collection.passages) < max(lengths):
        raise BadInput(
            f"{folder} has {len(collection.passages)} passages, and sets of {max(lengths)} candidates need more: give "
            f"a larger collection, or a --scale with shorter sets"
        )
    tokens = Tokens.of(collection, pieces, quiet=quiet)
    vectors = tokens.vectors(tables.words)
    with TemporaryDirectory() as folder_for_now:  # the search is for all lengths at once, and they share its file
        kept = folder_for_now if cache is None else cache
        sets = {
            length: mine(
                collection,
                length,
                seed=seed,
                queries=queries,
                validation=validation,
                embeddings=vectors,
                cache=kept,
                quiet=quiet,
            )
            for length in sorted(set(lengths))
        }
    check_sets(list(sets.values()))
    first = next(iter(sets.values()))
    apart = int(first.validation.sum())
    # of what was asked, not of what was found: scores that differ in the last digit on another machine, and so perhaps
    # order two negatives the other way round, shall not make other trials
    content = content_hash({"collection": collection.content_hash, "mining": VERSION})
    data = MarcoData(
        content=content,
        train=len(first.query) - apart,
        validation=apart,
        passages=len(collection.passages),
        seed=seed,
        embeddings=embeddings_hash(pieces, tables),
        dim=int(tables.words.shape[1]),
        entry=entry,
        most=most,
        standard=standard,
    )
    return MarcoSource(data, tokens, tables, sets)


def embeddings_hash(pieces: WordPiece, tables: Tables) -> str:
    """Name a vocabulary and its embeddings: other numbers make other trials."""
    named = {name: table.numpy() for name, table in zip(tables._fields, tables, strict=True)}
    return arrays_hash({**named, "pieces": np.array(pieces.pieces)})


@dataclass(frozen=True, eq=False)
class CifarSource:
    """Images, and what a spec says of them."""

    data: CifarData
    images: Images

    def feeds(self, device: str = "cpu") -> Feeds:
        """Return what makes the feed of a panel on a device; the pixels go there once, as bytes."""
        where, data, made = find_device(device), self.data, dict[str, ImagesOnDevice]()

        def feed(panel: RealPanel) -> Feed:
            if panel.source != data:
                raise BadInput(_OTHER)
            if "images" not in made:
                made["images"] = ImagesOnDevice.of(self.images, where)
            return ImageFeed(
                made["images"],
                panel.size,
                patch=data.patch,
                data_seed=panel.train.data_seed,
                flips=data.flips,
                moving=data.moving,
            )

        return feed


def open_cifar(
    folder: Path | str,
    *,
    train: int | None = None,
    validation: int | None = None,
    patch: int = 4,
    flips: bool = True,
    moving: bool = True,
) -> CifarSource:
    """Read CIFAR-10; take the first so many images of a part (all, unless stated), the classes as even as they can be.

    The paper's text says patches of 8, and its tables have the lengths of patches of 4, the default here.
    """
    images = read_cifar(folder)
    known = _limited(images.train_pixels, images.train_labels, train, f"{folder}: training images")
    unseen = _limited(images.test_pixels, images.test_labels, validation, f"{folder}: test images")
    names = ("train_pixels", "train_labels", "test_pixels", "test_labels")
    parts = dict(zip(names, (*known, *unseen), strict=True))
    arrays = {name: part.numpy() for name, part in parts.items()}
    content = arrays_hash({**arrays, "classes": np.array(images.classes)})
    images = dataclasses.replace(images, **parts, hash=content)
    data = CifarData(
        content=content,
        train=len(known[1]),
        validation=len(unseen[1]),
        classes=len(images.classes),
        patch=patch,
        flips=flips,
        moving=moving,
    )
    return CifarSource(data, images)


def _limited(pixels: Tensor, labels: Tensor, count: int | None, what: str) -> tuple[Tensor, Tensor]:
    """Take `count` images: the first of each class, then the second of each, …, in this order.

    So the first samples of a part stand for all of it, in whatever order the folder has them.
    """
    if len(labels) == 0:
        raise BadInput(f"{what}: there are none, and at least one is needed")
    count = len(labels) if count is None else count
    if not 1 <= count <= len(labels):
        raise BadInput(f"{what}: {count} were asked for, and there are {len(labels)}: ask for 1 to {len(labels)}")
    known = labels.numpy()
    nth = np.empty(len(known), np.int64)  # image i is the nth of its class
    for label in np.unique(known):
        own = np.flatnonzero(known == label)
        nth[own] = np.arange(len(own))
    chosen = torch.from_numpy(np.lexsort((known, nth))[:count])
    return pixels[chosen], labels[chosen]
