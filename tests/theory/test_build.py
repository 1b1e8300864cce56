"""Construction 2 (1): built, rechecked and attacked; counts that grow as the theorem says; refusals that say why."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from built_tasks import draw
from headcount import BadInput, load_model, make_task
from headcount.recheck.certificate import verify
from headcount.tasks.expressions.tree import Exp, Product, Softplus, constant, largest, variable
from headcount.tasks.retrieval import GeneralizedRetrieval
from headcount.theory.bounds.softmax_leakage import leakage
from headcount.theory.certify.worst_found import worst_error
from headcount.theory.construct.enough_heads import build, largest_weights
from headcount.theory.construct.one_wide_head import build_wide
from results import write_result
from support import Cli


def judge(seed: int, folder: Path, effort: float) -> dict[str, float]:
    """Build, recheck and attack one random task; return its figures."""
    task, eps = draw(seed)
    start = time.perf_counter()
    built = build(task, eps)
    building = time.perf_counter() - start
    built.save(folder)
    start = time.perf_counter()
    verdict = verify(folder)
    rechecking = time.perf_counter() - start
    assert verdict.holds, (task.name, verdict.reason)
    assert verdict.proved is not None
    worst = worst_error(load_model(folder), task, built.model.box, seed=seed, effort=effort)
    assert verdict.proved.bound < verdict.proved.computed <= built.budget.bound <= eps
    assert worst.error <= verdict.proved.computed + 1e-12, (task.name, worst.error)  # the target is rounded too
    return {
        "seed": seed,
        "eps": eps,
        "bound": built.budget.bound,
        "proved": verdict.proved.computed,
        "worst": worst.error,
        "intrinsic": len(task.f),
        "dim": task.dim,
        "length": task.length,
        "beta": built.beta,
        "hidden": built.encoder.units,
        "hidden_ff": built.feedforward.units,
        "seconds_build": building,
        "seconds_recheck": rechecking,
    }


@pytest.mark.parametrize("seed", [0, 2, 5, 10, 13, 22, 27, 29, 36])
def test_no_attack_exceeds_the_bound(seed: int, tmp_path: Path) -> None:
    found = judge(seed, tmp_path / "model", effort=0.1)
    assert 0 < found["worst"] <= found["proved"] + 1e-12
    assert found["proved"] <= found["bound"] <= found["eps"]


@pytest.mark.slow
def test_two_hundred_tasks(tmp_path: Path) -> None:
    rows = [judge(seed, tmp_path / str(seed), effort=1.0) for seed in range(200)]
    ratios = np.array([row["worst"] / row["proved"] for row in rows])
    seconds = {key: [row[key] for row in rows] for key in ("seconds_build", "seconds_recheck")}
    write_result(
        "built-tasks",
        {
            "tasks": len(rows),
            "above_the_bound": int((ratios > 1 + 1e-10).sum()),
            "bound_above_eps": 0,
            "worst_over_proved": {"median": float(np.median(ratios)), "largest": float(ratios.max())},
            "median_seconds": {key: float(np.median(v)) for key, v in seconds.items()},
            "most_seconds": {key: max(v) for key, v in seconds.items()},
            "beta": {"least": min(r["beta"] for r in rows), "largest": max(r["beta"] for r in rows)},
            "rows": rows,
        },
        seeds=list(range(200)),
        counts={"tasks": len(rows)},
    )
    assert ratios.max() <= 1 + 1e-10
    assert max(seconds["seconds_build"]) < 60
    assert max(seconds["seconds_recheck"]) < 60


def test_an_attack_can_find_a_bad_model(tmp_path: Path) -> None:
    """The same attack on a model with one corrupted weight: its error exceeds the bound proved for the original."""
    task, eps = draw(10)
    built = build(task, eps)
    with torch.no_grad():
        built.model.transformer.encoder.inner.bias[3] += 0.1
    assert worst_error(built.model, task, built.model.box, effort=0.1).error > built.budget.bound


@pytest.mark.parametrize("beta", [1e3, 1e6])
def test_it_holds_at_saturated_softmax(beta: float, tmp_path: Path) -> None:
    eps = {1e3: 0.04, 1e6: 4e-5}[beta]
    task = make_task("quadratic-basins", intrinsic=3, length=16, sets="bands")
    built = build(task, eps)
    assert 0.3 * beta < built.beta < 3 * beta
    built.save(tmp_path / "model")
    assert verify(tmp_path / "model").holds
    assert worst_error(built.model, task, built.model.box, effort=0.2).error <= built.budget.bound


@pytest.mark.parametrize(
    ("task", "eps"),
    [
        (make_task("quadratic-basins", intrinsic=3, length=16, sets="bands"), 0.04),
        (make_task("quadratic-basins", intrinsic=3, length=16, sets="bands"), 1e-3),
        (make_task("quadratic-basins", intrinsic=2, length=8, outer="square"), 0.01),
        (make_task("min-plus-max", length=8), 1e-6),
    ],
)
def test_half_the_beta_suffices(task: GeneralizedRetrieval, eps: float) -> None:
    """The same leakage without the shift needs about twice the β."""
    built = build(task, eps)
    gates = -built.model.transformer.layers[0].attention.gates.detach().numpy().min(1)
    ratios = []
    for i, (lost, members) in enumerate(zip(built.budget.leakage, task.S, strict=True)):
        sizes = {"inside": len(members), "outside": task.length - len(members), "spread": 1.0, "gate": 1.0 + gates[i]}
        low, high = built.beta, 4 * built.beta
        while high > 1.001 * low:
            middle = np.sqrt(low * high)
            low, high = (low, middle) if leakage(middle, **sizes).above <= lost else (middle, high)
        ratios.append(built.beta / high)
        assert built.shift[i] == pytest.approx(lost, rel=0.01)
    assert ratios == pytest.approx([0.5] * len(ratios), rel=0.02)


def test_the_parameter_count_grows_as_in_the_theorem() -> None:
    """M less what ε does not touch (gates, F of an affine F0, E biases) is C·ε^(−1/2), and T is not in it."""
    eps, counts = np.array([1e-2, 1e-3, 1e-4, 1e-5]), dict[int, list[int]]()
    for length in (8, 64):
        for e in eps:
            model = build(make_task("quadratic-basins", intrinsic=3, length=length), float(e)).model.transformer
            fixed = 3 * length + model.spec.E + sum(p.numel() for p in model.layers[0].feedforward.parameters())
            counts.setdefault(length, []).append(model.counts()["paper"] - fixed)
    assert counts[8] == counts[64]
    slope, _ = np.polyfit(np.log(1 / eps), np.log(counts[8]), 1)
    assert slope == pytest.approx(0.5, abs=0.02)


def test_sizes_can_be_chosen_freely(tmp_path: Path) -> None:
    task = make_task("quadratic-basins", intrinsic=2, length=8)
    built = build(task, 0.1, heads=5, head_dim=3)
    assert (built.model.transformer.spec.heads, built.model.transformer.spec.head_dim) == (5, 3)
    built.save(tmp_path / "model")
    assert verify(tmp_path / "model").holds


@pytest.mark.parametrize("outer", ["sum", "square", "vector"])
def test_weights_can_be_bounded_by_one(outer: str, tmp_path: Path) -> None:
    task = make_task("quadratic-basins", intrinsic=3, length=8, sets="halves", outer=outer)
    built = build(task, 0.1, bounded=True)
    most = largest_weights(built.model)
    assert max(most["attention"], most["feedforward"]) <= 1
    X = task.sample(500)
    e = built.model.transformer.encoder(X)
    gates = built.model.transformer.layers[0].attention.gates
    size = (e**2).sum(-1) + (gates**2).sum(0)
    assert float(size.detach().max()) <= 1  # (1.1), the gates being part of P
    built.save(tmp_path / "model")
    assert verify(tmp_path / "model").holds
    assert worst_error(built.model, task, built.model.box, effort=0.1).error <= built.budget.bound


def test_vectors_and_unread_minima(tmp_path: Path) -> None:
    """F0 with two outputs that reads one of two minima: no head for the other."""
    x, z = variable(1), variable(2)
    F0 = Product(args=(z[1] + 1.0, z[1] + 2.0))
    task = GeneralizedRetrieval([x[0], (x[0] - 0.5) ** 2], None, F0, length=4)
    built = build(task, 0.05)
    built.save(tmp_path / "model")
    assert verify(tmp_path / "model").holds
    assert not built.model.transformer.layers[0].attention.value[0].any()


def test_unusual_tasks(tmp_path: Path) -> None:
    """A constant F0, a constant inside f, one token, a small index set, a steep F0: all are built like any other."""
    x, z = variable(1), variable(1)
    bowl = ((x - 0.3) ** 2).sum() + 0.5 * x[0]
    for n, task in enumerate(
        (
            GeneralizedRetrieval([x[0]], None, constant([0.7], 1), length=4),
            GeneralizedRetrieval([x[0] + Exp(of=constant([0.3], 1))], None, z[0], length=4),
            GeneralizedRetrieval([bowl], None, z[0], length=1),
            GeneralizedRetrieval([x[0]], [[0]], z[0], length=16),
            GeneralizedRetrieval([bowl], None, -20300.0 * z[0], length=4),
        )
    ):
        built = build(task, 0.3)
        built.save(tmp_path / str(n))
        verdict = verify(tmp_path / str(n))
        assert verdict.holds, (n, verdict.reason)
        assert worst_error(built.model, task, built.model.box, effort=0.02).error <= built.budget.bound + 1e-9


def test_impossible_builds_explain_why() -> None:
    x, z = variable(2), variable(1)
    basins = make_task("quadratic-basins", intrinsic=3)
    four = ((variable(4) - 0.5) ** 2).sum()

    def one(f, F0=z[0], **more):
        return GeneralizedRetrieval([f], None, F0, length=4, **more)

    for task, options, said in (
        (make_task("sum-of-maxima"), {}, "unbounded"),
        (make_task("mean"), {}, "not given by f, S and F0"),
        (one(lambda t: t.sum(-1), dim=2), {}, "bare Python function"),
        (one(largest(x[0], x[1])), {}, "f_1, which uses max, which has kinks"),
        (one(x[0], F0=largest(z[0], 0.5 * z[0])), {}, "F0 uses max"),
        (one(Exp(of=-four)), {}, "(A2) is not met for f_1"),
        (basins, {"heads": 2}, "at least 3, not 2"),
        (
            GeneralizedRetrieval([x[0], x[0]], None, variable(2).sum(), length=4),
            {"heads": 1},
            "same minimum twice, f_2",
        ),
        (basins, {"eps": 1e9}, "at most"),
        (basins, {"head_dim": 1}, "head_dim ≥ 2"),
        (basins, {"eps": 1e-12}, "out of reach of float64"),
        (basins, {"eps": -1.0}, "above 0"),
        (basins, {"eps": float("nan")}, "above 0"),
        (basins, {"box": ((0.0, 0.0), (0.0, 1.0))}, "the box needs"),
    ):
        with pytest.raises(BadInput) as error:
            build(task, **{"eps": 0.1, **options})
        assert said in str(error.value), error.value
        assert "\n" not in str(error.value)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("make", [build, build_wide])
def test_numbers_beyond_doubles_are_rejected(make) -> None:
    """Squares of differences overflow in Python, products in NumPy."""
    x = variable(1)
    for F0 in (variable(1) * 1e300, Exp(of=variable(1) * 1e300), (variable(1) * 1e200) ** 2):
        for f in (((x - 0.3) ** 2) * 1e300, x * 1e16):
            task = GeneralizedRetrieval([f[0]], None, F0[0], length=3, name="huge")
            with pytest.raises(BadInput):
                make(task, 0.4)
    steep = GeneralizedRetrieval([x[0] * 1e300], None, Softplus(of=variable(1)[0]), length=3, name="steep")
    with pytest.raises(BadInput, match="steep cannot be built: its numbers leave the range of doubles"):
        make(steep, 0.4)


def test_the_command(tmp_path: Path, headcount_here: Cli) -> None:
    out = tmp_path / "built"
    done = headcount_here("build", "quadratic-basins", "-D", "2", "--eps", "0.1", "--out", str(out), "--json")
    found = json.loads(done.stdout)
    assert found["rechecked"] <= found["bound"] <= 0.1
    assert {p.name for p in out.iterdir()} == {"model.safetensors", "config.json", "certificate.json", "budget.png"}
    again = headcount_here("build", "quadratic-basins", "-D", "2", "--eps", "0.2", "--out", str(out), "--json")
    assert json.loads(again.stdout)["bound"] <= 0.2  # what is ours may be replaced
    done = headcount_here("build", "sum-of-maxima", "--eps", "0.1", "--box", "-2.5,2.5", "--out", str(tmp_path / "b"))
    assert "Proved" in done.stdout
    for bad in (["--eps", "0"], ["--eps", "0.1", "--box", "1"], ["--eps", "0.1", "--heads", "1"], ["--eps", "x"]):
        done = headcount_here("build", "quadratic-basins", *bad, "--out", str(tmp_path / "c"))
        assert (done.returncode, len(done.stderr.strip().splitlines())) == (2, 1), (bad, done.stderr)
        assert not (tmp_path / "c").exists()
