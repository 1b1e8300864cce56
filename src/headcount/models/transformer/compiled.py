"""A collapsed model on the CPU kernels: steps, predictions and gradients from its flat weights."""

from __future__ import annotations

import functools
import importlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headcount.models.transformer.flat import Flat, collapses
from headcount.models.transformer.spec import ModelSpec

NO_MASK = np.zeros((0, 0), np.bool_)


@functools.cache
def why_not_compiled() -> str | None:
    """Say why the kernels cannot run here; None where they can. numba may lag behind a new NumPy or Python."""
    try:
        importlib.import_module("threadpoolctl")
        importlib.import_module("headcount.kernels.step.numba_cache")
    except ImportError as error:
        return f"numba or threadpoolctl cannot be imported here ({error})"
    return None


def why_plain(spec: ModelSpec) -> str | None:
    """Say why a model is trained by the plain loop; None where the kernels do it."""
    reason = collapses(spec)
    return why_not_compiled() if reason is None else f"the kernels do not cover {reason}"


def load_kernels(dtype: str) -> None:
    """Have the kernels for a precision ready: half a second from disk, half a minute the first time."""
    from headcount.kernels.step import numba_cache as cpu_start

    cpu_start.load_kernels(dtype)


class Compiled:
    """The kernels for one model spec; numba compiles them on first use, and keeps the result on disk."""

    def __init__(self, spec: ModelSpec) -> None:
        self.flat = Flat.of(spec)
        beta = spec.beta if isinstance(spec.beta, float) else spec.head_dim**-0.5
        self._model = (self.flat.offsets(), self.flat.sizes(), beta, spec.feedforward == "gelu2")

    def steps(
        self, theta: NDArray[Any], first: NDArray[Any], second: NDArray[Any], X: NDArray[Any], y: NDArray[Any],
        masks: NDArray[np.bool_], index: NDArray[np.int64], rates: NDArray[np.float64], done: int, decay: float,
        decoupled: bool,
    ) -> int:  # fmt: skip
        """Take one step of Adam for every row of index, in place; return how many had a finite loss."""
        return self._run(theta, first, second, X, y, masks, index, rates, np.empty(len(rates)), done, decay, decoupled)

    def predict(self, theta: NDArray[Any], X: NDArray[Any], masks: NDArray[np.bool_] = NO_MASK) -> NDArray[Any]:
        """Return y[samples, out_dim]."""
        y, none = np.empty((len(X), self.flat.spec.out_dim), theta.dtype), np.empty(0)
        self._run(theta, theta, theta, X, y, masks, np.empty((0, 0), np.int64), none, none)
        return y

    def gradient(
        self, theta: NDArray[Any], X: NDArray[Any], y: NDArray[Any], masks: NDArray[np.bool_] = NO_MASK
    ) -> tuple[float, NDArray[Any]]:
        """Return the mean squared error on a batch and its flat gradient."""
        grad, loss, every = np.empty_like(theta), np.empty(1), np.arange(len(X))[None]
        self._run(theta, grad, theta, X, y, masks, every, np.empty(0), loss)
        return float(loss[0]), grad

    def _run(
        self, theta: NDArray[Any], first: NDArray[Any], second: NDArray[Any], X: NDArray[Any], y: NDArray[Any],
        masks: NDArray[np.bool_], index: NDArray[np.int64], rates: NDArray[np.float64], losses: NDArray[np.float64],
        done: int = 0, decay: float = 0.0, decoupled: bool = False,
    ) -> int:  # fmt: skip
        """Call the one entry with the one layout that is compiled; what is written to has it already."""
        from headcount.kernels.step import numba as cpu_step

        kernel: Any = cpu_step.run
        load_kernels(str(theta.dtype))
        read = [np.require(a, requirements=("C", "W")) for a in (X, y, masks, index, rates)]
        return int(kernel(theta, first, second, *self._model, *read, done, float(decay), bool(decoupled), losses))
