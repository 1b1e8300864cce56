"""The search for colliding inputs: its map, its stages, what it finds, proves and saves, and what it must not find."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import headcount as hc
from built_tasks import draw
from headcount.core.errors import BadInput
from headcount.models.files import SavedModel
from headcount.models.transformer.reference import Transformer
from headcount.models.transformer.spec import ModelSpec
from headcount.recheck.witness import verify_witness
from headcount.tasks.retrieval import GeneralizedRetrieval
from headcount.theory.attack.fibre import EQUALITY_TOLERANCE, climb, project
from headcount.theory.attack.implied import L_ACT, implied, sup_error
from headcount.theory.attack.layer import HeadMap, StateMap, state_map
from headcount.theory.attack.pairs import Pairs
from headcount.theory.attack.search import Found, attack
from headcount.theory.attack.target import Region, Target
from headcount.theory.attack.witness import conclusions, make_witness
from headcount.theory.construct.enough_heads import build
from results import write_result

OPTIONS = [
    {},
    {"positions": "additive"},
    {"positions": "concatenated"},
    {"positions": "gates"},
    {"class_key": True},
    {"beta": "learned"},
    {"beta": 3.0, "class_key": True, "positions": "gates"},
]
DEEP = [{"depth": 2}, {"depth": 2, "residual": True, "layer_norm": True, "class_key": True}, {"layer_norm": True}]


def random_transformer(seed: int = 0, **options) -> Transformer:
    sizes = {"dim": 2, "length": 6, "heads": 2, "head_dim": 2, "hidden": 8, **options}
    model = Transformer(ModelSpec(**sizes), seed=seed, dtype=torch.float64)
    g = np.random.default_rng([7, seed])
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith(("gates", "position", "hidden_bias", "log_beta")):
                weight.copy_(torch.from_numpy(0.5 * g.standard_normal(tuple(weight.shape))))
    return model


def small_task(length: int = 6, **options) -> GeneralizedRetrieval:
    sizes = {"intrinsic": 2, "dim": 2, "length": length, "limit": 2.5, **options}
    task = hc.make_task("sum-of-maxima", **sizes)
    assert isinstance(task, GeneralizedRetrieval)
    return task


def random_model(seed: int = 0, **options) -> SavedModel:
    return SavedModel(random_transformer(seed, **options), task=small_task().data())


@pytest.mark.parametrize("options", OPTIONS)
def test_the_head_map_matches_the_model(options: dict) -> None:
    """c + Σ W_O o is what F reads in the reference model, and the Jacobian is autograd's."""
    model = random_transformer(**options)
    layer = HeadMap(model)
    X = torch.randn(5, 6, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    o, J = layer.jacobian(X)
    attention = model.layers[0].attention
    read = model.class_token + torch.einsum("hen,bhn->be", attention.output, o.view(5, 2, 2))
    assert torch.allclose(read, StateMap(model)(X), atol=1e-12)
    assert torch.allclose(model.layers[0].feedforward(read), model(X), atol=1e-12)
    by_torch = torch.func.vmap(torch.func.jacrev(lambda x: layer(x[None])[0]))(X).flatten(2)
    assert torch.allclose(J, by_torch, atol=1e-12)
    weights = layer.weights(X)
    assert torch.allclose(weights.sum(-1), torch.ones(5, 2, dtype=torch.float64)) != model.spec.class_key


@pytest.mark.parametrize("options", DEEP)
def test_states_of_deeper_models(options: dict) -> None:
    """F of the state is the model's output, whatever its depth and norms."""
    model = random_transformer(**options)
    layer = state_map(model)
    assert isinstance(layer, StateMap)
    X = torch.randn(3, 6, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    last = model.layers[-1]
    assert torch.allclose(last.feedforward(last.norm_feedforward(layer(X))), model(X), atol=1e-12)
    J = layer.jacobian(X)[1]
    step = 1e-6 * torch.randn(3, 6, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    moved = (layer(X + step) - layer(X - step)) / 2
    assert torch.allclose((J @ step.flatten(1)[..., None])[..., 0], moved, atol=1e-11)


def search(model: SavedModel, task: GeneralizedRetrieval, **options) -> Found:
    return attack(model, task, **{"starts": 12, "seconds": 30.0, **options})


def box_pairs(model: SavedModel, task: GeneralizedRetrieval, count: int) -> tuple[Pairs, torch.Tensor]:
    draws = task.sample(2000, seed=3)
    target = Target(task, None, draws, False)
    low, high = (torch.tensor(side, dtype=torch.float64) for side in task.box or ((), ()))
    pairs = Pairs(state_map(model.transformer), target, low, high, task.length, torch.zeros(count, dtype=torch.long))
    return pairs, draws[: 2 * count].reshape(count, -1)


def test_each_stage_does_what_it_claims() -> None:
    """Climbing raises the merit within the box; projection meets the fibre and moves little."""
    model, task = random_model(), small_task()
    pairs, at = box_pairs(model, task, 8)
    climbed, hurried = climb(pairs, at, 0.3, 60, (0, 6), (0.1, 0.01), (0.0, 0.0), math.inf)
    assert not hurried
    assert climb(pairs, at, 0.3, 60, (0, 6), (0.1, 0.01), (0.0, 0.0), 0.0)[1]  # the time is over before it begins
    assert bool((climbed >= pairs.low).all() & (climbed <= pairs.high).all())
    assert float(pairs.difference(climbed).norm(dim=1).median()) < 0.1 * float(
        pairs.difference(at).norm(dim=1).median()
    )
    assert float(pairs.gap(climbed).median()) > float(pairs.gap(at).median())
    met, on = project(pairs, climbed, 0.3)
    assert bool(on.any())
    assert float(pairs.difference(met)[on].abs().max()) <= EQUALITY_TOLERANCE
    assert bool((met >= pairs.low).all() & (met <= pairs.high).all())


def test_a_coordinate_on_a_face_only_moves_inward() -> None:
    """A coordinate at a face stays fixed if the step points outward, and moves if it points inward."""
    pairs, at = box_pairs(random_model(), small_task(), 1)
    at[0, 0], at[0, 1], at[0, 2] = pairs.low[0], pairs.high[1], 0.0
    outward = torch.zeros_like(at)
    outward[0, :3] = torch.tensor([-1.0, 1.0, 1.0])
    assert pairs.free(at, outward)[0, :3].tolist() == [False, False, True]
    assert pairs.free(at, -outward)[0, :3].tolist() == [True, True, True]


def test_a_pair_is_found_proved_saved_and_verified(tmp_path: Path) -> None:
    """One random head of size two cannot represent two maxima: the pair is exact, and its files are self-contained."""
    model, task = random_model(heads=1), small_task()
    found = search(model, task)
    assert not found.near
    assert found.deviations > 1.0
    assert found.distances[0] < 1e-12
    X = torch.from_numpy(found.X[0])
    assert float(task.value(X).diff(dim=0).abs()) == pytest.approx(found.gaps[0])
    witness = make_witness(model, task, found)
    assert witness.kind == "exact"
    assert witness.gap == pytest.approx(found.gaps[0], rel=1e-9)
    assert witness.data["claims"]["sup_error"] <= witness.gap / 2
    assert any("Proved: every feed-forward block" in line for line in conclusions(witness))
    result = hc.AttackResult(witness, model, task)
    result.save(tmp_path / "w")
    assert {p.name for p in (tmp_path / "w").iterdir()} >= {"witness.json", "pair.png", "pair.html", "config.json"}
    assert verify_witness(tmp_path / "w").holds
    data = json.loads((tmp_path / "w" / "witness.json").read_text())
    data["claims"]["gap"] *= 1.001
    (tmp_path / "w" / "witness.json").write_text(json.dumps(data))
    assert "gap is not proved" in verify_witness(tmp_path / "w").reason


def test_typical_pairs_stay_in_the_region() -> None:
    """Every z_i of both sequences lies in the range that the law draws; the whole box allows more."""
    model, task = random_model(heads=1), small_task()
    # on a busy machine too it must come to its end; of few starts, one search in 25 ends outside of the region
    found = search(model, task, among="typical", starts=32, seconds=60.0)
    assert found.region is not None
    z = task.features(torch.from_numpy(found.X).flatten(0, 1))
    low, high = torch.tensor(found.region.low), torch.tensor(found.region.high)
    assert bool((z >= low).all() & (z <= high).all())
    witness = make_witness(model, task, found)
    assert witness.kind == "exact"
    assert witness.data["region"] == {"low": list(found.region.low), "high": list(found.region.high)}
    assert "all sequences" not in "".join(conclusions(witness))
    # a search cut short may end outside of the region: the verifier rejects it, and nothing is called proved
    beyond = Region(tuple(v + 1e3 for v in found.region.low), tuple(v + 1e3 for v in found.region.high))
    assert make_witness(model, task, replace(found, region=beyond)).kind == "evidence"


@pytest.mark.parametrize("options", [{"positions": "gates"}, {"positions": "concatenated"}, {"class_key": True}])
def test_every_mechanism_is_attacked(options: dict) -> None:
    model, task = random_model(1, heads=1, **options), small_task()
    found = search(model, task)
    assert make_witness(model, task, found).kind == "exact"


def test_vector_targets_and_deeper_models() -> None:
    """The gap is that of one output; in a deeper model the states after the last attention must be equal."""
    task = hc.make_task("quadratic-basins", intrinsic=2, dim=2, length=6, outer="vector")
    assert isinstance(task, GeneralizedRetrieval)
    model = SavedModel(random_transformer(2, heads=1, out_dim=2, depth=2, width=3), task=task.data())
    found = search(model, task, starts=4, seconds=8.0)
    assert set(found.outputs) <= {0, 1}
    states = StateMap(model.transformer)(torch.from_numpy(found.X[0]))
    assert float(states.diff(dim=0).abs().max()) < 1e-11
    witness = make_witness(model, task, found)
    j = witness.data["output"]
    gap = float(task.value(torch.from_numpy(witness.X))[:, j].diff().abs())
    assert witness.gap == pytest.approx(gap, rel=1e-6)


def test_targets_known_only_as_numbers_give_evidence_not_proof(tmp_path: Path) -> None:
    """A surrogate's predictions or a bare Python function give evidence, which recheck never calls proved."""
    model = SavedModel(random_transformer(3, heads=1))
    teacher = SavedModel(random_transformer(4, heads=2))
    with pytest.raises(BadInput, match="--surrogate"):
        attack(model)
    with pytest.raises(BadInput, match="box"):
        attack(model, surrogate=teacher)
    result = hc.attack(model, box=((-1.0, -1.0), (1.0, 1.0)), surrogate=teacher, starts=6, budget=20.0)
    assert result.kind == "evidence"
    assert "not proved" in repr(result)
    result.save(tmp_path / "e")
    with pytest.raises(BadInput, match="evidence"):
        verify_witness(tmp_path / "e")
    task = GeneralizedRetrieval([lambda x: x.sum(-1, keepdim=True)], None, lambda z: z, length=6, dim=2)
    assert hc.attack(model, task, starts=4, budget=20.0).kind == "evidence"


def no_contradiction(seed: int, seconds: float, starts: int) -> dict[str, float]:
    """Attack a model built by Theorem 2 (1) at ε; a pair with a gap above 2ε would contradict its certificate."""
    task, eps = draw(seed)
    built = build(task, eps)
    found = attack(built.model, task, starts=starts, seconds=seconds)
    largest = max(found.gaps) if not found.near else 0.0
    return {"seed": seed, "eps": eps, "gap": largest, "converged": found.converged, "starts": found.starts}


@pytest.mark.parametrize("seed", [pytest.param(0, marks=pytest.mark.slow), 4])
def test_built_models_have_no_large_pair(seed: int) -> None:
    row = no_contradiction(seed, 20.0, 8)
    assert row["gap"] <= 2 * row["eps"]


def test_a_built_model_with_too_few_heads_is_detected() -> None:
    """The twin that must be caught: a certificate's model with one head's values removed has large pairs."""
    task = hc.make_task("quadratic-basins", intrinsic=2, dim=1, length=4)
    assert isinstance(task, GeneralizedRetrieval)
    built = build(task, 0.05)
    with torch.no_grad():
        built.model.transformer.layers[0].attention.value[1] = 0.0
    found = attack(built.model, task, starts=8, seconds=20.0)
    assert not found.near
    assert max(found.gaps) > 2 * 0.05


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"box": ((0.0,), (1.0,))}, "2 numbers below 2 others"),
        ({"box": ((1.0, 1.0), (0.0, 0.0))}, "2 numbers below 2 others"),
        ({"starts": 0}, "at least one start"),
        ({"seconds": 0.0}, "at least one start"),
    ],
)
def test_bad_input_is_one_line(change: dict, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        attack(random_model(), small_task(), **change)


def test_overflow_is_rejected_with_a_one_line_error(headcount_here, tmp_path: Path) -> None:
    """Scores, outputs, predictions or targets that are not finite, or whose squares are not."""
    spoils = {
        "attention": lambda m: m.transformer.layers[0].attention.value.mul_(1e200),
        "the model": lambda m: m.transformer.layers[0].feedforward.layers[-1].bias.fill_(1e200),
        "scores": lambda m: m.transformer.layers[0].attention.key.mul_(1e308),
    }
    for name, spoil in spoils.items():
        saved = random_model()
        with torch.no_grad():
            spoil(saved)
        saved.save(tmp_path / name)
        done = headcount_here("attack", name, "--starts", "2", "--for", "1s", "--json", "--out", "w")
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
        assert "overflows" in done.stderr
        assert not (tmp_path / "w").exists()
    huge = small_task()
    huge = GeneralizedRetrieval(huge.f, None, huge.F0 * 1e300, length=6, law=huge.law)  # type: ignore[operator]
    with pytest.raises(BadInput, match="the target overflows"):
        attack(random_model(), huge, starts=2, seconds=1.0)


def test_a_task_that_does_not_fit_the_model_is_rejected() -> None:
    with pytest.raises(BadInput, match="takes 6 tokens"):
        attack(random_model(), small_task(8))
    with pytest.raises(BadInput, match="unbounded"):
        attack(random_model(), hc.make_task("sum-of-maxima", intrinsic=2, dim=2, length=6))
    with pytest.raises(BadInput, match="typical"):
        attack(SavedModel(random_transformer(1)), hc.make_task("mean", dim=2, length=6), among="typical")


def test_implications_of_a_pair_hold_for_networks() -> None:
    """Random two-layer networks never change by more than the bounds allow, and one changes by exactly as much."""
    g = np.random.default_rng(0)
    for kind, activation in (("relu2", torch.relu), ("gelu2", torch.nn.functional.gelu)):
        for _ in range(200):
            E, width = int(g.integers(1, 8)), int(g.integers(1, 20))
            W, V = (torch.from_numpy(g.uniform(-1, 1, s)) for s in ((width, E), (1, width)))
            u = torch.from_numpy(g.standard_normal((2, E)))
            Y = activation(u @ W.T) @ V.T
            gap, delta = float(Y.diff(dim=0).abs()), u.diff(dim=0)
            needs = implied(gap, float(delta.norm()), float(delta.abs().sum()), E, 0.0, kind)
            assert needs.width_one is not None
            assert needs.width_one <= width
            assert needs.width_two is not None
            assert needs.width_two <= needs.width_one * (1 + 1e-9)
            assert needs.norm is not None
            assert needs.norm <= width * float(W.abs().max()) * float(V.abs().max()) * (1 + 1e-9)
    sharp = implied(12.0, math.sqrt(3.0), 3.0, 3, 0.0, "relu2")  # 4 units with all weights 1, Δ = (1, 1, 1)
    assert sharp.width_one == pytest.approx(4.0)
    assert sharp.lipschitz == pytest.approx(12 / math.sqrt(3))
    assert implied(1.0, 0.0, 0.0, 3, 0.1, "relu2").width_one is None
    assert implied(1.0, 0.1, 0.1, 3, 0.6, "relu2").width_one == 0.0
    assert sup_error(2.0) == pytest.approx(1.0)
    assert sup_error(2.0, 0.1, 5.0) == pytest.approx(0.75)
    assert sup_error(2.0, 1.0, 5.0) == 0.0
    slopes = torch.autograd.functional.jacobian(
        lambda x: torch.nn.functional.gelu(x).sum(), torch.linspace(-4, 4, 200_001, dtype=torch.float64)
    )
    assert 1.128 < float(slopes.max()) <= L_ACT["gelu2"]


@pytest.mark.slow
def test_fifty_built_models_have_no_large_pair() -> None:
    """Every kind of task that can be built: a gap above 2ε would contradict the certificate."""
    rows = [no_contradiction(seed, 30.0, 16) for seed in range(50)]
    assert all(row["gap"] <= 2 * row["eps"] for row in rows)
    pairs = sum(row["gap"] > 0 for row in rows)
    write_result(
        "attack-built",
        {"rows": rows, "largest_gap_over_2eps": max(row["gap"] / (2 * row["eps"]) for row in rows)},
        seeds=list(range(50)),
        counts={"tasks": 50, "with_a_pair": int(pairs)},
    )
