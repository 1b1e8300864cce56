"""Strict reader of tasks from JSON data, as `Task.data` writes it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

from headcount.core import BadInput, Integers, Matrix, Spec, explain, nearest
from headcount.core.readers import read_json
from headcount.tasks.controls import LinearTask, MeanTask, NearestNeighbour
from headcount.tasks.expressions.tree import Expr, Variable
from headcount.tasks.families import FAMILIES, Family, family
from headcount.tasks.retrieval import GeneralizedRetrieval
from headcount.tasks.sampling import Law
from headcount.tasks.task import Task

MAX_SIZE = 1_000_000
"""Limit of the length and the dimension, the same as for models."""
MAX_NUMBERS = 1 << 23
"""Numbers that describe the task of a family, its index sets included."""
MAX_GRADIENT_ENTRIES = 1 << 25
"""Entries of the gradients of all nodes of one function: their components × the dimension of the variable."""


class _Common(Spec):
    """The keys that all kinds of tasks share."""

    name: str
    length: int = Field(ge=1, le=MAX_SIZE)
    dim: int = Field(ge=1, le=MAX_SIZE)
    law: Law

    def trees(self) -> list[Expr]:
        """Return the expressions of the task."""
        return []


class _Retrieval(_Common):
    kind: Literal["retrieval"]
    f: list[Expr]
    S: list[Integers]
    F0: Expr

    def trees(self) -> list[Expr]:
        return [*self.f, self.F0]

    def task(self) -> Task:
        return GeneralizedRetrieval(
            self.f, self.S, self.F0, length=self.length, dim=self.dim, law=self.law, name=self.name
        )


class _Mean(_Common):
    kind: Literal["mean"]
    g: Expr

    def trees(self) -> list[Expr]:
        return [self.g]

    def task(self) -> Task:
        return MeanTask(self.g, length=self.length, law=self.law, name=self.name)


class _Linear(_Common):
    kind: Literal["linear"]
    weight: Matrix

    def task(self) -> Task:
        return LinearTask(self.weight, law=self.law, name=self.name)


class _Nearest(_Common):
    kind: Literal["nearest-neighbour"]

    def task(self) -> Task:
        return NearestNeighbour(length=self.length, dim=self.dim, name=self.name)


_Any = Annotated[_Retrieval | _Mean | _Linear | _Nearest, Field(discriminator="kind")]
_reader: TypeAdapter[_Any] = TypeAdapter(_Any)


def _check_gradient_size(tree: Expr) -> None:
    """Refuse a function whose gradient would fill the memory."""
    dim = max((node.dim for node in tree.walk() if isinstance(node, Variable)), default=1)
    needed = sum(node.out_dim for node in tree.walk()) * dim
    if needed > MAX_GRADIENT_ENTRIES:
        raise BadInput(
            f"task: the gradient of a function of {dim} numbers needs {needed:,} entries: at most "
            f"{MAX_GRADIENT_ENTRIES:,} are allowed"
        )


def saved_task(data: Mapping[str, Any] | None) -> Task | None:
    """Return the task that a model was saved with, or None if it has none or was trained on arrays."""
    return None if data is None or data.get("kind") == "arrays" else parse_task(data)


def sized_family(name: str, **parameters: Any) -> Family:
    """Return the spec of a named family, as `family` does, refusing one whose task would fill the memory."""
    spec = family(name, **parameters)
    if (needed := spec.numbers()) > MAX_NUMBERS:
        raise BadInput(
            f"{name}: this task takes {needed:,} numbers to describe: at most {MAX_NUMBERS:,} are allowed (choose a "
            "smaller length, intrinsic dimension or dim)"
        )
    return spec


def read_task_file(path: Path) -> Task:
    """Return the task whose JSON a file holds; every error names the file."""
    data = read_json(path)
    try:
        return parse_task(data)
    except BadInput as error:
        raise BadInput(f"{path}: {str(error).removeprefix('task: ')}") from None


def parse_task(data: Mapping[str, Any]) -> Task:
    """Return the task of JSON data, written by `Task.data` or naming a family ({"family": …, …})."""
    if not isinstance(data, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise BadInput(f"a task must be a JSON object with a family or a kind, not {type(data).__name__}")
    if "family" not in data and "kind" not in data:
        raise BadInput("a task needs a family (headcount tasks lists them) or a kind, as written by Task.data")
    if "family" in data:
        name = data["family"]
        if not isinstance(name, str) or name not in FAMILIES:
            raise BadInput(f"unknown task {name!r}: {nearest(str(name), FAMILIES)}")
        return sized_family(name, **{k: v for k, v in data.items() if k != "family"}).task()
    try:
        spec = _reader.validate_json(json.dumps(data))
    except TypeError as error:
        raise BadInput(f"task: not JSON data: {error}") from None
    except (ValidationError, RecursionError) as error:
        if isinstance(error, RecursionError) or error.errors()[0]["type"] == "json_invalid":
            raise BadInput("task: an expression is nested too deeply") from None
        raise BadInput(f"task: {explain(error, _Common)}") from None
    for tree in spec.trees():
        _check_gradient_size(tree)
    task = spec.task()
    for key in ("length", "dim", "law"):  # some kinds compute one of these from the rest: it must agree
        stated, built = getattr(spec, key), getattr(task, key)
        if stated != built:
            raise BadInput(f"task: {key} is {stated!r}, but the rest of the task gives {built!r}")
    return task
