"""The base class of all tasks."""

from __future__ import annotations

import abc
from typing import Any

import torch
from torch import Tensor

from headcount.core import BadInput, content_hash, generator
from headcount.core.text import plain
from headcount.tasks.sampling import LAW, SUPPORT_TOLERANCE, Box, Law


def check_task(task: object) -> None:
    """Refuse what is no task at all, such as its name."""
    if not hasattr(task, "name"):
        example = f"hc.make_task({task!r})" if isinstance(task, str) else "hc.make_task('sum-of-maxima')"
        raise BadInput(f"{task!r:.60} is not a task: pass one, as {example} makes it")


class Task(abc.ABC):
    """A function from sequences X[length, dim] to y[out_dim], with a distribution of inputs, its law.

    A new kind of task implements `value` and `data`; the conformance suite in the tests checks the rest.
    """

    name: str
    length: int
    dim: int
    out_dim: int
    law: Law

    def __init__(self, *, name: str, length: int, dim: int, out_dim: int, law: Law) -> None:
        for what, number in (("length", length), ("dim", dim), ("out_dim", out_dim)):
            if type(number) is not int or number < 1:  # refuses True and 2.0
                raise BadInput(f"{what} must be a whole number ≥ 1, not {number!r}")
        if not law.fits(dim):
            raise BadInput(f"the law {law.law!r} cannot draw tokens of dimension {dim}")
        self.name, self.length, self.dim, self.out_dim, self.law = name, length, dim, out_dim, law

    @abc.abstractmethod
    def value(self, X: Tensor) -> Tensor:
        """Return y[..., out_dim] for X[..., length, dim]; differentiable where the task is."""

    @abc.abstractmethod
    def data(self) -> dict[str, Any]:
        """Return the task as JSON data, from which `parse_task` restores it."""

    @property
    def intrinsic(self) -> int | None:
        """The intrinsic dimension D, or None where the task has no retrieval structure."""
        return None

    @property
    def positional(self) -> bool:
        """Whether y depends on the positions of tokens, so that a model must see positions to learn it."""
        return False

    @property
    def box(self) -> Box | None:
        """The box of all possible tokens, or None if the law is unbounded."""
        return self.law.box(self.dim)

    def sample(
        self, count: int, seed: int = 0, *, stream: str = "sample", dtype: torch.dtype = torch.float64
    ) -> Tensor:
        """Return X[count, length, dim] drawn from the task's law; equal seeds and streams give equal inputs."""
        if count < 1:
            raise BadInput(f"count must be at least 1, not {count}")
        if seed < 0:
            raise BadInput(f"seed must be at least 0, not {seed}")
        X = self.law.draw(generator(seed, stream), count, self.length, self.dim)
        return torch.from_numpy(X).to(dtype)

    def outside(self, X: Tensor, tolerance: float = SUPPORT_TOLERANCE) -> str:
        """Return why the first of the sequences X[..., length, dim] that is not an input of the task is not one.

        Inputs are the support of the task's law (`tasks.sampling`), up to the tolerance. Empty if all are inputs.
        """
        self.check_input(X)
        flat = X.detach().double().cpu().reshape(-1, self.length, self.dim).numpy()
        return next((reason for sequence in flat if (reason := self.law.outside(sequence, tolerance))), "")

    def hash(self) -> str:
        """Return the identity of the task."""
        return content_hash(self.data())

    def check_input(self, X: Tensor) -> None:
        """Refuse inputs of the wrong shape or type."""
        if X.ndim < 2 or X.shape[-2:] != (self.length, self.dim):
            raise BadInput(
                f"{self.name} takes X[..., {self.length}, {self.dim}] (length, dim), not shape {tuple(X.shape)}"
            )
        if not X.is_floating_point():  # expressions take their weights in the type of X
            raise BadInput(f"{self.name} takes floating-point X, not {X.dtype}: use X.to(torch.float64)")

    def _common(self) -> dict[str, Any]:
        """Return the part of `data` that all tasks share."""
        return {
            "name": self.name,
            "length": self.length,
            "dim": self.dim,
            "law": LAW.dump_python(self.law, mode="json"),
        }

    def __repr__(self) -> str:
        D = "none" if self.intrinsic is None else self.intrinsic
        return f"<{type(self).__name__} {plain(self.name)}: D={D}, d={self.dim}, T={self.length}, out={self.out_dim}>"
