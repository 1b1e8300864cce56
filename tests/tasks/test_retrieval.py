"""The generalized retrieval class: exact D, bare callables, ties, and what the constructor refuses."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from headcount.core.errors import BadInput
from headcount.tasks.expressions.tree import Exp, affine, constant, variable
from headcount.tasks.retrieval import GeneralizedRetrieval
from headcount.tasks.sampling import Gaussian, Marked, Sphere, Uniform

x = variable(2)
a, b, c = ((x - [0.1, 0.2]) ** 2).sum(), ((x - [0.8, 0.3]) ** 2).sum(), x[0] + 2.0 * x[1]
z2, z3 = variable(2), variable(3)


@pytest.mark.parametrize(
    ("f", "S", "F0", "D"),
    [
        ([a, b, c], None, z3.sum(), 3),
        ([a, b, a], None, z3.sum(), 2),  # the same function over the same set
        ([a, b, a], [[0, 1], [0, 1], [0, 1, 2]], z3.sum(), 3),  # over another set
        ([a, b, a], [[1, 0], [0, 1], [0, 1]], z3.sum(), 2),  # the order of a set does not matter
        ([a, a, a], None, z3.sum(), 1),
        ([a, b, c], None, z3[0] + z3[2], 2),  # not read
        ([a, b, c], None, affine([[0.0, 1.0, 0.0], [0.0, 2.0, 0.0]], [0.0, 1.0], z3), 1),
        ([a, b, c], None, 0.0 * z3.sum(), 0),
        ([a, constant([0.5], 2), c], None, z3.sum(), 2),  # constant
        ([a, 0.0 * x[0] + 3.0, constant([1.0], 2)], None, z3.sum(), 1),
        ([a, b, a], None, z3[1] + z3[2], 2),  # a is read once, by its second name
        ([a, ((variable(2) - [0.1, 0.2]) ** 2).sum(), c], None, z3.sum(), 2),  # equal, not identical
        (
            [a, lambda X: X[..., 0], lambda X: X[..., 0]],
            None,
            z3.sum(),
            3,
        ),  # only identity is known
    ],
)
def test_the_exact_intrinsic_dimension(f, S, F0, D):
    assert GeneralizedRetrieval(f, S, F0, length=4, dim=2).intrinsic == D


def test_a_callable_f0_reads_all_minima():
    task = GeneralizedRetrieval([a, b, a], None, lambda z: z[..., 0], length=4)
    assert task.intrinsic == 2
    assert not task.symbolic


def test_bare_callables_are_evaluated_like_expressions():
    S = [[0, 1, 2], [2, 3, 4]]
    F0 = affine([[1.0, 1.0], [2.0, -1.0]], [0.0, 1.0], Exp(of=z2))
    symbolic = GeneralizedRetrieval([a, c], S, F0, length=5)

    def f0(X):
        return ((X - X.new_tensor([0.1, 0.2])) ** 2).sum(-1)

    def f1(X):
        return (X[..., 0] + 2.0 * X[..., 1])[..., None]  # the last axis of one component may stay

    def outer(z):
        e = z.exp()
        return torch.stack([e.sum(-1), 2.0 * e[..., 0] - e[..., 1] + 1.0], -1)

    bare = GeneralizedRetrieval([f0, f1], S, outer, length=5, dim=2)
    assert bare.out_dim == 2
    assert not bare.symbolic
    for X in (symbolic.sample(7), symbolic.sample(7)[0], symbolic.sample(6).reshape(2, 3, 5, 2)):
        torch.testing.assert_close(bare.value(X), symbolic.value(X), rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(bare.gradient(X), symbolic.gradient(X), rtol=1e-12, atol=1e-12)
        assert torch.equal(bare.positions(X), symbolic.positions(X))
    assert torch.equal(bare.sample(3), symbolic.sample(3))


@pytest.mark.parametrize("f", [[a, lambda X: X[..., 0]], [lambda X: X[..., 0], a]])
def test_bare_callables_have_no_serial_form(f):
    task = GeneralizedRetrieval(f, None, z2.sum(), length=3, dim=2, name="mine")
    for use in (task.data, task.hash):
        with pytest.raises(
            BadInput, match=r"mine uses a bare Python function.*write f and F0 as expressions"
        ) as caught:
            use()
        assert "\n" not in str(caught.value)
    with pytest.raises(BadInput, match="bare Python function"):
        GeneralizedRetrieval([a, b], None, lambda z: z.sum(-1), length=3).data()


def test_callables_of_the_wrong_shape_are_rejected():
    with pytest.raises(BadInput, match=r"only the last axis may change \(sum\(-1\), not sum\(\)\)"):
        GeneralizedRetrieval([a, b], None, lambda z: z.sum(), length=3)
    task = GeneralizedRetrieval([lambda X: X], None, lambda z: z, length=3, dim=2)
    with pytest.raises(BadInput, match=r"f\[0\] returns 2 numbers per token"):
        task.value(task.sample(2))
    task = GeneralizedRetrieval([lambda X: X.sum()], None, lambda z: z, length=3, dim=2)
    with pytest.raises(BadInput, match="only the last axis may change"):
        task.value(task.sample(2))


def test_the_gradient_of_a_constant_is_zero():
    task = GeneralizedRetrieval([a], None, lambda z: torch.ones(*z.shape[:-1], 2), length=3)
    assert torch.equal(task.gradient(task.sample(4)), torch.zeros(4, 2, 3, 2, dtype=torch.float64))


def test_gradients_work_without_grad_mode():
    task = GeneralizedRetrieval([a, c], None, z2.sum(), length=3)
    X = task.sample(4)
    with torch.no_grad():
        inside = task.gradient(X)
    assert torch.equal(inside, task.gradient(X))
    assert inside.abs().sum() > 0
    assert not X.requires_grad


@pytest.mark.parametrize("length", [3, 40, 1000])
def test_the_first_of_equal_minima_is_retrieved(length):
    S = [list(range(length)), list(range(1, length)), [length - 1]]
    task = GeneralizedRetrieval([x[0], x[0], x[0]], S, z3.sum(), length=length)
    X = torch.full((5, length, 2), 0.25, dtype=torch.float64)
    assert task.positions(X).tolist() == [[0, 1, length - 1]] * 5
    X[1, 2, 0] = 0.0
    X[2, 1:3, 0] = 0.0
    assert task.positions(X)[1].tolist() == [2, 2, length - 1]
    assert task.positions(X)[2].tolist() == [1, 1, length - 1]
    gradient = task.gradient(X)  # a tie's gradient goes to the first position alone
    assert gradient[0, 0, :, 0].nonzero().flatten().tolist() == [0, 1, length - 1]
    assert set(gradient[0, 0, :, 0].tolist()) <= {0.0, 1.0}


def test_values_that_are_not_finite_stay_in_their_set():
    task = GeneralizedRetrieval([Exp(of=1000.0 * x[0])], [[1, 2]], variable(1), length=3)
    z, positions = task.retrieve(torch.ones(1, 3, 2, dtype=torch.float64))
    assert z.isposinf().all()
    assert positions.tolist() == [[1]]
    X = torch.zeros(1, 3, 2, dtype=torch.float64)
    X[0, 2, 0] = torch.nan
    z, positions = task.retrieve(X)
    assert z.isnan().all()
    assert positions.tolist() == [[2]]
    X[0, 2, 0], X[0, 0, 0] = 0.0, torch.nan  # outside of S: not seen
    assert task.value(X).tolist() == [[1.0]]


def test_sets_may_have_any_integer_type():
    plain = GeneralizedRetrieval([a, b], [[0, 2], [1, 2]], z2.sum(), length=3)
    for S in (np.array([[0, 2], [1, 2]]), [range(0, 3, 2), (2, 1)], [torch.tensor([2, 0]), {1, 2}]):
        assert GeneralizedRetrieval([a, b], S, z2.sum(), length=3).hash() == plain.hash()


@pytest.mark.parametrize(
    ("arguments", "pattern"),
    [
        ({"f": []}, "at least one function f"),
        ({"f": [x]}, r"f\[0\] maps R\^2 → R\^2: it must map one token, R\^2, to one number"),
        ({"f": [a, variable(3)[0]]}, "dim is not clear"),
        ({"f": [a, variable(3)[0]], "dim": 2}, r"f\[1\] maps R\^3 → R\^1"),
        ({"f": [lambda X: X[..., 0]]}, "dim is not clear from the functions f: state it"),
        ({"dim": 3}, r"f\[0\] maps R\^2"),
        ({"F0": z3.sum()}, "F0 takes 3 numbers, but there are 2 functions f"),
        ({"length": 1}, "length must be at least D = 2, not 1"),
        ({"length": 0}, "length"),
        ({"length": 3.0}, "length must be a whole number"),
        ({"length": True}, "length must be a whole number"),
        ({"S": [[0]]}, "2 functions f but 1 index sets S"),
        ({"S": [[0], []]}, r"S\[1\] must be a non-empty list of distinct positions from 0 to 3; got \[\]"),
        ({"S": [[0], [4]]}, r"S\[1\]"),
        ({"S": [[-1], [0]]}, r"S\[0\]"),
        ({"S": [[1, 1], [0]]}, r"S\[0\]"),
        ({"S": [[0.5], [0]]}, "S must be D lists of positions"),
        ({"S": [[True], [0]]}, "S must be D lists of positions"),
        ({"S": [0, 1]}, "S must be D lists of positions"),
        ({"law": Marked(marks=3)}, "law 'marked' cannot draw tokens of dimension 2"),
        ({"law": Uniform(low=(0.0,) * 3, high=(1.0,) * 3)}, "law 'uniform' cannot draw"),
    ],
)
def test_the_constructor_rejects_bad_arguments_in_one_line(arguments, pattern):
    good = {"f": [a, b], "S": None, "F0": z2.sum(), "length": 4}
    GeneralizedRetrieval(**good)
    with pytest.raises(BadInput, match=pattern) as caught:
        GeneralizedRetrieval(**{**good, **arguments})
    assert "\n" not in str(caught.value)


def test_the_sphere_needs_two_dimensions():
    with pytest.raises(BadInput, match="'sphere' cannot draw tokens of dimension 1"):
        GeneralizedRetrieval([variable(1)], None, variable(1), length=2, law=Sphere())


def test_laws():
    task = GeneralizedRetrieval([a], None, variable(1), length=50, law=Gaussian(std=2.0))
    X = task.sample(2000)
    assert task.box is None
    assert X.std().item() == pytest.approx(2.0, rel=0.01)
    assert X.mean().item() == pytest.approx(0.0, abs=0.03)
    box = Uniform(low=(-1.0, 5.0), high=(1.0, 6.0))
    X = GeneralizedRetrieval([a], None, variable(1), length=50, law=box).sample(2000)
    torch.testing.assert_close(X.mean((0, 1)), X.new_tensor([0.0, 5.5]), atol=0.01, rtol=0)
    assert X.amin((0, 1)).tolist() == pytest.approx([-1.0, 5.0], abs=1e-3)
    assert X.amax((0, 1)).tolist() == pytest.approx([1.0, 6.0], abs=1e-3)
