"""Open real data: read a folder once, describe it for the spec, and give a feed for each length.

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

from headcount.core import BadInput, arrays_hash, content_hash, working
from headcount.datasets.cifar10 import Images, read_cifar
from headcount.datasets.msmarco import (
    MINING_VERSION,
    Candidates,
    Tables,
    Tokens,
    WordPiece,
    mine,
    read_marco,
    read_model,
)
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
PAPER_LENGTHS = (8, 16, 32, 64)  # the paper's sets
_OTHER_DATA = "the spec was made from other data or with other options: use the source's data in the spec"


@dataclass(frozen=True, eq=False)
class MarcoSource:
    """Candidate sets of some lengths with their tokens and embeddings, and their description for a spec."""

    data: MarcoData
    tokens: Tokens
    tables: Tables
    sets: dict[int, Candidates]

    def feeds(self, device: str = "cpu", *, dtype: torch.dtype = torch.float32) -> Feeds:
        """Return a function that makes the feed of a panel on a device; the tables are copied once, as `dtype`."""
        where, data, made = find_device(device), self.data, dict[str, PairMeans]()

        def feed(panel: RealPanel) -> Feed:
            if panel.source != data:
                raise BadInput(_OTHER_DATA)
            if panel.size not in self.sets:
                known = ", ".join(map(str, self.sets))
                raise BadInput(f"no sets of {panel.size} candidates were mined, only of {known}: add it to lengths")
            sets = self.sets[panel.size]
            settings: dict[str, Any] = {"standard": data.standard, "device": where, "dtype": dtype}
            if data.entry == "tokens":
                return TokenFeed(self.tokens, self.tables, sets, cut=data.most, **settings)
            if "means" not in made:
                all_sets = list(self.sets.values())
                made["means"] = PairMeans(self.tokens, self.tables, all_sets, max_tokens=data.most, **settings)
            return CandidateFeed(made["means"], sets)

        return feed


def open_marco(
    folder: Path | str,
    model: Path | str | None = None,
    *,
    lengths: Sequence[int] = PAPER_LENGTHS,
    queries: int | None = None,
    validation: int | None = None,
    seed: int = 0,
    entry: Literal["means", "tokens"] = "means",
    most: int | None = None,
    standard: bool = True,
    cache: Path | str | None = None,
    quiet: bool = False,
) -> MarcoSource:
    """Read MS MARCO and a BERT-family model, and mine sets of these lengths for `queries` queries (default: all).

    `validation` of the queries are held out (default: a fifteenth). `most` is the most tokens of a candidate: by
    default all that the model has positions for if a candidate becomes one vector, and 24 if its tokens enter singly.
    """
    if not lengths:
        raise BadInput("lengths is empty: list numbers of candidates in a set, such as 8, 16, 32, 64")
    pieces, tables = read_model(model)
    # before the mining, not after it
    most = check_max_tokens(tables, DEFAULT_CUT_TOKENS if entry == "tokens" and most is None else most)
    with working("reading MS MARCO", quiet=quiet):
        collection = read_marco(folder)
    total = len(collection.queries)
    if queries is not None and not 2 <= queries <= total:
        raise BadInput(
            f"{folder} has {total} queries with a usable positive, but {queries} were requested: give --train and "
            f"--validation (in Python, queries and validation) that add up to at most {total}"
        )
    if len(collection.passages) < max(lengths):
        raise BadInput(
            f"{folder} has {len(collection.passages)} passages, and sets of {max(lengths)} candidates need more: use "
            f"a larger collection, or a --scale with shorter sets"
        )
    tokens = Tokens.of(collection, pieces, quiet=quiet)
    vectors = tokens.vectors(tables.words)
    with TemporaryDirectory() as temporary:  # one search serves all lengths, which share its file
        cache_folder = temporary if cache is None else cache
        sets = {
            length: mine(
                collection,
                length,
                seed=seed,
                queries=queries,
                validation=validation,
                embeddings=vectors,
                cache=cache_folder,
                quiet=quiet,
            )
            for length in sorted(set(lengths))
        }
    check_sets(list(sets.values()))
    first = next(iter(sets.values()))
    held_out = int(first.validation.sum())
    # a hash of the input, not of the result: on another machine scores may differ in the last digit and swap two
    # negatives, which must not give other trials
    content = content_hash({"collection": collection.content_hash, "mining": MINING_VERSION})
    data = MarcoData(
        content=content,
        train=len(first.query) - held_out,
        validation=held_out,
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
    """Return the hash of a vocabulary and its embeddings, on which the hashes of trials depend."""
    arrays = {name: table.numpy() for name, table in zip(tables._fields, tables, strict=True)}
    return arrays_hash({**arrays, "pieces": np.array(pieces.pieces)})


@dataclass(frozen=True, eq=False)
class CifarSource:
    """Images, and their description for a spec."""

    data: CifarData
    images: Images

    def feeds(self, device: str = "cpu") -> Feeds:
        """Return a function that makes the feed of a panel on a device; the pixels are copied once, as bytes."""
        where, data, made = find_device(device), self.data, dict[str, ImagesOnDevice]()

        def feed(panel: RealPanel) -> Feed:
            if panel.source != data:
                raise BadInput(_OTHER_DATA)
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
    """Read CIFAR-10, with the first `train` and `validation` images (default: all), balanced over the classes.

    The paper's text says patches of 8, but the lengths in its tables are those of patches of 4, the default here.
    """
    images = read_cifar(folder)
    training = _limited(images.train_pixels, images.train_labels, train, f"{folder}: training images")
    test = _limited(images.test_pixels, images.test_labels, validation, f"{folder}: test images")
    names = ("train_pixels", "train_labels", "test_pixels", "test_labels")
    parts = dict(zip(names, (*training, *test), strict=True))
    arrays = {name: part.numpy() for name, part in parts.items()}
    content = arrays_hash({**arrays, "classes": np.array(images.classes)})
    images = dataclasses.replace(images, **parts, hash=content)
    data = CifarData(
        content=content,
        train=len(training[1]),
        validation=len(test[1]),
        classes=len(images.classes),
        patch=patch,
        flips=flips,
        moving=moving,
    )
    return CifarSource(data, images)


def _limited(pixels: Tensor, labels: Tensor, count: int | None, what: str) -> tuple[Tensor, Tensor]:
    """Return `count` images: the first of each class, then the second of each, and so on, in this order.

    So the first samples of a part represent all of it, whatever the order in the folder.
    """
    if len(labels) == 0:
        raise BadInput(f"{what}: there are none, and at least one is needed")
    count = len(labels) if count is None else count
    if not 1 <= count <= len(labels):
        raise BadInput(f"{what}: {count} were requested, and there are {len(labels)}: request 1 to {len(labels)}")
    classes = labels.numpy()
    rank = np.empty(len(classes), np.int64)  # rank of image i within its class
    for label in np.unique(classes):
        members = np.flatnonzero(classes == label)
        rank[members] = np.arange(len(members))
    chosen = torch.from_numpy(np.lexsort((classes, rank))[:count])
    return pixels[chosen], labels[chosen]
