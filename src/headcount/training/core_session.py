"""One trial on one core, in windows of work, as a worker thread drives it."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from headcount.models.transformer import ModelSpec, Transformer
from headcount.store import FinishedState, Trial
from headcount.tasks import Task
from headcount.tasks.arrays import ArrayTask
from headcount.training.checkpoint import Moments
from headcount.training.data import Dataset, prepare
from headcount.training.job import Job
from headcount.training.loop import Trained, check_seed, check_task, record
from headcount.training.on_cores import single_threaded_blas, stepper_for
from headcount.training.session import Ending, OnStep, Session, drive
from headcount.training.spec import TrainSpec


class CoreSession(Session[Job]):
    """One trial, on the compiled kernels (which release the GIL) or in torch."""

    def __init__(self, members: Sequence[tuple[str, Job]], on_step: OnStep | None = None) -> None:
        """Take one trial; `on_step(steps, validation error or None)` reports progress, also during a long polish."""
        super().__init__(members, window=0)
        ((_, job),) = self.members
        self.trial, self._on_step = stepper_for(job), on_step
        self.curves = [self.trial.moments.curve]
        self.state: FinishedState | None = None

    @property
    def steps(self) -> int:
        return self.trial.moments.step

    def launch(self, stop: threading.Event | None) -> None:
        """Run the next window of work in this thread; if `stop` is set before it or during a polish, raise Stopped."""
        with self.trial.threads():
            self.state = self.trial.run_window(self._on_step, stop)

    def collect(self) -> list[Ending]:
        if self.state is None:
            return []
        self.unfinished.clear()
        trial, job = self.trial, self.jobs[0]
        error = trial.nmse(job.data.train) if self.state == "done" else None
        m = trial.moments
        steps = m.step + (job.train.polish if self.state == "done" else 0)
        outcome = record(job.model, error, job.seed, self.state, m.curve, steps, self.seconds(0))
        ((name, moments),) = self.snapshots([0])
        return [Ending(name, outcome, moments if self.state == "done" else None)]

    def moments(self) -> list[Moments]:
        return [self.trial.moments.copy()]

    def seconds(self, m: int) -> float:
        """Return the trial's training time so far, over all its sessions."""
        del m  # there is only one trial
        return self.trial.moments.seconds + time.perf_counter() - self.started

    def close(self) -> None:
        self.trial.close()


def run_trial(
    job: Job, on_step: OnStep | None = None, stop: threading.Event | None = None
) -> tuple[Transformer, Trial]:
    """Train a job to its end and return the model and its record."""
    session = CoreSession([("", job)], on_step)
    with single_threaded_blas():
        trial = drive(session, stop)
    return session.trial.flat.unpack(session.trial.moments.theta), trial


def train_fast(
    task: Task | ArrayTask,
    model_spec: ModelSpec,
    spec: TrainSpec | None = None,
    *,
    seed: int = 0,
    data: Dataset | None = None,
    on_step: OnStep | None = None,
    stop: threading.Event | None = None,
) -> Trained:
    """Train one model; `train` is the readable twin: same arguments, same batches, same steps."""
    spec, seed = spec or TrainSpec(), check_seed(seed)
    check_task(task, model_spec, spec)
    data = data or prepare(task, spec)
    model, trial = run_trial(Job(task, model_spec, spec, seed, data), on_step, stop)
    return Trained(model, data, trial, task, spec)
