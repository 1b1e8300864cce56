"""Upper bounds on the irreducible gap: planted answers, never below a collision, and twins that must fail."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np
import pytest
import torch
from certify_cases import random_model
from irreducible_cases import planted, search

import headcount as hc
from headcount.core.errors import BadInput
from headcount.models.files import SavedModel
from headcount.models.transformer.reference import Transformer
from headcount.models.transformer.spec import ModelSpec
from headcount.tasks.expressions.tree import variable
from headcount.tasks.retrieval import GeneralizedRetrieval
from headcount.theory.certify.token_cells import fold
from headcount.theory.enclose.intervals import Interval
from headcount.theory.irreducible import bound as irreducible
from headcount.theory.irreducible import pair_bounds
from headcount.theory.irreducible.bound import irreducible_bound
from headcount.theory.irreducible.pair_bounds import PairBounds

X, Z = variable(1), variable(1)
MIN = {T: GeneralizedRetrieval([X], None, Z + 0.0, length=T, name="min") for T in (2, 3, 4)}
MAX = {T: GeneralizedRetrieval([-X], None, -Z, length=T, name="max") for T in (2, 3, 4)}
BOTH = {T: hc.make_task("min-plus-max", length=T) for T in (2, 3, 4)}
BASINS = {T: hc.make_task("quadratic-basins", intrinsic=2, dim=1, length=T) for T in (2, 3, 4)}


def least_square(T: int) -> GeneralizedRetrieval:
    return GeneralizedRetrieval([X**2], None, Z + 0.0, length=T, name="least square")


# With o the mean of x in [0, 1]^T, by hand:
# - the smallest token is at most the mean, and at least max(0, 1 − T(1 − mean)): the gap is widest at mean 1 − 1/T;
# - max is its mirror image; max + min of two tokens is twice the mean; for T = 3, max + min = 3·mean − middle, and with
#   mean 1/2 the middle is 1/4 (1/4, 1/4, 1) to 3/4 (0, 3/4, 3/4); for T = 4, (1, 1/3, 1/3, 1/3) against its mirror;
# - the smallest x²: X all at the mean m against (Tm − T + 1, 1, …, 1): the gap is widest at m = T/(T + 1).
KNOWN = [
    *((MIN[T], 1 - 1 / T) for T in (2, 3, 4)),
    *((MAX[T], 1 - 1 / T) for T in (2, 3, 4)),
    (BOTH[2], 0.0),
    (BOTH[3], 1 / 2),
    (BOTH[4], 2 / 3),
    *((least_square(T), (T - 1) / (T + 1)) for T in (2, 3)),
]


@pytest.mark.parametrize(("task", "gap"), KNOWN, ids=lambda v: f"{v.name}-{v.length}" if hasattr(v, "length") else None)
def test_the_gap_of_uniform_attention_is_the_one_found_by_hand(task, gap):
    found = irreducible_bound(planted(task), task, seconds=10 if gap else 0.3, lower=gap, goal=1.01)
    assert gap <= found.bound <= 1.01 * gap + 1e-12
    if gap > 0:
        assert found.finished
        assert found.left == 0


def test_the_bound_is_sound_when_stopped_immediately():
    for task, gap in KNOWN:
        seen: list[float] = []
        found = irreducible_bound(
            planted(task), task, seconds=0.0, on_step=lambda bound, left, spent, seen=seen: seen.append(bound)
        )
        assert found.bound >= gap
        assert seen == [found.bound]


def test_the_bound_never_rises():
    task = BASINS[3]
    seen: list[float] = []
    found = irreducible_bound(
        random_model(task, seed=1, heads=2, head_dim=1),
        task,
        seconds=0.5,
        on_step=lambda bound, left, spent: seen.append(bound),
    )
    assert seen == sorted(seen, reverse=True)
    assert found.bound == seen[-1]
    assert not found.finished
    assert found.left > 0


@pytest.mark.parametrize("name", ["min", "both", "basins"])
def test_a_layer_that_keeps_all_tokens_apart_has_no_gap(name):
    """Theorem 2 (3): x(t) has its own block, so G = 0, and the bound proves that no two sequences collide."""
    task = {"min": MIN[3], "both": BOTH[3], "basins": BASINS[3]}[name]
    saved = planted(task, separated=True)
    found = irreducible_bound(saved, task, seconds=2)
    assert found.bound == 0
    assert found.finished


def test_the_gap_of_a_constant_layer_is_the_range_of_the_target():
    """The gap is the whole range of the target: 0 to 2 for max + min, and for basins the range on a fine grid."""
    found = irreducible_bound(planted(BOTH[3], blind=True), BOTH[3], seconds=5, lower=2.0, goal=1.001)
    assert 2.0 <= found.bound <= 2.002
    task = BASINS[2]
    g = np.linspace(0, 1, 201)
    grid = np.stack(np.meshgrid(g, g, indexing="ij"), -1).reshape(-1, 2, 1)
    H = task.value(torch.from_numpy(grid)).numpy()
    gap = float(H.max() - H.min())
    found = irreducible_bound(planted(task, blind=True), task, seconds=5, lower=gap, goal=1.01)
    assert gap <= found.bound <= 1.01 * gap
    assert found.finished


# --- random models: 32 of them, with every option --------------------------------------------------------------------

OPTIONS = [
    {},
    {"heads": 1, "head_dim": 1},
    {"heads": 2, "head_dim": 1},
    {"heads": 1, "head_dim": 2, "beta": 4.0},
    {"positions": "additive", "heads": 1},
    {"positions": "concatenated", "head_dim": 1},
    {"positions": "gates", "heads": 1, "beta": 3.0},
    {"beta": 30.0, "heads": 1},
]
OTHERS = {
    "plane": hc.make_task("quadratic-basins", intrinsic=2, dim=2, length=2, outer="tanh"),
    "sets": hc.make_task("quadratic-basins", intrinsic=2, dim=1, length=4, sets="random", outer="product"),
    "vector": hc.make_task("quadratic-basins", intrinsic=2, dim=1, length=3, outer="vector"),
}
MODELS = [(task, k) for k in range(len(OPTIONS)) for task in (BOTH[3], BASINS[2], BASINS[3], MAX[4])]
EVERY = [*MODELS, *((task, k) for k in (0, 2, 4) for task in OTHERS.values())]


TASKS = [BOTH[2], BOTH[3], BASINS[2], BASINS[3], MAX[4], *OTHERS.values()]


@functools.cache
def collision(index: int, k: int) -> tuple[hc.SavedModel, float, np.ndarray]:
    """Return a random model, the gap of a colliding pair, and the pair."""
    saved = random_model(TASKS[index], seed=k, **OPTIONS[k])
    return saved, *search(saved, TASKS[index], starts=12, steps=3, seed=k)


def below(task: GeneralizedRetrieval, k: int, seconds: float = 0.03) -> list[str]:
    """Return the claims about a random model that a collision contradicts: by the search, and on boxes."""
    saved, gap, pair = collision(TASKS.index(task), k)
    if gap < 1e-6:
        return []
    found = irreducible_bound(saved, task, seconds=seconds, lower=0.9 * gap, goal=1.0)
    wrong = [f"bound {found.bound} < {gap}"] if found.bound < gap - 1e-9 else []
    if saved.transformer.spec.positions == "none" and len({tuple(s) for s in task.S}) == 1:
        pair = np.take_along_axis(pair, pair[:, :, :1].argsort(1), 1)
    rng = np.random.default_rng(k)
    count = 12
    size = 10.0 ** rng.uniform(-3, 0, (count, 1, 1, 1))
    low, high = (np.clip(pair + s * size * rng.random((count, *pair.shape)), 0.0, 1.0) for s in (-1, 1))
    bounds = PairBounds(fold(saved.transformer), task, 0, [])
    for share in (0.0, 0.98):
        examined = bounds.examine(low, high, share * gap)
        wrong += [f"box {v} < {gap}" for v in examined.value if not v >= gap - 1e-9]
        lost = ((pair < examined.low - 1e-9) | (pair > examined.high + 1e-9)).any((1, 2, 3))
        wrong += ["the pair was cut off"] * int(lost.sum())
    return wrong


@pytest.mark.parametrize("k", range(len(OPTIONS)))
def test_no_bound_is_below_a_collision(k):
    for task, option in MODELS:
        if option == k:
            assert below(task, k) == []


# --- sabotaged twins ------------------------------------------------------------------------------------------------


def contradicted() -> list[str]:
    """Return the claims that planted cases and a few random models contradict."""
    wrong = [w for task, k in ((BASINS[2], 2), (BOTH[3], 0), (BASINS[3], 3)) for w in below(task, k)]
    for task, gap in ((MIN[2], 1 / 2), (BOTH[3], 1 / 2), (least_square(2), 1 / 3)):
        found = irreducible_bound(planted(task), task, seconds=0.2, lower=0.99 * gap, goal=1.0)
        wrong += [f"{task.name}: {found.bound} < {gap}"] if found.bound < gap else []
    return wrong


def test_the_unmodified_code_passes():
    assert contradicted() == []


def test_a_bound_that_is_one_percent_low_is_caught(monkeypatch):
    true = PairBounds._proved_bound
    monkeypatch.setattr(PairBounds, "_proved_bound", lambda *a: (0.99 * true(*a)[0], true(*a)[1]))
    assert contradicted() != []


def test_slopes_that_are_one_percent_low_are_caught(monkeypatch):
    true = pair_bounds.stack_rows

    def less(*a):
        rows = true(*a)
        return replace(rows, slope=Interval(0.99 * rows.slope.lo, 0.99 * rows.slope.hi))

    monkeypatch.setattr(pair_bounds, "stack_rows", less)
    assert contradicted() != []


def test_narrowed_ranges_of_the_heads_are_caught(monkeypatch):
    """Every token's box is reduced by 1 % on either side, for the heads only."""
    true = pair_bounds.enclose_heads
    monkeypatch.setattr(
        pair_bounds, "enclose_heads", lambda m, low, high: true(m, 0.99 * low + 0.01 * high, 0.01 * low + 0.99 * high)
    )
    assert contradicted() != []


def test_a_dropped_box_is_caught(monkeypatch):
    """The halves of every cut are dropped."""
    true = irreducible._PairSearch._tighten_to_sorted
    monkeypatch.setattr(
        irreducible._PairSearch, "_tighten_to_sorted", lambda self, low, high: true(self, low, high) & (len(low) == 1)
    )
    assert contradicted() != []


def test_a_contraction_that_cuts_too_much_is_caught(monkeypatch):
    true = pair_bounds._contract
    monkeypatch.setattr(
        pair_bounds,
        "_contract",
        lambda low, high, bound, target, coef: true(low, high, 0.1 * bound + 0.9 * target, target, coef),
    )
    assert contradicted() != []


def test_a_false_proof_of_no_collision_is_caught(monkeypatch):
    """As many outputs as coordinates, but all of them constant."""
    saved = planted(BOTH[2], separated=True, blind=True)
    assert irreducible_bound(saved, BOTH[2], seconds=0.1).bound >= 2
    monkeypatch.setattr(pair_bounds, "proved_injective", lambda m, low, high: np.ones(len(low), dtype=bool))
    assert irreducible_bound(saved, BOTH[2], seconds=0.1).bound < 2


# --- rejected input, built models, and how far the bound gets --------------------------------------------------------


def test_refusals():
    task = BOTH[2]
    saved = planted(task)
    for change, match in (
        ({"output": 1}, "output"),
        ({"lower": -1.0}, "lower"),
        ({"goal": 0.5}, "goal"),
        ({"box": ((0.0,), (np.inf,))}, "box"),
    ):
        with pytest.raises(hc.BadInput, match=match):
            irreducible_bound(saved, task, **change)
    with pytest.raises(hc.BadInput, match="layer norm"):
        irreducible_bound(random_model(task, layer_norm=True), task)


@pytest.mark.parametrize("T", [2, 3])
def test_built_models_have_a_small_gap(T):
    """Theorem 2 (1): the model's error is at most ε, so the gap is at most 2ε; the bound may still be larger."""
    eps = 0.2
    built = hc.build(BOTH[T], eps)
    saved = built.model
    gap, _ = search(saved, BOTH[T], starts=16, steps=6)
    assert gap <= 2 * eps
    found = irreducible_bound(saved, BOTH[T], seconds=0.5, lower=gap)
    assert found.bound >= gap


@pytest.mark.slow
def test_small_models_are_bounded_within_a_minute():
    """T ≤ 4, tokens of one number: for nearly all, the bound is within 1.1 times the gap found, in a minute."""
    done: list[bool] = []
    for T, heads, head_dim in ((2, 1, 1), (3, 1, 1), (3, 1, 2), (3, 2, 1), (4, 1, 1), (4, 1, 2), (4, 2, 1)):
        for task in (BOTH[T], BASINS[T]):
            saved = random_model(task, seed=1, heads=heads, head_dim=head_dim, hidden=8)
            gap = max(search(saved, task, starts=256, steps=40, seed=k)[0] for k in range(2))
            found = irreducible_bound(saved, task, seconds=60, lower=gap)
            assert found.bound >= gap
            done.append(found.finished)
    assert sum(done) >= 0.9 * len(done)


@pytest.mark.slow
@pytest.mark.parametrize(("task", "k"), EVERY[len(MODELS) :])
def test_no_bound_is_below_a_collision_on_other_tasks(task, k):
    assert below(task, k, seconds=5) == []


def test_a_model_whose_w_o_is_not_injective_is_rejected() -> None:
    """With W_O = 0, F reads a constant and errs by half the target's range, whatever o is."""
    task = hc.make_task("min-plus-max", length=2)
    assert isinstance(task, GeneralizedRetrieval)
    for options, spoil in (({"width": 4}, True), ({"width": 1, "head_dim": 2}, False)):
        spec = ModelSpec(**{"dim": 1, "length": 2, "heads": 1, "head_dim": 2, "hidden": 4, **options})
        model = Transformer(spec, seed=0, dtype=torch.float64)
        if spoil:
            with torch.no_grad():
                model.layers[0].attention.output.zero_()
        with pytest.raises(BadInput, match="W_O is not proved to be injective"):
            irreducible_bound(SavedModel(model, task=task.data()), task, seconds=1.0)
