"""Four processes take their trials from one store: each trial is claimed exactly once, and all are finished."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from headcount.store import claims
from headcount.store.store import Store
from headcount.store.trials import Outcome

TRIALS, WRITERS = 200, 4
SPECS = [{"seed": seed} for seed in range(TRIALS)]


def write(folder: Path, name: str) -> None:
    """One process: wait for the others, make the store with them, then claim and finish until nothing is left."""
    (folder / f"{name}.ready").touch()
    while not (folder / "go").exists():
        time.sleep(0.001)
    claimed: list[str] = []
    with Store.open(folder / "store") as store:
        hashes = store.add_run("r", SPECS)
        while mine := store.claim(hashes, limit=3):
            claimed += mine
            store.finish_many([Outcome(trial, "done", {"by": name}) for trial in mine])
    print(json.dumps(claimed))  # noqa: T201


def sabotage() -> None:
    """Claim by looking first and writing later, without a lock: what must not be done."""
    careful = claims.is_held

    def slow(*args: object) -> bool:
        time.sleep(0.001)
        return careful(*args)  # type: ignore[arg-type]

    claims.is_held = slow
    claims.Claims.writing = claims.Claims.reading


def run_writers(folder: Path, *options: str) -> list[list[str]]:
    """Start the writers at one moment; return what each claimed."""
    command = [sys.executable, __file__, str(folder)]
    children = [
        subprocess.Popen([*command, str(number), *options], stdout=subprocess.PIPE, text=True)
        for number in range(WRITERS)
    ]
    try:
        while len(list(folder.glob("*.ready"))) < WRITERS:
            assert all(child.poll() is None for child in children)
            time.sleep(0.005)
        (folder / "go").touch()
        outputs = [child.communicate(timeout=60)[0] for child in children]
        assert [child.returncode for child in children] == [0] * WRITERS
    finally:
        for child in children:
            child.kill()
    return [json.loads(output) for output in outputs]


def claimed_twice(claimed: list[list[str]]) -> list[str]:
    """The trials that were handed out more than once."""
    return [trial for trial, times in Counter(trial for own in claimed for trial in own).items() if times > 1]


def test_each_trial_is_claimed_exactly_once(tmp_path):
    claimed = run_writers(tmp_path)
    assert claimed_twice(claimed) == []
    with Store.open(tmp_path / "store") as store:
        assert store.counts("r") == {"pending": 0, "running": 0, "done": TRIALS, "diverged": 0, "failed": 0}
        by = {trial.hash: trial.metrics["by"] for trial in store.trials("r")}
    assert by == {trial: str(number) for number, own in enumerate(claimed) for trial in own}
    assert sum(map(bool, claimed)) > 1, "one process did it all: nothing was tested"


def test_claims_without_a_lock_are_caught(tmp_path):
    assert claimed_twice(run_writers(tmp_path, "sabotage")) != []


if __name__ == "__main__":
    if "sabotage" in sys.argv:
        sabotage()
    write(Path(sys.argv[1]), sys.argv[2])
