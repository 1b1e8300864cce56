"""Unpack the package as it was at a commit, to measure it beside today's code."""

from __future__ import annotations

import os
import subprocess
import tarfile
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent


def unpack_code(commit: str, folder: Path) -> Path:
    """Unpack the package of a commit into a folder; return the path for PYTHONPATH."""
    archive = folder / "code.tar"
    git = ["git", "-C", str(REPO), "archive", "-o", str(archive), commit, "src/headcount"]
    subprocess.run(git, check=True)
    with tarfile.open(archive) as files:
        files.extractall(folder / "code", filter="data")
    archive.unlink()
    return folder / "code" / "src"


def environment(source: Path) -> dict[str, str]:
    """Return the environment of a process that imports the package from `source` and uses one thread."""
    return {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
