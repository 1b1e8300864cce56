"""What float64 adds: never more than is proved, in any order of summation; what can overflow is refused."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from flint import arb
from float64_twins import Exact, documented, shuffled
from safetensors.numpy import load_file, save_file

import signed
from built_tasks import draw
from headcount import BadInput, load_model, make_task
from headcount.core.text import round_up
from headcount.recheck import rounding
from headcount.recheck.certificate import verify
from headcount.recheck.enough import moved
from headcount.recheck.weights import read_weights
from headcount.tasks.expressions.tree import variable
from headcount.tasks.retrieval import GeneralizedRetrieval
from headcount.theory.construct import verified
from headcount.theory.construct.enough_heads import Built, build
from headcount.theory.construct.one_wide_head import BuiltWide, build_wide
from results import write_result
from support import Cli

LOOSEST = 1e4  # how far the proved rounding may lie above the measured


@dataclass(frozen=True)
class Measured:
    """The largest |float64 − exact| over some inputs, for torch, NumPy and shuffled sums, and the proved bound."""

    torch: float
    numpy: float
    shuffled: float
    proved: float

    @property
    def worst(self) -> float:
        return max(self.torch, self.numpy, self.shuffled)


def measure(folder: Path, count: int, seed: int = 0) -> Measured:
    """Evaluate a certified model at random inputs, a third of which are corners of the box."""
    verdict = verify(folder)
    assert verdict.proved is not None, verdict.reason
    weights, saved, rng = read_weights(folder), load_model(folder), np.random.default_rng(seed)
    assert saved.box is not None
    low, high = (np.array(side) for side in saved.box)
    X = low + (high - low) * rng.random((count, weights.config["model"]["length"], len(low)))
    X[: count // 3] = np.where(rng.random(X[: count // 3].shape) < 0.5, low, high)
    twin, found = Exact(weights), [0.0, 0.0, 0.0]
    ways = saved.predict(torch.from_numpy(X)).numpy(), documented(folder, X), [shuffled(weights, x, rng) for x in X]
    for n, x in enumerate(X):
        truth = twin(x)
        for k, way in enumerate(ways):
            found[k] = max(found[k], *(abs(float(arb(float(a)) - b)) for a, b in zip(way[n], truth, strict=True)))
    return Measured(*found, verdict.proved.rounding)


def basins(**sizes) -> GeneralizedRetrieval:
    return make_task("quadratic-basins", **{"intrinsic": 2, "dim": 1, "length": 4, **sizes})


CASES: dict[str, Callable[[], Built | BuiltWide]] = {
    "fitted": lambda: build(*draw(13)),
    "steep": lambda: build(*draw(2)),
    "saturated": lambda: build(basins(intrinsic=3, dim=2, length=16, sets="bands"), 1e-4),
    "small weights": lambda: build(basins(intrinsic=3, dim=2, length=8, outer="square"), 0.1, bounded=True),
    "idle heads": lambda: build(basins(dim=2, length=8), 0.1, heads=5, head_dim=3),
    "tiny eps": lambda: build(make_task("min-plus-max", length=8), 3e-9),
    "wide": lambda: build_wide(basins(), 0.1),
    "wide, own box": lambda: build_wide(
        make_task("sum-of-maxima", intrinsic=2, dim=2, length=3), 0.4, box=((-1.1, -0.7), (0.9, 1.3))
    ),
    "wide, vector": lambda: build_wide(basins(outer="vector", length=5), 0.2),
}


@pytest.mark.parametrize("case", CASES)
def test_float64_never_errs_by_more_than_is_proved(case: str, tmp_path: Path) -> None:
    CASES[case]().save(tmp_path / "model")
    found = measure(tmp_path / "model", 9)
    assert 0 < found.worst <= found.proved
    assert found.proved <= LOOSEST * found.worst


SABOTAGE = {
    "a smaller unit": ("ROUNDOFF", 2.0**-53 / 1e6),
    "no rounding of sums": ("_gamma", lambda n: 0.0 * n),
}


@pytest.mark.parametrize("case", ["saturated", "wide"])
@pytest.mark.parametrize("sabotage", SABOTAGE)
def test_the_measurement_can_fail(case: str, sabotage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bound without rounding errors is exceeded at the very inputs that the full bound covers."""
    CASES[case]().save(tmp_path / "model")
    name, value = SABOTAGE[sabotage]
    monkeypatch.setattr(rounding, name, value)
    if sabotage == "no rounding of sums":
        monkeypatch.setattr(rounding, "EXP_ULPS", 0)
        monkeypatch.setattr(rounding, "ROUNDOFF", 0.0)
    found = measure(tmp_path / "model", 9)
    assert found.worst > found.proved


@pytest.mark.parametrize("beta", [0.5, 20.0, 1e4])
@pytest.mark.parametrize("eta", [1e-6, 1e-2, 1.0, 30.0])
def test_a_head_moves_by_no_more_than_its_scores_allow(beta: float, eta: float) -> None:
    """Scores changed by ±η in the worst direction, with values near a tie: within the bound, and often close to it."""
    rng, members, gates = np.random.default_rng(0), [0, 1, 2, 3, 4], np.array([0.0] * 5 + [-2.0] * 3)
    bound, most = moved(gates, members, arb(beta), arb(1), eta), 0.0
    for _ in range(3000):
        v = np.clip(rng.exponential(rng.choice([0.3, 1.0, 3.0]) / beta, 8), 0, 1)
        v[5:] = rng.integers(0, 2, 3)

        def output(theta: np.ndarray, v: np.ndarray = v) -> float:
            s = beta * (gates - v) + theta
            a = np.exp(s - s.max())
            return float(a @ v / a.sum())

        most = max(most, abs(output(eta * rng.choice([-1.0, 1.0], 8)) - output(np.zeros(8))))
    assert min(bound, 1.0) / 20 < most <= bound * (1 + 1e-9)  # values lie within 1 of each other


@pytest.mark.slow
def test_many_models(tmp_path: Path) -> None:
    rows = []
    makers: list[tuple[str, Callable[[], Built | BuiltWide]]] = [
        *((f"task {seed}", lambda seed=seed: build(*draw(seed))) for seed in range(60)),
        *((f"wide, T = {T}", lambda T=T: build_wide(basins(length=T), 0.1)) for T in range(2, 12)),
        *(CASES.items()),
    ]
    for n, (name, make) in enumerate(makers):
        make().save(tmp_path / str(n))
        found = measure(tmp_path / str(n), 60, seed=n)
        rows.append(
            {
                "model": name,
                "proved": found.proved,
                "torch": found.torch,
                "numpy": found.numpy,
                "shuffled": found.shuffled,
                "ratio": found.proved / found.worst,
            }
        )
    ratios = np.array([row["ratio"] for row in rows])
    write_result(
        "float64-rounding",
        {
            "models": len(rows),
            "above_the_bound": int((ratios < 1).sum()),
            "proved_over_measured": {"least": ratios.min(), "median": float(np.median(ratios)), "most": ratios.max()},
            "proved": {
                "median": float(np.median([row["proved"] for row in rows])),
                "most": max(row["proved"] for row in rows),
            },
            "rows": rows,
        },
        seeds=list(range(len(rows))),
        counts={"models": len(rows), "inputs": 60},
    )
    assert ratios.min() >= 1
    assert ratios.max() <= LOOSEST


# -- what can overflow ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def idle(tmp_path_factory) -> Path:
    """Return a model with a third head that outputs zeros."""
    where = tmp_path_factory.mktemp("idle") / "model"
    build(basins(dim=2, length=8), 0.1, heads=3).save(where)
    return where


@pytest.fixture
def copy(idle: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(idle, tmp_path / "copy"))


def sign(folder: Path, *, old: bool = False, **settings) -> None:
    """Write hashes and claims that match the changes, like a forger who wants them to pass."""
    config, certificate = (json.loads((folder / f"{n}.json").read_text()) for n in ("config", "certificate"))
    config["model"].update(settings)
    certificate["eps"] = certificate["bound"] = 1e9
    certificate["steps"] = {k: [1e6 for _ in v] if k != "slopes" else v for k, v in certificate["steps"].items()}
    if old:
        certificate.pop("arithmetic")
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "certificate.json").write_text(json.dumps(certificate))
    signed.sign(folder)
    load_model(folder)


def edit(folder: Path, **changes: Callable[[np.ndarray], None]) -> None:
    tensors = {name: t.copy() for name, t in load_file(folder / "model.safetensors").items()}
    for name, change in changes.items():
        change(tensors[name.replace("__", ".")])
    save_file(tensors, folder / "model.safetensors")


def predictions(folder: Path) -> np.ndarray:
    X = torch.rand(50, 8, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return load_model(folder).predict(X).numpy()


def scores_by(number: float) -> dict[str, Callable[[np.ndarray], None]]:
    """Query and key of the idle head, which read the class token and the embedding."""

    def ask(t: np.ndarray) -> None:
        t[2, 0, 1] = number

    def answer(t: np.ndarray) -> None:
        t[2, 0, 0] = number

    return {"layers__0__attention__query": ask, "layers__0__attention__key": answer}


@pytest.mark.parametrize("old", [False, True])
def test_an_idle_head_that_returns_nan(copy: Path, old: bool) -> None:
    edit(copy, **scores_by(1e200))
    sign(copy, old=old)
    assert np.isnan(predictions(copy)).all()
    verdict = verify(copy)
    assert not verdict.holds
    assert "score of head 3 can overflow in float64" in verdict.reason


def test_its_harmless_twin_is_verified(copy: Path) -> None:
    before = predictions(copy)
    edit(copy, **scores_by(1e3))
    sign(copy)
    assert np.array_equal(predictions(copy), before)
    verdict = verify(copy)
    assert verdict.holds, verdict.reason


@pytest.mark.parametrize("old", [False, True])
def test_a_beta_that_returns_nan(tmp_path: Path, old: bool) -> None:
    """If all tokens are large, all scores are −∞, and their differences are NaN."""
    task = GeneralizedRetrieval([3.0 * variable(2)[0]], None, variable(1)[0], length=8)
    build(task, 0.1).save(tmp_path)
    sign(tmp_path, old=old)
    assert verify(tmp_path).holds
    sign(tmp_path, beta=1e308)
    X = torch.full((1, 8, 2), 0.9, dtype=torch.float64)
    assert load_model(tmp_path).predict(X).isnan().all()
    verdict = verify(tmp_path)
    assert not verdict.holds
    assert "score of head 1 can overflow in float64" in verdict.reason


def test_a_large_beta_that_does_not_overflow_holds(copy: Path) -> None:
    sign(copy, beta=1e300)
    assert np.isfinite(predictions(copy)).all()
    verdict = verify(copy)
    assert verdict.holds, verdict.reason
    assert verdict.proved is not None
    assert verdict.proved.rounding < 1e-12  # however large β is


def fill(*index: int | slice, by: float) -> Callable[[np.ndarray], None]:
    def change(t: np.ndarray) -> None:
        t[index] = by

    return change


SPOILT = {
    "keys": ({"layers__0__attention__key": fill(0, 0, slice(None), by=1e308)}, {}, "key of head 1"),
    "negative": ({}, {"beta": -1.0}, "a number above 0"),
    "a text": ({}, {"beta": "learned"}, "log_beta' is missing"),
}


@pytest.mark.parametrize("case", SPOILT)
def test_a_uniform_head_computes_its_scores_too(case: str, tmp_path: Path) -> None:
    """The class token is 0, so exact scores vanish for any keys and β; in float64, 0·∞ is NaN."""
    build_wide(basins(), 0.3).save(tmp_path)
    edits, settings, said = SPOILT[case]
    edit(tmp_path, **edits)
    config = json.loads((tmp_path / "config.json").read_text())
    config["model"].update(settings)
    (tmp_path / "config.json").write_text(json.dumps(config))
    signed.sign(tmp_path)
    verdict = verify(tmp_path)
    assert not verdict.holds
    assert said in verdict.reason
    edit(tmp_path, layers__0__attention__key=fill(0, 0, slice(None), by=1e3))
    (tmp_path / "config.json").write_text(json.dumps({**config, "model": {**config["model"], "beta": 1.0}}))
    signed.sign(tmp_path)
    assert verify(tmp_path).holds


def test_float32_and_an_infinite_beta_are_refused(idle: Path) -> None:
    weights = read_weights(idle)
    low, high = (np.array(side) for side in weights.config["box"])
    assert rounding.rounding(weights, low, high) > 0
    with pytest.raises(rounding.Rejected, match="float32"):
        rounding.rounding(replace(weights, config={**weights.config, "dtype": "float32"}), low, high)
    infinite = {**weights.config, "model": {**weights.config["model"], "beta": math.inf}}
    with pytest.raises(rounding.Rejected, match="not a finite number"):
        rounding.rounding(replace(weights, config=infinite), low, high)


TENSORS = {
    "encoder.inner.weight": "hidden unit of the encoder",
    "encoder.inner.bias": "hidden unit of the encoder",
    "encoder.outer.weight": "the embedding",
    "encoder.outer.bias": "the embedding",
    "class_token": "of head 1",
    "layers.0.attention.query": "of head 1",
    "layers.0.attention.key": "key of head 1",
    "layers.0.attention.value": "value of head 1",
    "layers.0.attention.gates": "score of head 1",
    "layers.0.attention.output": "what F reads",
    "layers.0.feedforward.layers.0.weight": "layer 1 of F",
    "layers.0.feedforward.layers.0.bias": "layer 1 of F",
    "layers.0.feedforward.layers.1.weight": "layer 2 of F",
    "layers.0.feedforward.layers.1.bias": "layer 2 of F",
}


@pytest.mark.parametrize("name", TENSORS)
def test_every_tensor_is_checked(idle: Path, name: str) -> None:
    """1.7e308 in place of each weight in turn: something overflows, and the message says where it may."""
    weights = read_weights(idle)
    low, high = (np.array(side) for side in weights.config["box"])
    huge = replace(weights, tensors={**weights.tensors, name: np.full_like(weights[name], 1.7e308)})
    with pytest.raises(rounding.Rejected, match="can overflow") as error:
        rounding.rounding(huge, low, high)
    assert TENSORS[name] in str(error.value)


# -- what is claimed -------------------------------------------------------------------------------------------------


def test_the_claim_covers_float64(copy: Path) -> None:
    verdict = verify(copy)
    proved, certificate = verdict.proved, verdict.certificate
    assert proved is not None
    assert certificate["arithmetic"] == "float64"
    assert proved.bound < proved.computed <= certificate["bound"] <= certificate["eps"]
    between = (proved.bound + proved.computed) / 2
    assert proved.bound < between < proved.computed
    steps = {name: getattr(proved, name) for name in certificate["steps"]}  # no more than what is proved
    for values, holds in (({"arithmetic": "exact"}, True), ({}, False), ({"arithmetic": "float16"}, False)):
        changed = {**certificate, "bound": between, "steps": steps, **values}
        (copy / "certificate.json").write_text(json.dumps(changed))
        assert verify(copy).holds is holds, values


@pytest.mark.parametrize("kind", ["enough-heads", "one-wide-head"])
def test_a_certificate_of_an_earlier_version_is_verified(kind: str, headcount_here: Cli) -> None:
    """Made without arithmetic and shift: it is about exact numbers, and float64 rounding is printed beside it."""
    copy = Path(__file__).parent / "old" / kind
    certificate = json.loads((copy / "certificate.json").read_text())
    assert not {"arithmetic", "shift"} & set(certificate)
    done = headcount_here("recheck", str(copy))
    assert done.returncode == 0
    assert "as computed in float64" in done.stdout
    assert f"it claims {round_up(certificate['bound'], 6)} in exact arithmetic" in done.stdout
    found = json.loads(headcount_here("recheck", str(copy), "--json").stdout)
    assert found["arithmetic"] == "exact"
    assert found["proved"]["bound"] < found["proved"]["bound_float64"]
    assert found["proved"]["rounding"] > 0


def test_models_beyond_float64_are_not_built(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounding beyond eps, or a failed proof, is a one-line error: no model is left that recheck would reject."""
    x, z = variable(1), variable(1)
    task = GeneralizedRetrieval([1e9 * x[0]], None, z[0], length=4, name="large")
    with pytest.raises(BadInput, match="eps") as error:
        build(task, 1e-6)
    assert "\n" not in str(error.value)
    assert build(task, 100.0).budget.rounding > 0
    monkeypatch.setattr(verified, "ROUNDING_ROOM", 1e13)
    with pytest.raises(BadInput, match="out of reach of float64"):
        build(basins(), 0.1)
