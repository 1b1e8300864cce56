"""A two-layer ReLU network with a proved error for each of its outputs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Shallow:
    """y = outer·relu(inner·x + inner_bias) + outer_bias, with the largest distance of each output from its function."""

    inner: Array
    inner_bias: Array
    outer: Array
    outer_bias: Array
    errors: list[float]

    def __call__(self, x: Array) -> Array:
        """Evaluate x[..., dim] → y[..., outputs]."""
        return np.maximum(x @ self.inner.T + self.inner_bias, 0.0) @ self.outer.T + self.outer_bias

    @property
    def units(self) -> int:
        """The hidden width."""
        return len(self.inner)
