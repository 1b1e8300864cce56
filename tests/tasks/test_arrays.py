"""The user's own arrays: what the task offers, what it refuses, and with which line."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from headcount.core.errors import BadInput
from headcount.tasks.arrays.task import ArrayTask
from headcount.tasks.task import Task

SAMPLES, LENGTH, DIM = 12, 5, 3


def inputs(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-50, 50, (SAMPLES, LENGTH, DIM)).astype(float)


def targets(X: np.ndarray) -> np.ndarray:
    return X.max(1).sum(-1)


def some_mask() -> np.ndarray:
    return np.arange(LENGTH) < np.arange(SAMPLES)[:, None] % LENGTH + 1


def refused(pattern: str, *args, **kwargs) -> None:
    """Check that the arrays are rejected with one line that matches."""
    with pytest.raises(BadInput, match=pattern) as caught:
        ArrayTask.from_arrays(*args, **kwargs)
    assert "\n" not in str(caught.value)


def test_an_array_task_has_task_attributes_but_is_not_a_task():
    X = inputs()
    task = ArrayTask.from_arrays(X, np.stack([targets(X), -targets(X)], 1), name="mine")
    assert (task.name, task.samples, task.length, task.dim, task.out_dim) == ("mine", SAMPLES, LENGTH, DIM, 2)
    assert task.intrinsic is None
    assert not isinstance(task, Task)
    assert not hasattr(task, "value")
    assert "d=3, T=5, out=2" in repr(task)


@pytest.mark.parametrize("seed", [0, 1, 7])
@pytest.mark.parametrize("masked", [False, True])
def test_the_split_is_disjoint_and_complete_and_keeps_rows_together(seed, masked):
    X = inputs()
    X[:, 0, 0] = np.arange(SAMPLES)  # names the sample
    mask = some_mask() if masked else None
    task = ArrayTask.from_arrays(X, 10.0 * np.arange(SAMPLES), mask)
    train, validation = task.split(seed, 0.25)
    assert (len(train.X), len(validation.X)) == (9, 3)
    names = torch.cat([train.X[:, 0, 0], validation.X[:, 0, 0]])
    assert sorted(names.tolist()) == list(range(SAMPLES))
    for part in (train, validation):
        assert part.X.dtype == part.y.dtype == torch.float64
        assert torch.equal(part.y[:, 0], 10.0 * part.X[:, 0, 0])
        rows = part.X[:, 0, 0].long()
        if mask is None:
            assert part.mask is None
            assert torch.equal(part.X, torch.from_numpy(X)[rows])
        else:
            assert torch.equal(part.mask, torch.from_numpy(mask)[rows])
            assert torch.equal(part.X, torch.from_numpy(X * mask[..., None])[rows])


def test_split_follows_the_seed():
    task = ArrayTask.from_arrays(inputs(), np.arange(SAMPLES))
    assert torch.equal(task.split(3)[1].y, task.split(3)[1].y)
    assert any(not torch.equal(task.split(3)[1].y, task.split(s)[1].y) for s in range(4, 8))
    assert len(task.split(0, 0.001)[1].y) == 1
    assert len(task.split(0, 0.999)[0].y) == 1
    assert task.split(0, dtype=torch.float32)[0].X.dtype == torch.float32


@pytest.mark.parametrize("fraction", [0, 1, -0.1, 1.5, float("nan")])
def test_split_rejects_an_invalid_fraction(fraction):
    with pytest.raises(BadInput, match="fraction must be above 0 and below 1"):
        ArrayTask.from_arrays(inputs(), np.arange(SAMPLES)).split(0, fraction)


def test_split_rejects_a_negative_seed():
    with pytest.raises(BadInput, match="seed"):
        ArrayTask.from_arrays(inputs(), np.arange(SAMPLES)).split(-1)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int16", "int64", ">f8", "float16", "bool"])
def test_the_hash_sees_numbers_not_types(dtype):
    X = (inputs() > 0).astype(float) if dtype == "bool" else inputs()
    plain = ArrayTask.from_arrays(X, targets(X))
    other = ArrayTask.from_arrays(X.astype(dtype), targets(X))
    assert other.X.dtype == np.float64
    assert plain.hash() == other.hash()
    assert ArrayTask.from_arrays(torch.from_numpy(X), targets(X).tolist()).hash() == plain.hash()


def test_the_hash_sees_every_array():
    X, y = inputs(), targets(inputs())
    task = ArrayTask.from_arrays(X, y)
    X2, y2 = X.copy(), y.copy()
    X2[3, 2, 1] += 1e-9
    y2[5] += 1e-9
    twins = [
        ArrayTask.from_arrays(X2, y),
        ArrayTask.from_arrays(X, y2),
        ArrayTask.from_arrays(X, y, some_mask()),
        ArrayTask.from_arrays(X.reshape(SAMPLES, DIM, LENGTH), y),
    ]
    assert len({t.hash() for t in (task, *twins)}) == 5
    zeros = ArrayTask.from_arrays(np.zeros_like(X), y)
    assert zeros.hash() != ArrayTask.from_arrays(np.zeros_like(X), y, some_mask()).hash()
    assert zeros.hash() == ArrayTask.from_arrays(np.full_like(X, -0.0), y).hash()
    assert task.hash() == ArrayTask.from_arrays(X, y, np.ones((SAMPLES, LENGTH)), name="other").hash()


def test_padding_does_not_count():
    X, mask = inputs(), some_mask()
    spoilt = X.copy()
    spoilt[~mask] = np.nan
    a, b = (
        ArrayTask.from_arrays(X, np.arange(SAMPLES), mask),
        ArrayTask.from_arrays(spoilt, np.arange(SAMPLES), mask),
    )
    assert a.hash() == b.hash()
    assert not a.X[~mask].any()
    assert np.array_equal(a.mask, mask)


def test_the_task_keeps_its_own_numbers():
    X, y = inputs(), np.arange(SAMPLES, dtype=float)
    task = ArrayTask.from_arrays(X, y)
    before = task.hash()
    X[:], y[:] = 0.0, 0.0
    assert task.hash() == before
    with pytest.raises(ValueError, match="read-only"):
        task.X[0, 0, 0] = 1.0


@pytest.mark.parametrize(
    ("shape", "pattern"),
    [
        ((SAMPLES,), r"or X\[samples, length\] with one number or id per token, not of shape \[12\]"),
        ((SAMPLES, 4, 3, 2), r"not of shape \[12, 4, 3, 2\]"),
        ((SAMPLES, 0, 3), r"X is empty \(shape \[12, 0, 3\]\)"),
        ((SAMPLES, 4, 0), "X is empty"),
        ((0, 4, 3), "X has 0 samples but y has 12"),
        ((SAMPLES + 1, 4, 3), "X has 13 samples but y has 12"),
    ],
)
def test_wrong_shapes_of_X(shape, pattern):
    refused(pattern, np.ones(shape), np.arange(SAMPLES))


@pytest.mark.parametrize(
    ("shape", "pattern"),
    [
        ((), r"y must be y\[samples\] or y\[samples, out\], not of shape \[\]"),
        ((SAMPLES, 1, 1), "y must be"),
        ((SAMPLES, 0), "y is empty"),
        ((SAMPLES - 1,), "X has 12 samples but y has 11"),
    ],
)
def test_wrong_shapes_of_y(shape, pattern):
    refused(pattern, inputs(), np.ones(shape))


def test_empty_arrays_are_rejected():
    refused("X is empty", np.ones((0, 4, 3)), np.ones(0))


def test_too_few_samples():
    refused("9 samples are too few: give 10", np.ones((9, 4, 3)), np.ones(9))
    assert ArrayTask.from_arrays(np.ones((10, 4, 3)), np.ones(10)).samples == 10


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_nonfinite_numbers_are_rejected(bad):
    X, y = inputs(), np.ones((SAMPLES, 2))
    X[4, 2, 1] = X[7, 0, 0] = bad
    refused(rf"X holds {bad} at sample 4, position 2, feature 1 \(from 0; 2 in all\)", X, y)
    y[5, 1] = bad
    refused(f"y holds {bad} at sample 5, component 1", inputs(), y)


@pytest.mark.parametrize(
    ("bad", "pattern"),
    [
        (np.array([["a"] * 5] * 12), "entries of type <U1"),
        (np.array([object()] * 12), "Python objects"),
        (np.ones(12, dtype=complex), "complex128"),
        (np.zeros(12, dtype="datetime64[s]"), "datetime64"),
        (np.zeros(12, dtype=[("a", float)]), "entries of type"),
        ([[1.0], [1.0, 2.0]], "rows differ in length"),
        (None, "Python objects"),
    ],
)
def test_arrays_without_numbers_are_rejected(bad, pattern):
    refused(f"X .*{pattern}", bad, np.arange(SAMPLES))
    refused(f"y .*{pattern}", inputs(), bad)


@pytest.mark.parametrize(
    ("mask", "pattern"),
    [
        (
            np.ones((SAMPLES, LENGTH + 1), bool),
            r"mask must be mask\[samples, length\] = \[12, 5\], not \[12, 6\]",
        ),
        (np.ones(SAMPLES, bool), r"not \[12\]"),
        (np.ones((SAMPLES, LENGTH, DIM), bool), r"not \[12, 5, 3\]"),
        (np.full((SAMPLES, LENGTH), 2), r"only True \(real tokens\) and False"),
        (np.full((SAMPLES, LENGTH), np.nan), r"only True \(real tokens\) and False"),
        (np.full((SAMPLES, LENGTH), "x"), "mask holds entries of type"),
        (np.arange(SAMPLES)[:, None] != np.full(LENGTH, 8), "no real token in sample 8"),
    ],
)
def test_wrong_masks(mask, pattern):
    refused(pattern, inputs(), np.arange(SAMPLES), mask)


def test_a_mask_of_ones_and_zeros():
    a = ArrayTask.from_arrays(inputs(), np.arange(SAMPLES), some_mask())
    for dtype in (int, float, np.uint8):
        assert ArrayTask.from_arrays(inputs(), np.arange(SAMPLES), some_mask().astype(dtype)).hash() == a.hash()


@pytest.mark.parametrize(
    ("y", "kind", "classes"),
    [
        (np.array(["no", "yes"] * 30), "auto", ("no", "yes")),
        (np.arange(60) % 3, "auto", (0, 1, 2)),
        (np.arange(60) % 3, "regression", None),
        (np.arange(60) % 3, None, None),
        (np.arange(60) % 3 + 0.5, "auto", None),
        (np.arange(60) % 4, "auto", None),  # fewer than 20 samples a value
        (np.arange(60) % 4, "classification", (0, 1, 2, 3)),
        (np.arange(60) % 2 == 0, "auto", (False, True)),
    ],
)
def test_which_targets_become_classes(y, kind, classes):
    X = np.random.default_rng(0).random((60, 4, 2))
    task = ArrayTask.from_arrays(X, y, **({} if kind is None else {"kind": kind}))
    assert task.classes == classes
    assert task.out_dim == (1 if classes is None else len(classes))
    if classes is not None:
        assert np.array(classes)[task.y.argmax(1)].tolist() == y.tolist()


def test_an_unknown_kind_is_rejected():
    X = np.random.default_rng(0).random((60, 4, 2))
    with pytest.raises(BadInput, match="kind must be auto, regression or classification, not 'ranking'"):
        ArrayTask.from_arrays(X, np.arange(60), kind="ranking")
    with pytest.raises(BadInput, match='y holds entries of type <U1: .*or set kind="classification"'):
        ArrayTask.from_arrays(X, np.array(["a", "b"] * 30))
