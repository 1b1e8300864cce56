"""Packed data read within limits: NumPy's arrays, archives of them, and lines of compressed text.

A few megabytes can unpack to any number of gigabytes. So sizes are compared first: what a header says with the bytes
that are there, and what would be held with what is allowed. There are two limits. `MAX_BYTES` is for everything.
Beyond `FREE_BYTES`, what is held may also be at most `MAX_RATIO` times what lies on the disk: numbers that somebody
measured do not shrink so much, and who has such data can store them plain.
"""

from __future__ import annotations

import gzip
import io
import math
import os
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from headcount.core.errors import BadInput

MAX_BYTES = 4 << 30
"""Of the data of one file, as they are held: 2^29 doubles. A few copies are made of them later."""
FREE_BYTES = 256 << 20
"""Up to this size data may be packed as tightly as they can."""
MAX_RATIO = 100
"""Of what is held to what is stored; one-hot vectors, padded, shrink some 60 times."""
MAX_TEXT_RATIO = 20
"""The same for text, which shrinks 3 to 10 times."""
FREE_TEXT_BYTES = 64 << 20
"""Up to this size text may be packed as tightly as it can."""
MAX_LINE_BYTES = 16 << 20
"""Of a line of text."""
_HEADER_BYTES = 10_000  # of an array: as many as NumPy itself reads
_CHUNK = 1 << 20

T = TypeVar("T")


def check_size(needed: int, stored: int, where: str) -> None:
    """Refuse data that would be held in so many bytes, where so many are stored."""
    if needed > MAX_BYTES or needed > max(FREE_BYTES, MAX_RATIO * stored):
        most = min(MAX_BYTES, max(FREE_BYTES, MAX_RATIO * stored))
        raise BadInput(
            f"{where} would take {_amount(needed)} of memory: at most {_amount(most)} are read from "
            f"{_amount(stored)} of data (give fewer samples, or store the data without compression)"
        )


def _amount(size: int) -> str:
    for unit, scale in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= scale:
            return f"{size / scale:,.1f} {unit}" if size < 10**18 else f"more than 10^18 {unit}"
    return f"{size} bytes"


def guarded(path: Path, what: str, remedy: str, read: Callable[[], T]) -> T:
    """Return what `read` returns; whatever a broken file makes it raise becomes one line."""
    try:
        return read()
    except BadInput:
        raise
    except FileNotFoundError:
        raise BadInput(f"there is no file {path}") from None
    except MemoryError as error:
        raise BadInput(f"{path}: {what} does not fit into memory, or its header is broken") from error
    except Exception as error:  # zip, zlib, NumPy's header and Arrow each have errors of their own
        raise BadInput(
            f"{path}: {what} cannot be read: truncated, damaged or another kind of file; {remedy}"
        ) from error


def read_npy(path: Path, remedy: str = "write it with np.save") -> NDArray[Any]:
    """Return the array of a .npy file; nothing is unpickled."""

    def read() -> NDArray[Any]:
        with path.open("rb") as handle:
            size = os.fstat(handle.fileno()).st_size
            return _array(handle, size, size, f"{path}: the array")

    return guarded(path, "the array", remedy, read)


def npz_names(path: Path, remedy: str = "write it with np.savez") -> list[str]:
    """Return the names of the arrays in a .npz file."""

    def read() -> list[str]:
        with zipfile.ZipFile(path) as archive:
            return [name.removesuffix(".npy") for name in archive.namelist()]

    return guarded(path, "the archive", remedy, read)


def read_npz(
    path: Path, names: Collection[str] | None = None, remedy: str = "write it with np.savez"
) -> dict[str, NDArray[Any]]:
    """Return the arrays of a .npz file, those of some names or all; nothing is unpickled."""

    def read() -> dict[str, NDArray[Any]]:
        found: dict[str, NDArray[Any]] = {}
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                name = info.filename.removesuffix(".npy")
                if name in found:
                    raise BadInput(f"{path}: the array {name!r} occurs twice")
                if names is None or name in names:
                    what = name if name.isidentifier() else repr(name)
                    found[name] = guarded(
                        path, what, remedy, lambda info=info, what=what: _member(archive, info, f"{path}: {what}")
                    )
        check_size(sum(a.size * 8 for a in found.values()), path.stat().st_size, f"{path}: all arrays together")
        return found

    return guarded(path, "the archive", remedy, read)


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, where: str) -> NDArray[Any]:
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):  # NumPy writes no others
        raise ValueError("an unknown compression")
    with archive.open(info) as handle:  # it ends where the directory says, and compares the checksum there
        return _array(handle, info.file_size, info.compress_size, where)


def _array(handle: IO[bytes], size: int, stored: int, where: str) -> NDArray[Any]:
    """Read one array in NumPy's format from a stream of `size` bytes, which take `stored` bytes on the disk."""
    start = handle.read(8)
    width = {b"\x93NUMPY\x01\x00": 2, b"\x93NUMPY\x02\x00": 4}[start]
    length = handle.read(width)
    header_bytes = int.from_bytes(length, "little")
    if header_bytes > _HEADER_BYTES:
        raise ValueError("a header that is too long")
    header = io.BytesIO(length + handle.read(header_bytes))
    shape, fortran, dtype = (
        np.lib.format.read_array_header_1_0 if width == 2 else np.lib.format.read_array_header_2_0
    )(header)
    if dtype.hasobject:
        raise BadInput(f"{where} holds pickled Python objects, which are never read: save plain numbers")
    if any(type(n) is not int or n < 0 for n in shape):
        raise ValueError("a shape that is none")
    count = math.prod(shape)
    if count * dtype.itemsize != size - 8 - width - header_bytes:
        raise ValueError("other bytes than the header says")
    check_size(count * max(8, dtype.itemsize), stored, where)
    raw = np.empty(count * dtype.itemsize, np.uint8)
    at = 0
    while at < len(raw):
        part = handle.read(min(_CHUNK, len(raw) - at))
        if not part:
            raise ValueError("fewer bytes than the header says")
        raw[at : at + len(part)] = np.frombuffer(part, np.uint8)
        at += len(part)
    if handle.read(1):  # in an archive, this also compares the checksum
        raise ValueError("more bytes than the header says")
    array = raw.view(dtype) if count else np.empty(0, dtype)
    return array.reshape(shape[::-1]).T if fortran else array.reshape(shape)


def read_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file, decompressing one whose name ends in .gz; a line or a whole too large is refused."""
    packed, number, total = path.suffix == ".gz", 0, 0
    try:
        with gzip.open(path) if packed else path.open("rb") as handle:
            most = max(FREE_TEXT_BYTES, MAX_TEXT_RATIO * path.stat().st_size)
            while line := handle.readline(MAX_LINE_BYTES + 1):
                number, total = number + 1, total + len(line)
                if len(line) > MAX_LINE_BYTES:
                    raise BadInput(f"{path}, line {number}: longer than {_amount(MAX_LINE_BYTES)}: it is no such text")
                if packed and total > most:
                    raise BadInput(
                        f"{path}, line {number}: its {_amount(path.stat().st_size)} unpack to more than "
                        f"{_amount(most)}, as no text does: unpack it first, if it is sound"
                    )
                yield line
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise BadInput(f"{path}: the compressed data end or break after line {number}: fetch the file again") from None
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}") from None
