"""Progress on a real terminal: something moves while a step takes long, and nothing is printed elsewhere."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headcount.core import Progress, working
from support import Cli

SPINNER = re.compile("[\N{BRAILLE PATTERN DOTS-1}-\N{BRAILLE PATTERN DOTS-12345678}]")


def on_terminal(command: list[str], folder: Path, **environment: str) -> tuple[int, str]:
    """Run a command with standard error on a terminal of its own; return its status and what the terminal got."""
    ours, theirs = pty.openpty()
    settings = {**os.environ, "TERM": "xterm", "COLUMNS": "120", **environment}
    streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": theirs}
    with subprocess.Popen(command, cwd=folder, env=settings, **streams) as running:
        os.close(theirs)
        screen = b""
        try:
            while piece := os.read(ours, 65536):
                screen += piece
        except OSError:  # the other end has closed
            pass
        finally:
            os.close(ours)
        return running.wait(120), screen.decode()


def frames(screen: str) -> list[str]:
    """Return the states of the spinner, one after the other."""
    return SPINNER.findall(screen)


def test_a_bar_moves_while_one_step_takes_long(tmp_path: Path) -> None:
    """The work is one call, as a compilation is: nothing in it says how far it is."""
    program = "import time; from headcount.core import working\nwith working('compiling'): time.sleep(1.5)"
    status, screen = on_terminal([sys.executable, "-c", program], tmp_path)
    assert status == 0
    assert "compiling" in screen
    assert len(set(frames(screen))) >= 4
    assert screen.rstrip().endswith("\x1b[2K") or screen.count("\x1b[2K") > len(set(frames(screen)))  # erased


def test_a_step_that_is_counted_moves_between_its_units(tmp_path: Path) -> None:
    program = (
        "import time; from headcount.core import Progress\n"
        "with Progress('training', 2) as progress:\n"
        "    progress.start('compiling the kernels'); time.sleep(1.2); progress.advance(1)"
    )
    status, screen = on_terminal([sys.executable, "-c", program], tmp_path)
    assert status == 0
    assert "compiling the kernels" in screen
    assert len(set(frames(screen))) >= 4


VERBS = {
    "density": ("density", "--length", "4", "--samples", "20"),
    "bounds": ("bounds", "quadratic-basins", "--heads", "1:2"),
    "tasks": ("tasks", "quadratic-basins"),
    "build": ("build", "quadratic-basins", "--D", "1", "-d", "1", "-T", "2", "--eps", "0.5", "--out", "built"),
    "recheck": ("recheck", "built"),
    "show": ("show", "built"),
}


def test_verbs_show_what_they_do(tmp_path: Path) -> None:
    for verb, arguments in VERBS.items():
        status, screen = on_terminal([sys.executable, "-m", "headcount", *arguments], tmp_path)
        assert status == 0, (verb, screen)
        assert frames(screen), verb


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb not in ("recheck", "show")])
def test_elsewhere_nothing_is_printed(verb: str, headcount_here: Cli) -> None:
    assert headcount_here(*VERBS[verb]).stderr == ""


def test_a_step_of_unknown_length_is_silent_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with working("drawing") as progress:
        progress.start("one")
        progress.advance(1, "two")
        progress.print_line("three")
    assert capsys.readouterr() == ("", "")
    with Progress("drawing", 1, live_only=True) as progress:
        progress.advance(1, "a note")
    assert capsys.readouterr() == ("", "")
