"""Tiny real data made on the spot: a corpus with a BERT-like folder, and images whose class can be seen."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

from datasets.marco_tiny import corpus, write_compact
from headcount.datasets.cifar10.read import Images

DIM, POSITIONS = 6, 40


def write_bert(folder: Path, dim: int = DIM, positions: int = POSITIONS, seed: int = 0) -> Path:
    """Write a model's folder whose vocabulary cuts the corpus's words, w17 and the like, into two or three pieces."""
    folder.mkdir(parents=True, exist_ok=True)
    digits = [str(i) for i in range(10)]
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "w", ".", "?", *digits, *(f"##{d}" for d in digits)]
    rng = torch.Generator().manual_seed(seed)
    sizes = {"word": len(pieces), "position": positions, "token_type": 2}
    save_file(
        {f"embeddings.{k}_embeddings.weight": torch.randn(n, dim, generator=rng) for k, n in sizes.items()},
        folder / "model.safetensors",
    )
    stated = {"vocab_size": len(pieces), "max_position_embeddings": positions, "type_vocab_size": 2}
    (folder / "config.json").write_text(json.dumps(stated))
    (folder / "vocab.txt").write_text("\n".join(pieces) + "\n")
    return folder


def write_corpus(folder: Path, seed: int = 0) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return write_compact(folder, *corpus(seed))


def pictures(train: int = 60, test: int = 30, classes: int = 3, seed: int = 0) -> Images:
    """Noise with a bright band of rows that depends on the class."""
    rng = np.random.default_rng(seed)
    parts = []
    for count in (train, test):
        labels = np.arange(count) % classes
        pixels = rng.integers(0, 100, (count, 32, 32, 3), dtype=np.uint8)
        for i, label in enumerate(labels):
            pixels[i, 10 * label : 10 * label + 8] += 120
        parts += [torch.from_numpy(pixels), torch.from_numpy(labels)]
    return Images(*parts, classes=tuple("abcdefghij"[:classes]), source="made on the spot", hash="0" * 64)


def write_pictures(folder: Path, **sizes: int) -> Path:
    """The same as an image folder."""
    from PIL import Image

    images = pictures(**sizes)
    parts = {"train": (images.train_pixels, images.train_labels), "test": (images.test_pixels, images.test_labels)}
    for part, (pixels, labels) in parts.items():
        for i, (image, label) in enumerate(zip(pixels.numpy(), labels.tolist(), strict=True)):
            place = folder / part / images.classes[label]
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(place / f"{i:04}.png")
    return folder
