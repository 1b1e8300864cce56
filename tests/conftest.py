"""What all tests share: shapes checked at run time, the repository's path, the command line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from jaxtyping import install_import_hook

from support import REPO, Cli

torch.set_num_threads(1)  # the models are small, and CI has two cores

# Only the rooms whose arguments are tensors: elsewhere our own one-line errors must meet bad types first, and numba
# and Triton compile the source of their kernels, which a wrapper would hide.
install_import_hook(["headcount.models", "headcount.sweeps"], "support.check")


@pytest.fixture(scope="session")
def repo() -> Path:
    """The root of the repository."""
    return REPO


@pytest.fixture(autouse=True)
def _nothing_is_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sentences stand on one line, however long the path of a test's folder is; `test_widths.py` tests the widths."""
    monkeypatch.setenv("COLUMNS", "1000")


@pytest.fixture
def headcount_cli(tmp_path: Path) -> Cli:
    """Run `python -m headcount ARGS` in an empty folder; the caller judges status and output."""

    def run(*args: str, timeout: float = 120, **options: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "headcount", *map(str, args)]
        settings = {"cwd": tmp_path, "capture_output": True, "text": True, "timeout": timeout, **options}
        return subprocess.run(command, check=False, **settings)  # type: ignore[call-overload]

    return run


@pytest.fixture
def headcount_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Run the command line in this process: a second less a command, for what needs no process of its own."""
    from headcount.cli.main import main

    def run(*args: str) -> subprocess.CompletedProcess[str]:
        monkeypatch.chdir(tmp_path)
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            main([str(a) for a in args])
        out, err = capsys.readouterr()
        return subprocess.CompletedProcess(list(args), int(left.value.code or 0), out, err)

    return run
