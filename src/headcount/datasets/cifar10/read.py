"""CIFAR-10 in each form in which it is handed round, read to the same arrays; what is damaged gives one line."""

from __future__ import annotations

import gzip
import io
import pickle
import pickletools
import tarfile
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64, UInt8
from numpy.typing import NDArray
from torch import Tensor

from headcount.core import BadInput, arrays_hash
from headcount.core.readers import read_limited, read_npz

SIDE = 32
_BATCHES = tuple(f"data_batch_{i}" for i in range(1, 6))
_BINARY = (*(f"{name}.bin" for name in _BATCHES), "test_batch.bin", "batches.meta.txt")
_PYTHON = (*_BATCHES, "test_batch", "batches.meta")
_ARRAYS = ("jpeg", "offsets", "labels", "classes")  # of the compact form
_PLANES = 3 * SIDE * SIDE
_LARGEST = 1 << 26  # bytes of one file: the official ones have 31 million, a bomb has more
_MAX_ARCHIVE = 1 << 31  # bytes of all files together: the official ones have 186 million
Part = tuple[NDArray[np.uint8], NDArray[np.int64]]  # pixels[n, 32, 32, 3], labels[n]
Parts = tuple[Part, Part, tuple[str, ...], str]  # training, test, classes, source


@dataclass(frozen=True, eq=False)
class Images:
    """Training and test images; label i is classes[i].

    source says which form was read, and where; hash is the identity of the numbers and names, whatever the form.
    """

    train_pixels: UInt8[Tensor, "train 32 32 3"]
    train_labels: Int64[Tensor, " train"]
    test_pixels: UInt8[Tensor, "test 32 32 3"]
    test_labels: Int64[Tensor, " test"]
    classes: tuple[str, ...]
    source: str
    hash: str


def read_cifar(folder: str | Path) -> Images:
    """Read CIFAR-10 from a folder, or from one of the official archives; the files there tell the form.

    The first whole one of these is read: the official binary version, the official Python version (each in the folder
    itself or in the folder that its archive makes), their archives as downloaded, an image folder (train/CLASS/*.png
    or *.jpg, and test/ likewise), and the compact form (train.npz and test.npz, each with jpeg, offsets, labels and
    classes). Nothing is written to disk, and no code in a pickle is run.
    """
    if Path(folder).is_file() and Path(folder).suffix == ".npz":
        raise BadInput(f"{folder} is a file of the compact form: give the folder that holds train.npz and test.npz")
    try:
        train, test, classes, source = _archive(Path(folder)) if Path(folder).is_file() else _chosen(Path(folder))
    except OSError as error:
        raise BadInput(f"cannot read {error.filename or folder}: {error.strerror}") from None
    if len(set(classes)) < max(len(classes), 1):
        raise BadInput(f"{source}: the classes are {list(classes)}: each needs a name of its own")
    for part, (_, labels) in (("training", train), ("test", test)):
        if len(np.unique(labels)) < 2:
            raise BadInput(
                f"{source}: all {part} images are of one class, nothing is to be told apart: give two or more"
            )
    arrays = dict(zip(("train_pixels", "train_labels", "test_pixels", "test_labels"), (*train, *test), strict=True))
    identity = arrays_hash({**arrays, "classes": np.array(classes)})
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    return Images(**tensors, classes=classes, source=source, hash=identity)


def _chosen(folder: Path) -> Parts:
    """Read the first form of which every file is there."""
    forms: list[tuple[str, str, Sequence[str], Callable[[Path, Sequence[str]], Parts]]] = [
        ("binary version", "cifar-10-batches-bin", _BINARY, _official),
        ("Python version", "cifar-10-batches-py", _PYTHON, _official),
        ("archive of the binary version", "", ("cifar-10-binary.tar.gz",), lambda at, names: _archive(at / names[0])),
        ("archive of the Python version", "", ("cifar-10-python.tar.gz",), lambda at, names: _archive(at / names[0])),
        ("image folder", "", ("train", "test"), lambda at, _: _image_folder(at)),
        ("compact form", "", ("train.npz", "test.npz"), lambda at, _: _compact(at)),
    ]
    partial, looked = "", ""
    for form, inner, names, read in forms:
        for at in dict.fromkeys((folder, folder / inner)):
            missing = [name for name in names if not (at / name).exists()]
            if not missing:
                return read(at, names)
            if len(missing) < len(names) and not partial:
                partial = f"{at}: the {form} is not whole: there is no {', '.join(missing)} beside the rest"
        looked += f"; {form}: {', '.join(names)}" + (f" (there or in {inner}/)" if inner else "")
    raise BadInput(partial or f"there is no CIFAR-10 in {folder}: looked there for one of these{looked}")


@contextmanager
def _one_line(where: str | Path, what: str) -> Generator[None]:
    """Turn whatever a broken file makes a reader raise into one line."""
    try:
        yield
    except Exception as error:  # gzip, tar, pickle, zip, NumPy and Pillow each have errors of their own
        if isinstance(error, BadInput) or (isinstance(error, OSError) and error.errno is not None):
            raise  # our own, or the system's, such as a lack of permission: `read_cifar` passes it on
        raise BadInput(f"{where}: {what} cannot be read: truncated, damaged or another kind of file") from error


def _archive(path: Path) -> Parts:
    """Read the wanted members in memory; a name that leads elsewhere cannot harm there, but is no honest archive."""
    found: dict[str, bytes] = {}
    with _one_line(path, "the archive"), gzip.open(path) as handle:
        with tarfile.open(fileobj=handle, mode="r:") as archive:
            for member in archive:
                name = PurePosixPath(member.name)
                if name.is_absolute() or ".." in name.parts or not (member.isreg() or member.isdir()):
                    raise BadInput(f"{path}: {member.name!r} is a link, a device or leads out of the archive: refused")
                if name.name in found or member.size > _LARGEST:
                    raise BadInput(f"{path}: {member.name!r} is there twice, or too large: no official archive")
                if name.name in (*_BINARY, *_PYTHON) and (data := archive.extractfile(member)):
                    found[name.name] = data.read()
        while handle.read(1 << 20):  # on to the end, where gzip compares its checksum
            if handle.tell() > _MAX_ARCHIVE:
                raise BadInput(f"{path}: it unpacks to more than {_MAX_ARCHIVE:,} bytes: no official archive")
    return _official(path, max(_BINARY, _PYTHON, key=lambda names: sum(name in found for name in names)), found)


def _official(where: Path, needs: Sequence[str], files: dict[str, bytes] | None = None) -> Parts:
    """Read the binary or the Python version from its files in a folder, or from what an archive held."""
    files = {name: read_limited(where / name, _LARGEST) for name in needs} if files is None else files
    if missing := [name for name in needs if name not in files]:
        raise BadInput(f"{where}: there is no {', '.join(missing)}: an official version has {', '.join(needs)}")
    binary, meta = needs is _BINARY, where / needs[-1]
    with _one_line(meta, "the list of classes"):
        text = files[meta.name]
        lines = text.decode().split("\n") if binary else _unpickled(meta, text)["label_names"]
        classes = tuple(str(line).strip() for line in lines if line.strip())
    pixels: list[NDArray[np.uint8]] = []
    labels: list[NDArray[np.int64]] = []
    for path in (where / name for name in needs[:-1]):
        with _one_line(path, "the batch"):
            planes, known = (_records if binary else _pickled)(path, files[path.name])
            labels.append(_labels(path, known, len(planes), classes))
        pixels.append(np.ascontiguousarray(planes.reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1)))  # red came first
    train = np.concatenate(pixels[:-1]), np.concatenate(labels[:-1])
    return train, (pixels[-1], labels[-1]), classes, f"official {'binary' if binary else 'Python'} version, {where}"


def _records(where: Path, raw: bytes) -> tuple[NDArray[np.uint8], Any]:
    """Read a file of the binary version: for each image a byte of label, then the planes."""
    if not raw or len(raw) % (1 + _PLANES):
        raise BadInput(f"{where}: {len(raw)} bytes: it must hold images of {1 + _PLANES} bytes each, and at least one")
    records = np.frombuffer(raw, np.uint8).reshape(-1, 1 + _PLANES)
    return records[:, 1:], records[:, 0]


def _pickled(where: Path, raw: bytes) -> tuple[NDArray[np.uint8], Any]:
    """Read a file of the Python version: a dictionary with the array data[n, 3072] and a list of labels."""
    batch = _unpickled(where, raw)
    _, shape, kind, fortran, content = batch["data"].state
    if kind.made_of[0] != "u1" or fortran or len(shape) != 2 or shape[0] < 1 or shape[1] != _PLANES:
        raise BadInput(f"{where}: data must be bytes[images, {_PLANES}] with an image, not {kind.made_of[0]}{shape}")
    content = content.encode("latin1") if isinstance(content, str) else content  # Python 2 has one type for both
    return np.frombuffer(content, np.uint8).reshape(shape), batch["labels"]


class _Stand:
    """Stands for NumPy's arrays and types in a pickle, so that no code but this runs on what a stranger wrote."""

    def __init__(self, *made_of: Any) -> None:
        self.made_of, self.state = made_of, ()

    def __setstate__(self, state: Any) -> None:
        self.state = state


def _unpickled(where: Path, raw: bytes) -> dict[str, Any]:
    """Unpickle numbers, texts, lists, dictionaries and arrays."""
    arrays = ("dtype", "ndarray", "core.multiarray._reconstruct", "_core.multiarray._reconstruct")
    allowed: dict[str, Any] = {f"numpy.{name}": _Stand for name in arrays}
    allowed["_codecs.encode"] = lambda text, _: text.encode("latin1")  # how Python 3 writes bytes for Python 2

    class Restricted(pickle.Unpickler):
        def find_class(self, module: str, name: str, /) -> Any:
            if (wanted := f"{module}.{name}") not in allowed:
                raise BadInput(f"{where}: the pickle asks for {wanted!r}, but only plain data and arrays are read")
            return allowed[wanted]

    for op, number, _ in pickletools.genops(raw):  # a place in the memo far off would be given memory up to there
        if "PUT" in op.name and isinstance(number, int) and number > len(raw):
            raise BadInput(f"{where}: the pickle counts {number} objects in {len(raw)} bytes: it is damaged")
    found = Restricted(io.BytesIO(raw), encoding="latin1").load()
    text = lambda key: key.decode("latin1") if isinstance(key, bytes) else key  # noqa: E731
    return {text(key): value for key, value in found.items()}  # bytes where Python 3 saved it again


def _labels(where: Path, values: Any, count: int, classes: Sequence[str]) -> NDArray[np.int64]:
    """Check that there is one label an image, and a class for each."""
    labels = np.asarray(values)
    if labels.shape != (count,) or labels.dtype.kind not in "ui":
        raise BadInput(f"{where}: {count} images need {count} labels in whole numbers, not {list(labels.shape)}")
    for i in np.flatnonzero((labels < 0) | (labels >= len(classes))):
        raise BadInput(f"{where}: image {i} (from 0) has the label {labels[i]}: there are {len(classes)} classes")
    return labels.astype(np.int64)


def _decoded(where: str | Path, raw: bytes) -> NDArray[np.uint8]:
    """Decode one PNG or JPEG image to [32, 32, 3]."""
    from PIL import Image

    with _one_line(where, "the image"), Image.open(io.BytesIO(raw), formats=("PNG", "JPEG")) as image:
        if image.size != (SIDE, SIDE) or image.mode not in ("RGB", "RGBA", "L", "P"):
            raise BadInput(f"{where}: {image.width} × {image.height} pixels in {image.mode}: it must be 32 × 32 in RGB")
        return np.asarray(image.convert("RGB"))


def _image_folder(folder: Path) -> Parts:
    """Read train/CLASS/IMAGE and test/CLASS/IMAGE, both in the order of the names."""
    train, test = _listing(folder / "train"), _listing(folder / "test")
    if unequal := sorted(train.keys() ^ test.keys()):
        raise BadInput(f"{folder}: only one of train and test has a folder {', '.join(unequal)}: both need each class")
    return _listed(train), _listed(test), tuple(train), f"image folder, {folder}"


def _listing(part: Path) -> dict[str, list[Path]]:
    """List the images of each class; hidden files, which some systems leave everywhere, are passed over."""
    folders = [path for path in sorted(part.iterdir()) if not path.name.startswith(".")]
    for stray in [path for path in folders if not path.is_dir()]:
        raise BadInput(f"{stray} is a file: {part} must hold a folder for each class, and nothing else")
    found = {folder.name: [path for path in sorted(folder.iterdir()) if path.name[0] != "."] for folder in folders}
    for empty in [folder for folder in folders if not found[folder.name]] if found else [part]:
        raise BadInput(f"{empty}: an empty folder: {part} must hold a folder for each class, with images in it")
    return found


def _listed(listing: dict[str, list[Path]]) -> Part:
    pixels = np.stack([_decoded(path, read_limited(path, _LARGEST)) for paths in listing.values() for path in paths])
    return pixels, np.repeat(np.arange(len(listing)), [len(paths) for paths in listing.values()])


def _compact(folder: Path) -> Parts:
    """Read train.npz and test.npz."""
    (train, classes), (test, others) = _npz(folder / "train.npz"), _npz(folder / "test.npz")
    if classes != others:
        raise BadInput(f"{folder / 'test.npz'}: its classes are {list(others)}, those of train.npz {list(classes)}")
    return train, test, classes, f"compact form, {folder}"


def _npz(path: Path) -> tuple[Part, tuple[str, ...]]:
    """Read JPEG files one after the other, image i at offsets[i] to offsets[i + 1]; labels; names of the classes."""
    archive = read_npz(path, _ARRAYS, "fetch it again")
    if missing := [name for name in _ARRAYS if name not in archive]:
        raise BadInput(f"{path}: there is no array {', '.join(missing)}: it must hold {', '.join(_ARRAYS)}")
    jpeg, offsets, labels, names = (archive[name] for name in _ARRAYS)
    classes = tuple(str(name) for name in names.ravel().astype(str))
    rows = jpeg.ndim == offsets.ndim == 1 and jpeg.dtype == np.uint8 and offsets.dtype.kind in "ui" and len(offsets) > 1
    if not rows or offsets[0] != 0 or offsets[-1] != len(jpeg) or (offsets[1:] < offsets[:-1]).any():
        raise BadInput(f"{path}: offsets must rise from 0 to the number of bytes in jpeg, with at least one image")
    labels = _labels(path, labels, len(offsets) - 1, classes)
    files = (jpeg[start:end].tobytes() for start, end in pairwise(offsets))
    return (np.stack([_decoded(f"{path}: image {i} (from 0)", raw) for i, raw in enumerate(files)]), labels), classes
