"""How inputs are drawn: serialisable laws on sequences X[length, dim], reproducible from a seed."""

from __future__ import annotations

import abc
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, TypeAdapter, model_validator

from headcount.base.spec import Spec, Vector

Box = tuple[tuple[float, ...], tuple[float, ...]]  # lower and upper corner of the tokens' domain


class _Law(Spec, abc.ABC):
    """A law of sequences with i.i.d. tokens, unless a subclass says otherwise."""

    @abc.abstractmethod
    def draw(self, rng: np.random.Generator, count: int, length: int, dim: int) -> NDArray[np.float64]:
        """Draw X[count, length, dim]."""

    def box(self, dim: int) -> Box | None:  # noqa: ARG002
        """The box that holds every token, or None where the law is not bounded."""
        return None

    def fits(self, dim: int) -> bool:  # noqa: ARG002
        """Whether tokens of this dimension can be drawn."""
        return True


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

    def fits(self, dim: int) -> bool:
        return dim >= 2

    def box(self, dim: int) -> Box:
        return (-1.0,) * dim, (1.0,) * dim

    def draw(self, rng: np.random.Generator, count: int, length: int, dim: int) -> NDArray[np.float64]:
        x = rng.standard_normal((count, length, dim))
        return x / np.linalg.norm(x, axis=-1, keepdims=True)


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


Law = Annotated[Uniform | Gaussian | ClippedGaussian | Sphere | Marked, Field(discriminator="law")]
LAW: TypeAdapter[Law] = TypeAdapter(Law)
