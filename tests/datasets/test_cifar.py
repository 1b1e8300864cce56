"""CIFAR-10: every form reads to the same arrays, and every broken one is refused with one line that names it."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import re
import shutil
import struct
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from headcount.core.errors import BadInput
from headcount.datasets.cifar10.read import read_cifar

CLASSES = ("bird", "cat", "frog")
COUNTS = {"train": (4, 3, 5), "test": (2, 1, 3)}
BATCHES = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]


def data(part: str) -> tuple[np.ndarray, np.ndarray]:
    """Some images, ordered by class as an image folder must be."""
    labels = np.repeat(np.arange(3), COUNTS[part])
    return np.random.default_rng(len(part)).integers(0, 256, (len(labels), 32, 32, 3), dtype=np.uint8), labels


def batches() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """The planes and labels of each official file, by its name: five uneven batches and the test."""
    pixels, labels = data("train")
    cuts = [slice(0, 1), slice(1, 5), slice(5, 7), slice(7, 8), slice(8, 12)]
    parts = [*((pixels[cut], labels[cut]) for cut in cuts), data("test")]
    return {n: (p.transpose(0, 3, 1, 2).reshape(len(p), -1), k) for n, (p, k) in zip(BATCHES, parts, strict=True)}


def binary(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, (planes, labels) in batches().items():
        (folder / f"{name}.bin").write_bytes(np.c_[labels.astype(np.uint8), planes].tobytes())
    (folder / "batches.meta.txt").write_text("\n".join(CLASSES) + "\n\n")  # the official one ends so
    return folder


def python2(planes: np.ndarray, labels: np.ndarray) -> bytes:
    """The opcodes that Python 2 wrote, byte strings and all: as in the official files."""
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R(K\x01"
    shape = b"K" + bytes([len(planes)]) + b"M" + struct.pack("<H", planes.shape[1]) + b"\x86"
    kind = b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    content = b"\x89T" + struct.pack("<I", planes.size) + planes.tobytes() + b"tb"
    listed = b"](" + b"".join(b"K" + bytes([k]) for k in labels) + b"e"
    return b"\x80\x02}(U\x04data" + array + shape + kind + content + b"U\x06labels" + listed + b"u."


def python3(protocol: int):
    return lambda planes, labels: pickle.dumps({"data": planes, "labels": labels.tolist()}, protocol)


def python(folder: Path, dump=python2) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, part in batches().items():
        (folder / name).write_bytes(dump(*part))
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": list(CLASSES), "num_vis": 3072}, 2))
    return folder


def packed(folder: Path, path: Path) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        archive.add(folder, folder.name)
    return path


def encoded(pixels: np.ndarray, kind: str = "PNG") -> bytes:
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, kind)
    return stream.getvalue()


def image_folder(folder: Path) -> Path:
    for part in COUNTS:
        for i, (pixels, label) in enumerate(zip(*data(part), strict=True)):
            (folder / part / CLASSES[label]).mkdir(parents=True, exist_ok=True)
            (folder / part / CLASSES[label] / f"{i:04}.png").write_bytes(encoded(pixels))
        (folder / part / ".hidden").write_text("as some systems leave it")
    return folder


def compact(folder: Path, part: str = "train", **changed) -> Path:
    """Write both files; the arrays given replace those of one of them."""
    folder.mkdir(exist_ok=True)
    for each in COUNTS:
        pixels, labels = data(each)
        files = [encoded(p, "JPEG") for p in pixels]
        arrays = {"jpeg": np.frombuffer(b"".join(files), np.uint8), "offsets": np.cumsum([0, *map(len, files)])}
        arrays |= {"labels": labels.astype(np.uint8), "classes": np.array(CLASSES)} | (changed if each == part else {})
        np.savez(folder / f"{each}.npz", **{name: array for name, array in arrays.items() if array is not None})
    return folder


def same(images) -> bool:
    """Are these the images, in order, type and channels?"""
    found = (images.train_pixels, images.train_labels, images.test_pixels, images.test_labels)
    expected = [torch.from_numpy(array) for array in (*data("train"), *data("test"))]
    return all(a.dtype == b.dtype and torch.equal(a, b) for a, b in zip(found, expected, strict=True))


FORMS = {
    "official binary": lambda at: binary(at),
    "official binary version, .*batches-bin": lambda at: binary(at / "cifar-10-batches-bin").parent,
    "official Python": lambda at: python(at),
    "official Python version, .*batches-py": lambda at: python(at / "cifar-10-batches-py").parent,
    "official Python version, .*p0": lambda at: python(at / "p0", python3(0)),
    "official Python version, .*again": lambda at: python(
        at / "again", lambda planes, labels: pickle.dumps({b"data": planes, b"labels": labels.tolist()}, 2)
    ),
    "official Python version, .*p4": lambda at: python(at / "p4", python3(4)),
    "binary.*cifar-10-binary.tar.gz": lambda at: packed(binary(at / "a"), at / "cifar-10-binary.tar.gz").parent,
    "Python.*cifar-10-python.tar.gz": lambda at: packed(python(at / "a"), at / "cifar-10-python.tar.gz").parent,
    "Python version, .*mine.tgz": lambda at: packed(python(at / "a"), at / "mine.tgz"),
    "image folder": lambda at: image_folder(at),
}


@pytest.mark.parametrize("form", FORMS)
def test_each_form_reads_to_the_same_arrays(form, tmp_path):
    images = read_cifar(str(FORMS[form](tmp_path)))
    assert same(images)
    assert images.classes == CLASSES
    assert images.hash == read_cifar(binary(tmp_path / "other")).hash
    assert re.search(form, images.source)


def test_the_compact_form_reads_what_pillow_decodes(tmp_path):
    images = read_cifar(compact(tmp_path))
    pairs = [("train", images.train_pixels, images.train_labels), ("test", images.test_pixels, images.test_labels)]
    for part, pixels, labels in pairs:
        twin = [np.asarray(Image.open(io.BytesIO(encoded(p, "JPEG")))) for p in data(part)[0]]
        assert np.array_equal(pixels.numpy(), np.stack(twin))
        assert labels.tolist() == data(part)[1].tolist()
    assert images.classes == CLASSES
    assert "compact form" in images.source


def test_the_comparison_sees_channels_axes_and_labels(tmp_path):
    pixels, labels = data("train")
    for i, changed in enumerate((pixels[..., ::-1], pixels.transpose(0, 2, 1, 3), np.roll(pixels, 1, axis=0))):
        folder = binary(tmp_path / str(i))
        records = np.c_[labels.astype(np.uint8), changed.transpose(0, 3, 1, 2).reshape(12, -1)][:1]
        (folder / "data_batch_1.bin").write_bytes(records.tobytes())
        assert not same(read_cifar(folder))
        assert read_cifar(folder).hash != read_cifar(binary(tmp_path / "right")).hash
    folder = binary(tmp_path / "label")
    raw = (folder / "test_batch.bin").read_bytes()
    (folder / "test_batch.bin").write_bytes(bytes([raw[0] ^ 1]) + raw[1:])
    assert not same(read_cifar(folder))


GONE, FOLDER = None, "a folder"


def edit(make, name: str, change):
    """A form of which one file or folder is changed, replaced or gone."""

    def build(at: Path) -> Path:
        path = make(at) / name
        raw = path.read_bytes() if path.is_file() else b""
        shutil.rmtree(path, ignore_errors=True)
        path.unlink(missing_ok=True)
        if change is FOLDER:
            path.mkdir()
        elif change is not GONE:
            path.write_bytes(change(raw) if callable(change) else change)
        return at

    return build


def sound(at: Path) -> Path:
    return packed(python(at / "a"), at / TAR).parent


def member(name: str, kind: bytes = tarfile.REGTYPE, times: int = 1):
    """An archive with a trick in it."""

    def build(at: Path) -> Path:
        with tarfile.open(at / TAR, "w:gz") as archive:
            for _ in range(times):
                info = tarfile.TarInfo(name)
                info.type, info.linkname = kind, "/etc/hostname"
                archive.addfile(info)
        return at

    return build


class Evil:
    def __reduce__(self):
        return os.mkdir, ("ran",)


ONE = np.zeros((1, 3072), np.uint8)


def batch(planes=ONE, labels=(0,), **more):
    return edit(python, "data_batch_2", pickle.dumps({"data": planes, "labels": list(labels), **more}, 4))


PNG, BIN, META, TAR = "train/cat/0004.png", "data_batch_2.bin", "batches.meta.txt", "cifar-10-python.tar.gz"
BAD = {
    "nothing": (lambda at: at, "no CIFAR-10 found in .*_1.bin, .*_batch_5, .*python.tar.gz.*train, test;.*npz"),
    "no folder": (lambda at: at / "none", "no CIFAR-10 found in .*_1.bin, .*_batch_5, .*train, test;.*npz"),
    "binary, no batch": (edit(binary, BIN, GONE), f"version is incomplete: {BIN} is missing"),
    "Python, no test": (edit(python, "test_batch", GONE), "Python version is incomplete: test_batch is missing"),
    "npz, no test": (edit(compact, "test.npz", GONE), "compact form is incomplete: test.npz is missing"),
    "images, no test": (edit(image_folder, "test", GONE), "image folder is incomplete: test is missing"),
    "binary cut": (edit(binary, BIN, lambda raw: raw[:-1]), f"{BIN}: 12291 bytes: it must hold"),
    "binary empty": (edit(binary, BIN, b""), f"{BIN}: 0 bytes"),
    "binary label": (edit(binary, BIN, lambda raw: b"\x03" + raw[1:]), "image 0 .*label 3: there are 3 classes"),
    "binary folder": (edit(binary, BIN, FOLDER), f"cannot read .*{BIN}: Is a directory"),
    "classes twice": (edit(binary, META, b"cat\ncat\nfrog\n"), "each needs a name of its own"),
    "classes empty": (edit(binary, META, b"\n"), "there are 0 classes"),
    "classes not text": (edit(binary, META, b"\xff\xfe"), f"{META}: the list of classes cannot be read"),
    "pickle cut": (edit(python, "test_batch", lambda raw: raw[:-100]), "test_batch: the batch cannot be read"),
    "pickle of a list": (edit(python, "test_batch", pickle.dumps([1])), "test_batch: the batch cannot be read"),
    "pickle without data": (batch(planes=0), "data_batch_2: the batch cannot be read"),
    "pickle of floats": (batch(ONE * 1.0), r"not f8\(1, 3072\)"),
    "pickle too small": (batch(ONE[:, 1:]), r"must be bytes.images, 3072. with an image, not u1\(1, 3071\)"),
    "pickle, no image": (batch(ONE[:0]), r"not u1\(0, 3072\)"),
    "pickle, more labels": (batch(ONE, [0, 1]), "1 images need 1 labels in whole numbers, not .2."),
    "pickle, ragged labels": (batch(ONE, [[0], 1]), "the batch cannot be read"),
    "pickle, unknown label": (batch(ONE, [-1]), "image 0 .* has the label -1"),
    "pickle with code": (batch(other=Evil()), "asks for '(posix|nt).mkdir', but only plain data"),
    "classes with code": (edit(python, "batches.meta", pickle.dumps(Evil())), "asks for '(posix|nt).mkdir'"),
    "classes without names": (edit(python, "batches.meta", pickle.dumps({})), "the list of classes cannot be read"),
    "archive cut": (edit(sound, TAR, lambda raw: raw[: len(raw) // 2]), "the archive cannot be read: truncated"),
    "archive no gzip": (edit(sound, TAR, b"<html>not found</html>"), "the archive cannot be read: truncated"),
    "archive no tar": (edit(sound, TAR, gzip.compress(b"x" * 2000)), "the archive cannot be read: truncated"),
    "archive, checksum": (edit(sound, TAR, lambda raw: raw[:-8] + b"1234" + raw[-4:]), "the archive cannot be read"),
    "archive of others": (member("readme.html"), "missing data_batch_1.*: the official distribution has"),
    "archive, up": (member("a/../../data_batch_1"), "leads out of the archive"),
    "archive, root": (member("/data_batch_1"), "leads out of the archive"),
    "archive, link": (member("a/data_batch_1", tarfile.SYMTYPE), "is a link"),
    "archive, hard link": (member("a/data_batch_1", tarfile.LNKTYPE), "is a link"),
    "archive, twice": (member("a/data_batch_1", times=2), "occurs twice"),
    "image cut": (edit(image_folder, PNG, lambda raw: raw[:200]), f"{PNG}: the image cannot be read: truncated"),
    "image of text": (edit(image_folder, PNG, b"hello"), f"{PNG}: the image cannot be read"),
    "image size": (edit(image_folder, PNG, encoded(np.zeros((32, 31, 3), np.uint8))), f"{PNG}: 31 × 32 pixels in RGB"),
    "image mode": (edit(image_folder, PNG, encoded(np.zeros((32, 32), np.uint16))), "32 × 32 pixels in I;16"),
    "images without class": (edit(image_folder, "train/note.png", b""), "note.png is a file: .* a folder for each"),
    "one class": (lambda at: compact(at, "test", labels=0 * data("test")[1]), "all test images are of one class"),
    "a file of two": (lambda at: compact(at) / "train.npz", "is a file of the compact form: give the folder"),
    "no image": (edit(image_folder, "test/cat", FOLDER), "test/cat: an empty folder"),
    "no class": (edit(image_folder, "test", FOLDER), "test: an empty folder"),
    "class missing": (edit(image_folder, "test/cat", GONE), "only one of train and test has a folder cat"),
    "class unknown": (edit(image_folder, "train/cat", GONE), "only one of train and test has a folder cat"),
    "jpeg damaged": (lambda at: compact(at, jpeg=np.arange(12, dtype=np.uint8), offsets=np.arange(13)), "npz: image 0"),
    "npz no array": (
        lambda at: compact(at, "test", offsets=None),
        "test.npz: the array offsets is missing: it must hold",
    ),
    "npz offsets": (lambda at: compact(at, offsets=np.arange(13)), "train.npz: offsets must rise from 0"),
    "npz label": (lambda at: compact(at, labels=np.full(12, 9)), "train.npz: image 0 .* has the label 9"),
    "npz few labels": (lambda at: compact(at, labels=np.zeros(3, int)), "12 images need 12 labels .* not .3."),
    "npz classes": (lambda at: compact(at, "test", classes=np.array(["a", "b", "c"])), "its classes are .*, those of"),
    "npz objects": (lambda at: compact(at, classes=np.array([Evil()] * 3)), "train.npz: classes holds pickled"),
    "npz cut": (edit(compact, "train.npz", lambda raw: raw[:3000]), "train.npz: the archive cannot be read"),
    "npz, four bytes": (edit(compact, "train.npz", lambda r: r[:999] + b"1234" + r[1003:]), "jpeg cannot be read"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_broken_is_refused_with_one_line(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    build, pattern = BAD[case]
    path = build(tmp_path)
    with pytest.raises(BadInput, match=pattern) as caught:
        read_cifar(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)
    assert not Path("ran").exists()  # no code of a pickle


def test_a_whole_form_is_read_beside_a_broken_one(tmp_path):
    (image_folder(tmp_path) / "data_batch_1.bin").write_bytes(b"")
    assert same(read_cifar(tmp_path))
