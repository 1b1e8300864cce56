"""The package as it was at a commit, unpacked into a folder of its own, to be measured beside today's."""

from __future__ import annotations

import os
import subprocess
import tarfile
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent


def unpack_code(commit: str, folder: Path) -> Path:
    """Unpack the package of a commit below a folder; return what goes on PYTHONPATH."""
    archive = folder / "code.tar"
    git = ["git", "-C", str(REPO), "archive", "-o", str(archive), commit, "src/headcount"]
    subprocess.run(git, check=True)
    with tarfile.open(archive) as files:
        files.extractall(folder / "code", filter="data")
    archive.unlink()
    return folder / "code" / "src"


def environment(source: Path) -> dict[str, str]:
    """Return the environment of a process that imports the package from `source`, one thread a process."""
    return {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
