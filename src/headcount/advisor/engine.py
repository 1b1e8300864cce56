"""Trains what the advisor asks for, and keeps the deadline.

A trial that the deadline cuts off counts with its best point so far. On a CPU each core takes a trial; on a GPU all
trials of a request are one stack, or a few side by side. A stack of ordinary size is trained in plain PyTorch: its
kernels would take longer to compile than they save. Which way it goes depends on its size alone, never on a clock, so
that the same question has the same answer (to rounding, where memory is short and a stack is halved).
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
from headcount.advisor.sessions import Answered, Asked, BestOnCore, BestStack
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
PLAIN_STEP, PLAIN_RUN = 2.5e8, 1e12
"""Numbers that a stack makes of its tokens, in a step and in a run, up to which it does without kernels.

On an H200 that is a run of 25 s, half of which kernels would save; to compile them takes 12 s. A step fills some 4 GB.
"""


@dataclass
class TrialEngine:
    """Where and until when trials are trained."""

    material: Material
    device: str = "cpu"
    deadline: float = float("inf")
    workers: int = 0
    told: Callable[[float], None] = lambda _: None
    """Called with the seconds of work that were done on one core."""
    failures: list[str] = field(default_factory=list[str])
    halt: threading.Event = field(default_factory=threading.Event)
    """Ends what is being trained, at its next evaluation on a GPU, and lets nothing more begin."""
    interrupted: bool = False
    """Whether Ctrl-C was pressed: from then on nothing is trained, as after the deadline."""

    def __post_init__(self) -> None:
        self.where = find_device(self.device)
        self.workers = self.workers or cores()
        self.largest, self.compiled = 1, False
        self.use(self.material)

    def use(self, material: Material) -> None:
        """Train on other data from now on."""
        self.material, self.data = material, Measurer(material, self.where)

    @property
    def gpu(self) -> bool:
        """Whether trials are stacked on a GPU."""
        return self.where.type == "cuda"

    @property
    def folds(self) -> int:
        """How many models a trial is."""
        return self.data.folds

    def left(self) -> float:
        """Seconds to the deadline."""
        return 0.0 if self.halt.is_set() else self.deadline - time.monotonic()

    def interrupt(self) -> None:
        """Take note of Ctrl-C, and train no more; raise KeyboardInterrupt the second time."""
        if self.interrupted:
            raise KeyboardInterrupt
        self.interrupted = True
        self.halt.set()

    def sized(self, wanted: Wanted) -> ModelSpec:
        """Return the whole spec of a trial's model."""
        return self.data.sized(wanted)

    def train(self, wanted: Sequence[Wanted]) -> list[Outcome]:
        """Train all that is asked for, the large models first; what had no time for a first evaluation is left out."""
        return self._in_folds(sorted(wanted, key=lambda w: (w.seed, -w.heads)), self._train)

    def try_out(self, wanted: Sequence[Wanted]) -> list[Outcome]:
        """Train a few models, in this order, that need not be of one kind; on a GPU without kernels to be compiled."""
        return self._in_folds(wanted, self._try_out)

    def _in_folds(self, order: Sequence[Wanted], how: Callable[[Sequence[Wanted]], list[Outcome]]) -> list[Outcome]:
        """Train a model a fold for every trial, and put them together."""
        if not order or self.left() <= 0:
            return []
        if self.folds == 1:
            return how(order)
        parts = in_folds(order, self.material)
        parent = {id(part): place for place, part in parts}
        found: dict[int, list[Outcome]] = {}
        for one in how([part for _, part in parts]):
            found.setdefault(parent[id(one.wanted)], []).append(one)
        whole = [joined(order[place], found[place], self.material) for place in sorted(found)]
        return [one for one in whole if one is not None]

    def _train(self, order: Sequence[Wanted]) -> list[Outcome]:
        if not self.gpu:
            return self._on_cores(order)
        if not self.compiled:  # what is compiled serves smaller stacks as well
            step = self._numbers(order)
            self.compiled = step > PLAIN_STEP or step * order[0].train.steps > PLAIN_RUN
        if self.compiled:
            self.largest = max(self.largest, *(one.heads for one in order))
        return self._stacked([order], plain=not self.compiled)

    def _try_out(self, wanted: Sequence[Wanted]) -> list[Outcome]:
        if not self.gpu:
            return self._on_cores(wanted)
        kinds: dict[tuple[object, ...], list[Wanted]] = {}
        for one in wanted:  # of different curves the sizes differ most, and a stack has the largest of all
            kinds.setdefault((one.options.positions, one.train, one.tag), []).append(one)
        return self._stacked(list(kinds.values()), plain=True)

    def _on_cores(self, order: Sequence[Wanted]) -> list[Outcome]:
        """A trial a core; all of them end at the deadline."""
        answers, workers = Answers(self, order), min(self.workers, len(order))
        with self._until_interrupted():
            train_singly(partial(BestOnCore, self.data), answers, answers.names, workers, self._terms())
        return answers.in_order()

    def _terms(self) -> DriverOptions:
        """Nothing is saved, since nothing goes on later."""
        return DriverOptions(Halting(self.halt), float("inf"), self.deadline)

    def _stacked(self, stacks: Sequence[Sequence[Wanted]], *, plain: bool) -> list[Outcome]:
        """Train the trials of each request as a stack of their own on the GPU.

        Small stacks go side by side, large ones one after the other; the engine halves what memory has no room for.
        """
        for order in stacks:
            if any(w.train != order[0].train or w.options.positions != order[0].options.positions for w in order):
                raise HeadcountError("a stack needs one recipe")
        small = sum(map(self._numbers, stacks)) <= PLAIN_STEP
        begin = partial(BestStack, self.data, plain=plain, largest=self.largest)
        kind = SessionKind(begin, self._needs, max_sessions=len(stacks) if small else 1)
        answers = Answers(self, [one for order in stacks for one in order])
        names = iter(answers.names)
        with self._until_interrupted():
            train_stacks(kind, [[next(names) for _ in order] for order in stacks], self.where, answers, self._terms())
        return answers.in_order()

    def _needs(self, members: Sequence[tuple[str, Asked]], device: torch.device) -> int:
        """Estimate the bytes that a stack takes; the data are on the device already."""
        del device
        return len(members) * model_bytes(
            covering_spec([asked.model for _, asked in members]), members[0][1].wanted.train
        )

    def _numbers(self, order: Sequence[Wanted]) -> float:
        """How many numbers a stack makes of its tokens in one step; padding counts."""
        models, batch = [self.sized(w) for w in order], order[0].train.batch
        each = max(m.hidden for m in models) + max(m.heads for m in models)
        return float(len(models) * batch * models[0].length * each)

    @contextmanager
    def _until_interrupted(self) -> Generator[None]:
        """Take note of a Ctrl-C after which all ended in order; what was trained so far counts, as at the deadline."""
        try:
            yield
        except CutShort:
            self.interrupted = True
            self.halt.set()
            raise
        except KeyboardInterrupt:
            self.interrupt()

    def step_seconds(self, options: ModelOptions, heads: int, train: TrainSpec, steps: int = 20) -> float:
        """Measure a step on one core, or on the GPU: the fastest of a few short runs; on a core others do not count."""
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
        some = self.data.whole
        trainer = StackTrainer([model], [train], [0], some.X, some.y, some.mask, plain=True)
        times: list[float] = []
        for _ in range(3):
            trainer.wait()
            start = time.perf_counter()
            trainer.run(steps)
            times.append(time.perf_counter() - start)
        return min(times) / steps


class Answers:
    """The listener of one request: hands out its trials, and collects what became of them."""

    def __init__(self, engine: TrialEngine, order: Sequence[Wanted]) -> None:
        self._engine, self._found = engine, dict[str, Outcome]()
        self._asked = {str(place): Asked(one, engine.sized(one)) for place, one in enumerate(order)}
        self.names = list(self._asked)

    def start(self, members: Sequence[str]) -> list[Member]:
        """Hand over trials, always from their start."""
        return [(name, self._asked[name]) for name in members]

    reload = start

    def refused(self, member: str, error: Exception) -> None:
        """Note why a trial cannot be made."""
        self._failed(member, Failure.of(error).line)

    def steps(self, member: str, step: int) -> None:
        """Nobody asks how far a trial is."""

    def saved(self, snapshots: Sequence[tuple[str, Moments]]) -> None:
        """Nothing goes on later: what had no evaluation counts for nothing."""

    def ended(self, endings: Sequence[Ending]) -> None:
        """Collect trials that ended, and the reasons of those that failed."""
        for one in endings:
            if isinstance(one, Answered) and one.found is not None:
                self._found[one.name] = one.found
                self._engine.told(one.found.seconds)
            else:
                self._failed(one.name, str(one.outcome))

    def in_order(self) -> list[Outcome]:
        """Return what was trained, in the order in which it was asked for."""
        return [self._found[name] for name in self.names if name in self._found]

    def _failed(self, name: str, why: str) -> None:
        self._engine.failures.append(f"{heads_text(self._asked[name].wanted.heads)}: {why}")


class Halting(threading.Event):
    """A request's own stop, which is set too where all is to halt."""

    def __init__(self, halt: threading.Event) -> None:
        super().__init__()
        self._halt = halt

    def is_set(self) -> bool:
        """Whether this request, or everything, is to stop."""
        return super().is_set() or self._halt.is_set()
