"""Random tasks for the constructions: every kind of f_i and F0 that can be built, within the stated limits."""

from __future__ import annotations

import numpy as np

from headcount.tasks.expressions.tree import Exp, Expr, Product, Tanh, affine, variable
from headcount.tasks.families import outer
from headcount.tasks.retrieval import GeneralizedRetrieval
from headcount.tasks.sets import index_sets

SEPARABLE = ("basin", "wells", "ridge", "tilted", "linear")
GENERAL = ("bump", "saddle", "wave")
AFFINE_OUTER = ("sum", "vector", "weighted")
ONE_FORM = ("square", "tanh", "exp")
GENERAL_OUTER = ("product", "sum-product")


def function(kind: str, dim: int, g: np.random.Generator) -> Expr:
    """A smooth function of one token into about [0, 1]."""
    x, c = variable(dim), (0.1 + 0.8 * g.random(dim)).tolist()
    match kind:
        case "basin":
            return ((x - c) ** 2).sum() / dim
        case "wells":  # bends both ways, a function of each coordinate
            return 1.0 - Exp(of=-(2 + 3 * g.random()) * ((x - c) ** 2)).sum() / dim
        case "ridge":  # reads one linear form
            a = g.standard_normal(dim)
            return Tanh(of=(x - c).dot((a / np.abs(a).sum()).tolist())) ** 2
        case "tilted":  # a quadratic form that is not along the axes: a sum of squares of forms
            a = g.standard_normal((dim, dim)) / dim
            return (affine(a.tolist(), (-a @ c).tolist(), x) ** 2).sum() / dim
        case "linear":
            w = g.dirichlet(np.ones(dim))
            return x.dot(w.tolist())
        case "bump":  # no sum of functions of one number
            return 1.0 - Exp(of=-(1 + g.random()) * ((x - c) ** 2).sum())
        case "saddle":
            return (Product(args=(x - c,)) if dim > 1 else (x - c)[0] * (x - c)[0]) * 0.5 + 0.5
        case _:
            return Tanh(of=((x - c) ** 2).sum() * (0.5 + g.random()))


def draw(seed: int) -> tuple[GeneralizedRetrieval, float]:
    """Return a task with D 1 to 6, d 1 to 4, T 4 to 64, and an ε of 0.3 to 0.01.

    f_i that must be fitted in three numbers come with ε ≥ 0.1 and an F0 that is not steep: what counts for them is the
    error that is left to f_i, ε over D times the slope of F0.
    """
    g = np.random.default_rng([20_26, seed])
    eps = float(np.exp(g.uniform(np.log(0.01), np.log(0.3))))
    dim, intrinsic = int(g.integers(1, 5)), int(g.integers(1, 7))
    length = int(g.choice([t for t in (4, 6, 8, 12, 16, 24, 32, 48, 64) if t >= intrinsic]))
    small = dim <= 2 or (dim == 3 and eps >= 0.1)
    kinds = [str(g.choice(SEPARABLE + GENERAL if small else SEPARABLE)) for _ in range(intrinsic)]
    f = [function(kind, dim, g) for kind in kinds]
    allowed = AFFINE_OUTER + ONE_FORM
    if intrinsic <= 2 or (intrinsic == 3 and eps >= 0.1):
        allowed += GENERAL_OUTER
    if dim == 3 and any(kind in GENERAL for kind in kinds):  # a steep F0 would ask f_i for far less than ε
        allowed = AFFINE_OUTER if intrinsic > 2 else (*AFFINE_OUTER, "tanh", "exp")
    chosen = str(g.choice(allowed))
    z = variable(intrinsic)
    weights = (g.uniform(0.3, 1.5, intrinsic) * g.choice([-1.0, 1.0], intrinsic)).tolist()
    F0 = z.dot(weights) + 0.5 if chosen == "weighted" else outer(chosen, intrinsic)
    S = index_sets(str(g.choice(["all", "bands", "halves", "random"])), intrinsic, length, seed=seed)
    name = f"{'+'.join(kinds)} under {chosen}"
    return GeneralizedRetrieval(f, S, F0, length=length, dim=dim, name=name), eps
