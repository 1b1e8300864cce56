"""What the advisor takes and what it refuses, each refusal in one line that says what to do."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from headcount.advisor.data import material
from headcount.core.errors import BadInput


def good(samples: int = 60, length: int = 5, dim: int = 2):
    rng = np.random.default_rng(0)
    return rng.standard_normal((samples, length, dim)), rng.standard_normal(samples)


def changed(array, place, value):
    array = array.copy()
    array[place] = value
    return array


def hidden_all(samples: int, length: int):
    mask = np.ones((samples, length), bool)
    mask[3] = False
    return mask


X, Y = good()
BAD = {
    "nan in X": (lambda: material(changed(X, (3, 1, 0), np.nan), Y), "X holds nan at sample 3, position 1, feature 0"),
    "infinity in y": (lambda: material(X, changed(Y, 4, np.inf)), "y holds inf at sample 4"),
    "nan among labels": (lambda: material(X, changed(np.round(Y), 4, np.nan), kind="classification"), "NaN"),
    "constant y": (lambda: material(X, np.ones(60)), "constant"),
    "one class": (lambda: material(X, ["a"] * 60), "constant"),
    "one sample": (lambda: material(X[:1], Y[:1]), "n_samples = 1.*10 or more"),
    "few samples": (lambda: material(X[:7], Y[:7]), "7 samples are too few: give 10"),
    "length 1": (lambda: material(X[:, :1], Y), "length 1.*2 or more"),
    "length 1 by mask": (lambda: material(X, Y, np.arange(5)[None] < np.ones((60, 1))), "length 1"),
    "strings in X": (lambda: material(X.astype(str), Y), "X holds entries of type"),
    "strings for numbers": (lambda: material(X, Y.astype(str), kind="regression"), "y holds text: give numbers"),
    "mask that hides all": (lambda: material(X, Y, hidden_all(60, 5)), "no real token in sample 3"),
    "classes all distinct": (lambda: material(X, [f"c{n}" for n in range(60)]), "60 classes for 60 samples"),
    "X with one axis": (
        lambda: material(X[:, 0, 0], Y),
        r"X must be X\[samples, length, dim\], or X\[samples, length\]",
    ),
    "lengths of X and y": (lambda: material(X, Y[:-1]), "X has 60 samples but y has 59"),
    "no array": (lambda: material(3, Y), "X must be an array"),
    "unknown kind": (lambda: material(X, Y, kind="ranking"), "kind must be"),
    "vectors as classes": (lambda: material(X, np.ones((60, 2)), kind="classification"), "one label per sequence"),
}


@pytest.mark.parametrize("name", list(BAD))
def test_bad_data_get_one_line(name):
    ask, text = BAD[name]
    with pytest.raises(BadInput, match=text) as caught:
        ask()
    assert "\n" not in str(caught.value)


def test_tensors_of_every_precision_and_with_gradients_are_numbers():
    """As a training loop has them at hand."""
    wanted = material(X, Y).task
    for dtype, apart in ((torch.float64, 1e-12), (torch.float32, 1e-6), (torch.bfloat16, 0.05)):
        inputs, targets = (torch.tensor(a, dtype=dtype, requires_grad=True) for a in (X, Y))
        found = material(inputs, targets).task
        assert np.allclose(found.X, wanted.X, atol=apart, rtol=apart)
        assert np.allclose(found.y, wanted.y, atol=apart, rtol=apart)


def test_good_data_pass_and_validation_is_never_trained_on():
    stuff = material(X, Y)
    assert (stuff.train_size, stuff.validation_size) == (48, 60)  # five folds: all validate, 12 at a time
    rows = [tuple(np.round(x.numpy().ravel(), 5)) for part in (stuff.data.train, stuff.data.validation) for x in part.X]
    assert len(set(rows)) == 60
    again = material(X, Y)
    assert np.array_equal(again.data.train.X, stuff.data.train.X)
    assert not np.array_equal(material(X, Y, seed=1).data.train.X, stuff.data.train.X)


@pytest.mark.parametrize("samples", [60, 1000])
def test_inputs_are_scaled_and_padding_stays_zero(samples):
    """By what is trained on where a part is held back, by all sequences in folds."""
    X, Y = good(samples)
    mask = np.ones((samples, 5), bool)
    mask[:, 3:] = False
    stuff = material(1000.0 + 50.0 * X, Y, mask)
    train = stuff.sequences if samples < 1000 else stuff.data.train
    tokens = train.X[train.mask].numpy()
    assert np.allclose(tokens.mean(0), 0, atol=1e-4)
    assert np.allclose(tokens.std(0), 1, atol=1e-4)
    assert not train.X[~train.mask].any()
    assert np.allclose(stuff.inputs(1000.0 + 50.0 * X, mask)[:, :3].std(), 1, atol=0.2)


@pytest.mark.parametrize(
    ("y", "kind", "classes"),
    [
        (np.arange(60) % 3, "auto", (0, 1, 2)),
        ((np.arange(60) % 3).astype(float), "auto", (0.0, 1.0, 2.0)),
        (["red", "blue"] * 30, "auto", ("blue", "red")),
        (np.arange(60) % 2 == 0, "auto", (False, True)),
        (np.arange(60), "auto", None),
        (np.arange(60) % 3, "regression", None),
        (Y, "auto", None),
        (np.stack([Y, Y**2], 1), "auto", None),
    ],
)
def test_which_targets_are_classes(y, kind, classes):
    stuff = material(X, y, kind=kind)
    assert stuff.classes == classes
    assert stuff.task.out_dim == (len(classes) if classes else np.asarray(y).reshape(60, -1).shape[1])


def test_a_split_of_few_samples_varies_in_both_parts():
    y = np.r_[np.zeros(9), 1.0, np.zeros(3)]
    y[11] = 1.0
    stuff = material(good(13)[0], y, kind="regression")
    assert len(set(stuff.data.validation.y[:, 0].tolist())) == 2


@pytest.mark.parametrize("unit", [1e-300, 1e-13, 1e6, 1e300, 1e307])
def test_the_units_of_the_data_do_not_matter(unit):
    plain, inputs, targets = material(X, Y), material(X * unit, Y), material(X, Y * unit)
    for part in ("train", "validation"):
        a, b, c = (getattr(one.data, part) for one in (plain, inputs, targets))
        assert np.allclose(a.X, b.X, atol=1e-5)
        assert np.allclose(a.y, c.y, atol=1e-5)
    assert np.allclose(targets.data.std / unit, plain.data.std)
    assert np.allclose(inputs.inputs(X * unit), plain.inputs(X), atol=1e-5)


def test_a_constant_feature_stays_constant_whatever_its_size():
    for size in (0.0, 0.1, 1e-300, 1e300):
        stuff = material(np.concatenate([X, np.full_like(X[..., :1], size)], 2), Y)
        assert float(stuff.data.train.X[..., 2].abs().max()) < 1e-12
