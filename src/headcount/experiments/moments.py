"""All that a trial is between two steps, on whatever device it was trained."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray


@dataclass
class Moments:
    """Flat weights, Adam's two moments, the steps taken, and the validation curve so far."""

    theta: NDArray[Any]
    first: NDArray[Any]
    second: NDArray[Any]
    step: int = 0
    curve: list[tuple[int, float]] = field(default_factory=list[tuple[int, float]])

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return copies for a checkpoint."""
        return {"theta": self.theta.copy(), "first": self.first.copy(), "second": self.second.copy()}

    @classmethod
    def of(cls, step: int, arrays: dict[str, NDArray[Any]], curve: list[tuple[int, float]]) -> Moments:
        """Return what a checkpoint holds, the curve cut at its step."""
        return cls(arrays["theta"], arrays["first"], arrays["second"], step, [p for p in curve if p[0] <= step])
