"""What all tests share: shapes checked at run time, the repository's path, the command line."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from beartype import BeartypeConf, beartype
from jaxtyping import install_import_hook

torch.set_num_threads(1)  # the models are small, and CI has two cores

REPO = Path(__file__).resolve().parent.parent

check = beartype(conf=BeartypeConf(is_pep484_tower=True))  # a whole number may stand for a float

# Only the rooms whose arguments are tensors: elsewhere our own one-line errors must meet bad types first.
install_import_hook(["headcount.models", "headcount.kernels", "headcount.experiments"], "conftest.check")

Cli = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def repo() -> Path:
    """The root of the repository."""
    return REPO


@pytest.fixture
def headcount_cli(tmp_path: Path) -> Cli:
    """Run `python -m headcount ARGS` in an empty folder; the caller judges status and output."""

    def run(*args: str, timeout: float = 120, **options: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "headcount", *map(str, args)]
        settings = {"cwd": tmp_path, "capture_output": True, "text": True, "timeout": timeout, **options}
        return subprocess.run(command, check=False, **settings)  # type: ignore[call-overload]

    return run
