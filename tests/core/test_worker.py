"""Processes that make calls: answers, errors, deaths, stops, and none left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headcount.core.worker import Worker, WorkerFailed

NAP = 60.0


@pytest.fixture
def worker() -> Iterator[Worker]:
    worker = Worker()
    yield worker
    worker.close()


def test_calls_are_answered_in_order(worker: Worker) -> None:
    assert [worker.call(pow, 2, k) for k in range(3)] == [1, 2, 4]
    assert worker.call(os.getpid) == worker.call(os.getpid) != os.getpid()


def test_output_of_a_call_does_not_reach_its_answer(worker: Worker) -> None:
    assert worker.call(print, "between answers") is None
    assert worker.call(pow, 3, 2) == 9


def test_an_error_fails_only_its_own_call(worker: Worker) -> None:
    with pytest.raises(WorkerFailed, match="ZeroDivisionError"):
        worker.call(divmod, 1, 0)
    assert worker.alive
    assert worker.call(pow, 2, 5) == 32


def test_a_killed_process_reports_its_signal(worker: Worker) -> None:
    with pytest.raises(WorkerFailed, match="signal 9"):
        worker.call(signal.raise_signal, signal.SIGKILL)
    assert not worker.alive


def test_a_stop_ends_the_call_and_the_process(worker: Worker) -> None:
    stop = threading.Event()
    worker.call(abs, 1)  # it has started
    threading.Timer(0.2, stop.set).start()
    begun = time.monotonic()
    assert worker.call(time.sleep, NAP, stop=stop) is None
    assert time.monotonic() - begun < NAP / 4
    assert not worker.alive


@pytest.mark.parametrize("name", ["SIGINT", "SIGHUP"])
def test_terminal_signals_do_not_reach_the_process(worker: Worker, name: str) -> None:
    worker.call(signal.raise_signal, getattr(signal, name))
    assert worker.call(pow, 2, 2) == 4


def at_work(pid: int) -> bool:
    """Return whether a process is running, and not a zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_no_process_outlives_its_killed_caller(tmp_path: Path) -> None:
    script = tmp_path / "caller.py"  # without a guard around the main module
    script.write_text(
        "import os, time\nfrom headcount.core.worker import Worker\n"
        "worker = Worker()\nprint(worker.call(os.getpid), flush=True)\n"
        f"worker.call(time.sleep, {NAP})\n"
    )
    caller = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    assert caller.stdout is not None
    pid = int(caller.stdout.readline())
    assert Path(f"/proc/{pid}").exists()
    caller.kill()
    caller.wait()
    caller.stdout.close()
    for _ in range(100):
        if not at_work(pid):
            return
        time.sleep(0.05)
    pytest.fail("the process is still at work although nobody waits for it")
