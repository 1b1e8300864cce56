"""Small files that unpack to gigabytes, made without ever holding them."""

from __future__ import annotations

import gzip
import json
import struct
import zlib
from pathlib import Path

import numpy as np

MIB = 1 << 20


def npz_bomb(path: Path, mebibytes: int) -> Path:
    """Write a .npz file whose X holds so many MiB of zeros, deflated some thousand times."""
    X = _npy_header((mebibytes * MIB // 4096, 64, 64), "|u1")
    y = _npy_header((10,), "<f8") + np.arange(10.0).tobytes()
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = packer.compress(bytes(MIB)) + packer.flush(zlib.Z_FULL_FLUSH)  # may be repeated
    last = zlib.compressobj(9, zlib.DEFLATED, -15)
    data = _stored(X) + block * mebibytes + last.flush()
    members = [("X.npy", data, len(X) + mebibytes * MIB), ("y.npy", _stored(y) + b"\x03\x00", len(y))]
    local, central = b"", b""
    for name, packed, size in members:
        fields = struct.pack("<5H3I2H", 20, 0, 8, 0, 33, 0, len(packed), size, len(name), 0)  # a checksum of 0: refused
        central += b"PK\x01\x02" + struct.pack("<H", 20) + fields + struct.pack("<3H2I", 0, 0, 0, 0, len(local))
        central += name.encode()
        local += b"PK\x03\x04" + fields + name.encode() + packed
    end = struct.pack("<4H2IH", 0, 0, len(members), len(members), len(central), len(local), 0)
    path.write_bytes(local + central + b"PK\x05\x06" + end)
    return path


def _npy_header(shape: tuple[int, ...], kind: str) -> bytes:
    text = repr({"descr": kind, "fortran_order": False, "shape": shape}).ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()


def _stored(raw: bytes) -> bytes:
    """One block of deflate that is not compressed, and not the last."""
    return b"\x00" + struct.pack("<2H", len(raw), len(raw) ^ 0xFFFF) + raw


def jsonl_bomb(folder: Path, mebibytes: int) -> Path:
    """Write the compact form of MS MARCO with so many MiB of passages, no two alike, in less than a hundredth."""
    folder.mkdir(exist_ok=True)
    with (folder / "passages.jsonl.gz").open("wb") as handle:
        for part in range(mebibytes // 64):
            rows = (json.dumps({"id": f"{part} {k}", "text": f"{part} {k} " + "word " * 8000}) for k in range(1600))
            handle.write(gzip.compress(("\n".join(rows) + "\n").encode(), 4))
    (folder / "queries.jsonl").write_text(json.dumps({"id": "q", "split": "dev", "text": "word", "pos": ["0 0"]}))
    return folder


def line_bomb(folder: Path, mebibytes: int) -> Path:
    """The same with one passage that never ends."""
    folder.mkdir(exist_ok=True)
    start, part = gzip.compress(b'{"id": "0", "text": "'), gzip.compress(b"a" * MIB)
    (folder / "passages.jsonl.gz").write_bytes(start + part * mebibytes)
    (folder / "queries.jsonl").write_text("{}")
    return folder
