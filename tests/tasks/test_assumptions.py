"""The checker of assumptions: what it must prove, what it must reject, and that its proofs are sound."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch

from headcount.core.errors import BadInput
from headcount.tasks.assumptions.check import AssumptionReport, check_assumptions
from headcount.tasks.assumptions.minimiser import find_minimiser, kinked, prove_minimiser
from headcount.tasks.expressions import in_balls as expr_ball
from headcount.tasks.expressions import in_torch as expr_torch
from headcount.tasks.expressions.in_balls import ball
from headcount.tasks.expressions.jet_arithmetic import Jet, balls, curvature, definite, jets
from headcount.tasks.expressions.tree import Exp, Expr, Product, Softplus, Tanh, constant, largest, smallest, variable
from headcount.tasks.families import FAMILIES, make_task
from headcount.tasks.retrieval import GeneralizedRetrieval
from headcount.tasks.sampling import Gaussian

SIZES = "|S_i| ≥ T/4"
ALL = ("2.1", "2.2", "2.3", "2.4", SIZES)
RETRIEVAL = sorted(name for name in FAMILIES if isinstance(make_task(name), GeneralizedRetrieval))
UNIT = ((0.0,), (1.0,))
SQUARE = ((0.0, 0.0), (1.0, 1.0))


def basin(centre: float) -> Expr:
    return ((variable(1) - centre) ** 2).sum()


def two_basins(tilt: float) -> Expr:
    """Two basins, at about 0.3 and 0.7; a positive tilt makes the left one deeper by 0.4·tilt."""
    x = variable(1)
    return 4.0 * (x - 0.3) ** 2 * (x - 0.7) ** 2 + tilt * x


def retrieval(f: list[Expr], F0: Expr | None = None, **options: object) -> GeneralizedRetrieval:
    outer = F0 if F0 is not None else variable(len(f)).sum()
    return GeneralizedRetrieval(f, options.pop("S", None), outer, **{"length": 8, **options})  # type: ignore[arg-type]


def verdicts(report: AssumptionReport) -> dict[str, str]:
    return {f.assumption: f.verdict for f in report.findings}


# -- jets ---------------------------------------------------------------------------------------------------


def random_tree(rng: np.random.Generator, dim: int, depth: int = 3) -> Expr:
    """A smooth tree with one component and moderate values."""
    if depth == 0:
        return variable(dim).dot(rng.uniform(-1, 1, dim).tolist()) + float(rng.uniform(-1, 1))
    below = [random_tree(rng, dim, depth - 1) for _ in range(2)]
    match rng.integers(7):
        case 0:
            return below[0] ** int(rng.integers(1, 5))
        case 1:
            return Exp(of=-(below[0] ** 2))
        case 2:
            return Tanh(of=2.0 * below[0])
        case 3:
            return Softplus(of=3.0 * below[0]) - 0.5
        case 4:
            return below[0] * below[1]
        case 5:
            return 0.7 * below[0] - 1.3 * below[1] + 0.2
        case _:
            return Product(args=(below[0], below[1], below[0] + 1.0))


def numbers(jet: Jet, dim: int) -> dict[tuple[int, ...], object]:
    """All components of a jet under one kind of name; absent ones are exactly 0."""
    pairs = [(i, j) for i in range(dim) for j in range(i, dim)]
    return (
        {(): jet.value}
        | {(i,): jet.gradient.get(i, ball(0.0)) for i in range(dim)}
        | {ij: jet.hessian.get(ij, ball(0.0)) for ij in pairs}
    )


@pytest.mark.parametrize("seed", range(40))
def test_jets_agree_with_autograd_and_enclose_boxes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    dim = 1 + seed % 4
    tree = random_tree(rng, dim)
    low = rng.uniform(-1, 0.5, dim)
    high = low + rng.uniform(0.01, 0.5, dim)
    box = numbers(jets(tree, balls(low.tolist(), high.tolist()))[0], dim)
    natural = expr_ball.evaluate(tree, balls(low.tolist(), high.tolist()))[0]
    for _ in range(8):
        point = (low + (high - low) * rng.random(dim)).tolist()
        x = torch.tensor(point, dtype=torch.float64)

        def scalar(v: torch.Tensor) -> torch.Tensor:
            return expr_torch.evaluate(tree, v)[0]

        g = torch.autograd.functional.jacobian(scalar, x)
        H = torch.autograd.functional.hessian(scalar, x)
        true = {(): float(scalar(x))} | {(i,): float(g[i]) for i in range(dim)}
        true |= {(i, j): float(H[i, j]) for i in range(dim) for j in range(i, dim)}
        sharp = numbers(jets(tree, balls(point, point))[0], dim)
        assert natural.contains(sharp[()].mid())
        for name, value in true.items():
            assert float(sharp[name].mid()) == pytest.approx(value, rel=1e-9, abs=1e-10), name
            assert float(sharp[name].rad()) <= 1e-10 * (1 + abs(value)), name
            assert box[name].overlaps(sharp[name]), name


def test_enclosures_exclude_values_outside() -> None:
    """The twin of the test above: with the wrong box the same comparison fails."""
    tree = Exp(of=variable(1))
    box, point = jets(tree, balls([0.0], [0.5]))[0], jets(tree, balls([0.6], [0.6]))[0]
    assert not any(a.overlaps(b) for a, b in zip(numbers(box, 1).values(), numbers(point, 1).values(), strict=True))


def test_saturated_derivatives_keep_their_sign() -> None:
    x = variable(1)
    for tree in (Tanh(of=x), Softplus(of=x), Softplus(of=-x) * -1.0):
        for t in (-300.0, -40.0, 40.0, 300.0):
            assert jets(tree, balls([t], [t]))[0].gradient[0] > 0
    assert jets(Tanh(of=x), balls([35.0], [36.0]))[0].hessian[0, 0] < 0


def test_exact_zeros_are_absent() -> None:
    x = variable(3)
    linear = jets(x.dot([1.0, 0.0, -2.0]) + 5.0, balls([0.0] * 3, [1.0] * 3))[0]
    assert not linear.hessian
    assert set(linear.gradient) == {0, 2}
    assert not jets(x[0] - x[0], balls([0.0] * 3, [1.0] * 3))[0].gradient
    assert set(jets((x[0] - 0.5) ** 2, balls([0.0] * 3, [1.0] * 3))[0].hessian) == {(0, 0)}


@pytest.mark.parametrize("tree", [variable(2).norm(), largest(variable(2)), smallest(variable(2)) ** 2])
def test_jets_reject_kinks(tree: Expr) -> None:
    with pytest.raises(BadInput, match="kinks"):
        jets(tree, balls([0.0, 0.0], [1.0, 1.0]))


def test_definite_tells_yes_no_and_unclear() -> None:
    def matrix(a: float, b: float, c: float) -> dict[tuple[int, int], object]:
        return {(0, 0): ball(a), (0, 1): ball(b), (1, 1): ball(c)}

    assert definite(matrix(2.0, 1.0, 2.0), [0, 1]) is True
    assert definite(matrix(1.0, 1.0, 1.0), [0, 1]) is False  # singular, exactly
    assert definite(matrix(1.0, 2.0, 1.0), [0, 1]) is False
    assert definite(matrix(1.0, 2.0, 1.0), [0]) is True
    assert definite({(0, 0): ball(-1e-9, 1.0)}, [0]) is None
    assert definite({}, [0]) is False
    assert 0.999999 < curvature(matrix(2.0, 1.0, 2.0), [0, 1]) <= 1.0
    assert curvature(matrix(1.0, 2.0, 1.0), [0, 1]) == 0.0


# -- search and proof ---------------------------------------------------------------------------------------


def test_search_finds_every_tied_basin() -> None:
    assert sorted(p[0] for p in find_minimiser(two_basins(0.0), UNIT).points) == pytest.approx([0.3, 0.7])
    assert find_minimiser(two_basins(1e-3), UNIT).points[0][0] == pytest.approx(0.2992232805555835)
    assert len(find_minimiser(two_basins(1e-3), UNIT).points) == 1
    x = variable(2)
    assert len(find_minimiser((x[0] - x[1]) ** 2, SQUARE).points) > 5
    corner = find_minimiser(lambda v: v @ torch.tensor([1.0, -1e-3], dtype=v.dtype), SQUARE)
    assert corner.points == [(0.0, 1.0)]
    many = find_minimiser(((variable(20) - 0.3) ** 2).sum(), ((0.0,) * 20, (1.0,) * 20))
    assert many.points[0] == pytest.approx((0.3,) * 20, abs=1e-6)


@pytest.mark.parametrize("shift", [0.0, 3.0])
@pytest.mark.parametrize("power", [4, 8])
def test_a_flat_basin_is_one_minimiser_for_the_search(power: int, shift: float) -> None:
    found = find_minimiser((variable(1) - 0.4) ** power + shift, UNIT)
    assert len(found.points) == 1
    assert found.points[0][0] == pytest.approx(0.4, abs=1e-2)


def test_near_ties_are_proved_from_the_right_candidate_only() -> None:
    for tilt in (1e-3, 1e-6, -1e-3):
        f, right = two_basins(tilt), 0.3 if tilt > 0 else 0.7
        proof = prove_minimiser(f, UNIT, [right])
        assert proof.proved
        assert proof.box.high[0] - proof.box.low[0] < 1e-2
        assert proof.box.low[0] <= find_minimiser(f, UNIT).points[0][0] <= proof.box.high[0]
        assert proof.value[0] <= find_minimiser(f, UNIT).value <= proof.value[1] + 1e-15
        local = prove_minimiser(f, UNIT, [1.0 - right])  # a local minimum that is not global
        assert not local.proved
        assert local.boxes < 100
        assert not prove_minimiser(f, UNIT, [0.5]).proved  # no minimum at all


def test_a_tie_is_never_proved() -> None:
    proof = prove_minimiser(two_basins(0.0), UNIT, [0.3])
    assert not proof.proved
    assert proof.box.low[0] <= 0.3 <= 0.7 <= proof.box.high[0]
    assert proof.boxes < 500  # given up when the tie shows, not when the budget is spent
    x = variable(2)
    for valley in ((x[0] - x[1]) ** 2, Tanh(of=x.sum() - 1.0) ** 2):
        assert prove_minimiser(valley, SQUARE, [0.5, 0.5]).outcome == "unclear"


def test_boundary_minimisers_are_proved_by_monotonicity() -> None:
    x = variable(2)
    corner = prove_minimiser(x.dot([1.0, -0.25]), SQUARE, [0.1, 0.9])
    assert corner.proved
    assert corner.box == ((0.0, 1.0), (0.0, 1.0))
    assert corner.value == (-0.25, -0.25)
    face = prove_minimiser(x[0] + (x[1] - 0.5) ** 2, SQUARE, [0.0, 0.5])
    assert face.proved
    assert face.box.low[0] == face.box.high[0] == 0.0
    saddle = prove_minimiser((x[0] - 0.25) * (0.5 - x[1]), SQUARE, [1.0, 1.0])
    assert saddle.proved
    assert saddle.box == ((1.0, 1.0), (1.0, 1.0))
    assert not prove_minimiser((x[0] - 0.25) * (0.5 - x[1]), SQUARE, [0.0, 0.0]).proved


def test_flat_and_unbounded_domains() -> None:
    x = variable(2)
    flat = prove_minimiser((x[0] - 0.5) ** 2, SQUARE, [0.5, 0.5])
    assert flat.outcome == "several"
    assert (flat.box.low[1], flat.box.high[1]) == (0.0, 1.0)
    assert prove_minimiser(constant([2.0], 2), SQUARE, [0.5, 0.5]).outcome == "several"
    everywhere = ((-math.inf,) * 2, (math.inf,) * 2)
    assert prove_minimiser(x.dot([1.0, 0.0]), everywhere, [0.0, 0.0]).outcome == "none"
    assert prove_minimiser(((x - 0.25) ** 2).sum(), everywhere, [0.2, 0.2]).proved
    assert prove_minimiser(Exp(of=x[0]) + x[1] ** 2, everywhere, [-3.0, 0.0]).outcome == "unclear"


def test_a_spent_budget_proves_nothing() -> None:
    f = two_basins(1e-3)
    assert not prove_minimiser(f, UNIT, [0.3], budget=2).proved
    assert prove_minimiser(f, UNIT, [0.3]).boxes > 2


@pytest.mark.parametrize("seed", range(10))
def test_proofs_agree_with_a_fine_grid(seed: int) -> None:
    rng = np.random.default_rng(seed)
    f = random_tree(rng, 2) + 0.05 * ((variable(2) - rng.random(2).tolist()) ** 2).sum()
    proof = prove_minimiser(f, SQUARE, find_minimiser(f, SQUARE).points[0], budget=300)
    axis = torch.linspace(0, 1, 301, dtype=torch.float64)
    grid = torch.cartesian_prod(axis, axis)
    y = expr_torch.evaluate(f, grid)[:, 0]
    assert float(y.min()) >= proof.value[0] - 1e-14
    assert proof.value[1] <= float(y.min()) + 1e-14
    if proof.proved:
        inside = torch.tensor([proof.box.low, proof.box.high], dtype=torch.float64)
        lower = expr_torch.evaluate(f, inside.mean(0)[None])[0, 0]
        assert float(lower) <= float(y.min()) + 1e-12


def test_kinks_are_detected() -> None:
    x = variable(2)
    at = torch.tensor([0.3, 0.6], dtype=torch.float64)
    assert kinked((x - [0.3, 0.6]).norm(), at, SQUARE, 1.0)
    assert kinked(lambda v: (v[..., 0] - 0.3).abs() + v[..., 1] ** 2, at, SQUARE, 1.0)
    bent = largest(x[0] - 0.3, constant([0.0], 2)) * largest(x[0] - 0.3, constant([0.0], 2)) + (x[0] - 0.3) ** 2
    assert kinked(bent, at, SQUARE, 1.0)  # differentiable once
    assert not kinked(bent, at, SQUARE, 1.0, order=1)
    assert not kinked(((x - [0.3, 0.6]) ** 2).sum(), at, SQUARE, 1.0)
    assert not kinked(lambda v: torch.exp(3 * v).sum(-1), at, SQUARE, 1.0)
    assert not kinked(1000.0 * ((x - [0.3, 0.6]) ** 2).sum(), at, SQUARE, 1.0)  # steep, but smooth


# -- the families -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dim", "intrinsic", "outer", "sets"),
    [
        (1, 2, "sum", "all"),
        (1, 3, "exp", "halves"),
        (2, 1, "tanh", "all"),
        (2, 3, "product", "bands"),
        (2, 4, "vector", "random"),
        (3, 2, "square", "all"),
        (3, 3, "sum-product", "all"),
        (4, 3, "exp", "halves"),
    ],
)
def test_quadratic_basins_meet_all_assumptions(dim: int, intrinsic: int, outer: str, sets: str) -> None:
    task = make_task("quadratic-basins", dim=dim, intrinsic=intrinsic, outer=outer, sets=sets, seed=dim)
    report = check_assumptions(task)
    assert report.holds
    assert {(f.verdict, f.evidence) for f in report.findings} == {("holds", "proved")}
    assert [f.assumption for f in report.findings] == ["domain", *ALL]
    curved = report.finding("2.3").numbers
    assert curved["smallest_eigenvalue"] == pytest.approx([2 / dim] * intrinsic)
    assert all(0.99 * 2 / dim < bound <= 2 / dim for bound in curved["at_least"])  # type: ignore[union-attr]
    assert AssumptionReport.parse(json.loads(json.dumps(report.data(), allow_nan=False))) == report


def test_sum_of_maxima_fails_as_the_paper_says() -> None:
    report = check_assumptions(make_task("sum-of-maxima"))
    assert not report.holds
    assert verdicts(report) == {
        "domain": "fails",
        "2.1": "fails",
        "2.2": "unknown",
        "2.3": "fails",
        "2.4": "holds",
        SIZES: "holds",
    }
    third = report.finding("2.3")
    assert (third.evidence, third.numbers["smallest_eigenvalue"]) == ("proved", [0.0] * 4)
    assert "linear" in third.sentence
    assert "bounded" in report.finding("domain").sentence
    assert report.finding("2.1").evidence == "proved"
    assert "no minimiser" in report.finding("2.1").sentence
    assert report.finding("2.1").numbers["searched"] == {"low": [-3.0] * 4, "high": [3.0] * 4}


def test_min_plus_max_fails_the_hessian_only() -> None:
    report = check_assumptions(make_task("min-plus-max"))
    assert not report.holds
    assert [f.assumption for f in report.findings if f.verdict != "holds"] == ["2.3"]
    assert all(f.evidence == "proved" for f in report.findings)
    assert report.finding("2.1").numbers["minimisers"] == [[[0.0]], [[1.0]]]


def test_sparse_regression_has_free_marks() -> None:
    report = check_assumptions(make_task("sparse-regression"))
    assert (report.finding("2.1").verdict, report.finding("2.1").evidence) == ("fails", "proved")
    assert report.finding("2.3").verdict == "fails"
    one = check_assumptions(make_task("sparse-regression", q=1, outer="exp"))
    assert [f.assumption for f in one.findings if f.verdict != "holds"] == ["2.3"]


def test_sphere_anchors_hold_on_the_box_around_the_sphere() -> None:
    report = check_assumptions(make_task("sphere-anchors", outer="tanh"))
    assert report.holds
    assert "sphere" in str(report.finding("domain").numbers["note"])
    for low, high in report.finding("domain").numbers["ranges"]:  # type: ignore[union-attr,misc]
        assert low == pytest.approx(0.0, abs=1e-9)
        assert high == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize("name", [name for name in FAMILIES if name not in RETRIEVAL])
def test_tasks_without_retrieval_are_not_judged(name: str) -> None:
    report = check_assumptions(make_task(name))
    assert not report.applies
    assert not report.holds
    assert report.findings == ()
    with pytest.raises(BadInput, match=r"2\.3"):
        report.finding("2.3")


@pytest.mark.parametrize("name", RETRIEVAL)
def test_measured_verdicts_never_contradict_proved_ones(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    proved = check_assumptions(make_task(name))
    monkeypatch.setattr(expr_ball, "flint", None)
    measured = check_assumptions(make_task(name))
    assert all(f.evidence == "measured" for f in measured.findings if f.assumption not in ("domain", SIZES))
    apart = {n for n, v in verdicts(proved).items() if v != verdicts(measured)[n]}
    # a search cannot see that linear functions fall for ever on the unbounded domain of sum-of-maxima
    assert apart == ({"2.1"} if name == "sum-of-maxima" else set())
    assert all(verdicts(measured)[n] == "unknown" for n in apart)


# -- sabotage: one task per assumption, rejected on that assumption -----------------------------------------

x1, x2 = variable(1), variable(2)
z = variable(2)
round_basin = ((x2 - 0.7) ** 2).sum() / 2
skewed = basin(0.3) / 2 + Exp(of=x1) / 10  # neither the minimiser nor the minimum is a double
LEAST = find_minimiser(skewed, UNIT).value
SABOTAGE = {
    "two equal basins": ("2.1", retrieval([two_basins(0.0), basin(0.5)]), "measured"),
    "a valley": ("2.1", retrieval([(x2[0] - x2[1]) ** 2, round_basin]), "measured"),
    "a coordinate never read": ("2.1", retrieval([(x2[0] - 0.3) ** 2, round_basin]), "proved"),
    "the same minimiser": ("2.2", retrieval([skewed, skewed / 2 + 0.1]), "measured"),
    "the same function": ("2.2", retrieval([skewed, skewed], S=[[0, 1, 2], [3, 4, 5]]), "proved"),
    "the same corner": ("2.2", retrieval([x1 / 2, x1 / 4], F0=z.sum()), "proved"),
    "a quartic basin": ("2.3", retrieval([(x1 - 0.4) ** 4, basin(0.7)]), "measured"),
    "a linear f": ("2.3", retrieval([x1, basin(0.7)]), "proved"),
    "a singular Hessian": ("2.3", retrieval([x2[0] + (x2[1] - 0.5) ** 2 / 4, round_basin]), "proved"),
    "a kink": ("2.3", retrieval([(x2 - 0.3).norm() / 2, round_basin]), "measured"),
    "F0 flat at the minima": ("2.4", retrieval([basin(0.3), basin(0.7)], F0=z[0] ** 2 + z[1]), "proved"),
    "F0 flat, inexactly": ("2.4", retrieval([skewed, basin(0.7)], F0=(z[0] - LEAST) ** 2 + z[1]), "measured"),
    "F0 never reads z_2": ("2.4", retrieval([basin(0.3), basin(0.7)], F0=z[0] * 2.0), "proved"),
    "a kink of F0": ("2.4", retrieval([basin(0.3), basin(0.7)], F0=largest(z[0], z[1])), "measured"),
    "a small index set": (SIZES, retrieval([basin(0.3), basin(0.7)], S=[[0, 1], [2]], length=8), "proved"),
    "f above 1": ("domain", retrieval([basin(0.3) * 4.0, basin(0.7)]), "proved"),
    "f below 0": ("domain", retrieval([basin(0.3) - 0.01, basin(0.7)]), "proved"),
    "unbounded tokens": ("domain", retrieval([basin(0.3), basin(0.7)], law=Gaussian()), "proved"),
}


@pytest.mark.parametrize("name", SABOTAGE)
def test_every_sabotage_is_rejected_where_it_was_done(name: str) -> None:
    assumption, task, evidence = SABOTAGE[name]
    report = check_assumptions(task)
    finding = report.finding(assumption)
    assert (finding.verdict, finding.evidence) == ("fails", evidence), finding.sentence
    assert report.holds == (assumption == "domain")


def test_the_untouched_twin_of_the_sabotaged_tasks_holds() -> None:
    for f in ([two_basins(1e-3), basin(0.5)], [basin(0.3), basin(0.7)], [basin(0.3), basin(0.3 + 1e-9)]):
        report = check_assumptions(retrieval(f, F0=(z[0] + 1.0) ** 2 + z[1]))
        assert {(r.verdict, r.evidence) for r in report.findings} == {("holds", "proved")}, report.sentence
    assert check_assumptions(retrieval([basin(0.3), basin(0.7)], S=[[0, 1], [2, 3]], length=8)).holds


def test_only_the_sabotaged_function_is_named() -> None:
    report = check_assumptions(retrieval([basin(0.2), (x1 - 0.6) ** 4]))
    assert "f_2" in report.finding("2.3").sentence
    assert "f_1" not in report.finding("2.3").sentence


def test_every_column_needs_an_output_that_depends_on_it() -> None:
    f = [basin(0.3), basin(0.7)]
    assert check_assumptions(retrieval(f, F0=make_task("quadratic-basins", outer="vector", intrinsic=2).F0)).holds
    dead = retrieval(f, F0=(variable(2) * variable(2)))  # z_i² in every output: both columns vanish at z = 0
    assert check_assumptions(dead).finding("2.4").verdict == "fails"


def test_unbounded_tokens_with_convex_functions_are_proved_on_all_of_space() -> None:
    report = check_assumptions(retrieval([basin(0.3), basin(0.7)], law=Gaussian(std=2.0)))
    assert report.holds
    assert all(f.evidence == "proved" for f in report.findings)
    assert report.finding("2.1").numbers["searched"] == {"low": [-6.0], "high": [6.0]}
    far = check_assumptions(retrieval([basin(10.0), basin(20.0)], law=Gaussian()))  # outside the first box
    assert far.holds
    assert far.finding("2.1").numbers["minimisers"] == [[[10.0]], [[20.0]]]
    assert far.finding("2.2").numbers["distance"] == 10.0


# -- bare callables -----------------------------------------------------------------------------------------


def test_bare_callables_are_measured_only() -> None:
    f = [lambda v: ((v - 0.3) ** 2).sum(-1), lambda v: ((v - 0.7) ** 2).mean(-1)]
    task = GeneralizedRetrieval(f, None, lambda z: z.sum(-1), length=8, dim=2)
    report = check_assumptions(task)
    assert report.holds
    assert {f.assumption: f.evidence for f in report.findings}[SIZES] == "proved"
    assert {f.evidence for f in report.findings if f.assumption != SIZES} == {"measured"}
    assert report.finding("domain").verdict == "unknown"  # [0, 1] is kept, but derivatives cannot be seen
    assert report.finding("2.3").numbers["smallest_eigenvalue"] == pytest.approx([2.0, 1.0])


def test_sabotaged_callables_are_rejected() -> None:
    good = lambda v: ((v - 0.7) ** 2).mean(-1)  # noqa: E731

    def check(bad: object, outer: object = lambda z: z.sum(-1)) -> dict[str, str]:
        return verdicts(check_assumptions(GeneralizedRetrieval([bad, good], None, outer, length=8, dim=2)))  # type: ignore[list-item,arg-type]

    assert check(lambda v: ((v - 0.3) ** 4).sum(-1))["2.3"] == "fails"
    assert check(lambda v: (v - 0.3).abs().sum(-1) / 2)["2.3"] == "fails"
    assert check(lambda v: (v[..., 0] - v[..., 1]) ** 2)["2.1"] == "fails"
    assert check(good)["2.2"] == "fails"
    assert check(lambda v: 0 * v[..., 0])["2.1"] == "fails"
    assert check(lambda v: ((v - 0.3) ** 2).sum(-1) * 3)["domain"] == "fails"
    assert check(lambda v: ((v - 0.3) ** 2).sum(-1), lambda z: z[..., 0] ** 2 + z[..., 1])["2.4"] == "fails"


def test_broken_functions_give_a_one_line_error() -> None:
    nothing = GeneralizedRetrieval([lambda v: v.sum(-1) * math.nan], None, lambda z: z.sum(-1), length=4, dim=1)
    with pytest.raises(BadInput, match="finite"):
        check_assumptions(nothing)
    wrong = GeneralizedRetrieval([lambda v: v.sum()], None, lambda z: z.sum(-1), length=4, dim=1)
    with pytest.raises(BadInput, match="last axis"):
        check_assumptions(wrong)
    with pytest.raises(BadInput, match="seed"):
        check_assumptions(make_task("min-plus-max"), seed=-1)


def test_a_basin_too_narrow_for_the_search_gives_no_verdict():
    """A well of width 1e-4: the search misses it, the enclosure does not, and the report must not contradict it."""
    x = variable(1)
    well = Exp(of=((x - 0.123456) ** 2).sum() * (-1e8)) * (-0.5)
    f = ((x - 0.5) ** 2).sum() * 0.5 + 0.5 + well
    report = check_assumptions(GeneralizedRetrieval([f], None, variable(1), length=4))
    assert report.finding("2.1").verdict != "holds"
    assert not report.holds
