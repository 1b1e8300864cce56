"""A collapsed model on the CPU kernels: steps, predictions and gradients from its flat weights."""

from __future__ import annotations

import functools
import importlib
import tempfile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headcount.models.flat import Flat, collapses
from headcount.models.spec import ModelSpec

NO_MASK = np.zeros((0, 0), np.bool_)


@functools.cache
def why_not_compiled() -> str | None:
    """Say why the kernels cannot run here; None where they can. numba may lag behind a new NumPy or Python."""
    try:
        importlib.import_module("threadpoolctl")
        try:
            importlib.import_module("headcount.kernels.cpu_step")
        except RuntimeError:  # numba found no folder for its cache: a read-only install without a home
            importlib.import_module("numba").config.CACHE_DIR = tempfile.mkdtemp(prefix="headcount-numba-")
            importlib.import_module("headcount.kernels.cpu_step")
    except ImportError as error:
        return f"numba or threadpoolctl cannot be imported here ({error})"
    return None


def why_plain(spec: ModelSpec) -> str | None:
    """Say why a model is trained by the plain loop; None where the kernels do it."""
    reason = collapses(spec)
    return why_not_compiled() if reason is None else f"the kernels do not cover {reason}"


class Compiled:
    """The kernels for one model spec; numba compiles them on first use, and keeps the result on disk."""

    def __init__(self, spec: ModelSpec) -> None:
        from headcount.kernels import cpu_step

        self._kernels: Any = cpu_step
        self.flat = Flat.of(spec)
        beta = spec.beta if isinstance(spec.beta, float) else spec.head_dim**-0.5
        self._model = (self.flat.offsets(), self.flat.sizes(), beta, spec.feedforward == "gelu2")

    def steps(
        self, theta: NDArray[Any], first: NDArray[Any], second: NDArray[Any], X: NDArray[Any], y: NDArray[Any],
        masks: NDArray[np.bool_], index: NDArray[np.int64], rates: NDArray[np.float64], done: int, decay: float,
        decoupled: bool,
    ) -> int:  # fmt: skip
        """Take one step of Adam for every row of index, in place; return how many had a finite loss."""
        losses = np.empty(len(rates))
        return int(self._kernels.train_steps(
            theta, first, second, *self._model, X, y, masks, index, rates, done, decay, decoupled, losses
        ))  # fmt: skip

    def predict(self, theta: NDArray[Any], X: NDArray[Any], masks: NDArray[np.bool_] = NO_MASK) -> NDArray[Any]:
        """Return y[samples, out_dim]."""
        return self._kernels.predict(theta, *self._model, X, masks)

    def gradient(
        self, theta: NDArray[Any], X: NDArray[Any], y: NDArray[Any], masks: NDArray[np.bool_] = NO_MASK
    ) -> tuple[float, NDArray[Any]]:
        """Return the mean squared error on a batch and its flat gradient."""
        grad = np.zeros_like(theta)
        return float(self._kernels.gradient(theta, *self._model, np.ascontiguousarray(X), masks, y, grad)), grad
