"""Collapsed models on the compiled CPU kernels: steps, predictions and gradients from flat weights."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from headcount.kernels import explain, load_kernels, step_on_core
from headcount.models.transformer.flat import Flat, why_not_collapsed
from headcount.models.transformer.spec import ModelSpec

NO_MASK = np.zeros((0, 0), np.bool_)


def why_not_compiled(spec: ModelSpec | None = None) -> str | None:
    """Return why the compiled steps cannot run here (or, with a spec, cannot train that model); None if they can."""
    return explain("step_on_core", None if spec is None else why_not_collapsed(spec))[0].why_not


class Compiled:
    """The compiled kernels for one model spec; numba compiles them on first use and caches the result on disk."""

    def __init__(self, spec: ModelSpec) -> None:
        self.flat = Flat.of(spec)
        beta = spec.beta if isinstance(spec.beta, float) else spec.head_dim**-0.5
        self._model = (self.flat.offsets(), self.flat.sizes(), beta, spec.feedforward == "gelu2")

    def steps(
        self,
        theta: NDArray[Any],
        first: NDArray[Any],
        second: NDArray[Any],
        X: NDArray[Any],
        y: NDArray[Any],
        masks: NDArray[np.bool_],
        index: NDArray[np.int64],
        rates: NDArray[np.float64],
        done: int,
        decay: float,
        decoupled: bool,
    ) -> int:
        """Take one step of Adam, in place, for every row of index; return how many steps had a finite loss."""
        return self._run(theta, first, second, X, y, masks, index, rates, np.empty(len(rates)), done, decay, decoupled)

    def predict(self, theta: NDArray[Any], X: NDArray[Any], masks: NDArray[np.bool_] = NO_MASK) -> NDArray[Any]:
        """Return y[samples, out_dim]."""
        y, unused = np.empty((len(X), self.flat.spec.out_dim), theta.dtype), np.empty(0)
        self._run(theta, theta, theta, X, y, masks, np.empty((0, 0), np.int64), unused, unused)
        return y

    def gradient(
        self, theta: NDArray[Any], X: NDArray[Any], y: NDArray[Any], masks: NDArray[np.bool_] = NO_MASK
    ) -> tuple[float, NDArray[Any]]:
        """Return the mean squared error on a batch and its flat gradient."""
        grad, loss, index = np.empty_like(theta), np.empty(1), np.arange(len(X))[None]
        self._run(theta, grad, theta, X, y, masks, index, np.empty(0), loss)
        return float(loss[0]), grad

    def _run(
        self,
        theta: NDArray[Any],
        first: NDArray[Any],
        second: NDArray[Any],
        X: NDArray[Any],
        y: NDArray[Any],
        masks: NDArray[np.bool_],
        index: NDArray[np.int64],
        rates: NDArray[np.float64],
        losses: NDArray[np.float64],
        done: int = 0,
        decay: float = 0.0,
        decoupled: bool = False,
    ) -> int:
        """Call the compiled function, with its inputs in the only layout it is compiled for."""
        kernel = step_on_core()
        assert kernel is not None, "check `why_not_compiled` before making a Compiled"
        load_kernels(str(theta.dtype))
        inputs = [np.require(a, requirements=("C", "W")) for a in (X, y, masks, index, rates)]
        return int(kernel(theta, first, second, *self._model, *inputs, done, float(decay), bool(decoupled), losses))
