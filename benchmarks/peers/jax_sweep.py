"""The sweep in JAX: one jit + vmap program per shape for all its seeds, starting from our initial weights.

A program takes the steps up to the next evaluation and evaluates. All programs are compiled first, a few side by side,
as JAX's documentation advises (XLA itself separates its tuning runs on a GPU). Then the shapes train one after the
other.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from benchmarks.peers.jax import Jax
from benchmarks.peers.sweep_plan import BenchSweep, Errors
from benchmarks.peers.vmap import stacked_weights
from headcount.core import Progress, cores
from headcount.training import Dataset


class JaxSweep:
    """All trials of a sweep on one device."""

    def __init__(self, sweep: BenchSweep, data: dict[int, Dataset], device: str) -> None:
        self.sweep, self.peer, train = sweep, Jax(device), sweep.train
        self.rates = [([train.rate(step) for step in part], part[0]) for part in sweep.parts]
        self.arrays = {T: (*self.peer.arrays(d.train), *self.peer.arrays(d.validation)) for T, d in data.items()}
        seeds = range(sweep.seeds)
        self.weights = {shape: stacked_weights(sweep.model(*shape), seeds) for shape in sweep.shapes}

    def program(self) -> Any:
        """Return the function (state, rates, X, y, X_val, y_val) → (state, NMSE of every seed)."""
        peer, jnp = self.peer, self.peer.jax.numpy
        steps = peer.steps(self.sweep.seeds, self.sweep.train.batch)

        def run(state: Any, rates: Any, X: Any, y: Any, X_val: Any, y_val: Any) -> Any:
            state = steps(state, rates, X, y)
            out = peer.jax.vmap(peer.predict, in_axes=(0, None))(state[0], X_val)
            spread = jnp.square(y_val - y_val.mean(0)).sum()
            return state, jnp.square(out - y_val).sum((1, 2)) / spread

        return peer.jax.jit(run, donate_argnums=0)

    def compile(self, progress: Progress) -> dict[tuple[int, int, int], Any]:
        """Compile one program for every shape and number of steps."""
        counts = {len(rates): rates for rates, _ in self.rates}
        keys = [(*shape, count) for shape in self.sweep.shapes for count in counts]
        lowered = [
            self.program().lower(
                self.peer.start(self.weights[heads, T]), self.peer.rates(counts[count]), *self.arrays[T]
            )
            for heads, T, count in keys
        ]

        def one(number: int) -> Any:
            compiled = lowered[number].compile()
            progress.advance(note=f"JAX compiles: {keys[number][0]} heads, T = {keys[number][1]}")
            return compiled

        with ThreadPoolExecutor(max(1, min(4, cores() // 2))) as pool:
            return dict(zip(keys, pool.map(one, range(len(keys))), strict=True))

    def train(self, heads: int, length: int, programs: dict[tuple[int, int, int], Any]) -> list[float | None]:
        """Train one shape; return the final error of every seed, None if it diverged."""
        state, error = self.peer.start(self.weights[heads, length]), None
        for rates, done in self.rates:
            program = programs[heads, length, len(rates)]
            state, error = program(state, self.peer.rates(rates, done), *self.arrays[length])
        found: list[float] = self.peer.jax.device_get(error).tolist()
        return [e if e <= self.sweep.train.diverged_above else None for e in found]


def jax_twin(
    sweep: BenchSweep, data: dict[int, Dataset], device: str, progress: Progress
) -> tuple[dict[str, float], Errors]:
    """Train everything with JAX; return the seconds of training and of compiling, and the errors."""
    runner = JaxSweep(sweep, data, device)
    start = time.perf_counter()
    programs = runner.compile(progress)
    ready = time.perf_counter()
    errors: Errors = {}
    for heads, length in sweep.shapes:
        errors[heads, length] = runner.train(heads, length, programs)
        progress.advance(note=f"JAX trains: {heads} heads, T = {length}")
    return {"seconds": time.perf_counter() - ready, "compile_seconds": ready - start}, errors
