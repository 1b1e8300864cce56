"""A spoilt model folder signed anew, so that only what is wrong with it can tell: the hash as docs/format.md has it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors.numpy import load_file

from headcount.core.hashing import arrays_hash, content_hash

HASHED = ("format", "version", "model", "dtype", "task", "box", "standardisation")


def edit(path: Path, **values: Any) -> None:
    """Write other values into a JSON file."""
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def folder_hash(folder: Path) -> str:
    """Return the content hash that a model folder should state, computed without the package's reader."""
    config = json.loads((folder / "config.json").read_text())
    tensors = arrays_hash(load_file(folder / "model.safetensors"))
    return content_hash({**{key: config[key] for key in HASHED if key in config}, "tensors": tensors})


def sign(folder: Path) -> None:
    """State that hash in config.json, and in the certificate or witness beside it."""
    found = folder_hash(folder)
    edit(folder / "config.json", hash=found)
    for name in ("certificate.json", "witness.json"):
        if (folder / name).is_file():
            edit(folder / name, model=found)
