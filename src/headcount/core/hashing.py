"""Content hashes, the identity of specs and models: sha256 over canonical JSON and over the bytes of tensors."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np
from numpy.typing import NDArray


def canonical_json(value: Any) -> str:
    """Return JSON in the one form that is hashed: sorted keys, no blanks, no NaN, floats by their shortest repr."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def content_hash(value: Any) -> str:
    """Return the hash of a JSON value."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def arrays_hash(arrays: dict[str, NDArray[Any]]) -> str:
    """Return the hash of named arrays: name, type, shape and little-endian bytes of each, sorted by name."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        little = array.astype(array.dtype.newbyteorder("<"), copy=False)
        header = canonical_json([name, array.dtype.name, list(array.shape)])
        digest.update(header.encode() + b"\n" + little.tobytes())
    return digest.hexdigest()
