"""The provenance of a result: commit, versions, machine, time."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path

PACKAGES = ("headcount", "torch", "triton", "numpy", "scipy", "pydantic", "python-flint")


def _commit() -> str | None:
    """Return the commit of the source tree, with `+` for uncommitted changes; None for an installed package.

    HEADCOUNT_COMMIT states it for a copy of the tree without its history.
    """
    if os.environ.get("HEADCOUNT_COMMIT"):
        return os.environ["HEADCOUNT_COMMIT"]
    source_folder = Path(__file__).parent
    try:
        git = ["git", "-C", str(source_folder), "-c", "safe.directory=*"]
        sha = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=True)
        status = subprocess.run(
            [*git, "status", "--porcelain", "--", str(source_folder)],
            capture_output=True,
            text=True,
            timeout=5,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return sha.stdout.strip()[:12] + ("+" if status.stdout.strip() else "")


def _cpu() -> str:
    """Return the name of the processor."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def provenance(device: str = "cpu") -> dict[str, object]:
    """Return commit, package versions, machine and time of a result computed on `device`."""
    versions: dict[str, str] = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "commit": _commit(),
        "versions": versions,
        "machine": {"system": platform.system(), "cpu": _cpu(), "cores": cores(), "device": device},
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }
