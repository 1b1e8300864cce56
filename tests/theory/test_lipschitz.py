"""The bound over all encoders: its numbers against brute force, its reach against sampling, models against both."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flint import arb
from lipschitz_cases import best_layer

import headcount as hc
from headcount.models.files import SavedModel
from headcount.models.transformer.reference import Transformer
from headcount.models.transformer.spec import ModelSpec, Positions
from headcount.tasks.retrieval import GeneralizedRetrieval
from headcount.theory.attack.layer import HeadMap
from headcount.theory.bounds import lipschitz
from headcount.theory.bounds.lipschitz import Alphabet, copies, find_alphabet, least_error, least_reach, least_width
from headcount.theory.bounds.reach import gelu_slope, hard_pair, reach
from headcount.theory.construct.enough_heads import build
from headcount.theory.construct.one_wide_head import build_wide
from headcount.training.loop import saved_model
from results import write_result
from support import Cli


def retrieval(name: str, **parameters: Any) -> GeneralizedRetrieval:
    task = hc.make_task(name, **parameters)
    assert isinstance(task, GeneralizedRetrieval)
    return task


def letters_alone(K: int, T: int) -> Alphabet:
    """Return an alphabet for the brute force: γ = 1, all positions."""
    return Alphabet(((0.0,),) * K, 1.0, 0, T, T, unit=False)


# -- the numbers ---------------------------------------------------------------------------------------------


def test_the_number_of_copies_is_an_integer_as_in_the_theorem():
    for T in range(2, 40):
        for K in range(2, min(T, 6) + 1):
            for h in range(1, K):
                one = letters_alone(K, T)
                assert copies(one, h, "none") == 1 + math.ceil(Fraction(T - K + 1, h))
                assert copies(one, h, "any") == math.ceil(Fraction(math.ceil(Fraction(T, K)), h)) >= 1
                assert copies(letters_alone(K, 2 * T), h, "none") == copies(one, h, "none", 2 * T)
        assert copies(letters_alone(T, T), T - 1, "none") == 2  # K = h + 1: ⌈T/h⌉
    assert copies(letters_alone(3, 2), 1, "none") == 0  # fewer tokens than letters
    assert copies(letters_alone(3, 9), 3, "any") == 0  # as many heads as letters


def test_bounds_round_down_and_vanish_where_nothing_is_proved():
    for gap, other, N in [(0.1, 0.7, 7), (1 / 3, 0.02, 3), (5.0, 1e-9, 41)]:
        assert Fraction(least_error(gap, other, N)) <= (Fraction(gap) - Fraction(other) / N) / 2
        assert Fraction(least_reach(gap, other, N)) <= max(0, (Fraction(gap) - 2 * Fraction(other)) * N)
    assert least_error(0.5, 10.0, 4) == least_error(0.5, 0.0, 0) == least_error(0.5, math.inf, 4) == 0.0
    assert least_reach(0.5, 0.25, 100) == 0.0
    for h, n in [(1, 2), (3, 8)]:
        wanted = least_reach(0.5, 0.01, 64) / ((h * n) ** 2 * 2 * math.sqrt(h * n))
        assert least_width(0.5, 0.01, 64, heads=h, head_dim=n) == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize(
    ("K", "T", "heads", "positions", "n"),
    [
        (2, 4, 1, False, 1),
        (2, 6, 1, False, 2),
        (2, 5, 1, True, 1),
        (3, 5, 2, False, 1),
        (3, 5, 1, False, 2),
        (3, 4, 2, True, 1),
        (4, 6, 2, False, 1),
    ],
)
def test_no_layer_beats_the_bound(K: int, T: int, heads: int, positions: bool, n: int):
    N = copies(letters_alone(K, T), heads, "any" if positions else "none")
    for share in (0.3, 0.7, 0.95):
        found = best_layer(K, T, heads, share * N, positions, seed=7, n=n, rounds=25)
        assert found >= least_error(1.0, share * N, N) - 1e-12


def test_the_bound_is_attained_and_fails_with_one_more_copy():
    """For min + max and one head the bound is exact, so a bound with N + 1 in place of N is beaten."""
    for T in (3, 4, 6):
        found = best_layer(2, T, 1, 0.6 * T, positions=False, seed=1, rounds=80)
        assert found == pytest.approx(least_error(1.0, 0.6 * T, T), abs=2e-3)
        assert found < least_error(1.0, 0.6 * T, T + 1) - 5e-3


# -- letters and γ -------------------------------------------------------------------------------------------

TASKS: list[tuple[str, dict[str, Any]]] = [
    ("quadratic-basins", {"intrinsic": 3}),
    ("quadratic-basins", {"intrinsic": 3, "outer": "product"}),
    ("quadratic-basins", {"intrinsic": 4, "dim": 3, "outer": "vector"}),
    ("sphere-anchors", {"intrinsic": 3}),
    ("sum-of-maxima", {"intrinsic": 4}),
    ("min-plus-max", {}),
]


@pytest.mark.parametrize(("name", "parameters"), TASKS)
def test_the_gap_is_the_change_of_the_target_when_a_letter_is_absent(name: str, parameters: dict[str, Any]):
    task = retrieval(name, length=12, **parameters)
    for heads in range(1, task.intrinsic):
        found = find_alphabet(task, heads)
        letters = torch.tensor([[float(v.mid()) for v in x] for x in found.balls()], dtype=torch.float64)
        words = [[j for j in range(found.size) if j != m] for m in (-1, *range(found.size))]
        whole, *less = [task.value(letters[(w * 12)[:12]][None])[0, found.output] for w in words]
        assert min(abs(float(whole - y)) for y in less) == pytest.approx(found.gap, rel=1e-9)
        assert found.gap > 0
        if task.box is not None:
            assert all(
                a <= v <= b for x in letters.tolist() for a, v, b in zip(task.box[0], x, task.box[1], strict=True)
            )
        if name == "sphere-anchors":
            assert letters.norm(dim=-1).sub(1).abs().max() < 1e-12


def test_searched_letters_are_no_worse_than_minimisers(monkeypatch: pytest.MonkeyPatch):
    task = retrieval("quadratic-basins", intrinsic=3, length=12)
    found = find_alphabet(task, 2).gap
    monkeypatch.setattr(lipschitz, "ROUNDS_PER_CLIMB", 0)
    assert find_alphabet(task, 2).gap <= found / 1.5


def test_d_plus_one_letters_have_no_gap():
    """With D heads nothing can be proved: one of D + 1 letters attains no minimum, so its absence changes nothing."""
    task = retrieval("quadratic-basins", intrinsic=2, length=12)
    rng = np.random.default_rng(0)
    letters = torch.from_numpy(rng.random((500, 3, 2)))
    assert float(lipschitz._gaps(task, letters).max()) == 0.0  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(hc.BadInput, match="fewer heads than D = 2"):
        find_alphabet(task, 2)


def test_only_positions_shared_by_all_index_sets_count():
    halves = retrieval("quadratic-basins", intrinsic=2, length=12, sets="bands", share=0.75)
    shared = len(set(halves.S[0]) & set(halves.S[1]))
    found = find_alphabet(halves, 1)
    assert found.common == shared < 12
    assert copies(found, 1, "none") == 12
    assert copies(found, 1, "any") == -(-shared // 2)
    with pytest.raises(hc.BadInput, match="make the task again with the length"):
        copies(found, 1, "any", 24)
    apart = hc.GeneralizedRetrieval(halves.f, [range(6), range(6, 12)], halves.F0, length=12)
    with pytest.raises(hc.BadInput, match="share 0 positions"):
        find_alphabet(apart, 1)
    with pytest.raises(hc.BadInput, match="the box must lie within"):
        find_alphabet(halves, 1, box=((-9.0, 0.0), (1.0, 1.0)))
    assert find_alphabet(halves, 1, box=((0.0, 0.0), (0.5, 1.0))).gap > 0
    with pytest.raises(hc.BadInput, match="each mark exactly once"):
        find_alphabet(retrieval("sparse-regression", q=2, length=12), 1)
    with pytest.raises(hc.BadInput, match="bare Python function"):
        find_alphabet(hc.GeneralizedRetrieval([lambda x: x[..., :1]] * 2, None, lambda z: z, length=4, dim=1), 1)


# -- the reach of a model ------------------------------------------------------------------------------------

OPTIONS: list[dict[str, Any]] = [
    {},
    {"positions": "additive"},
    {"positions": "gates"},
    {"positions": "concatenated", "class_key": True},
    {"feedforward": "relu2", "beta": "learned"},
    {"feedforward": "relu5", "class_key": True},
    {"out_dim": 3},
]


def random_model(seed: int, length: int, heads: int, **options: Any) -> SavedModel:
    spec = ModelSpec(dim=2, length=length, heads=heads, head_dim=2, hidden=8, **options)
    model = Transformer(spec, seed=seed, dtype=torch.float64)
    rng = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.5).add_(0.3 * torch.randn(parameter.shape, generator=rng, dtype=torch.float64))
    return SavedModel(model, mean=(0.5,) * spec.out_dim, std=tuple(1.0 + k for k in range(spec.out_dim)))


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_model_outputs_change_by_at_most_reach_over_n(options: dict[str, Any]):
    task = retrieval("quadratic-basins", intrinsic=3, length=14)
    for seed, heads in [(0, 1), (1, 2), (2, 2), (3, 1)]:
        alphabet = find_alphabet(task, heads)
        model = random_model(seed, 14, heads, **options)
        R = reach(model, alphabet)
        N = copies(alphabet, heads, "none" if model.transformer.spec.positions == "none" else "any")
        pair = hard_pair(model, alphabet)
        first, second = task.value(pair)[:, alphabet.output].tolist()
        assert abs(first - second) >= alphabet.gap * (1 - 1e-12)
        moved = (model.predict(pair[:1]) - model.predict(pair[1:]))[0].abs()
        assert all(float(a) <= b / N * (1 + 1e-9) for a, b in zip(moved, R, strict=True))


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_the_reach_bounds_changes_on_random_words(options: dict[str, Any]):
    """On random sequences of letters, outputs differ by at most R·max_r |Δo_r|/Δ_r, and not by far less."""
    task = retrieval("quadratic-basins", intrinsic=3, length=14)
    alphabet = find_alphabet(task, 2)
    letters = torch.tensor(alphabet.letters, dtype=torch.float64)
    rng = torch.Generator().manual_seed(0)
    largest = 0.0
    for seed in range(4):
        model = random_model(seed, 14, 2, **options)
        spec = model.transformer.spec
        words = torch.randint(3, (400, 14), generator=rng)
        X, heads = letters[words], HeadMap(model.transformer)
        single = heads._parts(letters[:, None].expand(3, 14, 2))[2]  # pyright: ignore[reportPrivateUsage]
        v = single.transpose(1, 2).reshape(-1, spec.heads * spec.head_dim)  # values of all letters and positions
        if spec.class_key:
            v = torch.cat([v, (heads.class_key or (v, v))[1].reshape(1, -1)])
        sides = v.amax(0) - v.amin(0)
        o, y = heads(X), model.predict(X)
        far = ((o[:200] - o[200:]).abs() / sides).amax(1, keepdim=True)
        apart = far[:, 0] > 1e-6  # words of the same letters have equal outputs
        largest_move = far[apart] * torch.tensor(reach(model, alphabet), dtype=torch.float64)
        ratio = (y[:200] - y[200:]).abs()[apart] / largest_move
        assert float(ratio.max()) <= 1 + 1e-9
        largest = max(largest, float(ratio.max()))
    assert largest > (0.01 if options.get("feedforward") == "relu5" else 0.1)


def test_gelu_slopes_are_enclosed():
    for low, high in [(-3.0, 3.0), (-1.5, -1.3), (0.0, 0.1), (1.0, 9.0), (-9.0, -1.0), (2.0, 2.0)]:
        x = torch.linspace(low, high, 101, dtype=torch.float64, requires_grad=True)
        (slopes,) = torch.autograd.grad(torch.nn.functional.gelu(x).sum(), x)
        found = gelu_slope(arb(low).union(arb(high)))
        bottom, top = float(found.lower()), float(found.upper())
        assert bottom - 1e-12 <= float(slopes.min())
        assert float(slopes.max()) <= top + 1e-12
        assert top - bottom <= float(slopes.max() - slopes.min()) + 1e-2


def test_models_without_a_reach_are_rejected():
    alphabet = find_alphabet(retrieval("quadratic-basins", intrinsic=3, length=8), 2)
    for options, words in [({"depth": 2}, "one layer"), ({"layer_norm": True}, "layer norms")]:
        with pytest.raises(hc.BadInput, match=words):
            reach(random_model(0, 8, 2, **options), alphabet)
    spec = ModelSpec(dim=3, length=8, heads=2)
    with pytest.raises(hc.BadInput, match="tokens of 3 numbers"):
        reach(SavedModel(Transformer(spec)), alphabet)


# -- models and the bound ------------------------------------------------------------------------------------


def test_trained_models_do_not_beat_the_bound():
    """The bound is not vacuous either: for some of them it is above 0."""
    bounds: list[float] = []
    options: list[tuple[int, Positions]] = [(1, "none"), (2, "none"), (1, "gates")]
    for heads, positions in options:
        task = retrieval("quadratic-basins", intrinsic=3, length=48)
        spec = ModelSpec(dim=2, length=48, heads=heads, head_dim=4, hidden=16, positions=positions)
        model = saved_model(task, hc.train(task, spec, hc.TrainSpec(steps=300, warmup=30)))
        alphabet = find_alphabet(task, heads)
        N = copies(alphabet, heads, "none" if positions == "none" else "any")
        bounds.append(least_error(alphabet.gap, reach(model, alphabet)[0], N))
        pair = hard_pair(model, alphabet)
        errors = (model.predict(pair) - task.value(pair)).abs()
        assert float(errors.max()) >= bounds[-1] - 1e-6
    assert max(bounds) > 0.05


def test_a_built_model_with_d_heads_beats_the_bound_for_fewer():
    """The transition, proved: D heads have an error below what fewer heads have with the same reach."""
    reaches: list[float] = []
    for T in (32, 128):
        task = retrieval("quadratic-basins", intrinsic=3, length=T)
        built = build(task, 0.02)
        for heads in (1, 2):
            alphabet = find_alphabet(task, heads)
            R = reach(built.model, alphabet)[0]
            assert least_error(alphabet.gap, R, copies(alphabet, heads, "none")) > built.budget.bound
        reaches.append(R)
    assert reaches[1] == pytest.approx(reaches[0], rel=0.05)  # no growth with T


def test_one_wide_head_needs_a_large_reach():
    """Theorem 2 (3) needs one head, whose reach is as large as the bound with positions requires."""
    task = retrieval("min-plus-max", length=8)
    built = build_wide(task, 0.05)
    alphabet = find_alphabet(task, 1)
    needed = least_reach(alphabet.gap, built.budget.bound, copies(alphabet, 1, "any"))
    assert 1.0 < needed <= reach(built.model, alphabet)[0]


# -- the command ---------------------------------------------------------------------------------------------


def test_bounds_prints_the_transition(headcount_here: Cli):
    task = ("quadratic-basins", "--intrinsic", "3", "--length", "16,64", "--heads", "1:3", "--eps", "0.02")
    found = json.loads(headcount_here("bounds", *task, "--json").stdout)["every_encoder"]
    assert [(one["intrinsic"], one["length"], one["missing"]) for one in found] == [(3, 16, []), (3, 64, [])]
    for one in found:
        assert [row["heads"] for row in one["rows"]] == [1, 2]
        assert one["built"] <= 0.02 < min(row["error"] for row in one["rows"])
        assert all(row["needed"] > row["reach"] for row in one["rows"])  # fewer heads need a larger reach at ε
    shown = headcount_here("bounds", *task).stdout
    assert "Over all encoders and attentions" in shown
    assert "2  64  0.243  32 | 11" in shown


def test_bounds_of_a_model_use_its_own_reach(headcount_here: Cli, tmp_path: Path):
    folder = str(tmp_path / "model")
    task = retrieval("min-plus-max", length=16)
    model = hc.train(task, ModelSpec(dim=1, length=16, heads=1, head_dim=2), hc.TrainSpec(steps=200, warmup=20))
    model.save(folder)
    (found,) = json.loads(headcount_here("bounds", "--model", folder, "--json").stdout)["every_encoder"]
    alphabet = find_alphabet(task, 1)
    (row,) = found["rows"]
    assert row["reach"] == reach(hc.load_model(folder), alphabet)[0]
    assert row["error"] == least_error(alphabet.gap, row["reach"], 16) > 0
    assert "proved from its weights" in headcount_here("bounds", "--model", folder).stdout
    for more in (("min-plus-max",), ("--length", "8"), ("--D", "2"), ("--share", "1/2")):
        done = headcount_here("bounds", *more, "--model", folder)
        assert done.returncode == 2
        assert "--model brings its own task" in done.stderr
    assert headcount_here("bounds", "--model", str(tmp_path)).returncode == 2


def test_bounds_explains_why_there_is_no_bound_over_all_encoders(headcount_here: Cli):
    done = headcount_here("bounds", "sparse-regression", "--length", "12", "--heads", "1")
    assert done.returncode == 0
    assert "No bound over all encoders: h = 1: every input" in done.stdout
    apart = headcount_here("bounds", "quadratic-basins", "--intrinsic", "2", "--set", "sets=bands", "--heads", "1")
    assert "shared positions" in apart.stdout


SEARCHED = [
    (2, 4, 1, False, 1), (2, 6, 1, False, 2), (2, 8, 1, False, 1), (2, 5, 1, True, 1), (2, 6, 1, True, 2),
    (3, 5, 2, False, 1), (3, 7, 2, False, 1), (3, 5, 1, False, 2), (3, 4, 2, True, 1), (4, 6, 2, False, 1),
    (4, 6, 3, False, 2),
]  # fmt: skip
"""K, T, h, positions and n of the searches for a layer that beats the bound."""
TRAINED: list[tuple[str, dict[str, Any], int, Positions]] = [
    (name, parameters, heads, positions)
    for name, parameters in (
        ("quadratic-basins", {"intrinsic": 3}),
        ("sphere-anchors", {"intrinsic": 3}),
        ("min-plus-max", {}),
        ("sum-of-maxima", {"intrinsic": 3, "dim": 3, "limit": 2.5}),
    )
    for heads in ((1,) if name == "min-plus-max" else (1, 2))
    for positions in ("none", "additive", "gates")
]


@pytest.mark.slow
def test_study_of_the_bound_over_all_encoders():
    """Searches on small alphabets and trained models: none beats the bound; how close they come."""
    searches = [
        (least_error(1.0, share * N, N), best_layer(K, T, h, share * N, positions, seed, n=n, rounds=60))
        for K, T, h, positions, n in SEARCHED
        for N in [copies(letters_alone(K, T), h, "any" if positions else "none")]
        for share in (0.2, 0.5, 0.8)
        for seed in range(4)
    ]
    models: list[dict[str, Any]] = []
    for name, parameters, heads, positions in TRAINED:
        for length, steps in ((32, 2000), (128, 2000)):
            task = retrieval(name, length=length, **parameters)
            spec = ModelSpec(dim=task.dim, length=length, heads=heads, head_dim=4, hidden=16, positions=positions)
            model = saved_model(task, hc.train(task, spec, hc.TrainSpec(steps=steps, warmup=100)))
            alphabet = find_alphabet(task, heads)
            N = copies(alphabet, heads, "none" if positions == "none" else "any")
            R = reach(model, alphabet)[0]
            pair = hard_pair(model, alphabet)
            models.append(
                {
                    "task": name,
                    "heads": heads,
                    "positions": positions,
                    "length": length,
                    "gap": alphabet.gap,
                    "reach": R,
                    "copies": N,
                    "bound": least_error(alphabet.gap, R, N),
                    "error": float((model.predict(pair) - task.value(pair)).abs().max()),
                }
            )
    beaten = sum(found < bound - 1e-12 for bound, found in searches)
    beaten_models = sum(row["error"] < row["bound"] for row in models)
    write_result(
        "every-encoder",
        {
            "least_ratio": round(min(found / bound for bound, found in searches), 6),
            "largest_bound_over_error": max(row["bound"] / row["error"] for row in models),
            "models": models,
        },
        seeds=list(range(4)),
        counts={
            "searches": len(searches),
            "searches_below": beaten,
            "models": len(models),
            "models_below": beaten_models,
            "models_bounded": sum(row["bound"] > 0 for row in models),
        },
    )
    assert beaten == beaten_models == 0
