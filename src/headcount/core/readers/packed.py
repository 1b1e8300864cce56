"""Read packed data within limits: NumPy arrays, archives of them, and lines of compressed text.

A few megabytes can decompress to any number of gigabytes. So sizes are checked first: the header against the bytes
that are present, and the memory needed against the memory allowed. There are two limits. `MAX_DATA_BYTES` holds always.
Data of more than `EXEMPT_DATA_BYTES` may also take at most `MAX_DATA_RATIO` times their size on disk: measured numbers
do not compress further than that, and data that do can be stored uncompressed.
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

MAX_DATA_BYTES = 4 << 30
"""Bytes in memory of the data of one file: 2^29 doubles. A few copies are made later."""
EXEMPT_DATA_BYTES = 256 << 20
"""Bytes in memory up to which `MAX_DATA_RATIO` does not apply."""
MAX_DATA_RATIO = 100
"""Bytes in memory per byte on disk; padded one-hot vectors compress some 60 times."""
MAX_TEXT_RATIO = 20
"""Bytes of text per compressed byte; text compresses 3 to 10 times."""
EXEMPT_TEXT_BYTES = 64 << 20
"""Bytes of text up to which `MAX_TEXT_RATIO` does not apply."""
MAX_LINE_BYTES = 16 << 20
"""Bytes of a line of text."""
_MAX_HEADER_BYTES = 10_000  # of an array: NumPy's own limit
_CHUNK_BYTES = 1 << 20

T = TypeVar("T")


def check_size(needed: int, stored: int, where: str) -> None:
    """Refuse data that need too many bytes in memory, `needed`, absolutely or for the bytes on disk, `stored`."""
    limit = min(MAX_DATA_BYTES, max(EXEMPT_DATA_BYTES, MAX_DATA_RATIO * stored))
    if needed > limit:
        raise BadInput(
            f"{where} would take {_byte_text(needed)} of memory: at most {_byte_text(limit)} are allowed for "
            f"{_byte_text(stored)} on disk (give fewer samples, or store the data without compression)"
        )


def _byte_text(size: int) -> str:
    """Return a size in bytes for people, such as 4.3 GB."""
    for unit, scale in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= scale:
            return f"{size / scale:,.1f} {unit}" if size < 10**18 else f"more than 10^18 {unit}"
    return f"{size} bytes"


def guarded(path: Path, what: str, remedy: str, read: Callable[[], T]) -> T:
    """Return the result of `read`; any error that a broken file causes in it becomes a BadInput of one line."""
    try:
        return read()
    except BadInput:
        raise
    except FileNotFoundError:
        raise BadInput(f"no such file: {path}") from None
    except MemoryError as error:
        raise BadInput(f"{path}: {what} does not fit in memory, or its header is damaged") from error
    except Exception as error:  # zip, zlib, NumPy's header and Arrow each raise errors of their own
        raise BadInput(
            f"{path}: {what} cannot be read: truncated, damaged or another kind of file; {remedy}"
        ) from error


def read_npy(path: Path, remedy: str = "write it with np.save") -> NDArray[Any]:
    """Return the array of a .npy file; pickled objects are refused."""

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
    """Return the arrays of a .npz file, all or those in `names`; pickled objects are refused."""

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
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):  # the two that NumPy writes
        raise ValueError("unknown compression")
    with archive.open(info) as handle:  # ends where the directory says, and checks the CRC there
        return _array(handle, info.file_size, info.compress_size, where)


def _array(handle: IO[bytes], size: int, stored: int, where: str) -> NDArray[Any]:
    """Read one array in NumPy's format from a stream of `size` bytes, which take `stored` bytes on disk."""
    start = handle.read(8)
    width = {b"\x93NUMPY\x01\x00": 2, b"\x93NUMPY\x02\x00": 4}[start]
    length = handle.read(width)
    header_bytes = int.from_bytes(length, "little")
    if header_bytes > _MAX_HEADER_BYTES:
        raise ValueError("the header is too long")
    header = io.BytesIO(length + handle.read(header_bytes))
    shape, fortran, dtype = (
        np.lib.format.read_array_header_1_0 if width == 2 else np.lib.format.read_array_header_2_0
    )(header)
    if dtype.hasobject:
        raise BadInput(f"{where} holds pickled Python objects, which are never read: save plain numbers")
    if any(type(n) is not int or n < 0 for n in shape):
        raise ValueError("invalid shape")
    count = math.prod(shape)
    if count * dtype.itemsize != size - 8 - width - header_bytes:
        raise ValueError("the size differs from the header's")
    check_size(count * max(8, dtype.itemsize), stored, where)
    raw = np.empty(count * dtype.itemsize, np.uint8)
    at = 0
    while at < len(raw):
        part = handle.read(min(_CHUNK_BYTES, len(raw) - at))
        if not part:
            raise ValueError("fewer bytes than the header states")
        raw[at : at + len(part)] = np.frombuffer(part, np.uint8)
        at += len(part)
    if handle.read(1):  # in an archive, this also checks the CRC
        raise ValueError("more bytes than the header states")
    array = raw.view(dtype) if count else np.empty(0, dtype)
    return array.reshape(shape[::-1]).T if fortran else array.reshape(shape)


def read_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file, decompressed where its name ends in .gz; too long a line or text is refused."""
    compressed, number, total = path.suffix == ".gz", 0, 0
    try:
        with gzip.open(path) if compressed else path.open("rb") as handle:
            limit = max(EXEMPT_TEXT_BYTES, MAX_TEXT_RATIO * path.stat().st_size)
            while line := handle.readline(MAX_LINE_BYTES + 1):
                number, total = number + 1, total + len(line)
                if len(line) > MAX_LINE_BYTES:
                    raise BadInput(
                        f"{path}, line {number}: longer than {_byte_text(MAX_LINE_BYTES)}: this is not a text file"
                    )
                if compressed and total > limit:
                    raise BadInput(
                        f"{path}, line {number}: {_byte_text(path.stat().st_size)} decompress to more than "
                        f"{_byte_text(limit)}, too much for text: decompress the file first if you trust it"
                    )
                yield line
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise BadInput(
            f"{path}: the compressed data are truncated or damaged after line {number}: download the file again"
        ) from None
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}") from None
