"""The full state of a trial between two steps, independent of the device that trained it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass
class Moments:
    """Flat weights, Adam's two moments, the steps taken, and the validation curve so far."""

    theta: NDArray[Any]
    first: NDArray[Any]
    second: NDArray[Any]
    step: int = 0
    curve: list[tuple[int, float]] = field(default_factory=list[tuple[int, float]])
    seconds: float = 0.0
    """Training time so far, over all sessions."""

    def copy(self) -> Moments:
        """Return a copy that later steps do not change."""
        arrays = self.theta.copy(), self.first.copy(), self.second.copy()
        return Moments(*arrays, self.step, list(self.curve), self.seconds)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays that a checkpoint stores."""
        return {"theta": self.theta, "first": self.first, "second": self.second, "seconds": np.array([self.seconds])}

    @classmethod
    def of(cls, step: int, arrays: dict[str, NDArray[Any]], curve: list[tuple[int, float]]) -> Moments:
        """Return the state from a checkpoint's arrays; points of the curve after its step are dropped."""
        seconds = float(arrays["seconds"][0]) if "seconds" in arrays else 0.0
        curve = [point for point in curve if point[0] <= step]
        return cls(arrays["theta"], arrays["first"], arrays["second"], step, curve, seconds)
