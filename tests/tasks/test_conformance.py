"""Every family of tasks passes the one suite, and sabotaged tasks fail it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from task_suite import (
    check_gradient,
    check_order_of_tokens,
    check_plain_loop,
    check_positions,
    check_sample,
    check_serial,
    check_value,
    conforms,
)

from headcount.tasks.controls import MeanTask
from headcount.tasks.expressions.tree import Exp, Softplus, Stack, Tanh, smallest, variable
from headcount.tasks.families import FAMILIES, family, make_task
from headcount.tasks.retrieval import GeneralizedRetrieval
from headcount.tasks.sampling import Gaussian, Uniform
from headcount.tasks.serial import parse_task

OUTERS = ("sum", "product", "sum-product", "square", "tanh", "exp", "vector")
SETS = ("all", "bands", "halves", "random")


DEFAULTS = {
    "sum-of-maxima": 4,
    "quadratic-basins": 3,
    "min-plus-max": 2,
    "sparse-regression": 3,
    "sphere-anchors": 3,
    "nearest-neighbour": None,
    "mean": None,
    "linear": None,
}
"""Every family, with the D that it promises where nothing is set; None where there is none."""


def specs() -> Iterator[tuple[dict[str, Any], int | None]]:
    """Parametrisations of every family, each with the D that it promises."""
    yield from (({"family": name}, D) for name, D in DEFAULTS.items())
    name = "sum-of-maxima"
    for draw in ("gaussian", "unit", "orthonormal"):
        for D, d in ((1, 1), (3, 4), (5, 5)):
            yield {"family": name, "intrinsic": D, "dim": d, "draw": draw, "length": 7, "seed": d}, D
    yield {"family": name, "intrinsic": 5, "dim": 2, "draw": "unit", "length": 5}, 5
    yield {"family": name, "intrinsic": 2, "dim": 1, "draw": "given", "given": [[1.0], [-1.0]]}, 2
    twice = [[1.0, 0.0], [1.0, 0.0], [0.5, 1.0]]
    yield {"family": name, "intrinsic": 3, "dim": 2, "draw": "given", "given": twice}, 2
    for i, (sets, share) in enumerate(zip(SETS, (0.25, 0.5, 1.0, 0.3), strict=True)):
        common = {"sets": sets, "share": share}
        yield {"family": name, "intrinsic": 3, "dim": 3, "length": 9, **common}, 3
        yield {"family": "quadratic-basins", "intrinsic": 4, "length": 10, "outer": "product", **common}, 4
        yield {"family": "sphere-anchors", "intrinsic": 2, "dim": 2 + i, "length": 6, **common}, 2
    for i, kind in enumerate(OUTERS):
        yield {"family": "quadratic-basins", "dim": 1 + i % 5, "outer": kind, "seed": i}, 3
        yield {"family": "sparse-regression", "q": 1 + i % 4, "outer": kind}, 1 + i % 4
        yield {"family": "sphere-anchors", "intrinsic": 1 + i % 3, "outer": kind}, 1 + i % 3
    yield from (({"family": "min-plus-max", "length": T}, 2) for T in (2, 9))
    yield from (({"family": "nearest-neighbour", "dim": d, "length": T}, None) for d, T in ((2, 2), (4, 9)))
    yield from (({"family": "mean", "dim": d, "length": T}, None) for d, T in ((1, 1), (3, 7)))
    yield from (({"family": "linear", "dim": d, "length": T, "seed": d}, None) for d, T in ((1, 2), (5, 4)))


SPECS = list(specs())


def custom() -> GeneralizedRetrieval:
    """Vector F0, all kinds of sets and functions, one coordinate unread, one pair twice: D = 3."""
    x, z = variable(2), variable(5)
    c = ((x - [0.3, 0.7]) ** 2).sum()
    f = [c, Softplus(of=x.dot([2.0, -1.0])), smallest(x[0], Tanh(of=3.0 * x[1])), x[1], c]
    F0 = Stack(args=(Exp(of=-(z[0] + z[4])) * z[1], (z[2] ** 2 + z[1]).norm(), z[0] - 2.0 * z[2]))
    S = [[0, 1, 2], [3, 5], [1, 2, 4, 5], [0], [2, 1, 0]]
    return GeneralizedRetrieval(f, S, F0, length=6, law=Uniform(low=(-1.0, 0.0), high=(1.0, 2.0)), name="custom")


def label(spec: dict[str, Any]) -> str:
    return "-".join(str(v) for k, v in spec.items() if k != "given")


@pytest.mark.parametrize(("spec", "intrinsic"), SPECS, ids=[label(s) for s, _ in SPECS])
def test_families_conform(spec, intrinsic):
    task = parse_task(spec)
    assert task.hash() == make_task(spec["family"], **{k: v for k, v in spec.items() if k != "family"}).hash()
    conforms(task, intrinsic)


def test_every_family_is_in_the_list():
    assert set(DEFAULTS) == set(FAMILIES)
    assert {spec["family"] for spec, _ in SPECS} == set(FAMILIES)
    assert {spec.get("sets") for spec, _ in SPECS} > set(SETS)
    assert {spec.get("outer") for spec, _ in SPECS} > set(OUTERS)


def test_the_tasks_page_lists_every_family(repo):
    """docs/tasks.md names every family with all of its parameters, and nothing else."""
    rows = [line.split(" | ") for line in (repo / "docs/tasks.md").read_text("utf-8").splitlines() if " | " in line]
    told = {name: set(words(row[-1])) for row in rows[2:] for name in words(row[0])}
    assert told.keys() == FAMILIES.keys()
    for name, kind in FAMILIES.items():
        assert told[name] == set(kind.model_fields) - {"family"}, name


def words(cell: str) -> list[str]:
    """Return the words between backticks."""
    return re.findall(r"`([\w-]+)`", cell)


def test_a_custom_task_conforms():
    conforms(custom(), 3)


def test_parallel_directions_on_the_line_count_once():
    spec = family("sum-of-maxima", intrinsic=4, dim=1, draw="unit", length=6)
    signs = {float(a[0]) for a in spec.directions()}
    conforms(spec.task(), len(signs))
    assert spec.task().intrinsic < 4


class Off(GeneralizedRetrieval):
    def value(self, X):
        return super().value(X) + 1e-3


class IgnoresSets(GeneralizedRetrieval):
    def members(self, device):
        return torch.ones_like(super().members(device))


class WrongPlace(GeneralizedRetrieval):
    def positions(self, X):
        return (super().positions(X) + 1) % self.length


class Detached(GeneralizedRetrieval):
    def features(self, X):
        return super().features(X).detach()


class LeakyGradient(GeneralizedRetrieval):
    def gradient(self, X):
        return super().gradient(X) + 1e-9


class Ordered(GeneralizedRetrieval):
    def value(self, X):
        return super().value(X) + 1e-9 * X[..., 0, :1]


class ClaimsOrder(GeneralizedRetrieval):
    @property
    def positional(self):
        return True


class DeniesOrder(GeneralizedRetrieval):
    @property
    def positional(self):
        return False


class SinglePrecision(GeneralizedRetrieval):
    def value(self, X):
        return super().value(X).float()


class OneBatchAxis(GeneralizedRetrieval):
    def value(self, X):
        return super().value(X).reshape(-1, self.out_dim)


class Spoils(GeneralizedRetrieval):
    def value(self, X):
        return super().value(X.mul_(1.5))


class Seedless(GeneralizedRetrieval):
    def sample(self, count, seed=0, *, stream="sample", dtype=torch.float64):  # noqa: ARG002
        return super().sample(count, 0, stream=stream, dtype=dtype)


class OneStream(GeneralizedRetrieval):
    def sample(self, count, seed=0, *, stream="sample", dtype=torch.float64):  # noqa: ARG002
        return super().sample(count, seed, dtype=dtype)


class OutOfBox(GeneralizedRetrieval):
    def sample(self, count, seed=0, *, stream="sample", dtype=torch.float64):
        return 1.01 * super().sample(count, seed, stream=stream, dtype=dtype)


class Forgetful(GeneralizedRetrieval):
    def data(self):
        return {**super().data(), "S": [list(range(self.length)) for _ in self.S]}


class Lawless(MeanTask):
    def data(self):
        return {**super().data(), "law": {"law": "uniform", "low": [0.0], "high": [1.0]}}


def build(kind: type[GeneralizedRetrieval], S: list[list[int]] | None) -> GeneralizedRetrieval:
    x, z = variable(2), variable(2)
    f = [((x - [0.2, 0.9]) ** 2).sum(), ((x - [0.6, 0.1]) ** 2).sum()]
    return kind(f, S, z[0] + 2.0 * z[1], length=6)


BANDS = [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize(
    ("kind", "S", "check"),
    [
        (Off, None, check_plain_loop),
        (Off, None, check_serial),
        (IgnoresSets, BANDS, check_plain_loop),
        (IgnoresSets, BANDS, check_positions),
        (WrongPlace, None, check_positions),
        (Detached, None, check_gradient),
        (LeakyGradient, None, check_gradient),
        (Ordered, None, check_order_of_tokens),
        (ClaimsOrder, None, check_order_of_tokens),
        (DeniesOrder, BANDS, check_order_of_tokens),
        (SinglePrecision, None, check_value),
        (OneBatchAxis, None, check_value),
        (Spoils, None, check_value),
        (Seedless, None, check_sample),
        (OneStream, None, check_sample),
        (OutOfBox, None, check_sample),
        (Forgetful, BANDS, check_serial),
    ],
)
def test_sabotaged_tasks_fail(kind, S, check):
    check(build(GeneralizedRetrieval, S))
    with pytest.raises(AssertionError):
        check(build(kind, S))
    conforms(build(GeneralizedRetrieval, S), 2)
    with pytest.raises(AssertionError):
        conforms(build(kind, S), 2)


def test_a_law_missing_from_the_serial_form_fails():
    g = variable(2)[0]
    check_serial(MeanTask(g, length=3, law=Gaussian()))
    with pytest.raises(AssertionError):
        check_serial(Lawless(g, length=3, law=Gaussian()))


def test_a_wrong_intrinsic_dimension_fails():
    with pytest.raises(AssertionError):
        conforms(custom(), 4)
