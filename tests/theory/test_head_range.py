"""The range of a head by the root of g(c): exact against brute force, its fast twin, too small a c rejected."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from certify_cases import OPTIONS, random_model, tasks, ways

import headcount as hc
from headcount.theory.certify.over_minima_cells import View, _rows
from headcount.theory.certify.over_tokens import roots
from headcount.theory.enclose import head as head_range
from headcount.theory.enclose import head_numba as head_kernel
from headcount.theory.enclose.head import Choices, Group, Tops, Weights, bound, g, weights

TASKS = tasks()


def outputs(saved: hc.SavedModel, X: np.ndarray) -> np.ndarray:
    """Return o[batch, heads, head_dim] by the definition."""
    model = saved.transformer
    attention = model.layers[0].attention
    with torch.no_grad():
        e = model.encoder(torch.from_numpy(X).float()).double()
        q = torch.einsum("hne,e->hn", attention.query.double(), model.class_token.double())
        r = torch.einsum("hn,hne,bte->bht", q, attention.key.double(), e)
        if attention.gates is not None:
            r = r + attention.gates.double()
        beta = attention.beta()
        r = r * (beta if isinstance(beta, float) else beta.double()[:, :, 0])
        return torch.einsum("bht,hne,bte->bhn", torch.softmax(r, -1), attention.value.double(), e).numpy()


def whole_view(levels, level: int = 2) -> View:
    cells = levels.table(level)
    view = View.of(cells, levels.groups, levels.members, cells.f_lo.min(0), cells.f_hi.max(0))
    assert view is not None
    return view


@pytest.mark.parametrize("options", ["plain", "gates", "learned", "sharp"])
def test_the_range_is_exact_by_brute_force(options):
    task = TASKS["min-plus-max"]
    saved = random_model(task, seed=3, **OPTIONS[options])
    view = whole_view(ways(saved, task)[0])
    grid = np.linspace(0, 1, 41)
    X = np.array(list(itertools.product(grid, repeat=3)))[..., None]
    o = outputs(saved, X)
    n = o.shape[2]
    for i in range(o.shape[1]):
        found = view.outputs(i, n)
        assert found is not None
        low, high = o[:, i].min(0), o[:, i].max(0)
        assert (found[0] <= low + 1e-6).all()  # the brute force encodes in float32
        assert (found[1] >= high - 1e-6).all()
        assert (found[1] - found[0] <= 1.03 * (high - low) + 1e-3).all()


def test_the_difference_is_exact_too():
    """w·o − γ·z for a single head: the largest of 200,000 sequences is close to the bound."""
    task = hc.make_task("quadratic-basins", intrinsic=1, dim=1, length=2)
    saved = random_model(task, seed=2, heads=1)
    view = whole_view(ways(saved, task)[0])
    grid = np.linspace(0, 1, 401)
    X = np.array(list(itertools.product(grid, repeat=2)))[..., None]
    o, z = outputs(saved, X)[:, 0], task.features(torch.from_numpy(X)).numpy()[:, 0]
    for w, gamma in (([1.0, 0.0], 0.5), ([-0.4, 1.0], -0.3), ([0.2, -0.7], 0.0)):
        attained = (o @ np.array(w) - gamma * z).max()
        found = view.difference(0, 2, np.array(w), np.array([gamma]))
        assert attained - 1e-6 <= found <= attained + 0.02


@pytest.mark.parametrize(
    ("name", "options"), [("min-plus-max", "plain"), ("basins", "gates"), ("sets", "plain"), ("vector", "sharp")]
)
def test_the_compiled_twin_agrees(name, options):
    task = TASKS[name]
    levels, _ = ways(random_model(task, seed=4, **OPTIONS[options]), task)
    rng = np.random.default_rng(1)
    for _ in range(3):
        cells = levels.table(0)
        z = task.features(task.sample(1, int(rng.integers(1000))))[0].numpy()
        view = View.of(cells, levels.groups, levels.members, z - 0.05, z + 0.1)
        assert view is not None
        w, gamma = rng.normal(size=2), rng.normal(size=len(z)) * 0.5
        fast = view.difference(0, 2, w, gamma)
        choices, tops = spelled_out(view, w, gamma)
        a = weights(cells.score_lo[:, view.keep, 0], cells.score_hi[:, view.keep, 0], choices)
        slow = bound(tops, choices, a, joint=True)[0]
        assert fast == pytest.approx(slow, rel=1e-6, abs=1e-6)


def spelled_out(view: View, w: np.ndarray, gamma: np.ndarray) -> tuple[Choices, Tops]:
    """Return the choices of `View.difference` as full arrays."""
    low, high = _rows(view.low, view.high, np.abs(gamma))
    order = np.argsort(-np.abs(gamma) * (view.high - view.low), kind="stable").tolist()
    f_lo, f_hi = view.cells.f_lo[view.keep], view.cells.f_hi[view.keep]
    member = np.array([[j in m for j in range(len(gamma))] for m in view.members])
    free = view.free[:, None] & ((f_hi >= low[:, None]) | ~member[:, None, None]).all(-1)
    near = [free & member[:, j, None, None] & (f_lo[:, j] <= high[:, j, None]) for j in order[:2]]
    ends = np.maximum(-gamma * low, -gamma * high)
    kinds = [group.kind for group in view.groups]

    def top(own: list[int]) -> np.ndarray:
        mask = np.isin(np.arange(len(gamma)), own)
        p = view._directed(0, 2, w[None], np.where(mask, gamma, 0.0))[0][kinds][:, None]
        return p + (ends * ~mask).sum(1)[None, :, None]

    t0 = top([])
    t1, t2 = np.minimum(t0, top(order[:1])), np.minimum(t0, top(order[1:2]))
    t3 = np.minimum(np.minimum(t1, t2), top(order[:2]))
    return Choices(view.groups, free, near[0], near[1], near[0] & near[1]), Tops(t0, t1, t2, t3)


def one_row(rng: np.random.Generator, T: int) -> tuple[Tops, Choices, Weights, float]:
    """Return a row of T tokens with one possible cell each: the head's output is a single number."""
    p, a = rng.normal(size=(T, 1, 1)), np.exp(rng.normal(size=(T, 1, 1)) * 3)
    choices = Choices([Group(1, 0)] * T, np.ones((T, 1, 1), dtype=bool), None, None, None)
    return Tops(p, p, p, p), choices, Weights(a, a), float((a * p).sum() / a.sum())


def test_a_bound_that_is_too_small_is_rejected():
    rng = np.random.default_rng(0)
    for _ in range(50):
        tops, choices, a, real = one_row(rng, 5)
        c = bound(tops, choices, a, joint=False)
        assert real - 1e-14 <= c[0] <= real + 1e-9
        assert g(c, tops, choices, a)[0] <= 0  # the proof
        for less in (1e-6, 1e-3, 1.0):  # sabotaged claims
            assert g(np.array([real - less]), tops, choices, a)[0] > 0
            flags = np.full((5, 1), 3)
            args = (
                np.ones(5),
                np.ones(5, dtype=np.int64),
                a.lo[:, 0],
                a.hi[:, 0],
                np.stack([tops.free[:, 0]] * 4),
                flags,
            )
            assert head_kernel.evaluate(real - less, *args)[0] > 0


def test_without_rounding_upward_a_false_bound_passes(monkeypatch):
    """At the float nearest to the root, rounded up, g must not be ≤ 0 where the real root lies above it."""
    from fractions import Fraction

    rng = np.random.default_rng(1)
    rows = [one_row(rng, 4) for _ in range(400)]

    def accepted_wrongly() -> int:
        count = 0
        for tops, choices, a, _ in rows:
            p, w = ([Fraction(v) for v in x.ravel().tolist()] for x in (tops.free, a.lo))
            real = sum(x * y for x, y in zip(p, w, strict=True)) / sum(w)
            c = np.nextafter(float(real), -np.inf)  # below the real root: a false claim
            count += bool(g(np.array([c]), tops, choices, a)[0] <= 0)
        return count

    assert accepted_wrongly() == 0
    monkeypatch.setattr(head_range, "up", lambda x: x)
    assert accepted_wrongly() > 0


def test_saturated_weights():
    """Scores of 1e6: the head returns the value of its best token, and the bound says so."""
    task = TASKS["min-plus-max"]
    saved = random_model(task, seed=1, beta=1e6)
    levels, boxes = ways(saved, task)
    X = np.sort(np.random.default_rng(0).random((20, 3, 1)), 1)
    values, _ = boxes.examine(X - 1e-9, X + 1e-9)
    assert np.isfinite(values).all()
    wide, _ = levels.examine(np.zeros(2), np.ones(2))
    assert np.isfinite(wide)


def test_averages_of_boxes():
    rng = np.random.default_rng(2)
    p, lo = rng.normal(size=(30, 4, 2)), np.exp(rng.normal(size=(30, 4, 2)))
    hi = lo * np.exp(rng.exponential(size=lo.shape))
    found = roots(p, Weights(lo, hi))
    best = np.full((30, 2), -np.inf)
    for ends in itertools.product((0, 1), repeat=4):  # the extremes of an average lie at ends of the weights
        a = np.where(np.array(ends)[:, None] == 1, hi, lo)
        best = np.maximum(best, (a * p).sum(1) / a.sum(1))
    assert (found >= best - 1e-15).all()
    assert np.allclose(found, best, atol=1e-8)
