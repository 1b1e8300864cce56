"""Construction 2 (3): one wide head, built, verified from its weights and attacked; corrupted models are rejected."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from flint import ctx

from built_tasks import draw
from headcount import BadInput, load_model, make_task
from headcount.recheck.trees import PRECISION
from headcount.recheck.weights import Rejected, Weights, read_weights
from headcount.recheck.wide import CheckedWide, check_wide_head
from headcount.tasks.expressions.tree import largest, variable
from headcount.tasks.retrieval import GeneralizedRetrieval
from headcount.theory.certify.worst_found import worst_error
from headcount.theory.construct.one_wide_head import BuiltWide, build_wide

FORWARD = "layers.0.feedforward.layers"
ATTENTION = "layers.0.attention"
ROUNDING = 1e-12  # the bound is of the real function, and is attained where all is affine; an attack rounds


@pytest.fixture(autouse=True)
def _precise() -> Iterator[None]:
    before, ctx.prec = ctx.prec, PRECISION
    yield
    ctx.prec = before


def stored(built: BuiltWide, folder: Path) -> Weights:
    built.save(folder)
    return read_weights(folder)


def verify(model: Weights, claimed: BuiltWide | None = None) -> CheckedWide:
    """Check a model; an unproved claim counts as rejected, as for a certificate."""
    proved = check_wide_head(model, model.config["task"], model.config["box"])
    if claimed is not None:
        b = claimed.budget
        steps = [(b.encoder, proved.encoder), (b.maximum, proved.maximum), (b.feedforward, proved.feedforward)]
        if proved.bound > b.bound or any(p > c for cs, ps in steps for c, p in zip(cs, ps, strict=True)):
            raise Rejected(f"{proved.bound} is proved, not {b.bound}")
    return proved


def basins(**sizes) -> GeneralizedRetrieval:
    return make_task("quadratic-basins", **{"intrinsic": 2, "dim": 1, "length": 4, **sizes})


CASES = [
    (basins(), 0.05),
    (basins(dim=2, length=7), 0.15),
    (basins(outer="tanh", sets="bands", length=6, dim=2), 0.1),
    (basins(outer="product", sets="halves", length=5), 0.3),
    (basins(outer="vector", length=3), 0.2),
    (basins(intrinsic=3, outer="exp", sets="halves", length=8), 0.2),
    (make_task("min-plus-max", length=2), 0.1),
    (make_task("min-plus-max", length=8), 0.05),
    *((task, max(eps, 0.1)) for task, eps in map(draw, (5, 28))),
]


@pytest.mark.parametrize(("task", "eps"), CASES, ids=lambda v: v.name if isinstance(v, GeneralizedRetrieval) else None)
def test_no_attack_exceeds_the_bound(task, eps, tmp_path):
    built = build_wide(task, eps)
    proved = verify(stored(built, tmp_path / "model"), built)
    assert proved.bound <= built.budget.bound <= eps
    assert sum(built.budget.shares.values()) == pytest.approx(built.budget.bound)
    worst = worst_error(load_model(tmp_path / "model"), task, built.model.box, effort=0.02, seconds=0.2)
    assert worst.error <= proved.bound + ROUNDING


def test_the_bound_is_nearly_attained(tmp_path):
    """Half of the largest Δ is needed: an attack comes close to the proved bound."""
    task = basins()
    built = build_wide(task, 0.1)
    proved = verify(stored(built, tmp_path / "model"), built)
    assert worst_error(built.model, task, effort=0.05).error > 0.9 * proved.bound


def test_a_custom_box(tmp_path):
    """Unbounded tokens need a box; its corners are not round numbers, and 1/T is not a double."""
    task = make_task("sum-of-maxima", intrinsic=2, dim=2, length=3)
    with pytest.raises(BadInput, match="tokens, which are unbounded"):
        build_wide(task, 0.3)
    box = (-1.1, -0.7), (0.9, 1.3)
    built = build_wide(task, 0.3, box=box)
    proved = verify(stored(built, tmp_path / "model"), built)
    assert proved.bound <= 0.3
    worst = worst_error(built.model, task, box, effort=0.02, seconds=0.2)
    assert 0.9 * proved.bound <= worst.error <= proved.bound + ROUNDING


def test_the_head_is_uniform_and_the_embedding_exact():
    built = build_wide(basins(dim=2, length=5), 0.2)
    model, spec = built.model.transformer, built.model.transformer.spec
    assert (spec.heads, spec.head_dim, spec.E, spec.hidden) == (1, 10, 10, 10)
    X = torch.rand(7, 5, 2, dtype=torch.float64)
    with torch.no_grad():
        e = model.encoder(X)
        attended = model.layers[0].attention(model.class_token.expand(7, 1, -1), e)[:, 0]
    blocks = e.reshape(7, 5, 5, 2)
    assert torch.equal(blocks.diagonal(dim1=1, dim2=2).movedim(-1, 1), X)
    assert torch.count_nonzero(e) <= X.numel()
    torch.testing.assert_close(attended, X.reshape(7, 10) / 5, rtol=1e-15, atol=1e-16)


def test_thresholds_are_exact_with_one_sided_errors():
    """Lemma 9 in fractions: the sum is never below the maximum, and exceeds it by at most Δ."""
    tau = build_wide(basins(), 0.1).thresholds[0]
    values = [Fraction(v) for v in tau.values]
    assert {b - a for a, b in pairwise(values)} == {Fraction(tau.step)}
    rng = np.random.default_rng(0)
    seen = []
    for _ in range(300):
        near = rng.uniform(0, tau.count - 1) + rng.random(4) * rng.choice([0.01, 0.3, 1.0])
        y = [Fraction(tau.start) + Fraction(tau.step) * Fraction(v) for v in near]
        s = [sum((max(v - t, Fraction(0)) for v in y), Fraction(0)) for t in values]
        seen.append(sum(min(v, Fraction(tau.step)) for v in s) - (max(y) - values[0]))
    assert 0 <= min(seen) <= max(seen) <= Fraction(tau.step)
    assert max(seen) > Fraction(tau.step) / 2  # so that half of Δ, taken off, is needed


# -- spoilt twins ------------------------------------------------------------------------------------------------


def changed(model: Weights, **edits: Callable[[np.ndarray], None]) -> Weights:
    tensors = {name: t.copy() for name, t in model.tensors.items()}
    for name, edit in edits.items():
        edit(tensors[name.replace("__", ".")])
    return replace(model, tensors=tensors)


def nudge(*index: int, by: float = 1e-6) -> Callable[[np.ndarray], None]:
    def edit(t: np.ndarray) -> None:
        t[index] += by

    return edit


@pytest.fixture(scope="module")
def honest(tmp_path_factory) -> tuple[BuiltWide, Weights]:
    built = build_wide(basins(length=3, sets="all"), 0.2)
    return built, stored(built, tmp_path_factory.mktemp("wide") / "model")


@pytest.mark.parametrize(
    ("name", "index", "reason"),
    [
        ("class_token", (1,), "class token"),
        ("encoder.inner.weight", (2, 0), "block embedding"),
        ("encoder.inner.bias", (1,), "keep to its block"),
        ("encoder.hidden_bias", (2, 2), "keep to its block"),
        ("encoder.outer.weight", (1, 0), "block embedding"),
        ("encoder.outer.bias", (0,), "block embedding"),
        (f"{ATTENTION}.value", (0, 0, 1), "block embedding"),
        (f"{ATTENTION}.output", (0, 1, 1), "block embedding"),
        (f"{FORWARD}.0.weight", (1, 0), "same function"),
        (f"{FORWARD}.0.weight", (1, 2), "another position"),
        (f"{FORWARD}.0.bias", (2,), "same function"),
        (f"{FORWARD}.1.weight", (0, 1), "same function"),
        (f"{FORWARD}.1.weight", (3, 1), "same function|minimum 2 of F|any minimum|cover"),
        (f"{FORWARD}.1.weight", (1, 1), "another position"),
        (f"{FORWARD}.1.bias", (3,), "not a pair|no pair"),
        (f"{FORWARD}.2.weight", (2, 3), "not a pair|no pair|any minimum|cover"),
        (f"{FORWARD}.2.weight", (2, 9), "not a pair|no pair|any minimum|cover"),
        (f"{FORWARD}.2.bias", (2,), "not a pair|no pair"),
        (f"{FORWARD}.2.bias", (3,), "follow each other"),
        (f"{FORWARD}.3.weight", (0, 2), "with different weights"),
        (f"{FORWARD}.3.weight", (0, -1), "with different weights|any minimum"),
        (f"{FORWARD}.3.bias", (0,), "is proved"),
        (f"{FORWARD}.4.weight", (0, 0), "is proved"),
        (f"{FORWARD}.4.bias", (0,), "is proved"),
    ],
)
def test_a_changed_weight_is_detected(honest, name, index, reason):
    built, model = honest
    verify(model, built)
    spoilt = changed(model, **{name.replace(".", "__"): nudge(*index, by=-1e-6 if "hidden_bias" in name else 1e-6)})
    with pytest.raises(Rejected, match=reason):
        verify(spoilt, built)


def test_changes_that_keep_every_pattern_are_detected(honest):
    """The proved error exceeds the claim, or some values are not covered."""
    built, model = honest
    b, step, count = f"{FORWARD}.1.bias", built.thresholds[0].step, built.thresholds[0].count
    tau = slice(0, 3 * count)

    def moved(t: np.ndarray) -> None:
        t[tau] -= 4 * step

    with pytest.raises(Rejected, match="cover"):  # all thresholds of a minimum higher
        verify(changed(model, **{b.replace(".", "__"): moved}), built)

    def gap(t: np.ndarray) -> None:
        t[3 * (count // 2) : 3 * count] -= step

    with pytest.raises(Rejected, match="follow each other"):
        verify(changed(model, **{b.replace(".", "__"): gap}), built)

    def wider(t: np.ndarray) -> None:
        t[2 * (count // 2) - 1] -= step

    with pytest.raises(Rejected, match="is proved"):  # the gap filled by a wider Δ: Lemma 9 holds, with twice the error
        verify(changed(model, **{b.replace(".", "__"): gap, f"{FORWARD}.2.bias".replace(".", "__"): wider}), built)

    def bent(t: np.ndarray) -> None:
        t[1:] *= 1.1

    for edit in (bent, nudge(0, by=0.1)):  # Ψ itself, at every position: a knot moved, or its constant
        with pytest.raises(Rejected, match="is proved|cover"):
            verify(changed(model, **{f"{FORWARD}.0.bias".replace(".", "__"): edit}), built)


def test_a_nonzero_score_is_detected(honest):
    built, model = honest
    edits = {"class_token": nudge(0, by=0.5), f"{ATTENTION}.query": nudge(0, 0, 0, by=1.0)}
    edits[f"{ATTENTION}.key"] = nudge(0, 0, 1, by=1.0)
    with pytest.raises(Rejected, match="scores"):
        verify(changed(model, **{name.replace(".", "__"): edit for name, edit in edits.items()}), built)


def test_wrong_settings_and_tasks_are_detected(honest):
    _, model = honest
    for key, value in {"class_key": True, "layer_norm": True, "depth": 2, "heads": 2, "feedforward": "gelu2"}.items():
        spoilt = replace(model, config={**model.config, "model": {**model.config["model"], key: value}})
        with pytest.raises(Rejected, match=key):
            verify(spoilt)
    other = basins(length=3, seed=5).data()
    built, _ = honest
    with pytest.raises(Rejected):
        verify(replace(model, config={**model.config, "task": other}), built)
    larger = [[-0.5], [1.0]]
    with pytest.raises(Rejected):
        verify(replace(model, config={**model.config, "box": larger}), built)


# -- counts, files, refusals ---------------------------------------------------------------------------------------


def test_parameter_counts_grow_as_in_the_theorem():
    """For ε from 0.2 to 0.02, units and nonzero weights (while a Ψ_i has few units) grow like ε^(−1)."""
    eps = np.geomspace(0.2, 0.02, 6)
    counts = [build_wide(basins(), float(v)).counts() for v in eps]
    fitted = {key: -np.polyfit(np.log(eps), np.log([c[key] for c in counts]), 1)[0] for key in ("nonzero", "units")}
    assert fitted["nonzero"] == pytest.approx(1.0, abs=0.15)
    assert fitted["units"] == pytest.approx(1.0, abs=0.15)


def test_the_largest_layer_has_a_weight_for_every_pair_of_threshold_and_unit():
    """Why the nonzero weights tend to ε^(−1−γ), as in the theorem: layer 2 repeats Ψ_i for every threshold."""
    built = build_wide(basins(), 0.02)
    layer = dict(built.model.transformer.tensors())[f"{FORWARD}.1.weight"]
    per_row = [np.count_nonzero(row) + 1 for row in built.encoder.outer]
    wanted = sum(4 * tau.count * k for tau, k in zip(built.thresholds, per_row, strict=True))
    assert int(torch.count_nonzero(layer)) == wanted


def test_a_saved_model_is_complete(tmp_path):
    built = build_wide(basins(), 0.2)
    identity = built.save(tmp_path / "model")
    certificate = json.loads((tmp_path / "model" / "certificate.json").read_text())
    assert certificate["kind"] == "one-wide-head"
    assert certificate["model"] == identity == load_model(tmp_path / "model").hash()
    assert set(certificate["steps"]) == {"encoder", "maximum", "feedforward", "slopes"}
    assert built.counts()["parameters"] == built.model.transformer.counts()["paper"]


def test_refusals():
    x, z = variable(1), variable(1)
    with pytest.raises(BadInput, match="weights, more than 50,000,000"):
        build_wide(basins(length=64), 0.01)
    with pytest.raises(BadInput, match="eps"):
        build_wide(basins(), -1.0)
    with pytest.raises(BadInput, match="kinks"):
        build_wide(GeneralizedRetrieval([x], None, largest(z[0], 0.5 * z[0]), length=2), 0.1)
    with pytest.raises(BadInput, match="Python function"):
        build_wide(GeneralizedRetrieval([lambda v: v.sum(-1)], None, z[0], length=2, dim=1), 0.1)


def test_a_unit_active_at_another_position_is_rejected(tmp_path):
    """A hidden unit is active at another position, so the embedding is no longer a block embedding."""
    task = make_task("min-plus-max", length=3)
    build_wide(task, 0.3).save(tmp_path / "model")
    weights = read_weights(tmp_path / "model")
    check_wide_head(weights, weights.config["task"], weights.config["box"])
    shifted = weights.tensors["encoder.hidden_bias"].copy()
    shifted[0, 1] += 1.5  # position 1, the unit of block 2: now above 0 near the upper end of the box
    spoilt = replace(weights, tensors={**weights.tensors, "encoder.hidden_bias": shifted})
    with pytest.raises(Rejected, match="does not keep to its block"):
        check_wide_head(spoilt, weights.config["task"], weights.config["box"])
