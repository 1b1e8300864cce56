"""One suite for every kind of task: plain checks that raise AssertionError."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from headcount.core.errors import BadInput
from headcount.tasks.expressions import in_numpy as expr_numpy
from headcount.tasks.expressions.tree import parse_expr
from headcount.tasks.retrieval import GeneralizedRetrieval
from headcount.tasks.serial import parse_task
from headcount.tasks.task import Task


def check_value(task: Task) -> None:
    """Check shape and type of the value, free batch axes, an unchanged input, and that other shapes are rejected."""
    X = task.sample(6, seed=1)
    before = X.clone()
    y = task.value(X)
    assert torch.equal(X, before)
    assert y.shape == (6, task.out_dim)
    assert y.dtype == torch.float64
    assert y.isfinite().all()
    assert task.value(X[0]).shape == (task.out_dim,)
    torch.testing.assert_close(task.value(X[0]), y[0], rtol=1e-12, atol=1e-12)
    folded = task.value(X.reshape(2, 1, 3, task.length, task.dim))
    assert folded.shape == (2, 1, 3, task.out_dim)
    torch.testing.assert_close(folded.reshape(6, -1), y, rtol=1e-12, atol=1e-12)
    single = task.value(X.float())
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), y, rtol=1e-3, atol=1e-3)
    refuses(lambda: task.value(torch.zeros(2, task.length + 1, task.dim)), "takes X")
    refuses(lambda: task.value(torch.zeros(2, task.length, task.dim + 1)), "takes X")
    refuses(lambda: task.value(torch.zeros(task.dim)), "takes X")
    refuses(lambda: task.value(torch.zeros(2, task.length, task.dim, dtype=torch.int64)), "floating-point")


def check_sample(task: Task) -> None:
    """Equal seeds and streams give equal inputs, others differ; every token lies in the box, all in the support."""
    X = task.sample(50, seed=3)
    assert X.shape == (50, task.length, task.dim)
    assert X.dtype == torch.float64
    assert torch.equal(X, task.sample(50, seed=3))
    assert not torch.equal(X, task.sample(50, seed=4))
    assert not torch.equal(X, task.sample(50, seed=3, stream="other"))
    assert torch.equal(X.float(), task.sample(50, seed=3, dtype=torch.float32))
    assert len({tuple(x.flatten().tolist()) for x in X}) == 50
    if task.box is not None:
        low, high = (X.new_tensor(corner) for corner in task.box)
        assert low.shape == high.shape == (task.dim,)
        assert ((low <= X) & (high >= X)).all()
        assert task.outside(X + 1 + high - low)
    assert task.outside(X) == ""
    refuses(lambda: task.sample(0), "count")
    refuses(lambda: task.sample(1, seed=-1), "seed")


def check_serial(task: Task) -> None:
    """Check that JSON gives the same task again, and that any other key or number is rejected or gives another task."""
    data = json.loads(json.dumps(task.data(), allow_nan=False))
    again = parse_task(data)
    assert type(again).__name__ in {c.__name__ for c in type(task).__mro__}
    assert again.hash() == task.hash()
    for attribute in ("name", "length", "dim", "out_dim", "intrinsic", "box", "law"):
        assert getattr(again, attribute) == getattr(task, attribute)
    X = task.sample(8, seed=5)
    assert torch.equal(again.sample(8, seed=5), X)
    assert torch.equal(again.value(X), task.value(X))
    refuses(lambda: parse_task({**data, "lenght": 3}), "unknown key")
    for key in data:
        refuses(lambda key=key: parse_task({k: v for k, v in data.items() if k != key}), key)
    places = list(numbers(data))
    for path in places[:: max(1, len(places) // 40)]:
        other = copy.deepcopy(data)
        *way, last = path
        owner = other
        for step in way:
            owner = owner[step]
        old = owner[last]
        owner[last] = old + 1 if isinstance(old, int) else float(np.nextafter(old, np.inf))
        try:
            changed = parse_task(other)
        except BadInput:
            continue
        assert changed.hash() != task.hash(), path


def check_plain_loop(task: GeneralizedRetrieval) -> None:
    """The value is F0 of the minima, by loops over what the JSON states, in NumPy."""
    data = json.loads(json.dumps(task.data()))
    f, F0 = [parse_expr(g) for g in data["f"]], parse_expr(data["F0"])
    X = task.sample(10, seed=7)
    for x, y in zip(X.numpy(), task.value(X).numpy(), strict=True):
        z = [min(float(expr_numpy.evaluate(g, x[t])[0]) for t in s) for g, s in zip(f, data["S"], strict=True)]
        np.testing.assert_allclose(y, expr_numpy.evaluate(F0, np.array(z)), rtol=1e-11, atol=1e-11)


def check_positions(task: GeneralizedRetrieval) -> None:
    """Every retrieved position belongs to S_i and attains the minimum."""
    X = task.sample(10, seed=7)
    values, z, positions = task.tokens(X), task.features(X), task.positions(X)
    assert values.shape == (10, len(task.f), task.length)
    assert z.shape == positions.shape == (10, len(task.f))
    for i, s in enumerate(task.data()["S"]):
        assert set(positions[:, i].tolist()) <= set(s)
        assert torch.equal(z[:, i], values[:, i].gather(1, positions[:, i : i + 1])[:, 0])
        assert (values[:, i, s] >= z[:, i : i + 1]).all()


def check_gradient(task: GeneralizedRetrieval) -> None:
    """The gradient is 0 away from the retrieved positions, and the difference quotient at them."""
    X, h, compared = task.sample(4, seed=9), 1e-6, 0
    gradient, positions = task.gradient(X), task.positions(X)
    assert gradient.shape == (4, task.out_dim, task.length, task.dim)
    active = torch.zeros(4, task.length, dtype=torch.bool).scatter_(1, positions, True)
    assert (gradient.transpose(1, 2)[~active] == 0).all()
    for n, t in active.nonzero().tolist():
        for k in range(task.dim):
            step = torch.zeros_like(X[n])
            step[t, k] = h
            if not all(torch.equal(task.positions(X[n] + e), positions[n]) for e in (step, -step)):
                continue  # another token takes over: a kink
            slope = (task.value(X[n] + step) - task.value(X[n] - step)) / (2 * h)
            torch.testing.assert_close(gradient[n, :, t, k], slope, rtol=1e-5, atol=1e-7)
            compared += 1
    assert compared > 0


def check_order_of_tokens(task: Task) -> None:
    """The order of the tokens matters where the task says that it does, and nowhere else."""
    X = task.sample(10, seed=11)
    random = torch.Generator().manual_seed(0)
    orders = [torch.randperm(task.length, generator=random) for _ in range(5)]
    kept = [torch.allclose(task.value(X[:, order]), task.value(X), rtol=1e-12, atol=1e-12) for order in orders]
    assert task.positional == (not all(kept))


def check_intrinsic(task: Task, expected: int | None) -> None:
    """Check that D is the one that the family promises."""
    assert task.intrinsic == expected


EVERY: list[Callable[[Any], None]] = [check_value, check_sample, check_serial, check_order_of_tokens]
RETRIEVAL = [check_plain_loop, check_positions, check_gradient]


def conforms(task: Task, intrinsic: int | None) -> None:
    """Run the whole suite."""
    for check in EVERY:
        check(task)
    check_intrinsic(task, intrinsic)
    if isinstance(task, GeneralizedRetrieval):
        for check in RETRIEVAL:
            check(task)


def refuses(action: Callable[[], Any], word: str) -> None:
    """Check that the action is rejected with one line that contains the word."""
    line = "nothing"
    try:
        action()
    except BadInput as error:
        line = str(error)
    assert word in line
    assert "\n" not in line


def numbers(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Return the paths of all numbers in JSON data."""
    if isinstance(value, dict | list):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from numbers(part, (*path, key))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield path
