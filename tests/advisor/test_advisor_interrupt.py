"""Ctrl-C in `advise`: the answer so far, in Python and at the shell; nothing where there is none yet."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from advisor_cases import arrays

from headcount.advisor import advice as advisor
from headcount.advisor.advice import advise
from headcount.advisor.sessions import BestOnCore

QUICK = {"steps": 60, "heads_max": 4, "budget": 60.0, "quiet": True}


@pytest.fixture(scope="module")
def data():
    return arrays("mean", 1000, 0.1, dim=2, length=6)  # held back once: a trial is one model


def press_after(monkeypatch, heads: int, times: int = 1) -> list[int]:
    """Press Ctrl-C, with a real signal, when so many head counts have an outcome."""
    seen: set[int] = set()
    pressed: list[int] = []
    real = BestOnCore._ended

    def ended(self, *, completed):
        if self.requested.wanted.tag == "heads":
            seen.add(self.requested.wanted.heads)
        return real(self, completed=completed)

    def told(self):
        if len(seen) >= heads and len(pressed) < times:
            pressed.append(1)
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(BestOnCore, "_ended", ended)
    monkeypatch.setattr(advisor.Progress, "advance", lambda self, *_a, **_k: told(self))
    return pressed


def test_the_answer_so_far_is_returned_and_says_so(data, monkeypatch):
    pressed = press_after(monkeypatch, heads=2)
    found = advise(*data, **QUICK, witness="5s")
    record = found.record
    assert pressed
    assert record.interrupted
    assert not record.settled
    assert "Interrupted: this is the answer so far, from" in record.sentence
    assert record.sentence == repr(found)
    assert found.looked is None, "no witness is looked for"
    assert not record.curves
    assert found.predict(data[0]).shape == data[1].shape


def test_without_ctrl_c_nothing_is_called_interrupted(data):
    record = advise(*data, **QUICK).record
    assert not record.interrupted
    assert "Interrupted" not in record.sentence


@pytest.mark.parametrize(("heads", "times"), [(0, 1), (2, 2)])
def test_before_two_head_counts_or_twice_it_goes_on(data, monkeypatch, heads, times):
    if times == 2:  # the second comes while the answer is made
        monkeypatch.setattr(advisor, "_record", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    press_after(monkeypatch, heads, times)
    with pytest.raises(KeyboardInterrupt):
        advise(*data, **QUICK)


def child(folder, *options: str, pace: str = "usual") -> subprocess.Popen[str]:
    """Start the command in a process of its own; standard error goes to a file that can be watched."""
    X, y = arrays("sum-of-maxima", 2000, 0.05, intrinsic=2, dim=2, length=16)
    np.savez(folder / "data.npz", X=X, y=y)
    command = [sys.executable, "-u", "-c", STARTER, pace, "advise", "data.npz", *options]
    with (folder / "err").open("w") as err:
        return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=err, text=True)


# The command itself; every outcome is told at once, not every ten seconds.
STARTER = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell that runs us in the background ignores it
from headcount.advisor.sessions import BestOnCore
real = BestOnCore._ended
def ended(self, *, completed):
    found = real(self, completed=completed)
    if completed:
        print(f"trained {self.requested.wanted.tag} {self.requested.wanted.heads}", file=sys.stderr, flush=True)
    return found
BestOnCore._ended = ended
from headcount.cli.main import main
if sys.argv.pop(1) == "slow":  # to have time for a second Ctrl-C
    import time
    from headcount.advisor import advice
    def slow(*_):
        print("answering", file=sys.stderr, flush=True)
        time.sleep(60)
    advice._record = slow
print("started", file=sys.stderr, flush=True)
main(sys.argv[1:])
"""


def wait_for(process, folder, ready) -> None:
    """Wait until standard error holds what is asked for."""
    end = time.monotonic() + 60
    while time.monotonic() < end and process.poll() is None and not ready((folder / "err").read_text()):
        time.sleep(0.02)
    assert process.poll() is None, (folder / "err").read_text()


def test_a_signal_at_the_shell_prints_the_answer_and_writes_the_page(tmp_path):
    process = child(tmp_path, "--steps", "600", "--heads-max", "4")
    wait_for(process, tmp_path, two_head_counts)
    process.send_signal(signal.SIGINT)
    out = process.communicate(timeout=60)[0]
    assert process.returncode == 0, (tmp_path / "err").read_text()
    record = json.loads((tmp_path / "headcount-advice" / "data" / "advice.json").read_text())
    assert record["interrupted"]
    assert "Interrupted: this is the answer so far" in " ".join(out.split())
    assert "headcount-advice/data/index.html" in out
    assert "Traceback" not in out + (tmp_path / "err").read_text()


def two_head_counts(text: str) -> bool:
    return len({line for line in text.splitlines() if line.startswith("trained heads")}) >= 2


def test_a_second_signal_ends_at_once(tmp_path):
    process = child(tmp_path, "--steps", "600", "--heads-max", "4", pace="slow")
    wait_for(process, tmp_path, two_head_counts)
    process.send_signal(signal.SIGINT)
    wait_for(process, tmp_path, lambda text: "answering" in text)
    process.send_signal(signal.SIGINT)
    out = process.communicate(timeout=30)[0]
    assert (process.returncode, out) == (130, "")
    assert "headcount: interrupted" in (tmp_path / "err").read_text()
    assert not (tmp_path / "headcount-advice").exists()


def test_a_signal_before_there_is_an_answer_ends_with_130(tmp_path):
    process = child(tmp_path, "--steps", "100000", "--heads-max", "2")
    wait_for(process, tmp_path, lambda text: "started" in text)
    time.sleep(1.0)  # reading, planning or the first models: no matter
    process.send_signal(signal.SIGINT)
    out = process.communicate(timeout=60)[0]
    told = (tmp_path / "err").read_text()
    assert (process.returncode, out) == (130, "")
    assert "headcount: interrupted" in told
    assert "Traceback" not in told
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.npz", "err"]
