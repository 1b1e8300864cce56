"""Distributions of inputs: serialisable laws on sequences X[length, dim], reproducible from a seed.

A law also knows its support, the sequences that it can produce and their limits: `outside` returns why a sequence is
not among them. Beside the box, a search must respect `fixed`, the coordinates with isolated values, and `sphere`.

| law | support |
| --- | --- |
| uniform, clipped-gaussian | every token in the box |
| gaussian | every sequence of finite numbers: a box is then an additional restriction |
| sphere | every token has norm 1 |
| marked | values in [0, 1]; marks 0 or 1, and exactly one token carries each mark |
"""

from __future__ import annotations

import abc
from typing import Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, TypeAdapter, model_validator

from headcount.core import Spec, Vector

Box = tuple[tuple[float, ...], tuple[float, ...]]  # lower and upper corner of the tokens' domain
SUPPORT_TOLERANCE = 1e-12
"""How far a number, or a token's norm, may lie outside the support: the laws' own draws are rounded."""


class _Law(Spec, abc.ABC):
    """Base class of laws; tokens are i.i.d. unless a subclass says otherwise."""

    sphere: ClassVar[bool] = False
    """Whether every token lies on the unit sphere."""

    @abc.abstractmethod
    def draw(self, rng: np.random.Generator, count: int, length: int, dim: int) -> NDArray[np.float64]:
        """Return X[count, length, dim], drawn with `rng`."""

    def box(self, dim: int) -> Box | None:  # noqa: ARG002
        """Return the box that contains every token, or None if the law is unbounded."""
        return None

    def fits(self, dim: int) -> bool:  # noqa: ARG002
        """Return whether tokens of this dimension can be drawn."""
        return True

    def fixed(self, dim: int) -> tuple[int, ...]:  # noqa: ARG002
        """Return the coordinates of a token that take isolated values, which a search must not change."""
        return ()

    def outside(self, X: NDArray[np.float64], tolerance: float = SUPPORT_TOLERANCE) -> str:
        """Return why a sequence X[length, dim] is not in the support, up to the tolerance; empty if it is."""
        if not np.isfinite(X).all():
            return "numbers that are not finite; the task's are"
        return self._outside(X, tolerance)

    def _outside(self, X: NDArray[np.float64], tolerance: float) -> str:
        """Return the same for finite numbers."""
        sides = self.box(X.shape[-1])
        return "" if sides is None else _outside_box(X, sides, tolerance)


def _outside_box(X: NDArray[np.float64], sides: Box, tolerance: float) -> str:
    low, high = (np.broadcast_to(side, X.shape) for side in sides)
    beyond = np.maximum(low - X, X - high)
    k = np.unravel_index(int(beyond.argmax()), X.shape)
    if beyond[k] <= tolerance:
        return ""
    edge = float(high[k] if X[k] > high[k] else low[k])
    return f"a coordinate of {_short_text(float(X[k]), edge)}; the task's lie from {low[k]:g} to {high[k]:g}"


def _short_text(value: float, other: float) -> str:
    """Return a number in the fewest digits that distinguish it from another."""
    texts = (f"{value:.{digits}g}" for digits in range(3, 18))
    return next((text for text in texts if float(text) != other), repr(value))


class Uniform(_Law):
    """Uniform on a box; one number stands for every coordinate."""

    law: Literal["uniform"] = "uniform"
    low: Vector = (0.0,)
    high: Vector = (1.0,)

    @model_validator(mode="after")
    def _order(self) -> Uniform:
        if len(self.low) != len(self.high) or any(a >= b for a, b in zip(self.low, self.high, strict=False)):
            raise ValueError("uniform: low must be below high in every coordinate")
        return self

    def fits(self, dim: int) -> bool:
        return len(self.low) in (1, dim)

    def box(self, dim: int) -> Box:
        return tuple(self.low * (dim // len(self.low))), tuple(self.high * (dim // len(self.high)))

    def draw(self, rng: np.random.Generator, count: int, length: int, dim: int) -> NDArray[np.float64]:
        low, high = np.asarray(self.low), np.asarray(self.high)
        return low + (high - low) * rng.random((count, length, dim))


class Gaussian(_Law):
    """Independent N(0, std²) coordinates: the paper's synthetic inputs."""

    law: Literal["gaussian"] = "gaussian"
    std: float = Field(default=1.0, gt=0)

    def draw(self, rng: np.random.Generator, count: int, length: int, dim: int) -> NDArray[np.float64]:
        return self.std * rng.standard_normal((count, length, dim))


class ClippedGaussian(_Law):
    """N(0, std²) coordinates moved to the nearest point of [−limit, limit]: the paper's inputs on a bounded domain."""

    law: Literal["clipped-gaussian"] = "clipped-gaussian"
    std: float = Field(default=1.0, gt=0)
    limit: float = Field(gt=0)

    def box(self, dim: int) -> Box:
        return (-self.limit,) * dim, (self.limit,) * dim

    def draw(self, rng: np.random.Generator, count: int, length: int, dim: int) -> NDArray[np.float64]:
        return (self.std * rng.standard_normal((count, length, dim))).clip(-self.limit, self.limit)


class Sphere(_Law):
    """Uniform on the unit sphere."""

    law: Literal["sphere"] = "sphere"
    sphere: ClassVar[bool] = True

    def fits(self, dim: int) -> bool:
        return dim >= 2

    def box(self, dim: int) -> Box:
        return (-1.0,) * dim, (1.0,) * dim

    def draw(self, rng: np.random.Generator, count: int, length: int, dim: int) -> NDArray[np.float64]:
        x = rng.standard_normal((count, length, dim))
        return x / np.linalg.norm(x, axis=-1, keepdims=True)

    def _outside(self, X: NDArray[np.float64], tolerance: float) -> str:
        norms = np.linalg.norm(X, axis=-1)
        worst = float(norms[np.abs(norms - 1).argmax()])
        return (
            "" if abs(worst - 1) <= tolerance else f"tokens of norm {_short_text(worst, 1.0)}; the task's have norm 1"
        )


class Marked(_Law):
    """A value in [0, 1] and `marks` flags a token; for each flag one position, drawn uniformly, carries a 1."""

    law: Literal["marked"] = "marked"
    marks: int = Field(ge=1)

    def fits(self, dim: int) -> bool:
        return dim == 1 + self.marks

    def box(self, dim: int) -> Box:
        return (0.0,) * dim, (1.0,) * dim

    def draw(self, rng: np.random.Generator, count: int, length: int, dim: int) -> NDArray[np.float64]:
        x = np.zeros((count, length, dim))
        x[..., 0] = rng.random((count, length))
        where = rng.integers(length, size=(count, self.marks))
        np.put_along_axis(x[..., 1:], where[:, None, :], 1.0, axis=1)
        return x

    def fixed(self, dim: int) -> tuple[int, ...]:
        return tuple(range(1, dim))

    def _outside(self, X: NDArray[np.float64], tolerance: float) -> str:
        marks = X[:, 1:]
        away = np.minimum(np.abs(marks), np.abs(marks - 1))
        k = np.unravel_index(int(away.argmax()), marks.shape)
        if away[k] > tolerance:
            return f"a mark of {_short_text(float(marks[k]), float(round(marks[k])))}; the task's are 0 or 1"
        counts = (marks > 0.5).sum(0)
        j = int(np.abs(counts - 1).argmax())
        if counts[j] != 1:
            return f"{counts[j]} tokens that carry mark {j + 1}; the task's inputs have one"
        return super()._outside(X, tolerance)


Law = Annotated[Uniform | Gaussian | ClippedGaussian | Sphere | Marked, Field(discriminator="law")]
LAW: TypeAdapter[Law] = TypeAdapter(Law)
