"""Families of tasks: each is a strict spec that builds a task whose intrinsic dimension is known."""

from __future__ import annotations

import abc
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from headcount.core import BadInput, Matrix, Spec, generator, nearest
from headcount.tasks.controls import LinearTask, MeanTask, NearestNeighbour
from headcount.tasks.expressions.tree import Exp, Expr, Product, Tanh, affine, parse_expr, variable
from headcount.tasks.retrieval import GeneralizedRetrieval
from headcount.tasks.sampling import ClippedGaussian, Gaussian, Marked, Sphere, Uniform
from headcount.tasks.sets import SetKind, index_sets
from headcount.tasks.task import Task

Length = Annotated[int, Field(ge=1, le=1_000_000)]
Count = Annotated[int, Field(ge=1, le=4096)]
Draw = Literal["gaussian", "unit", "orthonormal", "given"]
Outer = Literal["sum", "product", "sum-product", "square", "tanh", "exp", "vector"]


class Family(Spec, abc.ABC):
    """A named set of tasks: parameters in, a task out."""

    summary: ClassVar[str]
    family: Any  # a literal in every family

    @abc.abstractmethod
    def task(self) -> Task:
        """Return the task."""

    @abc.abstractmethod
    def numbers(self) -> int:
        """Return about how many numbers describe the task: weights of its functions, positions of its index sets."""


class _Retrieval(Family):
    """Base class of the retrieval families."""

    intrinsic: Count = 3
    length: Length = 8
    sets: SetKind = "all"
    share: float = Field(default=0.5, ge=0.25, le=1)
    seed: int = Field(default=0, ge=0)

    @model_validator(mode="after")
    def _check_length(self) -> _Retrieval:
        if self.length < self.intrinsic:
            raise ValueError(f"length must be at least the intrinsic dimension {self.intrinsic}, not {self.length}")
        return self

    def _position_count(self) -> int:
        return self.intrinsic * self.length

    def _S(self) -> list[list[int]]:
        return index_sets(self.sets, self.intrinsic, self.length, share=self.share, seed=self.seed)


def outer(kind: Outer, count: int) -> Expr:
    """Return the function F0 on R^D of this name; none of its partial derivatives is identically zero."""
    z = variable(count)
    total = z.sum()
    match kind:
        case "sum":
            return total
        case "product":  # of (1 + z_i): a minimum of 0 does not make the product 0
            return Product(args=(z + 1.0,))
        case "sum-product":
            return total + Product(args=(z + 1.0,))
        case "square":
            return (total + 1.0) ** 2
        case "tanh":
            return Tanh(of=total)
        case "exp":
            return Exp(of=-total)
        case "vector":  # D outputs: all partial sums
            rows = [[1.0 if j <= i else 0.0 for j in range(count)] for i in range(count)]
            return affine(rows, [0.0] * count, z)


def _total(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the sum over the first axis in a fixed order, which BLAS and np.sum do not keep across processors."""
    return np.cumsum(x, axis=0)[-1]


def normalised(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return rows of length 1, the same to the last bit on every machine."""
    return rows / np.sqrt(_total(rows.T**2))[:, None]


def orthonormal(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the rows orthonormalised in order, by Gram-Schmidt.

    LAPACK's QR differs between processors in the last bit; a task is identified by its numbers, so the trials of one
    machine would not be found on another.
    """
    basis = normalised(rows)
    for i in range(1, len(basis)):
        for _ in range(2):  # a single pass loses digits
            along = _total((basis[:i] * basis[i]).T)
            basis[i] -= _total(along[:, None] * basis[:i])
            basis[i : i + 1] = normalised(basis[i : i + 1])
    return basis


class SumOfMaxima(_Retrieval):
    """The paper's synthetic task."""

    summary: ClassVar[str] = "y = Σ_i max_t a_i·x(t), Gaussian tokens (the paper's synthetic task)"
    family: Literal["sum-of-maxima"] = "sum-of-maxima"
    intrinsic: Count = 4
    dim: Count = 4
    draw: Draw = "orthonormal"
    given: Matrix | None = None
    limit: float | None = Field(default=None, gt=0)
    """Clip the tokens to [−limit, limit], which bounds the task's domain."""

    @model_validator(mode="after")
    def _check_directions(self) -> SumOfMaxima:
        if (self.draw == "given") != (self.given is not None):
            raise ValueError("given: state the vectors a_i if draw is 'given', and only then")
        if self.given is not None and (
            len(self.given) != self.intrinsic or any(len(a) != self.dim for a in self.given)
        ):
            raise ValueError(f"given: needs {self.intrinsic} vectors of {self.dim} numbers")
        if self.draw == "orthonormal" and self.intrinsic > self.dim:
            raise ValueError(
                f"draw: at most dim = {self.dim} vectors can be orthonormal, not {self.intrinsic}: choose a larger "
                "dim, or draw = 'unit'"
            )
        return self

    def directions(self) -> NDArray[np.float64]:
        """Return the vectors a[intrinsic, dim], given or drawn by the seed."""
        if self.given is not None:
            return np.asarray(self.given)
        rng = generator(self.seed, "directions")
        if self.draw == "orthonormal":
            return orthonormal(rng.standard_normal((self.dim, self.dim)).T[: self.intrinsic])
        a = rng.standard_normal((self.intrinsic, self.dim))
        return normalised(a) if self.draw == "unit" else a

    def numbers(self) -> int:
        return self._position_count() + self.intrinsic * self.dim

    def task(self) -> GeneralizedRetrieval:
        """Return the task with f_i = −a_i·x and F0 = −Σ z: the maximum of a·x is −min of −a·x."""
        x, z = variable(self.dim), variable(self.intrinsic)
        f = [x.dot((-a).tolist()) for a in self.directions()]
        F0 = z.dot([-1.0] * self.intrinsic)
        law = Gaussian() if self.limit is None else ClippedGaussian(limit=self.limit)
        return GeneralizedRetrieval(f, self._S(), F0, length=self.length, dim=self.dim, law=law, name=self.family)


class QuadraticBasins(_Retrieval):
    """Squared distances to centres; meets all assumptions."""

    summary: ClassVar[str] = "y = F0(min_t |x(t) − c_i|²/d), centres c_i by seed, any d, any F0"
    family: Literal["quadratic-basins"] = "quadratic-basins"
    dim: Count = 2
    outer: Outer = "sum"

    def centres(self) -> NDArray[np.float64]:
        """Return centres[intrinsic, dim] in [0.1, 0.9]^dim: the draw, of 64, with the largest smallest distance."""
        rng = generator(self.seed, "centres")
        best, best_gap = None, -1.0
        for _ in range(64):
            c = 0.1 + 0.8 * rng.random((self.intrinsic, self.dim))
            d = np.linalg.norm(c[:, None] - c[None], axis=-1) + 10.0 * np.eye(self.intrinsic)
            if d.min() > best_gap:
                best, best_gap = c, d.min()
        assert best is not None
        return best

    def numbers(self) -> int:
        """Return the count of numbers; x − c takes an identity matrix, and all pairs of centres are compared."""
        return self._position_count() + self.intrinsic * self.dim * (self.dim + self.intrinsic)

    def task(self) -> GeneralizedRetrieval:
        """Return the task with f_i = |x − c_i|²/d, which lies in [0, 1] on the unit box."""
        x = variable(self.dim)
        f = [((x - c.tolist()) ** 2).sum() / self.dim for c in self.centres()]
        F0 = outer(self.outer, self.intrinsic)
        return GeneralizedRetrieval(f, self._S(), F0, length=self.length, law=Uniform(), name=self.family)


class MinPlusMax(Family):
    """The task of equation 7."""

    summary: ClassVar[str] = "y = max_t x(t) + min_t x(t), d = 1 (equation 7)"
    family: Literal["min-plus-max"] = "min-plus-max"
    length: int = Field(default=8, ge=2, le=1_000_000)

    def numbers(self) -> int:
        return 2 * self.length

    def task(self) -> GeneralizedRetrieval:
        """Return the task with f_1 = x and f_2 = 1 − x: max = 1 − min of (1 − x)."""
        x, z = variable(1), variable(2)
        return GeneralizedRetrieval(
            [x, 1.0 - x], None, z[0] - z[1] + 1.0, length=self.length, law=Uniform(), name=self.family
        )


class SparseRegression(Family):
    """q-sparse token regression: marks in the input say which tokens count."""

    summary: ClassVar[str] = "y = g of the q tokens that carry a mark (q-sparse token regression), D = q"
    family: Literal["sparse-regression"] = "sparse-regression"
    q: Count = 3
    length: Length = 8
    outer: Outer = "sum"

    @model_validator(mode="after")
    def _check_length(self) -> SparseRegression:
        if self.length < self.q:
            raise ValueError(f"length must be at least q = {self.q}, not {self.length}")
        return self

    def numbers(self) -> int:
        return self.q * (self.length + 4 * self.q)

    def task(self) -> GeneralizedRetrieval:
        """Return the task on tokens (value, q marks).

        f_j = (value + 2·(1 − mark_j))/3 is smallest at the token with mark j, and 3·z_j is its value.
        """
        x, z = variable(1 + self.q), variable(self.q)
        f = [(x[0] - 2.0 * x[1 + j] + 2.0) / 3.0 for j in range(self.q)]
        identity = [[3.0 if i == j else 0.0 for j in range(self.q)] for i in range(self.q)]
        F0 = _compose(outer(self.outer, self.q), affine(identity, [0.0] * self.q, z))
        return GeneralizedRetrieval(f, None, F0, length=self.length, law=Marked(marks=self.q), name=self.family)


class SphereAnchors(_Retrieval):
    """Distances of fixed points to their nearest tokens."""

    summary: ClassVar[str] = "y = F0(squared distance of the nearest token to anchor i), tokens on the sphere"
    family: Literal["sphere-anchors"] = "sphere-anchors"
    dim: int = Field(default=3, ge=2, le=4096)
    outer: Outer = "sum"

    def numbers(self) -> int:
        return self._position_count() + self.intrinsic * self.dim**2

    def task(self) -> GeneralizedRetrieval:
        """Return the task with f_i = |x − q_i|²/4, which is at most 1 on the sphere."""
        rng = generator(self.seed, "anchors")
        anchors = Sphere().draw(rng, 1, self.intrinsic, self.dim)[0]
        x = variable(self.dim)
        f = [((x - q.tolist()) ** 2).sum() / 4.0 for q in anchors]
        return GeneralizedRetrieval(
            f, self._S(), outer(self.outer, self.intrinsic), length=self.length, law=Sphere(), name=self.family
        )


class Nearest(Family):
    """Nearest neighbour on the sphere, by Amsel et al."""

    summary: ClassVar[str] = "y = the point nearest to the last token, tokens on the sphere (Amsel et al.)"
    family: Literal["nearest-neighbour"] = "nearest-neighbour"
    dim: int = Field(default=4, ge=2, le=4096)
    length: int = Field(default=8, ge=2, le=1_000_000)

    def numbers(self) -> int:
        return self.length

    def task(self) -> NearestNeighbour:
        """Return the task."""
        return NearestNeighbour(length=self.length, dim=self.dim)


class Mean(Family):
    """A control without retrieval structure."""

    summary: ClassVar[str] = "control: y = mean_t of |x(t) − ½|², one head suffices"
    family: Literal["mean"] = "mean"
    dim: Count = 2
    length: Length = 8

    def numbers(self) -> int:
        return self.dim**2

    def task(self) -> MeanTask:
        """Return the task."""
        return MeanTask(((variable(self.dim) - 0.5) ** 2).sum(), length=self.length)


class Linear(Family):
    """A control without retrieval structure."""

    summary: ClassVar[str] = "control: y = Σ_t w(t)·x(t), w by seed, no retrieval"
    family: Literal["linear"] = "linear"
    dim: Count = 2
    length: Length = 8
    seed: int = Field(default=0, ge=0)

    def numbers(self) -> int:
        return self.length * self.dim

    def task(self) -> LinearTask:
        """Return the task."""
        w = generator(self.seed, "weights").standard_normal((self.length, self.dim))
        return LinearTask(w, law=Gaussian())


FAMILIES: dict[str, type[Family]] = {
    str(c.model_fields["family"].default): c
    for c in (SumOfMaxima, QuadraticBasins, MinPlusMax, SparseRegression, SphereAnchors, Nearest, Mean, Linear)
}


def family(name: str, **parameters: Any) -> Family:
    """Return the spec of a named family; the error for an unknown name or parameter names the nearest known one."""
    if name not in FAMILIES:
        raise BadInput(f"unknown task {name!r}: {nearest(name, FAMILIES)}")
    return FAMILIES[name].parse(parameters, where=name)


def make_task(name: str, **parameters: Any) -> Task:
    """Return a task by the name of its family and its parameters, e.g. "sum-of-maxima" with intrinsic=3, length=16."""
    return family(name, **parameters).task()


def _compose(outside: Expr, inside: Expr) -> Expr:
    """Return outside ∘ inside: every variable of the outer tree becomes the inner tree."""

    def replace(node: Any) -> Any:
        if isinstance(node, dict):
            if node.get("op") == "variable":
                return inside.data()
            return {key: replace(value) for key, value in node.items()}
        return [replace(v) for v in node] if isinstance(node, list) else node

    return parse_expr(replace(outside.data()))


__all__ = ["FAMILIES", "Family", "family", "make_task"]
