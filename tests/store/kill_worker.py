"""The process that the kill tests kill: it trains trials whose every step is known, and says what it has stored.

A trial is a chain of whole numbers, each made from the one before. One that went on from a wrong checkpoint, or took a
step twice or never, ends at another number.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np

from headcount.core.hashing import content_hash
from headcount.store.checkpoints import Arrays, CheckpointFiles, Snapshot
from headcount.store.schema import StoreError
from headcount.store.store import Store

STEPS, STRIDE = 12, 3
RUN = "chains"
TRACED = ("headcount/store/", "headcount/core/files.py")


def spec(number: int) -> dict[str, Any]:
    return {"chain": number}


def begin(trial: str) -> np.ndarray:
    """The chain before its first step, long enough for a file of several pages."""
    return np.full(2000, int(trial[:15], 16), np.uint64)


def advance(chain: np.ndarray) -> np.ndarray:
    return chain * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)


def chain_at(trial: str, step: int) -> np.ndarray:
    """The chain as it must be after some steps."""
    chain = begin(trial)
    for _ in range(step):
        chain = advance(chain)
    return chain


def value(chain: np.ndarray) -> float:
    """The point of the curve: exact as a float."""
    return float(chain[0] >> np.uint64(20))


def end(chain: np.ndarray) -> dict[str, Any]:
    """The metrics of a trial that is done."""
    return {"last": str(chain[-1])}


def work(folder: Path, log: Path, seed: int) -> None:
    """Claim, go on from the checkpoints, write more, finish; log each thing once the store has returned."""
    rng = random.Random(seed)
    said = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def say(*words: object) -> None:
        os.write(said, (" ".join(map(str, words)) + "\n").encode())

    with Store.open(folder) as store:
        hashes = [trial.hash for trial in store.trials(RUN)]
        rng.shuffle(hashes)
        while mine := store.claim(hashes, limit=rng.randint(1, 4)):
            loaded = store.load_checkpoints(mine)
            for step in range(0, STEPS, STRIDE):
                stack = [trial for trial in mine if loaded.get(trial, (0,))[0] == step]
                snapshots = [go_on(trial, *loaded.get(trial, (0, {"chain": begin(trial)}))) for trial in stack]
                if rng.random() < 0.5:
                    store.checkpoint_many(snapshots)
                else:
                    for s in snapshots:
                        store.checkpoint(s.hash, s.step, dict(s.arrays), s.curve)
                for s in snapshots:
                    say("checkpoint", s.hash, s.step)
                    loaded[s.hash] = (s.step, dict(s.arrays))
            for trial in mine:
                store.finish(trial, "done", end(loaded[trial][1]["chain"]), {"pid": os.getpid()})
                say("finish", trial)
        say("nothing left")


def go_on(trial: str, step: int, arrays: Arrays) -> Snapshot:
    """Take some steps from a checkpoint."""
    chain, curve = arrays["chain"], []
    for later in range(step + 1, step + STRIDE + 1):
        chain = advance(chain)
        curve.append((later, value(chain)))
    return Snapshot(trial, step + STRIDE, {"chain": chain}, curve)


def die_at_line(number: int) -> None:
    """Kill this process at the given line of the store's code, counted as it is run."""
    left = number

    def trace(frame: Any, event: str, _: Any) -> Any:
        nonlocal left
        if event == "call" and not any(part in frame.f_code.co_filename for part in TRACED):
            return None
        if event == "line":
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    sys.settrace(trace)


def name_files_too_early(deaths_at: int) -> None:
    """Sabotage: commit the row before its file is there, and die in between once that has gone well for a while."""
    write = CheckpointFiles.write
    remove = Store.remove_unreferenced
    late: list[tuple[Path, bytes]] = []

    def early(self: CheckpointFiles, trials: Any) -> Any:
        file, digests = write(self, trials)
        late.append((self.folder / file, (self.folder / file).read_bytes()))
        (self.folder / file).unlink()
        return file, digests

    def catch_up(self: Store, files: Any) -> None:
        if len(late) == deaths_at:
            os.kill(os.getpid(), signal.SIGKILL)
        late[-1][0].write_bytes(late[-1][1])
        remove(self, files)

    CheckpointFiles.write, Store.remove_unreferenced = early, catch_up


def curve_of(store: Store, trial: str) -> list[tuple[int, float]] | None:
    """A trial's curve; None where the store itself says that it is damaged."""
    try:
        return store.curve(trial)
    except StoreError:
        return None


def problems(folder: Path, log: Path, chains: int) -> list[str]:
    """Everything that is wrong with a store whose writers were killed; [] if nothing is. No writer may be alive."""
    try:
        store = Store.open(folder, create=False)
    except Exception as error:
        return [f"it does not open: {error}"]
    with store:
        found = [f"warning: {w.text}" for w in store.warnings()]
        with store.reading() as db:
            found += [f"integrity: {row[0]}" for row in db.execute("PRAGMA integrity_check") if row[0] != "ok"]
        trials = {trial.hash: trial for trial in store.trials(RUN)}
        found += [f"lost trial {n}" for n in range(chains) if content_hash(spec(n)) not in trials]
        loaded = store.load_checkpoints(trials)
        for trial, row in trials.items():
            if row.step != (row.checkpoint_step or 0) or (row.state == "done" and row.step != STEPS):
                found.append(f"{trial}: {row.state} at step {row.step}, checkpoint {row.checkpoint_step}")
            if row.checkpoint_step is not None:
                step, arrays = loaded.get(trial, (None, {}))
                if step != row.checkpoint_step or not np.array_equal(arrays["chain"], chain_at(trial, step)):
                    found.append(f"{trial}: its checkpoint of step {row.checkpoint_step} is not what was written")
            if curve_of(store, trial) != [(step, value(chain_at(trial, step))) for step in range(1, row.step + 1)]:
                found.append(f"{trial}: its curve is not what was written")
            if row.metrics != (end(chain_at(trial, STEPS)) if row.state == "done" else None):
                found.append(f"{trial}: {row.state} with metrics {row.metrics}")
        unnamed = {path.name for path in (folder / "checkpoints").iterdir()} - store.named_files()
        found += [f"{name} is left over" for name in sorted(unnamed)]
    finished: set[str] = set()
    for line in log.read_text().split("\n")[:-1] if log.exists() else []:
        kind, trial, *more = line.split()
        row = trials.get(trial)
        if kind == "checkpoint" and (row is None or row.step < int(more[0])):
            found.append(f"{trial}: step {more[0]} was stored, and is lost")
        if kind == "finish":
            if trial in finished:
                found.append(f"{trial}: finished twice")
            if row is None or row.state != "done":
                found.append(f"{trial}: finished, and is not any more")
            finished.add(trial)
    return found


if __name__ == "__main__":
    place, said, seed, how, number = sys.argv[1:]
    if how == "line":
        die_at_line(int(number))
    if how == "sabotage":
        name_files_too_early(int(number))
    work(Path(place), Path(said), int(seed))
