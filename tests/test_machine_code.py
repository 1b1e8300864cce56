"""A place for compiled code: a read-only install without a home, and folders that somebody else has prepared."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from headcount.core import machine_code
from support import REPO

SUM = """
import sys, headcount.core.machine_code as m
@m.cached_njit(nogil=True)
def add(a, b): return a + b
assert add(2, 3) == 5
print(m.fallback_folder_in_use(), sum(add.stats.cache_hits.values()), add.stats.cache_path)
"""
ROOMS = """
from headcount.kernels.step import numba_cache
from headcount.theory.enclose import head_numba
from headcount.theory.irreducible import dual_simplex
from headcount.models.transformer.compiled import why_not_compiled
assert why_not_compiled() is None
print(*(f.stats.cache_path for f in (numba_cache.run, head_numba.evaluate, dual_simplex.multipliers)), sep="\\n")
"""


@pytest.fixture(scope="module")
def install(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package in which nothing can be kept: permission bits do not bind the superuser, files do."""
    folder = tmp_path_factory.mktemp("install")
    shutil.copytree(REPO / "src" / "headcount", folder / "headcount", ignore=shutil.ignore_patterns("__pycache__"))
    for room in (folder, *(p for p in folder.rglob("*") if p.is_dir())):
        (room / "__pycache__").write_text("a file, so that no folder of this name can be made")
    (folder / "add.py").write_text(SUM)
    return folder


def run(install: Path, temporary: Path, *args: str) -> list[str]:
    """Run Python on that install, with a home that cannot be written to."""
    unwanted = ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "PYTHONPATH")
    environment = {name: value for name, value in os.environ.items() if name not in unwanted}
    environment |= {"HOME": "/dev/null/x", "TMPDIR": str(temporary), "PYTHONPATH": str(install)}
    done = subprocess.run(
        [sys.executable, *args], env=environment, cwd=temporary, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines() + done.stderr.splitlines()


def test_a_read_only_install_without_a_home_keeps_its_code(install: Path, tmp_path: Path) -> None:
    """The second process finds what the first compiled, in a folder for this user alone."""
    own = tmp_path / f"headcount-{os.geteuid()}"
    for hits in ("0", "1"):
        folder, found, place = run(install, tmp_path, str(install / "add.py"))[0].split()
        assert (folder, found) == (str(own), hits)
        assert Path(place).is_relative_to(own)
    assert own.stat().st_mode & 0o777 == 0o700
    assert all(Path(place).is_relative_to(own) for place in run(install, tmp_path, "-c", ROOMS))


@pytest.mark.parametrize("prepared", ["open to all", "a link", "somebody else's"])
def test_a_folder_that_another_could_write_to_is_not_used(install: Path, tmp_path: Path, prepared: str) -> None:
    own, other = tmp_path / f"headcount-{os.geteuid()}", tmp_path / "other"
    (other if prepared == "a link" else own).mkdir(mode=0o700)
    if prepared == "a link":
        own.symlink_to(other)
    elif prepared == "open to all":
        own.chmod(0o777)
    elif os.geteuid() == 0:
        os.chown(own, 12345, 12345)
    else:
        own.chmod(0o770)
    folder, found, _ = run(install, tmp_path, str(install / "add.py"))[0].split()
    assert Path(folder).parent == tmp_path
    assert Path(folder) not in (own, other)
    assert found == "0"
    assert not Path(folder).exists(), "a folder for one process goes with it"
    assert list(own.iterdir()) == []  # through the link, where it is one


def test_no_safe_place_is_no_error(install: Path, tmp_path: Path) -> None:
    """Where anybody may exchange folders nothing is kept; every process compiles."""
    tmp_path.chmod(0o777)  # without the sticky bit of /tmp
    assert run(install, tmp_path, str(install / "add.py"))[0].split() == ["None", "0", "None"]
    assert list(tmp_path.iterdir()) == []


def test_an_ordinary_install_keeps_its_code_where_numba_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "add.py").write_text(SUM)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "add.py")],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "HOME": str(tmp_path)},
    )
    assert done.stdout.startswith("None 0 ")


def test_kernels_without_a_place_are_compiled_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """No child is started for what it could not hand over."""
    from headcount.kernels.step import numba_cache

    compiled: list[str] = []
    monkeypatch.setattr(numba_cache.run, "_cache", object())
    monkeypatch.setattr(numba_cache, "_compile_in_a_child", lambda _: pytest.fail("a child"))
    monkeypatch.setattr(numba_cache, "compile_kernels", compiled.append)
    numba_cache._load.__wrapped__("float32")  # pyright: ignore[reportPrivateUsage]
    assert compiled == ["float32"]


def test_other_errors_are_not_swallowed(monkeypatch: pytest.MonkeyPatch) -> None:
    import numba

    def fails(**_: object) -> object:
        raise RuntimeError("something else")

    monkeypatch.setattr(numba, "njit", fails)
    with pytest.raises(RuntimeError, match="something else"):
        machine_code.cached_njit()(lambda: None)
