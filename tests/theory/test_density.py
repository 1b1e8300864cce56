"""Theorem 1: the approximant against a twin that sorts, its bounds against their sabotaged twins, its verb."""

from __future__ import annotations

import itertools
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest

import headcount as hc
from headcount.api.proof_views import density_table
from headcount.cli.main import main
from headcount.render.bounds import save_errors
from headcount.theory.bounds.related_work import density_primitives
from headcount.theory.density.approximant import (
    NAMED,
    TOKEN_ROUNDING,
    Approximant,
    evaluate,
    selector_bound,
    selector_constant,
    selector_peak,
)
from headcount.theory.density.measured import hardest, measure

SIZES = [(4, 1), (4, 3), (8, 1), (8, 2), (12, 1), (12, 2)]


def inputs(length: int, dim: int, count: int = 20) -> np.ndarray:
    """Return random sequences, sequences with many ties, corners of the cube, and hard ones."""
    rng = np.random.default_rng(length + dim)
    return np.concatenate(
        [
            rng.random((count, length, dim)),
            rng.integers(0, 4, (count, length, dim)) / 3,
            rng.integers(0, 2, (count, length, dim)) * 1.0,
            hardest(length, dim, 50.0, count),
        ]
    )


def recovered_by_sorting(x: np.ndarray, q: float, more: int = 0) -> list[float]:
    """Return one coordinate of one sequence as in the paper: v and w by sorting, two weights, their mean."""
    m = len(x) // 4 + more
    v, w = sorted(x)[-m], sorted(x)[m - 1]
    found = []
    for value in x:
        Y, Z = min(value, v), max(value, w)
        if q == math.inf:
            found.append(Z if value > v else Y)
        else:
            one, two = math.exp(q * (Z - w) ** 2), math.exp(q * (Y - v) ** 2)
            found.append((one * Z + two * Y) / (one + two))
    return found


@pytest.mark.parametrize(("length", "dim"), SIZES)
def test_features_are_the_minima_of_the_definition(length: int, dim: int) -> None:
    near = Approximant(NAMED["mean"].F, length=length, dim=dim)
    assert near.intrinsic == density_primitives(length, dim).value == 2 * dim * math.comb(length, length // 4)
    X = inputs(length, dim, 2)
    sets = list(itertools.combinations(range(length), length // 4))
    for x, z in zip(X, near.features(X), strict=True):
        rows = [[f(x[t, j]) for t in S] for f in (float, lambda a: 1 - a) for j in range(dim) for S in sets]
        assert len(z) == near.intrinsic
        assert z.tolist() == [min(row) for row in rows]


@pytest.mark.parametrize("q", [0.3, 10.0, 300.0, math.inf])
@pytest.mark.parametrize(("length", "dim"), SIZES)
def test_tokens_are_recovered_as_by_sorting(length: int, dim: int, q: float) -> None:
    near, X = Approximant(NAMED["wave"].F, length=length, dim=dim, q=q), inputs(length, dim)
    z = near.features(X)
    expected = np.array([[recovered_by_sorting(x[:, j], q) for j in range(dim)] for x in X]).swapaxes(1, 2)
    np.testing.assert_allclose(near.recover(z), expected, rtol=0, atol=1e-14)
    np.testing.assert_array_equal(near.recovered(X), near.recover(z))
    np.testing.assert_allclose(near.value(X), NAMED["wave"].F(expected), rtol=0, atol=1e-12)
    assert near.value(X[0]) == pytest.approx(near.F0(z)[0], abs=1e-14)  # without an axis for many sequences
    if q == math.inf or length == 4:
        assert np.abs(near.recover(z) - X).max() <= TOKEN_ROUNDING


def test_the_comparison_can_fail() -> None:
    """Order statistics off by one, and primitives in another order, are detected."""
    near, X = Approximant(NAMED["mean"].F, length=8, q=10.0), inputs(8, 1)
    other = np.array([recovered_by_sorting(x[:, 0], 10.0, more=1) for x in X])[..., None]
    assert np.abs(near.recovered(X) - other).max() > 0.05
    assert np.abs(near.recover(near.features(X)[:, ::-1]) - near.recovered(X)).max() > 0.1


def test_the_constant_is_the_largest_value() -> None:
    """The sup of the selector's error over the distance δ of a token from v and the gap v − w, by search."""
    delta, gap = np.meshgrid(np.linspace(0, 4, 4001), np.linspace(0, 2, 201))
    error = delta / (1 + np.exp(np.minimum((delta + gap) ** 2, 700.0)))
    c = selector_constant()
    assert error.max() <= c
    assert error.max() > c * (1 - 1e-6)
    assert gap.flat[error.argmax()] == 0
    assert delta.flat[error.argmax()] == pytest.approx(math.sqrt(float(selector_peak()[0])), abs=1e-3)
    assert c == pytest.approx(0.277858884486, abs=1e-11)


@pytest.mark.parametrize("q", [0.1, 0.7, 0.74, 3.0, 100.0, 1e6, 1e12])
@pytest.mark.parametrize("length", [8, 12])
def test_the_token_bound_holds_and_a_smaller_one_does_not(length: int, q: float) -> None:
    near = Approximant(NAMED["mean"].F, length=length, dim=2, q=q)
    X = np.concatenate([inputs(length, 2), hardest(length, 2, q, 200)])
    worst = np.abs(near.recovered(X) - X).max()
    assert worst <= near.token_bound + TOKEN_ROUNDING
    assert worst > 0.9999 * near.token_bound - TOKEN_ROUNDING  # a constant of 0.2778 would be violated
    assert near.token_bound <= selector_constant() / math.sqrt(q) * (1 + 1e-15)
    if q < 0.7:
        assert near.token_bound == pytest.approx(1 / (1 + math.exp(q)))


@pytest.mark.parametrize("name", NAMED)
@pytest.mark.parametrize("length", [4, 8, 12])
def test_the_bound_of_f_holds(name: str, length: int) -> None:
    found = measure(name, length=length, dim=2, q=(1.0, 50.0, 5000.0), samples=200)
    assert found.exact <= TOKEN_ROUNDING
    for row in found.rows:
        assert row.F_proved == selector_bound(length, row.q, NAMED[name].lipschitz)
        assert max(row.F_hardest, row.F_uniform) <= row.F_proved + 1e-12
        if length == 4:
            assert row.proved == row.hardest == row.F_hardest == row.F_uniform == 0
        elif name == "max-minus-min" and row.q > 4:  # its constant, 2, is sharp
            assert row.F_hardest > 0.999 * row.F_proved
        elif name == "median":  # the middle half is always exact
            assert row.hardest > 0
            assert row.F_hardest == row.F_uniform == 0


@pytest.mark.parametrize("name", ["max-minus-min", "mean", "wave"])
def test_a_lipschitz_constant_that_is_too_small_is_rejected(name: str) -> None:
    with pytest.raises(hc.BadInput, match="at least"):
        measure(name, lipschitz=0.2 * NAMED[name].lipschitz, samples=500)
    assert measure(name, lipschitz=3 * NAMED[name].lipschitz, samples=50).data()["status"]["F_proved"] != "proved"


def test_without_a_lipschitz_constant_nothing_is_proved_about_f() -> None:
    def mean(X: np.ndarray) -> np.ndarray:  # the name of a built-in function proves nothing
        return np.sqrt(X.mean((1, 2)))[:, None]

    found = measure(mean, q=[100], samples=50)
    assert found.rows[0].F_proved is None
    assert "F_proved" not in found.data()["status"]
    assert found.data()["status"]["proved"] == "proved"
    assert density_table(found).rows[0][-1] == "–"
    assert found == measure(mean, q=[100], samples=50)
    assert found.rows[0].uniform != measure(mean, q=[100], samples=50, seed=1).rows[0].uniform


def test_memory_does_not_grow_with_the_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    X = inputs(8, 2)
    whole = Approximant(NAMED["mean"].F, length=8, dim=2, q=9.0).recovered(X)
    monkeypatch.setattr(
        "headcount.theory.density.approximant.MAX_ARRAY_NUMBERS", 4 * 2 * 2 * 56 * 3
    )  # three sequences at a time
    np.testing.assert_array_equal(Approximant(NAMED["mean"].F, length=8, dim=2, q=9.0).recovered(X), whole)


@pytest.mark.parametrize(
    "change",
    [{"length": 16}, {"length": 8.0}, {"dim": 0}, {"dim": True}, {"q": 0.0}, {"q": math.nan}, {"dim": 10**9}],
)
def test_bad_sizes(change: dict) -> None:
    with pytest.raises(hc.BadInput):
        Approximant(NAMED["mean"].F, **{"length": 8, "dim": 1, "q": 1.0, **change})


def test_bad_arrays_and_functions() -> None:
    near = Approximant(NAMED["mean"].F, length=8)
    for X in (np.zeros((7, 1)), np.zeros((8, 2)), np.full((8, 1), 1.5), np.full((8, 1), np.nan)):
        with pytest.raises(hc.BadInput, match=r"\[0, 1\]"):
            near.features(X)
    with pytest.raises(hc.BadInput, match="56"):
        near.recover(np.zeros(55))
    with pytest.raises(hc.BadInput, match="NaN"):
        evaluate(lambda X: np.log(X.min((-2, -1)) - 1), np.zeros((2, 8, 1)))

    def spoils(X: np.ndarray) -> np.ndarray:
        X[:] = 0
        return X[:, 0, 0]

    X = np.ones((2, 8, 1))
    evaluate(spoils, X)
    assert X.all()  # F worked on a copy


OWN = """
import numpy as np
def fine(X): return X[:, 0, 0] * X[:, -1, 0]
def scalar(X): return X.max()
def tokens(X): return X[:, :, 0]
def nan(X): return X[:, 0, 0] * np.nan
def text(X): return "much"
def fails(X): return X[:, 99, 0]
number = 3
"""

BAD: dict[str, tuple[list[str], str]] = {
    "T = 16": (["--length", "16"], "4, 8 or 12, not 16"),
    "T = 6": (["-T", "6"], "4, 8 or 12, not 6"),
    "half a T": (["-T", "8.5"], "whole number"),
    "no d": (["-d", "0"], "dim"),
    "D above memory": (["-d", "100000000"], "D = .*5,600,000,000.*memory.*at most"),
    "samples above memory": (["--samples", "1000000000"], "samples.*from 1 to"),
    "no samples": (["--samples", "0"], "samples"),
    "seed": (["--seed", "-1"], "seed"),
    "q = 0": (["--q", "10,0"], "above 0"),
    "q negative": (["--q", "-1"], "q"),
    "q nan": (["--q", "nan"], "above 0.*nan"),
    "q infinite": (["--q", "1e999"], "finite"),
    "q text": (["--q", "sharp"], "sharp"),
    "q empty": (["--q", "10,,3"], "10,,3"),
    "lipschitz": (["--lipschitz", "nan"], "Lipschitz"),
    "lipschitz refuted": (["--lipschitz", "0.1"], "at least"),
    "unknown": (["maen"], "did you mean 'mean'"),
    "no name": (["own.py"], "FILE.py:NAME"),
    "no file": (["none.py:F"], "none.py"),
    "no such function": (["own.py:fin"], "did you mean 'fine'"),
    "not a function": (["own.py:number"], "number"),
    "broken file": (["broken.py:F"], "broken.py.*SyntaxError"),
    "leaving file": (["leaves.py:F"], "SystemExit"),
    "a scalar": (["own.py:scalar"], r"to \[\] instead of \[2000\]"),
    "a number a token": (["own.py:tokens"], r"\[2000, 8\] instead"),
    "NaN": (["own.py:nan"], "NaN"),
    "text": (["own.py:text"], "ValueError"),
    "failing": (["own.py:fails"], "IndexError"),
    "picture of an unknown kind": (["--out", "a.gif"], "png"),
    "picture is a folder": (["--out", "folder.png"], "folder"),
}


def call(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as caught:
        main(["density", *args])
    captured = capsys.readouterr()
    return int(caught.value.code or 0), captured.out, captured.err


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "broken.py").write_text("def F(X:\n")
    (tmp_path / "leaves.py").write_text("raise SystemExit(0)")
    (tmp_path / "folder.png").mkdir()
    return tmp_path


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line(here: Path, capsys: pytest.CaptureFixture[str], case: str) -> None:
    args, complaint = BAD[case]
    status, out, err = call(capsys, *args)
    assert (status, out) == (2, ""), err
    assert len(err.strip().splitlines()) == 1, err
    assert re.search(complaint, err), err
    assert not list(here.glob("a.*"))


def test_the_verb(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = call(capsys, "own.py:fine", "-T", "12", "--q", "10,1000", "--samples", "50", "--out", "a.png")
    assert status == 0, err
    assert "= 2·1·220 = 440 primitives" in out
    assert "measured only" in out
    assert (here / "a.png").read_bytes().startswith(b"\x89PNG")
    status, out, _ = call(capsys, "wave", "-T", "4", "-d", "2", "--samples", "50", "--json", "--out", "b.svg")
    found = json.loads(out)
    assert (status, found["intrinsic"], found["picture"]) == (0, 16, "b.svg")
    assert [row["hardest"] for row in found["rows"]] == [0, 0, 0, 0]
    assert "Every error is 0." in (here / "b.svg").read_text()
    assert "no error at all" in call(capsys, "mean", "-T", "4", "--samples", "50")[1]


def test_the_picture_is_deterministic(tmp_path: Path) -> None:
    figure = measure("median", q=[20], samples=50).figure()  # one q, and errors that are 0
    save_errors(figure, tmp_path / "a.svg")
    save_errors(figure, tmp_path / "b.svg")
    text = (tmp_path / "a.svg").read_text()
    assert text == (tmp_path / "b.svg").read_text()
    assert all(series["name"].split(";")[0] in text for series in figure["series"])
