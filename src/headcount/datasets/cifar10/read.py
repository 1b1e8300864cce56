"""Read CIFAR-10 in each form in which it is distributed; all give the same arrays, and bad files a one-line error."""

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

IMAGE_SIDE = 32
_BATCHES = tuple(f"data_batch_{i}" for i in range(1, 6))
_BINARY = (*(f"{name}.bin" for name in _BATCHES), "test_batch.bin", "batches.meta.txt")
_PYTHON = (*_BATCHES, "test_batch", "batches.meta")
_ARRAYS = ("jpeg", "offsets", "labels", "classes")  # of the compact form
_IMAGE_BYTES = 3 * IMAGE_SIDE * IMAGE_SIDE
_MAX_FILE_BYTES = 1 << 26  # of one file: the official ones have 31 million; a decompression bomb has more
_MAX_ARCHIVE_BYTES = 1 << 31  # of all files together: the official ones have 186 million
Part = tuple[NDArray[np.uint8], NDArray[np.int64]]  # pixels[n, 32, 32, 3], labels[n]
Parts = tuple[Part, Part, tuple[str, ...], str]  # training, test, classes, source


@dataclass(frozen=True, eq=False)
class Images:
    """Training and test images; the name of label i is classes[i].

    `source` is the form that was read, and its folder; `hash` covers pixels, labels and class names, not the form.
    """

    train_pixels: UInt8[Tensor, "train 32 32 3"]
    train_labels: Int64[Tensor, " train"]
    test_pixels: UInt8[Tensor, "test 32 32 3"]
    test_labels: Int64[Tensor, " test"]
    classes: tuple[str, ...]
    source: str
    hash: str


def read_cifar(folder: str | Path) -> Images:
    """Read CIFAR-10 from a folder, whose file names tell the form, or from one of the official archives.

    The first complete form is read, in this order: the official binary version, the official Python version (each in
    the folder itself or in the subfolder that its archive unpacks to), their archives as downloaded, an image folder
    (train/CLASS/*.png or *.jpg, and test/ likewise), and the compact form (train.npz and test.npz, each with jpeg,
    offsets, labels and classes). Nothing is written to disk, and no code in a pickle is run.
    """
    if Path(folder).is_file() and Path(folder).suffix == ".npz":
        raise BadInput(f"{folder} is a file of the compact form: give the folder that holds train.npz and test.npz")
    try:
        train, test, classes, source = _archive(Path(folder)) if Path(folder).is_file() else _read_folder(Path(folder))
    except OSError as error:
        raise BadInput(f"cannot read {error.filename or folder}: {error.strerror}") from None
    if len(set(classes)) < max(len(classes), 1):
        raise BadInput(f"{source}: the classes are {list(classes)}: each needs a name of its own")
    for part, (_, labels) in (("training", train), ("test", test)):
        if len(np.unique(labels)) < 2:
            raise BadInput(
                f"{source}: all {part} images are of one class, so there is nothing to tell apart: give two or more"
            )
    arrays = dict(zip(("train_pixels", "train_labels", "test_pixels", "test_labels"), (*train, *test), strict=True))
    identity = arrays_hash({**arrays, "classes": np.array(classes)})
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    return Images(**tensors, classes=classes, source=source, hash=identity)


def _read_folder(folder: Path) -> Parts:
    """Read the first form whose files are all there."""
    forms: list[tuple[str, str, Sequence[str], Callable[[Path, Sequence[str]], Parts]]] = [
        ("binary version", "cifar-10-batches-bin", _BINARY, _official),
        ("Python version", "cifar-10-batches-py", _PYTHON, _official),
        ("archive of the binary version", "", ("cifar-10-binary.tar.gz",), lambda at, names: _archive(at / names[0])),
        ("archive of the Python version", "", ("cifar-10-python.tar.gz",), lambda at, names: _archive(at / names[0])),
        ("image folder", "", ("train", "test"), lambda at, _: _image_folder(at)),
        ("compact form", "", ("train.npz", "test.npz"), lambda at, _: _compact(at)),
    ]
    partial, searched = "", ""
    for form, inner, names, read in forms:
        for at in dict.fromkeys((folder, folder / inner)):
            missing = [name for name in names if not (at / name).exists()]
            if not missing:
                return read(at, names)
            if len(missing) < len(names) and not partial:
                partial = f"{at}: the {form} is incomplete: {', '.join(missing)} is missing"
        searched += f"; {form}: {', '.join(names)}" + (f" (there or in {inner}/)" if inner else "")
    raise BadInput(partial or f"no CIFAR-10 found in {folder}: looked there for one of these{searched}")


@contextmanager
def _read_errors(where: str | Path, what: str) -> Generator[None]:
    """Turn whatever error a broken file makes a reader raise into BadInput, one line long."""
    try:
        yield
    except Exception as error:  # gzip, tar, pickle, zip, NumPy and Pillow each have errors of their own
        if isinstance(error, BadInput) or (isinstance(error, OSError) and error.errno is not None):
            raise  # our own error, or the system's, such as a missing permission: `read_cifar` reports it
        raise BadInput(f"{where}: {what} cannot be read: truncated, damaged or another kind of file") from error


def _archive(path: Path) -> Parts:
    """Read the wanted members into memory; reject names that lead outside, which no official archive has."""
    found: dict[str, bytes] = {}
    with _read_errors(path, "the archive"), gzip.open(path) as handle:
        with tarfile.open(fileobj=handle, mode="r:") as archive:
            for member in archive:
                name = PurePosixPath(member.name)
                if name.is_absolute() or ".." in name.parts or not (member.isreg() or member.isdir()):
                    raise BadInput(f"{path}: {member.name!r} is a link, a device or leads out of the archive: refused")
                if name.name in found or member.size > _MAX_FILE_BYTES:
                    raise BadInput(f"{path}: {member.name!r} occurs twice or is too large: not an official archive")
                if name.name in (*_BINARY, *_PYTHON) and (data := archive.extractfile(member)):
                    found[name.name] = data.read()
        while handle.read(1 << 20):  # up to the end, where gzip compares its checksum
            if handle.tell() > _MAX_ARCHIVE_BYTES:
                raise BadInput(f"{path}: it unpacks to more than {_MAX_ARCHIVE_BYTES:,} bytes: not an official archive")
    return _official(path, max(_BINARY, _PYTHON, key=lambda names: sum(name in found for name in names)), found)


def _official(where: Path, needs: Sequence[str], files: dict[str, bytes] | None = None) -> Parts:
    """Read the binary or the Python version from its files in a folder, or from the members of an archive."""
    files = {name: read_limited(where / name, _MAX_FILE_BYTES) for name in needs} if files is None else files
    if missing := [name for name in needs if name not in files]:
        raise BadInput(f"{where}: missing {', '.join(missing)}: the official distribution has {', '.join(needs)}")
    binary, meta = needs is _BINARY, where / needs[-1]
    with _read_errors(meta, "the list of classes"):
        text = files[meta.name]
        lines = text.decode().split("\n") if binary else _unpickled(meta, text)["label_names"]
        classes = tuple(str(line).strip() for line in lines if line.strip())
    pixels: list[NDArray[np.uint8]] = []
    labels: list[NDArray[np.int64]] = []
    for path in (where / name for name in needs[:-1]):
        with _read_errors(path, "the batch"):
            planes, batch_labels = (_records if binary else _pickled)(path, files[path.name])
            labels.append(_labels(path, batch_labels, len(planes), classes))
        pixels.append(np.ascontiguousarray(planes.reshape(-1, 3, IMAGE_SIDE, IMAGE_SIDE).transpose(0, 2, 3, 1)))
    train = np.concatenate(pixels[:-1]), np.concatenate(labels[:-1])
    return train, (pixels[-1], labels[-1]), classes, f"official {'binary' if binary else 'Python'} version, {where}"


def _records(where: Path, raw: bytes) -> tuple[NDArray[np.uint8], Any]:
    """Read a file of the binary version: for each image one byte with the label, then the three colour planes."""
    if not raw or len(raw) % (1 + _IMAGE_BYTES):
        raise BadInput(
            f"{where}: {len(raw)} bytes: it must hold images of {1 + _IMAGE_BYTES} bytes each, and at least one"
        )
    records = np.frombuffer(raw, np.uint8).reshape(-1, 1 + _IMAGE_BYTES)
    return records[:, 1:], records[:, 0]


def _pickled(where: Path, raw: bytes) -> tuple[NDArray[np.uint8], Any]:
    """Read a file of the Python version: a dictionary with the array data[n, 3072] and a list of labels."""
    batch = _unpickled(where, raw)
    _, shape, kind, fortran, content = batch["data"].state
    if kind.made_of[0] != "u1" or fortran or len(shape) != 2 or shape[0] < 1 or shape[1] != _IMAGE_BYTES:
        raise BadInput(
            f"{where}: data must be bytes[images, {_IMAGE_BYTES}] with an image, not {kind.made_of[0]}{shape}"
        )
    content = content.encode("latin1") if isinstance(content, str) else content  # Python 2 has one type for both
    return np.frombuffer(content, np.uint8).reshape(shape), batch["labels"]


class _Placeholder:
    """Stands in for NumPy's arrays and types in a pickle, so that only this code runs on an untrusted file."""

    def __init__(self, *made_of: Any) -> None:
        self.made_of, self.state = made_of, ()

    def __setstate__(self, state: Any) -> None:
        self.state = state


def _unpickled(where: Path, raw: bytes) -> dict[str, Any]:
    """Unpickle a dictionary of numbers, texts, lists, dictionaries and arrays; anything else is rejected."""
    arrays = ("dtype", "ndarray", "core.multiarray._reconstruct", "_core.multiarray._reconstruct")
    allowed: dict[str, Any] = {f"numpy.{name}": _Placeholder for name in arrays}
    allowed["_codecs.encode"] = lambda text, _: text.encode("latin1")  # how Python 3 writes bytes for Python 2

    class Restricted(pickle.Unpickler):
        def find_class(self, module: str, name: str, /) -> Any:
            if (wanted := f"{module}.{name}") not in allowed:
                raise BadInput(f"{where}: the pickle asks for {wanted!r}, but only plain data and arrays are read")
            return allowed[wanted]

    for op, number, _ in pickletools.genops(raw):  # a huge memo index would make the unpickler allocate up to it
        if "PUT" in op.name and isinstance(number, int) and number > len(raw):
            raise BadInput(f"{where}: the pickle counts {number} objects in {len(raw)} bytes: it is damaged")
    found = Restricted(io.BytesIO(raw), encoding="latin1").load()
    text = lambda key: key.decode("latin1") if isinstance(key, bytes) else key  # noqa: E731
    return {text(key): value for key, value in found.items()}  # bytes where Python 3 saved it again


def _labels(where: Path, values: Any, count: int, classes: Sequence[str]) -> NDArray[np.int64]:
    """Return the labels; reject them unless there is one label per image, and a class for each label."""
    labels = np.asarray(values)
    if labels.shape != (count,) or labels.dtype.kind not in "ui":
        raise BadInput(f"{where}: {count} images need {count} labels in whole numbers, not {list(labels.shape)}")
    for i in np.flatnonzero((labels < 0) | (labels >= len(classes))):
        raise BadInput(f"{where}: image {i} (from 0) has the label {labels[i]}: there are {len(classes)} classes")
    return labels.astype(np.int64)


def _decoded(where: str | Path, raw: bytes) -> NDArray[np.uint8]:
    """Decode one PNG or JPEG image to [32, 32, 3]."""
    from PIL import Image

    with _read_errors(where, "the image"), Image.open(io.BytesIO(raw), formats=("PNG", "JPEG")) as image:
        if image.size != (IMAGE_SIDE, IMAGE_SIDE) or image.mode not in ("RGB", "RGBA", "L", "P"):
            raise BadInput(f"{where}: {image.width} × {image.height} pixels in {image.mode}: it must be 32 × 32 in RGB")
        return np.asarray(image.convert("RGB"))


def _image_folder(folder: Path) -> Parts:
    """Read train/CLASS/IMAGE and test/CLASS/IMAGE, both sorted by name."""
    train, test = _list_images(folder / "train"), _list_images(folder / "test")
    if unequal := sorted(train.keys() ^ test.keys()):
        raise BadInput(f"{folder}: only one of train and test has a folder {', '.join(unequal)}: both need each class")
    return _read_images(train), _read_images(test), tuple(train), f"image folder, {folder}"


def _list_images(part: Path) -> dict[str, list[Path]]:
    """List the images of each class; hidden files, which some systems leave everywhere, are skipped."""
    folders = [path for path in sorted(part.iterdir()) if not path.name.startswith(".")]
    for stray in [path for path in folders if not path.is_dir()]:
        raise BadInput(f"{stray} is a file: {part} must hold a folder for each class, and nothing else")
    found = {folder.name: [path for path in sorted(folder.iterdir()) if path.name[0] != "."] for folder in folders}
    for empty in [folder for folder in folders if not found[folder.name]] if found else [part]:
        raise BadInput(f"{empty}: an empty folder: {part} must hold a folder for each class, with images in it")
    return found


def _read_images(listing: dict[str, list[Path]]) -> Part:
    """Decode the images of each class; labels number the classes in order."""
    files = [path for paths in listing.values() for path in paths]
    pixels = np.stack([_decoded(path, read_limited(path, _MAX_FILE_BYTES)) for path in files])
    return pixels, np.repeat(np.arange(len(listing)), [len(paths) for paths in listing.values()])


def _compact(folder: Path) -> Parts:
    """Read train.npz and test.npz."""
    (train, classes), (test, others) = _npz(folder / "train.npz"), _npz(folder / "test.npz")
    if classes != others:
        raise BadInput(f"{folder / 'test.npz'}: its classes are {list(others)}, those of train.npz {list(classes)}")
    return train, test, classes, f"compact form, {folder}"


def _npz(path: Path) -> tuple[Part, tuple[str, ...]]:
    """Read one file of the compact form: image i is the JPEG file jpeg[offsets[i] : offsets[i + 1]]."""
    archive = read_npz(path, _ARRAYS, "fetch it again")
    if missing := [name for name in _ARRAYS if name not in archive]:
        raise BadInput(f"{path}: the array {', '.join(missing)} is missing: it must hold {', '.join(_ARRAYS)}")
    jpeg, offsets, labels, names = (archive[name] for name in _ARRAYS)
    classes = tuple(str(name) for name in names.ravel().astype(str))
    rows = jpeg.ndim == offsets.ndim == 1 and jpeg.dtype == np.uint8 and offsets.dtype.kind in "ui" and len(offsets) > 1
    if not rows or offsets[0] != 0 or offsets[-1] != len(jpeg) or (offsets[1:] < offsets[:-1]).any():
        raise BadInput(f"{path}: offsets must rise from 0 to the number of bytes in jpeg, with at least one image")
    labels = _labels(path, labels, len(offsets) - 1, classes)
    files = (jpeg[start:end].tobytes() for start, end in pairwise(offsets))
    return (np.stack([_decoded(f"{path}: image {i} (from 0)", raw) for i, raw in enumerate(files)]), labels), classes
