"""Trains the trials that the advisor requests, and keeps the deadline.

A trial that the deadline cuts off counts with its best point so far. On a CPU each core takes a trial; on a GPU all
trials of a request are one stack, or a few side by side. A stack of ordinary size is trained in plain PyTorch: its
kernels would take longer to compile than they save. The choice depends on its size alone, never on a clock, so that
the same question has the same answer (up to rounding, if memory is short and a stack is halved).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

import torch

from headcount.advisor.data import Material
from headcount.advisor.measures import Measurer
from headcount.advisor.sessions import BestOnCore, BestStack, SessionTrial, TrialEnding
from headcount.advisor.trials import Outcome, Wanted, in_folds, joined
from headcount.core import HeadcountError, cores
from headcount.models.transformer import ModelSpec, covering_spec
from headcount.render.words import heads_text
from headcount.sweeps import (
    CutShort,
    DriverOptions,
    Failure,
    Member,
    ModelOptions,
    SessionKind,
    model_bytes,
    train_singly,
    train_stacks,
)
from headcount.training import (
    Ending,
    Moments,
    StackTrainer,
    TrainSpec,
    find_device,
    single_threaded_blas,
    stepper_for,
    torch_threads,
)

BATCH = 128
EVALUATIONS = 24
MAX_PLAIN_STEP, MAX_PLAIN_RUN = 2.5e8, 1e12
"""Numbers that a stack computes from its tokens, per step and per run, up to which it is trained without kernels.

On an H200 that is a run of 25 s, of which kernels would save half; compiling them takes 12 s. A step fills about 4 GB.
"""


@dataclass
class TrialEngine:
    """Where and until when trials are trained."""

    material: Material
    device: str = "cpu"
    deadline: float = float("inf")
    workers: int = 0
    on_trial: Callable[[float], None] = lambda _: None
    """Called after each trial with its seconds of work on one core."""
    failures: list[str] = field(default_factory=list[str])
    halt: threading.Event = field(default_factory=threading.Event)
    """Stops training, on a GPU at the next evaluation, and lets no trial start."""
    interrupted: bool = False
    """Whether Ctrl-C was pressed: nothing is trained after that, as after the deadline."""

    def __post_init__(self) -> None:
        self.where = find_device(self.device)
        self.workers = self.workers or cores()
        self.largest, self.compiled = 1, False
        self.use(self.material)

    def use(self, material: Material) -> None:
        """Train on this material from now on."""
        self.material, self.data = material, Measurer(material, self.where)

    @property
    def gpu(self) -> bool:
        """Whether trials are stacked on a GPU."""
        return self.where.type == "cuda"

    @property
    def folds(self) -> int:
        """Models per trial."""
        return self.data.folds

    def left(self) -> float:
        """Return the seconds to the deadline."""
        return 0.0 if self.halt.is_set() else self.deadline - time.monotonic()

    def interrupt(self) -> None:
        """Stop training after Ctrl-C; raise KeyboardInterrupt the second time."""
        if self.interrupted:
            raise KeyboardInterrupt
        self.interrupted = True
        self.halt.set()

    def sized(self, wanted: Wanted) -> ModelSpec:
        """Return the full spec of a trial's model."""
        return self.data.sized(wanted)

    def train(self, wanted: Sequence[Wanted]) -> list[Outcome]:
        """Train all requested trials, large models first; those without a first evaluation in time are left out."""
        return self._in_folds(sorted(wanted, key=lambda w: (w.seed, -w.heads)), self._train)

    def try_out(self, wanted: Sequence[Wanted]) -> list[Outcome]:
        """Train a few models in this order, which may be of several kinds; on a GPU without compiling kernels."""
        return self._in_folds(wanted, self._try_out)

    def _in_folds(self, order: Sequence[Wanted], train: Callable[[Sequence[Wanted]], list[Outcome]]) -> list[Outcome]:
        """Train one model per fold for every trial, and join them."""
        if not order or self.left() <= 0:
            return []
        if self.folds == 1:
            return train(order)
        parts = in_folds(order, self.material)
        parent = {id(part): place for place, part in parts}
        found: dict[int, list[Outcome]] = {}
        for trial in train([part for _, part in parts]):
            found.setdefault(parent[id(trial.wanted)], []).append(trial)
        trials = [joined(order[place], found[place], self.material) for place in sorted(found)]
        return [trial for trial in trials if trial is not None]

    def _train(self, order: Sequence[Wanted]) -> list[Outcome]:
        if not self.gpu:
            return self._on_cores(order)
        if not self.compiled:  # compiled kernels serve smaller stacks too
            step = self._numbers(order)
            self.compiled = step > MAX_PLAIN_STEP or step * order[0].train.steps > MAX_PLAIN_RUN
        if self.compiled:
            self.largest = max(self.largest, *(request.heads for request in order))
        return self._stacked([order], plain=not self.compiled)

    def _try_out(self, wanted: Sequence[Wanted]) -> list[Outcome]:
        if not self.gpu:
            return self._on_cores(wanted)
        kinds: dict[tuple[object, ...], list[Wanted]] = {}
        for request in wanted:  # sizes differ most between curves, and a stack pads all models to its largest
            kinds.setdefault((request.options.positions, request.train, request.tag), []).append(request)
        return self._stacked(list(kinds.values()), plain=True)

    def _on_cores(self, order: Sequence[Wanted]) -> list[Outcome]:
        """Train one trial per core; all of them end at the deadline."""
        listener, workers = RequestListener(self, order), min(self.workers, len(order))
        with self._until_interrupted():
            train_singly(partial(BestOnCore, self.data), listener, listener.names, workers, self._terms())
        return listener.in_order()

    def _terms(self) -> DriverOptions:
        """Return terms without checkpoints, since no trial is resumed."""
        return DriverOptions(CombinedStop(self.halt), float("inf"), self.deadline)

    def _stacked(self, stacks: Sequence[Sequence[Wanted]], *, plain: bool) -> list[Outcome]:
        """Train each group of trials as a stack of its own on the GPU.

        Small stacks are trained side by side, large ones in turn; a stack that does not fit in memory is halved.
        """
        for order in stacks:
            if any(w.train != order[0].train or w.options.positions != order[0].options.positions for w in order):
                raise HeadcountError("a stack needs one recipe")
        small = sum(map(self._numbers, stacks)) <= MAX_PLAIN_STEP
        begin = partial(BestStack, self.data, plain=plain, largest=self.largest)
        kind = SessionKind(begin, self._needs, max_sessions=len(stacks) if small else 1)
        listener = RequestListener(self, [request for order in stacks for request in order])
        names = iter(listener.names)
        with self._until_interrupted():
            train_stacks(kind, [[next(names) for _ in order] for order in stacks], self.where, listener, self._terms())
        return listener.in_order()

    def _needs(self, members: Sequence[tuple[str, SessionTrial]], device: torch.device) -> int:
        """Estimate the bytes that a stack takes; the data are on the device already."""
        del device
        return len(members) * model_bytes(
            covering_spec([member.model for _, member in members]), members[0][1].wanted.train
        )

    def _numbers(self, order: Sequence[Wanted]) -> float:
        """Return how many numbers a stack computes from its tokens in one step, padding included."""
        models, batch = [self.sized(w) for w in order], order[0].train.batch
        each = max(m.hidden for m in models) + max(m.heads for m in models)
        return float(len(models) * batch * models[0].length * each)

    @contextmanager
    def _until_interrupted(self) -> Generator[None]:
        """Note a Ctrl-C after which all trials ended in order; what was trained so far counts, as at the deadline."""
        try:
            yield
        except CutShort:
            self.interrupted = True
            self.halt.set()
            raise
        except KeyboardInterrupt:
            self.interrupt()

    def step_seconds(self, options: ModelOptions, heads: int, train: TrainSpec, steps: int = 20) -> float:
        """Return the seconds of a step, the fastest of a few runs: CPU time on one core, or time on the GPU."""
        wanted = Wanted(heads, 0, options, train)
        if self.gpu:
            return self._gpu_step_seconds(self.sized(wanted), train, steps)
        trial = stepper_for(self.data.job(wanted))
        times: list[float] = []
        with single_threaded_blas(), torch_threads(1):
            start = time.thread_time()
            trial.advance(1)
            steps = max(1, min(steps, int(0.1 / max(time.thread_time() - start, 1e-6))))
            for _ in range(5 if steps > 1 else 1):
                start = time.thread_time()
                trial.advance(steps)
                times.append(time.thread_time() - start)
        return min(times) / steps

    def _gpu_step_seconds(self, model: ModelSpec, train: TrainSpec, steps: int) -> float:
        data = self.data.sequences
        trainer = StackTrainer([model], [train], [0], data.X, data.y, data.mask, plain=True)
        times: list[float] = []
        for _ in range(3):
            trainer.wait()
            start = time.perf_counter()
            trainer.run(steps)
            times.append(time.perf_counter() - start)
        return min(times) / steps


class RequestListener:
    """The listener of one request: hands out its trials, and collects their outcomes."""

    def __init__(self, engine: TrialEngine, order: Sequence[Wanted]) -> None:
        self._engine, self._found = engine, dict[str, Outcome]()
        self._trials = {str(place): SessionTrial(request, engine.sized(request)) for place, request in enumerate(order)}
        self.names = list(self._trials)

    def start(self, members: Sequence[str]) -> list[Member]:
        """Hand over trials, always from their start."""
        return [(name, self._trials[name]) for name in members]

    reload = start

    def refused(self, member: str, error: Exception) -> None:
        """Note why a trial cannot be made."""
        self._failed(member, Failure.of(error).line)

    def steps(self, member: str, step: int) -> None:
        """Ignore the progress of a trial: nobody asks for it."""

    def saved(self, snapshots: Sequence[tuple[str, Moments]]) -> None:
        """Ignore snapshots: no trial is resumed, and one without an evaluation does not count."""

    def ended(self, endings: Sequence[Ending]) -> None:
        """Collect the trials that ended, and why others failed."""
        for ending in endings:
            if isinstance(ending, TrialEnding) and ending.found is not None:
                self._found[ending.name] = ending.found
                self._engine.on_trial(ending.found.seconds)
            else:
                self._failed(ending.name, str(ending.outcome))

    def in_order(self) -> list[Outcome]:
        """Return the trained trials in the order of the request."""
        return [self._found[name] for name in self.names if name in self._found]

    def _failed(self, name: str, why: str) -> None:
        self._engine.failures.append(f"{heads_text(self._trials[name].wanted.heads)}: {why}")


class CombinedStop(threading.Event):
    """The stop event of one request, which is also set when everything is to halt."""

    def __init__(self, halt: threading.Event) -> None:
        super().__init__()
        self._halt = halt

    def is_set(self) -> bool:
        """Whether this request, or everything, is to stop."""
        return super().is_set() or self._halt.is_set()
