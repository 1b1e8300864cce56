"""SIGTERM and SIGHUP stop a command as one Ctrl-C does; a second Ctrl-C says what it costs."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path

import numpy as np
import pytest

from headcount.cli.stops import stops_like_interrupt
from headcount.core.readers.toml import toml_text
from headcount.store.store import Store

SWEEP = {
    "name": "long",
    "heads": [1],
    "seeds": 1,
    "task": {"family": "min-plus-max", "length": 4},
    "model": {"head_dim": 2, "hidden": 4},
    "train": {"steps": 100_000_000, "train_size": 1000},
}
TRAINS = """
import sys, time
from headcount.cli.main import main
from headcount.training import on_cores
real, pause = on_cores.CpuTrial.advance, float(sys.argv.pop(1))
def advance(self, count):
    print("it trains", file=sys.stderr, flush=True)
    time.sleep(pause)
    return real(self, count)
on_cores.CpuTrial.advance = advance
main()
"""
"""The command line, which says when a window of training begins, and takes a pause in it."""
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Generator[Start]:
    """Start a command and return when it trains; whatever happens, none is left."""
    begun: list[subprocess.Popen[str]] = []

    def run(*args: str, pause: float = 0.0, ignored: int | None = None, windows: int = 1) -> subprocess.Popen[str]:
        def heeds() -> None:
            signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job would ignore it
            if ignored is not None:
                signal.signal(ignored, signal.SIG_IGN)

        process = subprocess.Popen(
            [sys.executable, "-c", TRAINS, str(pause), *args],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=heeds,
        )
        begun.append(process)
        assert process.stderr is not None
        for line in process.stderr:
            windows -= line == "it trains\n"
            if not windows:
                return process
        raise AssertionError("it ended before it trained")

    yield run
    for process in begun:
        process.kill()
        process.wait()


def ended(process: subprocess.Popen[str]) -> tuple[int, list[str]]:
    """Return the status, and what the command said in its own name."""
    _, err = process.communicate(timeout=60)
    assert "Traceback" not in err, err
    assert "Exception ignored" not in err, err
    return process.returncode, [line for line in err.splitlines() if line.startswith("headcount: ")]


def trained(folder: Path) -> tuple[str, int]:
    """Return the state and the checkpoint's step of the one trial."""
    with Store.open(folder / "headcount-runs", create=False) as store:
        (trial,) = store.trials(run="long")
    return trial.state, trial.step


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_sweep_leaves_its_checkpoint(start: Start, tmp_path: Path, name: str) -> None:
    (tmp_path / "long.toml").write_text(toml_text(SWEEP))
    process = start("sweep", "long.toml", windows=2)
    process.send_signal(getattr(signal, name))
    kept = "headcount: everything trained so far is kept in headcount-runs: run the same command again to continue"
    assert ended(process) == (130, [kept, "headcount: interrupted"])
    state, step = trained(tmp_path)
    assert state == "pending"
    assert step > 0


def test_repeated_signals_wait_for_the_checkpoint(start: Start, tmp_path: Path) -> None:
    """A logout sends both: neither is a second Ctrl-C."""
    (tmp_path / "long.toml").write_text(toml_text(SWEEP))
    process = start("sweep", "long.toml", pause=0.6, windows=2)
    for name in ("SIGTERM", "SIGHUP", "SIGTERM"):
        process.send_signal(getattr(signal, name))
        time.sleep(0.1)
    status, said = ended(process)
    assert status == 130
    assert "is kept in" in said[0]
    assert trained(tmp_path)[1] > 0


def test_a_second_interrupt_claims_nothing(start: Start, tmp_path: Path) -> None:
    (tmp_path / "long.toml").write_text(toml_text(SWEEP))
    process = start("sweep", "long.toml", pause=1.2, windows=2)
    process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    status, said = ended(process)
    assert status == 130
    lost = "stopped at once: training since the last checkpoint is lost"
    kept = "the rest is kept in headcount-runs: run the same command again to continue"
    assert said == [f"headcount: {lost} ({kept})", "headcount: interrupted"]
    assert trained(tmp_path) == ("pending", 0)  # given back; no checkpoint was due yet


def test_nohup_stays_in_force(start: Start, tmp_path: Path) -> None:
    (tmp_path / "long.toml").write_text(toml_text(SWEEP))
    process = start("sweep", "long.toml", ignored=signal.SIGHUP)
    process.send_signal(signal.SIGHUP)
    time.sleep(0.5)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert ended(process)[0] == 130


OTHERS: dict[str, list[str]] = {
    "train": ["train", "sum-of-maxima", "--heads", "2", "--out", "m", "--steps", "100000000"],
    "demo": ["demo", "--out", "d"],
    "advise": ["advise", "data.npz", "--out", "a", "--steps", "100000000"],
    "reproduce": ["reproduce", "table2", "--scale", "small", "--out", "r"],
}


@pytest.mark.parametrize("verb", OTHERS)
def test_other_verbs_end_in_good_order(start: Start, tmp_path: Path, verb: str) -> None:
    """One line, status 130, nothing half-written; a store keeps its checkpoints."""
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "data.npz", X=rng.random((60, 3, 1)), y=rng.random(60))
    process = start(*OTHERS[verb], pause=0.05)
    process.send_signal(signal.SIGTERM)
    status, said = ended(process)
    assert status == 130
    assert said[-1] == "headcount: interrupted"
    assert ("is kept in" in said[0]) == (verb == "reproduce")
    assert {p.name for p in tmp_path.iterdir()} <= {"data.npz", "headcount-runs"}


IRREDUCIBLE = {
    "name": "curve",
    "model": {"hidden": 4},
    "train": {"steps": 20, "warmup": 2, "train_size": 300},
    "attack": {"starts": 64, "seconds": 60.0},
    "cells": [{"task": {"family": "min-plus-max", "length": 3}, "heads": [1, 2], "random_seeds": 0, "seeds": 1}],
}


def alive(group: int) -> list[int]:
    """Return the processes of a group that have not ended."""
    found: list[int] = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has just ended
            state, _, of = entry.read_text().rpartition(")")[2].split()[:3]
            found += [int(entry.parent.name)] if int(of) == group and state not in "ZX" else []
    return found


@pytest.mark.parametrize("name", ["SIGINT", "SIGHUP"])
def test_worker_processes_say_nothing(tmp_path: Path, name: str) -> None:
    """Ctrl-C and a closed terminal reach the whole group; one process of it answers, and none is left."""
    (tmp_path / "curve.toml").write_text(toml_text(IRREDUCIBLE))
    command = [sys.executable, "-m", "headcount", "irreducible", "curve.toml", "--out", "o", "--workers", "2"]
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    while len(alive(process.pid)) < 3:
        assert process.poll() is None
        time.sleep(0.05)
    time.sleep(1.5)  # the workers import, or have begun
    os.killpg(process.pid, getattr(signal, name))
    status, lines = ended(process)
    assert (status, lines[-1]) == (130, "headcount: interrupted")
    assert "everything finished so far is kept in headcount-runs" in lines[-2]
    assert len(lines) == 2
    time.sleep(0.5)
    assert alive(process.pid) == []


def test_a_surrounding_program_keeps_its_own_handlers() -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: heard.append(number))
    try:
        with stops_like_interrupt():
            signal.raise_signal(signal.SIGTERM)
        assert heard == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)
    ours = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), stops_like_interrupt():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) == ours
