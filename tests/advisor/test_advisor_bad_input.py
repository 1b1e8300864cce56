"""Every kind of bad data, handed to `advise`: one line that says what is wrong, what is allowed, and what to do."""

from __future__ import annotations

import numpy as np
import pytest

from headcount.advisor.advice import advise
from headcount.advisor.data import from_file
from headcount.core.errors import BadInput

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((60, 5, 2)), RNG.standard_normal(60)
MASK = np.ones((60, 5), bool)


def changed(array, place, value):
    array = array.copy()
    array[place] = value
    return array


CLASSES = {"kind": "classification"}
GIVEN = {
    "NaN in X": (
        (changed(X, (3, 1, 0), np.nan), Y),
        {},
        "X holds nan at sample 3, position 1, feature 0 .*drop or fill",
    ),
    "infinity in X": ((changed(X, (3, 1, 0), np.inf), Y), {}, "X holds inf at sample 3.*drop or fill"),
    "NaN in y": ((X, changed(Y, 4, np.nan)), {}, "y holds nan at sample 4.*drop or fill"),
    "NaN among classes": ((X, changed(np.round(Y), 4, np.nan)), CLASSES, "y holds NaN .* sample 4 .*drop or fill"),
    "constant y": ((X, np.full(60, 0.1)), {}, r"y is constant \(0\.1\).*give a y that differs"),
    "constant whole y": ((X, np.ones(60)), {}, r"y is constant \(1\.0\).*give a y that differs"),
    "constant text": ((X, ["a"] * 60), {}, r"y is constant \(a\).*give a y that differs"),
    "hardly any variety": ((X, np.eye(60)[0]), {"kind": "regression"}, "y hardly varies: more samples"),
    "one sample": ((X[:1], Y[:1]), {}, r"1 sample \(n_samples = 1\) cannot be split: give 10 or more"),
    "seven samples": ((X[:7], Y[:7]), {}, "7 samples are too few: give 10 or more"),
    "lengths of 1": ((X[:, :1], Y), {}, "every sequence has length 1: .*give lengths of 2 or more"),
    "lengths of 1 by the mask": ((X, Y, np.arange(5) < np.ones((60, 1))), {}, "length 1: .*2 or more"),
    "strings in X": ((X.astype(str), Y), {}, "X holds entries of type <U32: give whole or floating-point numbers"),
    "objects in X": ((X.astype(object), Y), {}, "X holds Python objects: give whole or floating-point numbers"),
    "strings for numbers": (
        (X, Y.astype(str)),
        {"kind": "regression"},
        "y holds text: give numbers, or set kind",
    ),
    "mask that hides all": (
        (X, Y, ~MASK),
        {},
        r"mask has no real token in sample 0 \(from 0\): drop it, or mark a token",
    ),
    "mask that hides one": ((X, Y, changed(MASK, 3, False)), {}, r"no real token in sample 3 \(from 0\): drop it"),
    "mask of another shape": (
        (X, Y, MASK[:, :3]),
        {},
        r"mask must be mask\[samples, length\] = \[60, 5\], not \[60, 3\]",
    ),
    "mask of other numbers": ((X, Y, 2 * MASK), {}, r"mask must hold only True \(real tokens\) and False"),
    "a class a sample": ((X, [f"c{n}" for n in range(60)]), {}, "60 classes for 60 samples: .*two samples per class"),
    "amounts as classes": ((X, Y), CLASSES, "60 classes for 60 samples: .*set kind to regression if y is a quantity"),
    "unequal lengths": ((X, Y[:50]), {}, "X has 60 samples but y has 50: the first axis of both must count samples"),
    "unequal labels": ((X, ["a", "b"] * 25), {}, "X has 60 samples but y has 50 labels: give one label per sample"),
    "no samples": ((X[:0], Y[:0]), {}, r"X is empty \(shape \[0, 5, 2\]\): no axis may have length 0"),
    "no targets": ((X, []), {}, "X has 60 samples but y has 0"),
    "no tokens": ((X[:, :0], Y), {}, r"X is empty \(shape \[60, 0, 2\]\)"),
    "no features": ((X[:, :, :0], Y), {}, r"X is empty \(shape \[60, 5, 0\]\)"),
    "one axis": ((X[:, 0, 0], Y), {}, r"or X\[samples, length\] with one number or id per token, not of shape \[60\]"),
    "four axes": ((X[..., None], Y), {}, r"X must be X\[samples, length, dim\], or .* not of shape \[60, 5, 2, 1\]"),
    "three axes of y": ((X, Y[:, None, None]), {}, r"y must be y\[samples\] or y\[samples, out\], not of shape"),
    "vectors as classes": ((X, np.ones((60, 2))), CLASSES, r"classes must be y\[samples\], one label per sequence"),
    "a number for y": ((X, 3.0), {}, r"y must be an array y\[samples\] or .*, not a single value"),
    "an array without axes": (
        (np.array(3.0), Y),
        {},
        r"X must be an array X\[samples, length, dim\], not a single value",
    ),
    "a generator": ((X, (n for n in range(60))), {}, "y must be an array .*, not generator"),
    "ragged X": (([[[1.0]], [[1.0], [2.0]]] * 30, Y), {}, "X is not an array: its rows differ in length.*pad shorter"),
    "ragged y": ((X, [[1.0], [1.0, 2.0]] * 30), {}, "the rows of y differ in length: give a number, label or vector"),
    "a label is missing": (
        (X, ["a"] * 59 + [None]),
        {},
        "y holds text and, at sample 59 .*None: give a text for every",
    ),
    "an unknown kind": ((X, Y), {"kind": "ranking"}, "kind must be auto, regression or classification, not 'ranking'"),
    "no y": ((X,), {}, "y is missing: give X and y, a file, or a task"),
}


@pytest.mark.parametrize("name", list(GIVEN))
def test_bad_arrays_get_one_line(name):
    arrays, options, text = GIVEN[name]
    with pytest.raises(BadInput, match=text) as caught:
        advise(*arrays, **options, steps=5, heads_max=2, budget=60.0, quiet=True)
    assert "\n" not in str(caught.value)


FILES = {
    "one sample": ({"X": X[:1], "y": Y[:1]}, {}, "1 sample .* cannot be split"),
    "constant": ({"y": np.ones(60)}, {}, "y is constant"),
    "length 1": ({"X": X[:, :1]}, {}, "every sequence has length 1"),
    "hardly any variety": ({"y": np.eye(60)[0]}, {"kind": "regression"}, "y hardly varies"),
    "a class a sample": ({"y": np.arange(60)}, CLASSES, "60 classes for 60 samples"),
    "text for numbers": (
        {"y": np.array(["a", "b"] * 30)},
        {"kind": "regression"},
        "y holds text: give numbers, or set kind",
    ),
    "NaN": ({"y": changed(Y, 2, np.nan)}, {}, "y holds nan at sample 2"),
    "one axis": ({"X": X[:, 0, 0]}, {}, "X must be"),
}


@pytest.mark.parametrize("name", list(FILES))
def test_a_complaint_about_a_file_names_the_file(tmp_path, name):
    arrays, options, text = FILES[name]
    np.savez(tmp_path / "mine.npz", **{"X": X, "y": Y, **arrays})
    with pytest.raises(BadInput, match=rf"mine\.npz: .*{text}") as caught:
        from_file(tmp_path / "mine.npz", **options)
    assert "\n" not in str(caught.value)


def test_the_name_of_good_data_is_that_of_the_file_without_its_ending(tmp_path):
    np.savez(tmp_path / "mine.npz", X=X, y=Y)
    assert from_file(str(tmp_path / "mine.npz")).task.name == "mine"
