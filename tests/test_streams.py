"""Readers that leave and streams that are closed or full: a documented status, one line or none, never a traceback."""

from __future__ import annotations

import json
import os
import pty
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

HEADCOUNT = f"{shlex.quote(sys.executable)} -m headcount"
READER_LEFT = 141


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data to read."""
    folder = tmp_path_factory.mktemp("streams")
    rng = np.random.default_rng(0)
    np.savez(folder / "data.npz", X=rng.random((60, 3, 1)), y=rng.random(60))
    return folder


def shell(command: str, folder: Path) -> tuple[int, str, str]:
    """Run a line of bash; return the status of its first command, and what both streams got."""
    line = f"{command}; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", line], cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    assert "Exception ignored" not in done.stderr, done.stderr
    return done.returncode, done.stdout, done.stderr


TRAIN = "train data.npz --heads 1 --steps 5 --batch 8"
SHORT = "density -T 4 --samples 5"
VERBS = [SHORT, f"{SHORT} --json", "tasks --help", "--version"]


@pytest.mark.parametrize("verb", VERBS)
def test_a_reader_that_leaves(verb: str, here: Path) -> None:
    """`true` has ended before the first line comes."""
    status, _, err = shell(f"{HEADCOUNT} {verb} | true", here)
    assert status == READER_LEFT
    assert err == ""


def test_head_gets_its_line(here: Path) -> None:
    status, out, err = shell(f"{HEADCOUNT} {SHORT} | head -1", here)
    assert status in (0, READER_LEFT)  # all may have been in the pipe before head left
    assert out.startswith("F = max-minus-min")
    assert out.count("\n") == 1
    assert err == ""


def test_the_work_goes_on_without_a_reader(here: Path) -> None:
    """What was trained is saved, although nobody reads how far it is, and that it was."""
    status, _, err = shell(f"{HEADCOUNT} {TRAIN} --out trained 2>&1 | true", here)
    assert (status, err) == (READER_LEFT, "")
    assert json.loads((here / "trained" / "config.json").read_text())["format"] == "headcount-model"


def test_closed_streams(here: Path) -> None:
    """They are as the null device: the status says how it went, and no file of ours takes their place."""
    for streams in (">&-", "2>&-", "<&- >&- 2>&-"):
        assert shell(f"{HEADCOUNT} {SHORT} --out a.png {streams}", here)[0] == 0
        assert (here / "a.png").read_bytes().startswith(b"\x89PNG")
        (here / "a.png").unlink()
        assert shell(f"{HEADCOUNT} runs --store nowhere {streams}", here)[0] == 2
    status, out, err = shell(f"{HEADCOUNT} runs --store nowhere >&-", here)
    assert (status, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert json.loads(shell(f"{HEADCOUNT} {SHORT} --json 2>&-", here)[1])["rows"]


def test_a_full_disk_is_one_line(here: Path) -> None:
    for verb in (SHORT, f"{SHORT} --json", "--help"):
        status, _, err = shell(f"{HEADCOUNT} {verb} > /dev/full", here)
        assert status == 2
        assert err == "headcount: No space left on device: standard output\n"
    assert shell(f"{HEADCOUNT} runs --store nowhere 2> /dev/full", here)[0] == 2
    status, _, err = shell(f"{HEADCOUNT} {SHORT} 1</dev/null", here)  # a stream that cannot be written
    assert (status, len(err.splitlines())) == (2, 1)


def test_a_terminal_that_is_closed(here: Path) -> None:
    """The other end of a terminal goes away while a command prints."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "headcount", *SHORT.split(), "--out", "gone.png"]
    with subprocess.Popen(command, cwd=here, stdout=theirs, stderr=theirs, stdin=subprocess.DEVNULL) as process:
        os.close(theirs)
        os.close(ours)
        assert process.wait(timeout=60) == READER_LEFT
    assert (here / "gone.png").is_file()
