"""Time the same training step by the peers and by our engine, in turns, on a CPU or a GPU.

The work: the paper's synthetic model (d = 4, h = 4, n = 8, N = 32), batches of 256 drawn from 8,000 sequences, Adam
included, T = 8, 32 and 128. On a CPU torch's layers train with one thread or with all, whichever is faster. On a GPU
all products are in float32, not in TF32, and compiling is not timed. A ratio is the median over turns.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.peers.floor import flop_per_token
from benchmarks.peers.jax import JaxTraining
from benchmarks.peers.torch_layers import TorchLayers, one_at_a_time
from benchmarks.peers.turns import LEARNING_RATE, PeerUnavailable, Work, in_turns, ratio, short_reason
from benchmarks.peers.vmap import VmapTraining, stacked_weights
from headcount.core import BadInput, Progress, cores
from headcount.models.transformer import NO_MASK, Compiled, ModelSpec, Transformer, why_not_compiled
from headcount.tasks import make_task
from headcount.training import Part, StackTrainer, TrainSpec, batch_indices, find_device, prepare, single_threaded_blas

LENGTHS = (8, 32, 128)
TURNS = 5
PEERS = {
    "nn_mha": "nn.MultiheadAttention, all rows are queries",
    "class_query": "nn.MultiheadAttention, the class token is the query",
    "vmap": "torch.func.vmap + torch.compile",
    "jax": "JAX jit + vmap",
}
CPU_ROWS = {**PEERS, "reference": "our readable reference", "engine": "our engine, one model per core"}
CUDA_ROWS = {**PEERS, "engine": "our engine", "engine_1024": "our engine, 1,024 models"}


@dataclass(frozen=True)
class BenchPlan:
    """What is timed, and how much work a turn has."""

    device: str = "cpu"
    lengths: tuple[int, ...] = LENGTHS
    turns: int = TURNS
    batch: int = 256
    samples: int = 8000
    skip: tuple[str, ...] = ()
    """Rows to leave out."""
    compiled: bool = True
    """Whether to use torch.compile; tests do not, since it takes a minute on two cores."""
    work: float = 1.0
    """A factor on the steps of a turn, for tests."""
    models: int | None = None
    """How many models the stacking peers train at once, for tests."""

    @property
    def rows(self) -> dict[str, str]:
        """The rows of the table: labels by key."""
        rows = CPU_ROWS if self.device == "cpu" else CUDA_ROWS
        stacked = {"vmap": f", {self.stacked} models", "jax": f", {self.stacked} models"}
        stacked |= {"engine": f", {self.stacked} models"} if self.device == "cuda" else {}
        return {key: label + stacked.get(key, "") for key, label in rows.items()}

    @property
    def stacked(self) -> int:
        """How many models the stacking peers train at once: enough to fill the device."""
        return self.models or (8 if self.device == "cpu" else 256)

    def steps(self, row: str, length: int) -> int:
        """Return how many steps a turn of a row has: a few tenths of a second on the machines that we know."""
        alone = 160 // length if self.device == "cpu" else 50
        many = 40 // length if self.device == "cpu" else 20
        engine = 16 * max(3, alone) if self.device == "cpu" else 256
        counts = {"vmap": many, "jax": many, "engine": engine, "engine_1024": 64}
        return max(3, round(self.work * counts.get(row, alone)))

    def model(self, length: int) -> ModelSpec:
        """Return the paper's synthetic model."""
        return ModelSpec(dim=4, length=length, heads=4, head_dim=8, hidden=32)


def cpu_engine(spec: ModelSpec, part: Part, batch: int, steps: int) -> Work:
    """Return work that trains one model per core, side by side, with the compiled kernels."""
    compiled, count = Compiled(spec), cores()
    start = compiled.flat.pack(Transformer(spec))
    states = [(start.copy(), np.zeros_like(start), np.zeros_like(start)) for _ in range(count)]
    X, y = part.X.numpy(), part.y.numpy()
    rates, pool = np.full(steps, LEARNING_RATE), ThreadPoolExecutor(count)

    def train(seed: int) -> int:
        index = batch_indices(seed, 0, steps, batch, len(X))
        return compiled.steps(*states[seed], X, y, NO_MASK, index, rates, 0, 0.0, False)

    def work() -> int:
        with single_threaded_blas():
            return sum(pool.map(train, range(count)))

    return work


def cuda_engine(spec: ModelSpec, part: Part, batch: int, steps: int, models: int) -> Work:
    """Return work that trains a stack with the captured step, with batches drawn on the device block by block."""
    recipe = TrainSpec(learning_rate=LEARNING_RATE, warmup=0, schedule="constant", batch=batch, train_size=len(part.X))
    stack = StackTrainer(spec, [recipe] * models, list(range(models)), part.X, part.y)

    def work() -> int:
        stack.run(steps)
        return steps * models

    return work


def builders(plan: BenchPlan, length: int, part: Part) -> Iterator[tuple[str, int, Callable[[], Work]]]:
    """Yield the row, its threads (0: it chooses them itself) and a builder of its work, which may raise."""
    spec = plan.model(length)
    threads = sorted({1, cores()}) if plan.device == "cpu" else [0]
    alone: dict[str, Callable[[], nn.Module]] = {
        "nn_mha": lambda: TorchLayers(spec, all_rows=True),
        "class_query": lambda: TorchLayers(spec, all_rows=False),
        "reference": lambda: Transformer(spec),
    }
    for row in plan.rows:
        steps = plan.steps(row, length)
        if row in alone:
            for count in threads:
                make, number = alone[row], count or None
                yield row, count, lambda m=make, s=steps, t=number: one_at_a_time(m(), part, plan.batch, s, t)
        elif row == "vmap":
            yield row, 0, lambda s=steps: _vmap(plan, spec, part, s)
        elif row == "jax":
            weights = stacked_weights(spec, range(plan.stacked))
            yield row, 0, lambda w=weights, s=steps: JaxTraining(plan.device, w, part, plan.batch, s).run
        elif plan.device == "cpu":
            yield row, 0, lambda s=steps: cpu_engine(spec, part, plan.batch, s)
        else:
            models = plan.stacked if row == "engine" else 1024
            yield row, 0, lambda m=models, s=steps: cuda_engine(spec, part, plan.batch, s, m)


def _vmap(plan: BenchPlan, spec: ModelSpec, part: Part, steps: int) -> Work:
    """Return work that trains by vmap; on a CPU with all threads, whose number torch.compile builds in."""
    training = VmapTraining(stacked_weights(spec, range(plan.stacked)), part, plan.batch, compiled=plan.compiled)

    def work() -> int:
        if plan.device == "cpu":
            torch.set_num_threads(cores())
        return training.run(steps)

    return work


def measure(plan: BenchPlan, length: int, peak: float, progress: Progress) -> dict[str, Any]:
    """Time all rows on the same data; return µs per model-step, the ratios to ours, and why rows are missing."""
    task = make_task("sum-of-maxima", intrinsic=4, dim=4, length=length)
    part = prepare(task, TrainSpec(train_size=plan.samples, batch=plan.batch, validation_size=2)).train
    part = Part(part.X.to(plan.device), part.y.to(plan.device))
    works: dict[tuple[str, int], Work] = {}
    absent = {row: "left out" for row in plan.rows if row in plan.skip}
    for row, threads, make in builders(plan, length, part):
        if row in absent:
            continue
        progress.advance(0, note=f"T = {length}: starting {plan.rows[row]}")
        try:
            work = make()
            work()  # compiles, allocates, warms up
            works[row, threads] = work
        except PeerUnavailable as reason:
            absent[row] = str(reason)
        except Exception as error:  # a peer that fails must not stop the others; ours must run
            if row == "engine":
                raise
            absent[row] = short_reason(error)
    turns = in_turns(works, plan.turns, plan.device, lambda turn: progress.advance(note=f"T = {length}, {turn + 1}"))
    times = {
        row: min((v for key, v in turns.items() if key[0] == row), key=statistics.median)
        for row in plan.rows
        if row not in absent
    }
    result: dict[str, Any] = {f"{row}_us": statistics.median(values) for row, values in times.items()}
    for row in times:
        if not row.startswith("engine"):
            result[f"{row}_over_engine"] = ratio(times[row], times["engine"])
    if peak:
        result["floor_us"] = plan.batch * length * flop_per_token(plan.model(length)) / peak * 1e6
        result["share_of_floor"] = result["floor_us"] / result["engine_us"]
    return {**result, "absent": absent} if absent else result


def check_device(device: str) -> None:
    """Refuse a device that this machine does not have, before anything is timed."""
    if device not in ("cpu", "cuda"):
        raise BadInput(f"unknown device {device!r}: the benchmark runs on cpu or cuda")
    find_device(device)
    reason = why_not_compiled() if device == "cpu" else None
    if reason is not None:
        raise BadInput(f"on a CPU the benchmark needs the compiled engine, which is not available: {reason}")
