"""Names that several tests import; fixtures are in conftest.py."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from beartype import BeartypeConf, beartype

REPO = Path(__file__).resolve().parent.parent
Cli = Callable[..., "subprocess.CompletedProcess[str]"]
check = beartype(conf=BeartypeConf(is_pep484_tower=True))  # a whole number may stand for a float


def benchmark(name: str) -> ModuleType:
    """Load a script of benchmarks, which may import its neighbours."""
    folder = REPO / "benchmarks"
    spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(folder))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(folder))
    return module


def tracked_files(repo: Path) -> list[Path]:
    """All files that git tracks or would add."""
    git = ["git", "-c", "safe.directory=*", "-C", str(repo), "ls-files", "-z", "-co", "--exclude-standard"]
    done = subprocess.run(git, capture_output=True, text=True, check=True)
    return [repo / name for name in done.stdout.split("\0") if name and (repo / name).is_file()]
