"""Writes: whole or absent, through links, and into pipes without replacing them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headcount.core.files import atomic_folder, write_bytes, write_files, write_json, write_text

STDOUT = """
import sys
from pathlib import Path
from headcount.core.files import write_text
write_text(Path(sys.argv[1]), "new")
"""


def test_a_file_is_written_whole_or_stays_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "a.json"
    write_json(path, {"x": 1})
    before = path.read_text()
    with pytest.raises(ValueError, match="JSON"):
        write_json(path, {"x": float("nan")})
    assert path.read_text() == before
    assert [p.name for p in path.parent.iterdir()] == ["a.json"]


LIMITED = """
import resource, sys
from pathlib import Path
from headcount.core.files import write_files
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    write_files(Path(sys.argv[1]), {"a": b"new", "b": bytes(2000)})
except OSError as error:
    print(error.strerror, error.filename)
"""


@pytest.mark.parametrize("new", [False, True])
def test_a_folder_is_written_whole_or_stays_as_it_was(new: bool, tmp_path: Path) -> None:
    """The system refuses the second file in the middle."""
    folder = tmp_path / ("x/y" if new else ".")
    if not new:
        write_files(folder, {"a": b"old", "b": b"old"})
    command = [sys.executable, "-c", LIMITED, str(folder)]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    assert told == f"File too large {folder / 'b'}"
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == ({} if new else {"a": b"old", "b": b"old"})


def test_a_link_stays_and_its_target_is_written(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    link.symlink_to(target.name)
    write_text(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    target.unlink()
    write_text(link, "newer")
    assert link.is_symlink()
    assert target.read_text() == "newer"


def test_a_pipe_is_written_to_and_stays_a_pipe(tmp_path: Path) -> None:
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()), daemon=True)
    reader.start()
    write_bytes(pipe, b"new")
    reader.join(10)
    assert read == [b"new"]
    assert pipe.is_fifo()


@pytest.mark.parametrize("into", ["pipe", "file"])
def test_standard_output_is_written_to_and_stays(into: str, tmp_path: Path) -> None:
    """In a folder of its own that stands for /dev, and in /dev itself where that could do no harm."""
    name, before = Path("/dev/stdout"), os.lstat("/dev/stdout")
    if os.access("/dev", os.W_OK):  # a failing test must not break the machine
        name = tmp_path / "stdout"
        name.symlink_to("/proc/self/fd/1")
        before = os.lstat(name)
    out = tmp_path / "out.txt"
    with out.open("wb") as file:
        command = [sys.executable, "-c", STDOUT, str(name)]
        done = subprocess.run(command, stdout=file if into == "file" else subprocess.PIPE, check=True)
    assert (out.read_bytes() if into == "file" else done.stdout) == b"new"
    assert os.lstat(name).st_ino == before.st_ino


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def write_one(folder: Path) -> None:
    write_bytes(folder / "a.json", b"new")


def write_several(folder: Path) -> None:
    write_files(folder, {"a.json": b"new"})


def write_folder(folder: Path) -> None:
    with atomic_folder(folder) as temporary:
        write_bytes(temporary / "a.json", b"new")
        write_bytes(temporary / "config.json", b'{"format": "headcount-model"}')


def modes(folder: Path) -> tuple[int, int]:
    return folder.stat().st_mode & 0o777, (folder / "a.json").stat().st_mode & 0o777


@pytest.mark.parametrize("mask", [0o002, 0o022, 0o027, 0o077])
@pytest.mark.parametrize("write", [write_one, write_several, write_folder])
def test_new_files_have_the_mode_that_the_umask_leaves(write, mask: int, tmp_path: Path) -> None:
    with umask(mask):
        write(tmp_path / "x")
    assert modes(tmp_path / "x") == (0o777 & ~mask, 0o666 & ~mask)


@pytest.mark.parametrize("write", [write_one, write_several, write_folder])
def test_a_file_that_is_replaced_keeps_its_mode(write, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("headcount.core.files._RESULT_FILES", {"a.json", "config.json"})
    folder = tmp_path / "x"
    with umask(0o022):
        write_folder(folder)
        (folder / "a.json").chmod(0o640)
        folder.chmod(0o750)
        (folder / ".a.json.part").touch(0o600)  # of a writer that was killed
        if write is write_folder:
            (folder / ".a.json.part").unlink()
        write(folder)
    assert (folder / "a.json").read_bytes() == b"new"
    assert modes(folder) == (0o750, 0o640)


def test_the_target_of_a_link_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "target").touch(0o600)
    (tmp_path / "link").symlink_to("target")
    write_text(tmp_path / "link", "new")
    assert (tmp_path / "target").stat().st_mode & 0o777 == 0o600
