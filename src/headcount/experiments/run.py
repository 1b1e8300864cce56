"""An experiment: every head count with every seed, a few worker processes side by side, one record at the end."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
import time
from typing import Any

from headcount.base.errors import HeadcountError
from headcount.base.progress import Progress
from headcount.base.provenance import cores, provenance
from headcount.experiments.spec import ExperimentSpec
from headcount.store.records import Run, Trial


class _Worker(threading.Thread):
    """Feeds one worker process from the list of work and passes on what it says."""

    def __init__(self, spec: ExperimentSpec, work: queue.SimpleQueue[Any], said: queue.SimpleQueue[Any]) -> None:
        super().__init__(daemon=True)
        self.work, self.said = work, said
        self.process = subprocess.Popen(
            [sys.executable, "-m", "headcount.experiments.worker"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._send(spec.data())

    def _send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()

    def run(self) -> None:
        """Work until nothing is left; a worker that dies says so instead of leaving the caller waiting."""
        try:
            while True:
                heads, seed = self.work.get_nowait()
                self._send({"heads": heads, "seed": seed})
                while True:
                    assert self.process.stdout is not None
                    line = self.process.stdout.readline()
                    if not line:
                        assert self.process.stderr is not None
                        last = self.process.stderr.read().strip().splitlines()[-1:] or ["no message"]
                        self.said.put({"error": f"a worker process ended early: {last[0]}"})
                        return
                    message = json.loads(line)
                    self.said.put({**message, "heads": heads, "seed": seed})
                    if "step" not in message:
                        break
        except queue.Empty:
            return
        except (OSError, ValueError) as error:
            self.said.put({"error": f"a worker process could not be reached: {error}"})


def run_experiment(spec: ExperimentSpec, *, workers: int | None = None, quiet: bool = False) -> Run:
    """Train all models of a spec and return the record of them; the outcome does not depend on `workers`."""
    start = time.perf_counter()
    task = spec.task.task()  # built here first, so that a bad spec is answered before any process starts
    work: queue.SimpleQueue[tuple[int, int]] = queue.SimpleQueue()
    # seeds outermost: every head count has a first result before any has a second
    plan = [(heads, seed) for seed in range(spec.seeds) for heads in sorted(spec.heads, reverse=True)]
    for item in plan:
        work.put(item)
    said: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    count = min(workers or cores(), len(plan))
    threads = [_Worker(spec, work, said) for _ in range(count)]
    trials: list[Trial] = []
    try:
        with Progress("training", len(plan) * spec.train.steps, quiet=quiet) as progress:
            for thread in threads:
                thread.start()
            steps: dict[tuple[int, int], int] = {}
            while len(trials) < len(plan):
                _take(said.get(), trials, steps, progress, spec.train.steps, len(plan))
    finally:
        for thread in threads:
            thread.process.kill()
    trials.sort(key=lambda t: (t.heads, t.seed))
    return Run(
        name=spec.name, title=spec.title, task=task.data(), intrinsic=task.intrinsic, spec=spec.data(),
        trials=trials, provenance=provenance(), seconds=time.perf_counter() - start,
    )  # fmt: skip


def _take(
    message: dict[str, Any], trials: list[Trial], steps: dict[tuple[int, int], int], progress: Progress,
    total: int, models: int,
) -> None:  # fmt: skip
    """Take in one message of a worker: a step, a finished trial or an error."""
    if "error" in message:
        raise HeadcountError(message["error"])
    key = (message["heads"], message["seed"])
    if "trial" in message:
        trial = Trial.parse(message["trial"])
        trials.append(trial)
        error = "diverged" if trial.nmse is None else f"error {trial.nmse:.1e}"
        plural = "s" if trial.heads > 1 else ""
        note = f"{len(trials)} of {models} models; latest: {trial.heads} head{plural}, {error}"
        progress.advance(total - steps.get(key, 0), note=note)
    else:
        progress.advance(message["step"] - steps.get(key, 0))
        steps[key] = message["step"]
