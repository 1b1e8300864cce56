"""Writers of a store are killed with SIGKILL, at random moments and at random lines: nothing stored is ever lost."""

from __future__ import annotations

import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import kill_worker
import pytest
from kill_worker import RUN, problems, spec, work

from headcount.store.store import Store
from results import write_result

CHAINS = 12
KILLS = 100
"""Of each kind, in the slow test."""
LINES = 6000
"""Fewer than a writer runs of the store's code for a dozen chains, so that nearly all die in time."""


class Field:
    """A store, the log of what its writers were promised, and the writers that are started on it and killed."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.log, self.rng = folder / "store", folder / "log", random.Random(seed)
        self.chains = self.kills = self.checks = 0
        self.problems: list[str] = []

    def more_work(self) -> None:
        """See to it that the next writers have something to do."""
        with Store.open(self.folder) as store:
            waiting = store.counts(RUN)["pending"] if self.chains else 0
            if waiting < CHAINS:
                store.add_run(RUN, [spec(self.chains + n) for n in range(CHAINS)])
                self.chains += CHAINS

    def start(self, how: str, number: int = 0) -> subprocess.Popen[bytes]:
        seed = self.rng.randrange(1 << 30)
        return subprocess.Popen(
            [sys.executable, kill_worker.__file__, self.folder, self.log, str(seed), how, str(number)],
            stderr=subprocess.PIPE,
        )

    def count(self, child: subprocess.Popen[bytes]) -> None:
        """Count a child that was killed; one that ended before, by itself, must have ended well."""
        _, errors = child.communicate(timeout=60)
        assert child.returncode in (0, -signal.SIGKILL), errors.decode()
        self.kills += child.returncode != 0

    def kill_two_at_some_time(self) -> None:
        """Start two writers, and kill one while the other goes on, then that one too."""
        self.more_work()
        before = self.log.stat().st_size if self.log.exists() else 0
        children = [self.start("time") for _ in range(2)]
        try:
            end = time.monotonic() + 30
            while (self.log.stat().st_size if self.log.exists() else 0) == before and time.monotonic() < end:
                time.sleep(0.002)
            for child in children:
                time.sleep(self.rng.random() ** 2 * 0.3)
                child.kill()
                self.count(child)
        finally:
            for child in children:
                child.kill()

    def kill_at_some_line(self) -> None:
        """Start a writer that kills itself at a random line of the store's own code."""
        self.more_work()
        self.count(self.start("line", self.rng.randint(1, LINES)))

    def check(self) -> None:
        self.checks += 1
        self.problems += problems(self.folder, self.log, self.chains)
        assert self.problems == []

    def check_the_end(self) -> int:
        """Let one writer that nobody kills do the rest; return how many chains there were."""
        work(self.folder, self.log, 0)
        self.check()
        with Store.open(self.folder) as store:
            assert store.counts(RUN)["done"] == self.chains
        return self.chains


def test_nothing_is_lost_when_writers_are_killed(tmp_path):
    field = Field(tmp_path, seed=1)
    for _ in range(4):
        field.kill_two_at_some_time()
        field.check()
    for _ in range(4):
        field.kill_at_some_line()
        field.check()
    assert field.kills >= 6
    field.check_the_end()


def drop_file(folder: Path, log: Path) -> None:
    next((folder / "checkpoints").glob("*.safetensors")).unlink()


def flip_byte(folder: Path, log: Path) -> None:
    path = next((folder / "checkpoints").glob("*.safetensors"))
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def sql(statement: str):
    def change(folder: Path, log: Path) -> None:
        db = sqlite3.connect(folder / "trials.sqlite")
        db.execute(statement)
        db.commit()
        db.close()

    return change


def finish_twice(folder: Path, log: Path) -> None:
    lines = [line for line in log.read_text().splitlines() if line.startswith("finish")]
    log.write_text(log.read_text() + lines[0] + "\n")


SABOTAGE = {
    "a checkpoint is gone": drop_file,
    "a checkpoint is damaged": flip_byte,
    "a trial is gone": sql("DELETE FROM trials WHERE rowid = 1"),
    "a finished one is not": sql("UPDATE trials SET state = 'pending', metrics = NULL WHERE rowid = 1"),
    "a metric changed": sql("""UPDATE trials SET metrics = '{"last":"0"}' WHERE rowid = 1"""),
    "a step is lost": sql("UPDATE trials SET step = 9, checkpoint_step = 9 WHERE rowid = 1"),
    "a flush of a curve is gone": sql("DELETE FROM curves WHERE sequence = 1"),
    "a flush is there twice": sql("INSERT INTO curves SELECT trial, 99, points FROM curves WHERE sequence = 0"),
    "one finished twice": finish_twice,
    "the table is cut": lambda folder, log: (folder / "trials.sqlite").write_bytes(
        (folder / "trials.sqlite").read_bytes()[:-4096]
    ),
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """A store with a few chains, all done."""
    folder = tmp_path_factory.mktemp("finished")
    with Store.open(folder / "store") as store:
        store.add_run(RUN, [spec(n) for n in range(3)])
    work(folder / "store", folder / "log", 0)
    assert problems(folder / "store", folder / "log", 3) == []
    return folder


@pytest.mark.parametrize("case", SABOTAGE)
def test_the_check_finds_the_faults_of_a_bad_store(case, finished, tmp_path):
    shutil.copytree(finished, tmp_path / "copy")
    SABOTAGE[case](tmp_path / "copy/store", tmp_path / "copy/log")
    assert problems(tmp_path / "copy/store", tmp_path / "copy/log", 3) != []


def test_a_writer_that_renames_files_too_early_is_caught(tmp_path):
    field = Field(tmp_path, seed=2)
    field.more_work()
    field.count(field.start("sabotage", 5))
    assert field.kills == 1
    assert problems(field.folder, field.log, field.chains) != []


@pytest.mark.slow
def test_many_kills(tmp_path):
    started = time.monotonic()
    seed = 3
    by_time, by_line = Field(tmp_path / "time", seed), Field(tmp_path / "line", seed)
    for field, kill in ((by_time, by_time.kill_two_at_some_time), (by_line, by_line.kill_at_some_line)):
        field.folder.parent.mkdir()
        while field.kills < KILLS:
            kill()
            field.check()
    trials = by_time.check_the_end() + by_line.check_the_end()
    both = (by_time, by_line)
    counts = {
        "kills": by_time.kills + by_line.kills,
        "kills_by_time": by_time.kills,
        "kills_by_line": by_line.kills,
        "checks": sum(field.checks for field in both),
        "problems": sum(len(field.problems) for field in both),
        "trials": trials,
        "stored": sum(len(field.log.read_text().splitlines()) for field in both),
    }
    write_result("store-kills", {"seconds": round(time.monotonic() - started, 1)}, seeds=[seed], counts=counts)
