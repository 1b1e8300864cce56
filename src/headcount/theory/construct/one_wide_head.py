"""Theorem 2 (3) as weights: a transformer with one wide head and a five-layer F, together with its claimed error.

    e(t)     x(t) − low in the t-th block of R^(T·d): hidden unit (t', j) is relu(x_j − low_j − big·[t ≠ t']), big at
             least the side of the box, so that it is x_j − low_j at position t' and 0 at all others
    head     c = 0, W_Q = W_K = 0: all scores are 0, and F receives 1/T of (x(1) − low, …, x(T) − low), 1/T in the reals
    layer 1  1/T of the hidden units relu(w_k·x(t) + b_k) of Ψ_1 … Ψ_D, once for every t; and before them one unit that
             is always 1, for their constants
    layer 2  relu(y_t/T − τ_j) for t in S_i, with y_t = −Ψ_i(x(t)): min = −max of minus
    layer 3  relu(s_j) and relu(s_j − Δ_j), with s_j the sum of layer 2 over t and Δ_j = τ_{j+1} − τ_j
    layer 4  1/T of the hidden units of Φ, a two-layer network near F0, at z~_i
    layer 5  T times the outer weights of Φ

No weight but those of layer 5 is multiplied by T: relu(u)/T = relu(u/T), so a hidden unit is as good as 1/T of it, and
its row is exact in float64. Thresholds are multiples of a power of two, so that Δ_j is exact too.

*Lemma 9* (proved in recheck/wide.py for any thresholds): Σ_j min(s_j, Δ_j) lies between max_t y_t − τ_0 and that plus
the largest Δ. The error is one-sided, so z~_i = −(Σ_j min(s_j, Δ_j) + τ_0 − Δ/2) errs by Δ/2 only. For every output

    |y − H| ≤ φ + Σ_i sup |∂F0/∂z_i|·(δ_i + Δ_i/2).

*Weights.* 1/ε thresholds and 1/ε^γ units of Ψ_i take 1/ε^max(1, γ) units. Folding (Lemma 8) multiplies the last layer
of Ψ_i into every threshold: layer 2 has 1/ε^(1+γ) weights that are not 0, the theorem's count, unless all f_i are
affine; so has layer 4 where F0 is not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from headcount.core import BadInput
from headcount.models import SavedModel
from headcount.models.transformer import ModelSpec, Transformer
from headcount.tasks import GeneralizedRetrieval, Task
from headcount.tasks.expressions import Expr, Node
from headcount.theory.construct.enough_heads import MAX_WEIGHTS, check_buildable, claim, range_of, slopes_of, statement
from headcount.theory.construct.network import Shallow
from headcount.theory.construct.range_of_doubles import in_range_of_doubles
from headcount.theory.construct.shallow import exact, shallow
from headcount.theory.construct.verified import Proved, save_verified, verified

Array = NDArray[np.float64]
ROUNDING_MARGIN = 1e-9  # relative to the rounded numbers


@dataclass(frozen=True)
class BudgetWide:
    """How ε is used: the claimed error of every step, and the bound on their total with float64's rounding."""

    eps: float
    encoder: list[float]
    maximum: list[float]
    feedforward: list[float]
    slopes: list[list[float]]
    bound: float
    rounding: float = 0.0

    @property
    def shares(self) -> dict[str, float]:
        """The parts of the largest bound: Ψ, Lemma 9, Φ."""
        rows = [
            (float(np.dot(row, self.encoder)), float(np.dot(row, self.maximum)), phi)
            for row, phi in zip(self.slopes, self.feedforward, strict=True)
        ]
        return dict(zip(("encoder", "maximum", "feedforward"), max(rows, key=sum), strict=True))


@dataclass(frozen=True)
class Thresholds:
    """The stored thresholds τ_j/T = start + j·step for j < count; all, and start + count·step, are exact doubles."""

    start: float
    step: float
    count: int

    @property
    def values(self) -> Array:
        """The thresholds of layer 2."""
        return self.start + self.step * np.arange(self.count, dtype=np.float64)  # exact, since these have few bits


@dataclass(frozen=True)
class BuiltWide:
    """A transformer with its claimed error; `certificate()` is what `headcount recheck` verifies."""

    model: SavedModel
    budget: BudgetWide
    encoder: Shallow = field(repr=False)
    thresholds: list[Thresholds] = field(repr=False)
    feedforward: Shallow = field(repr=False)
    proved: Proved | None = field(default=None, repr=False)

    def certificate(self) -> dict[str, Any]:
        """Return certificate.json as data."""
        b = self.budget
        steps = {"encoder": b.encoder, "maximum": b.maximum, "feedforward": b.feedforward, "slopes": b.slopes}
        return statement("one-wide-head", self.model, b, steps)

    def save(self, folder: Path | str) -> str:
        """Write model.safetensors, config.json and certificate.json, verify them as written, return the hash."""
        save_verified(self.model, self.certificate(), folder)
        return self.model.hash()

    def counts(self) -> dict[str, int]:
        """Return counts of P and F: `parameters` (M) as stored, `nonzero` without zeros, and the used `units` of F."""
        named = dict(self.model.transformer.tensors())
        parts = [t for name, t in named.items() if name.startswith("encoder.") or ".feedforward." in name]
        layers = [named[f"layers.0.feedforward.layers.{k}.weight"] for k in range(1, 5)]
        return {
            "parameters": sum(t.numel() for t in parts),
            "nonzero": sum(int(torch.count_nonzero(t)) for t in parts),
            "units": sum(int((w != 0).any(0).sum()) for w in layers),
        }


@in_range_of_doubles
def build_wide(task: Task, eps: float, *, box: tuple[tuple[float, ...], tuple[float, ...]] | None = None) -> BuiltWide:
    """Return a verified one-head transformer within eps of a task on its input box, as computed in float64."""
    problem, low, high = check_buildable(task, eps, 2, box)
    f, F0 = [g for g in problem.f if isinstance(g, Node)], problem.F0
    assert isinstance(F0, Node)
    wanted, T = sorted(F0.reads()), problem.length
    ranges = [range_of(g, low, high) for g in f]
    zlow, zhigh = (np.array([r[k] if i in wanted else 0.0 for i, r in enumerate(ranges)]) for k in (0, 1))
    margin = ROUNDING_MARGIN * (1 + max(map(abs, (*zlow.tolist(), *zhigh.tolist()))))
    psi, top, _ = _tolerances(f, F0, slopes_of(F0, zlow, zhigh), zhigh - zlow + margin, wanted, eps)
    slack = np.array(psi) + np.array(top) + 10 * margin  # how far z~_i may be from z_i
    slopes = slopes_of(F0, zlow - slack, zhigh + slack)  # at least those above, so the tolerances do not grow
    psi, top, outer = _tolerances(f, F0, slopes, zhigh - zlow + margin, wanted, eps)
    names = [f"{problem.name} cannot be built: assumption (A2) is not met for f_{i + 1}, which" for i in wanted]
    encoder = shallow([f[i] for i in wanted], [psi[i] for i in wanted], low, high, names)
    names = [f"{problem.name} cannot be built: assumption (A1) is not met for F0, which"] * F0.out_dim
    feedforward = shallow([F0], outer, zlow - slack, zhigh + slack, names)
    delta, half, thresholds = [0.0] * len(f), [0.0] * len(f), list[Thresholds]()
    for row, i in enumerate(wanted):
        delta[i] = claim(encoder.errors[row], psi[i], 1e-3 * margin)
        least, most = -ranges[i][1] - delta[i] - 10 * margin, -ranges[i][0] + delta[i] + 10 * margin  # of y
        thresholds.append(_thresholds(least / T, most / T, 2 * top[i] / T))
        half[i] = T * thresholds[-1].step / 2 * (1 + 1e-15)
    phi = [claim(err, tol, 1e-3 * margin) for err, tol in zip(feedforward.errors, outer, strict=True)]
    errors = [
        p + sum(s * (d + v) for s, d, v in zip(row, delta, half, strict=True))
        for p, row in zip(phi, slopes, strict=True)
    ]
    budget = BudgetWide(eps, delta, half, phi, slopes, max(errors) * (1 + 1e-12))
    if not budget.bound <= eps:  # the parts add up to less than eps, unless it is as small as rounding
        raise BadInput(f"the construction reaches {budget.bound:.6g}, not eps = {eps:g}: state a larger eps")
    model = _transformer(problem, wanted, encoder, thresholds, feedforward, low, high)
    return verified(BuiltWide(model, budget, encoder, thresholds, feedforward), problem.name)


def _tolerances(
    f: list[Expr], F0: Expr, slopes: list[list[float]], spread: Array, wanted: list[int], eps: float
) -> tuple[list[float], list[float], list[float]]:
    """Divide ε: return the tolerance per f_i, per maximum and per output; maxima get two parts, as they cost most."""
    bent = [i for i in wanted if f[i].in_dim and not exact(f[i], f[i].in_dim)[0]]
    curved = not all(exact(F0, len(f)))
    steep = [max(max(row[i] for row in slopes), 1e-300) for i in range(len(f))]
    each = 0.999 * eps / (2 + bool(bent) + curved)
    psi = [min(each / (len(bent) * steep[i]), spread[i]) if i in bent else ROUNDING_MARGIN for i in range(len(f))]
    top = [min(2 * each / (max(len(wanted), 1) * s), r) for s, r in zip(steep, spread.tolist(), strict=True)]
    return psi, top, [each] * F0.out_dim


def _thresholds(low: float, high: float, max_step: float) -> Thresholds:
    """Cover [low, high] by equal steps of at most `max_step`, with all numbers multiples of one power of two."""
    unit = 2.0 ** (math.floor(math.log2(max_step)) - 16)
    count = math.ceil((high - low + unit) / (max_step - unit))
    steps, start = math.ceil((high - low + unit) / (count * unit)), math.floor(low / unit)
    if abs(start) + (count + 1) * steps > 2**50:
        raise BadInput("eps is too small relative to the values of the functions f: state a larger eps")
    return Thresholds(start * unit, steps * unit, count)


def _transformer(
    task: GeneralizedRetrieval,
    wanted: list[int],
    psi: Shallow,
    thresholds: list[Thresholds],
    outer: Shallow,
    low: Array,
    high: Array,
) -> SavedModel:
    """Return the model with all weights set."""
    T, dim, S = task.length, task.dim, [task.S[i] for i in wanted]
    used = sorted(set[int]().union(*S))
    pairs, blocks = sum(tau.count for tau in thresholds), T * dim
    units = max(
        1 + len(used) * psi.units,
        sum(len(s) * tau.count for s, tau in zip(S, thresholds, strict=True)),
        2 * pairs,
        outer.units,
    )
    stored = units * (blocks + 3 * units + task.out_dim + 4) + blocks * (5 * blocks + dim + T + 4)
    if stored > MAX_WEIGHTS:
        raise BadInput(f"the model would have {stored:,} weights, more than {MAX_WEIGHTS:,}: state a larger eps")
    spec = ModelSpec(
        dim=dim,
        length=T,
        out_dim=task.out_dim,
        heads=1,
        head_dim=blocks,
        positions="concatenated",
        hidden=blocks,
        hidden_ff=units,
        beta=1.0,
        feedforward="relu5",
    )
    model = Transformer(spec, dtype=torch.float64)
    at: dict[str, Array] = {}  # views of the weights as arrays
    for name, parameter in model.named_parameters():
        parameter.data.zero_()
        at[name] = parameter.data.numpy()
    W, b = ([at[f"layers.0.feedforward.layers.{k}.{kind}"] for k in range(5)] for kind in ("weight", "bias"))
    at["encoder.inner.weight"][:] = np.tile(np.eye(dim), (T, 1))
    at["encoder.inner.bias"][:] = np.tile(-low, T)
    at["encoder.hidden_bias"][:] = np.kron(np.eye(T) - 1, 2.0 ** np.ceil(np.log2(high - low) + 1))
    for name in ("encoder.outer.weight", "layers.0.attention.value", "layers.0.attention.output"):
        at[name][:] = np.eye(blocks)
    K, constants, unit, pair = psi.units, np.zeros(outer.inner.shape[1]), 0, 0
    place = {t: slice(1 + p * K, 1 + (p + 1) * K) for p, t in enumerate(used)}
    b[0][0] = 1.0
    for t in used if K else ():
        W[0][place[t], t * dim : (t + 1) * dim] = psi.inner
        b[0][place[t]] = (psi.inner_bias + psi.inner @ low) / T
    for row, (i, members, tau) in enumerate(zip(wanted, S, thresholds, strict=True)):
        for value in tau.values:
            ends = unit + len(members)
            W[1][unit:ends, 0] = -psi.outer_bias[row] / T
            for q, t in enumerate(members if K else ()):
                W[1][unit + q, place[t]] = -psi.outer[row]
            b[1][unit:ends] = -value
            W[2][pair : pair + 2, unit:ends] = 1.0
            b[2][pair + 1] = -tau.step
            W[3][: outer.units, pair : pair + 2] = outer.inner[:, i : i + 1] * np.array([-1.0, 1.0])
            unit, pair = ends, pair + 2
        constants[i] = T * (tau.step / 2 - tau.start)  # z~_i is this minus T times what the pairs hold
    b[3][: outer.units] = (outer.inner_bias + outer.inner @ constants) / T
    W[4][:, : outer.units] = T * outer.outer
    b[4][:] = outer.outer_bias
    return SavedModel(model, task.data(), (tuple(low.tolist()), tuple(high.tolist())))
