"""Theorem 2 (1) as weights: a transformer with one head per minimum, together with its claimed error.

Block i of the embedding has v_i = ρ·Ψ_i(x(t)), where Ψ_i is a two-layer network within δ_i of f_i, and one spare
coordinate in which the class token is 1. Head i reads only its own block:

    W_Q,i c = (1, 0, …)         from the spare coordinate of the class token
    W_K,i e = (−v_i, 0, …)      so that the score is −v_i + g_i(t), g_i the gate: 0 on S_i, −ρ·(R_i + 1) off it
    W_V,i e = (v_i, 0, …)       so that the head returns z~_i, a mean of v_i weighted towards its minimum over S_i

where R_i is the range of Ψ_i. The gate must exceed R_i (docs/gate.md); then a weight off S_i is at most e^(−β). F reads
only z~_i/ρ − σ_i, where the shift σ_i is the middle of the softmin's one-sided error (`softmax_leakage`), and is a
two-layer network within φ of F0. For every output

    |y − H| ≤ φ + Σ_i sup |∂F0/∂z_i|·(δ_i + leakage_i),

in exact arithmetic; the error of float64 is bounded in recheck/rounding.py. `recheck` verifies every result before it
is returned.

The three steps share ε: exact steps (an affine f_i or F0) get nothing, the leakage gets little, as it only requires a
larger β, and the rest is split evenly. ρ is 1 unless the weights must satisfy Assumption 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from headcount.core import BadInput, Displayable, option, provenance
from headcount.core.readers import CERTIFICATE
from headcount.core.readers import STATEMENT_VERSION as VERSION
from headcount.models import SavedModel
from headcount.models.transformer import ModelSpec, Transformer
from headcount.tasks import GeneralizedRetrieval, Task, check_task
from headcount.tasks.expressions import Expr, Node, balls, ceil, floor, jets
from headcount.tasks.expressions import in_balls as expr_ball
from headcount.theory.bounds.softmax_leakage import beta_for, leakage
from headcount.theory.construct.bounded_weights import keep_below_one
from headcount.theory.construct.network import Shallow
from headcount.theory.construct.range_of_doubles import in_range_of_doubles
from headcount.theory.construct.shallow import difficulty, exact, shallow
from headcount.theory.construct.verified import Proved, save_verified, verified

Array = NDArray[np.float64]
LEAKAGE_FRACTION = 0.1  # of ε for the leakage: a larger β costs nothing, units do
MIN_EPS = 1e-9  # below it, the rounding of float64 weights is no longer small against a step's share
MAX_EPS = 1e6  # a task with larger values should be scaled
MAX_WEIGHTS = 50_000_000


@dataclass(frozen=True)
class Budget:
    """How ε is used: the claimed error of every step, and the bound on their total with float64's rounding."""

    eps: float
    encoder: list[float]
    leakage: list[float]
    feedforward: list[float]
    slopes: list[list[float]]
    bound: float
    rounding: float = 0.0

    @property
    def output(self) -> int:
        """The output with the largest bound."""
        return max(range(len(self.slopes)), key=lambda k: sum(self._parts(k).values()))

    @property
    def shares(self) -> dict[str, float]:
        """The parts of the largest bound: Ψ, softmax leakage, F."""
        return self._parts(self.output)

    def _parts(self, k: int) -> dict[str, float]:
        row = self.slopes[k]
        psi, leak = (sum(s * v for s, v in zip(row, step, strict=True)) for step in (self.encoder, self.leakage))
        return {"encoder": psi, "leakage": leak, "feedforward": self.feedforward[k]}


def statement(kind: str, model: SavedModel, budget: Any, steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return certificate.json as data: the claim, its model, task and box, and the steps of the budget.

    A budget without float64's rounding makes a claim about exact arithmetic.
    """
    assert model.box is not None
    return {
        "format": CERTIFICATE.format,
        "version": VERSION,
        "kind": kind,
        "model": model.hash(),
        "task": model.task,
        "box": [list(side) for side in model.box],
        "eps": budget.eps,
        "bound": budget.bound,
        "arithmetic": "float64" if budget.rounding else "exact",
        **more,
        "steps": steps,
        "provenance": provenance(),
    }


@dataclass(frozen=True, repr=False)
class Built(Displayable):
    """A transformer with its claimed error; `certificate()` is what `headcount recheck` verifies."""

    task: GeneralizedRetrieval
    model: SavedModel
    budget: Budget
    beta: float
    scale: float
    shift: list[float]
    encoder: Shallow = field(repr=False)
    feedforward: Shallow = field(repr=False)
    proved: Proved | None = field(default=None, repr=False)

    def certificate(self) -> dict[str, Any]:
        """Return certificate.json as data."""
        b = self.budget
        steps = {"encoder": b.encoder, "leakage": b.leakage, "feedforward": b.feedforward, "slopes": b.slopes}
        return statement("enough-heads", self.model, b, steps, scale=self.scale, shift=self.shift)

    def save(self, folder: Path | str) -> str:
        """Write model.safetensors, config.json and certificate.json, verify them as written, return the hash."""
        save_verified(self.model, self.certificate(), folder)
        return self.model.hash()


@in_range_of_doubles
def build(
    task: Task,
    eps: float,
    *,
    heads: int | None = None,
    head_dim: int = 2,
    bounded: bool = False,
    box: tuple[tuple[float, ...], tuple[float, ...]] | None = None,
) -> Built:
    """Return a verified transformer within eps of a task in the sup norm on its input box, as computed in float64.

    Any heads ≥ D and head_dim ≥ 2 may be chosen. `bounded` keeps the weights of F and of attention at most 1 in
    magnitude and the embedding in the unit ball (Assumptions 1.1 and 1.3), at the price of more units and a larger
    beta.
    """
    problem, low, high = check_buildable(task, eps, head_dim, box)
    f, F0 = [g for g in problem.f if isinstance(g, Node)], problem.F0
    assert isinstance(F0, Node)
    wanted = sorted(F0.reads())
    heads = len(f) if heads is None else heads
    pairs = list(zip(f, problem.S, strict=True))
    repeated = [i for i, pair in enumerate(pairs) if pair in pairs[:i]]
    if heads < len(f) and repeated:
        raise BadInput(
            f"{problem.name} has the same minimum twice, f_{repeated[0] + 1} over the same S, and each takes a head: "
            f"state it once, or use {len(f)} heads instead of {heads}"
        )
    if heads < len(f):
        raise BadInput(f"{problem.name} has D = {len(f)}: heads must be at least {len(f)}, not {heads}")
    ranges = [range_of(g, low, high) for g in f]
    zlow, zhigh = (np.array([r[k] if i in wanted else 0.0 for i, r in enumerate(ranges)]) for k in (0, 1))
    psi, leak, _ = _tolerances(f, F0, slopes_of(F0, zlow, zhigh), wanted, eps)
    # z~ may exceed the range of f_i by δ_i
    slack = max([0.0, *(psi[i] for i in wanted)]) + 1e-8 * (1 + float(np.abs([zlow, zhigh]).max()))
    widest = np.maximum(zhigh - zlow, 1e-6 * (1 + np.maximum(np.abs(zlow), np.abs(zhigh))))  # no larger shift is needed
    zlow, zhigh = zlow - slack - np.minimum(leak, widest), zhigh + slack  # the shift is at most the leakage
    slopes = slopes_of(F0, zlow, zhigh)  # at least those on the smaller box, so δ_i and the shifts do not grow
    psi, leak, outer = _tolerances(f, F0, slopes, wanted, eps)
    names = [f"{problem.name} cannot be built: assumption (A2) is not met for f_{i + 1}, which" for i in wanted]
    encoder = shallow([f[i] for i in wanted], [psi[i] for i in wanted], low, high, names)
    names = [f"{problem.name} cannot be built: assumption (A1) is not met for F0, which"] * F0.out_dim
    feedforward = shallow([F0], outer, zlow, zhigh, names)
    phi = [claim(err, tol) for err, tol in zip(feedforward.errors, outer, strict=True)]  # the shift changes biases
    delta = [0.0] * len(f)
    for row, i in enumerate(wanted):
        delta[i] = encoder.errors[row]
    spread = [(r[1] - r[0] + 2 * d) * (1 + 1e-8) + 1e-8 for r, d in zip(ranges, delta, strict=True)]
    scale = _scale([(ranges[i], spread[i]) for i in wanted]) if bounded else 1.0
    gates = [scale * math.ceil(s + 1) for s in spread]
    sizes: list[dict[str, Any]] = [
        {
            "inside": len(problem.S[i]),
            "outside": problem.length - len(problem.S[i]),
            "spread": scale * spread[i],
            "gate": gates[i],
        }
        for i in range(len(f))
    ]
    beta = max((beta_for(scale * min(leak[i], float(widest[i])), **sizes[i]) for i in wanted), default=1.0)
    leaks = [leakage(beta, **sizes[i]) if i in wanted else None for i in range(len(f))]
    leakage_errors = [0.0 if v is None else v.error / scale * (1 + 1e-12) for v in leaks]
    shift = [0.0 if v is None else v.shift / scale for v in leaks]
    outer_net = replace(feedforward, inner_bias=feedforward.inner_bias - feedforward.inner @ np.array(shift))
    if scale != 1.0 or bounded:
        outer_net = keep_below_one(outer_net, scale)
    errors = [
        p + sum(s * (d + v) for s, d, v in zip(row, delta, leakage_errors, strict=True))
        for p, row in zip(phi, slopes, strict=True)
    ]
    budget = Budget(eps, delta, leakage_errors, phi, slopes, max(errors) * (1 + 1e-12))
    if not budget.bound <= eps:  # the parts add up to less than eps, so this would be a bug
        raise BadInput(f"the construction reaches {budget.bound:.6g}, not eps = {eps:g}: state a larger eps")
    model = _transformer(problem, wanted, encoder, outer_net, heads, head_dim, gates, beta, scale, low, high)
    return verified(Built(problem, model, budget, beta, scale, shift, encoder, outer_net), problem.name)


def claim(error: float, tolerance: float, tiny: float = 0.0) -> float:
    """Return the error to claim for a network: slightly more than known, since its weights are rounded once more."""
    return max(error, min(1.1 * error, tolerance)) + tiny


def largest_weights(model: SavedModel) -> dict[str, float]:
    """Return the largest magnitudes of the weights that Assumption 1.3 bounds by 1 and of those that it leaves free."""
    named = {name: float(t.abs().max()) for name, t in model.transformer.tensors() if t.numel()}
    attention = max(v for k, v in named.items() if ".attention." in k and not k.endswith("gates"))
    outer = max(v for k, v in named.items() if ".feedforward." in k)
    free = max(v for k, v in named.items() if k.startswith("encoder.") or k.endswith("gates"))
    return {"attention": attention, "feedforward": outer, "encoder and gates": free}


def check_buildable(
    task: Task, eps: float, head_dim: int, box: tuple[tuple[float, ...], tuple[float, ...]] | None
) -> tuple[GeneralizedRetrieval, Array, Array]:
    """Return the task and its box as corners; reject what cannot be built."""
    check_task(task)
    if not isinstance(task, GeneralizedRetrieval):
        raise BadInput(f"{task.name} is not given by f, S and F0: only such a task can be built")
    if not task.symbolic:
        raise BadInput(f"{task.name} uses a bare Python function: state f and F0 as expressions to build it")
    if not isinstance(eps, int | float) or not 0 < eps < math.inf:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise BadInput(f"eps must be above 0, not {eps}")
    if eps > MAX_EPS:
        raise BadInput(f"eps must be at most {MAX_EPS:g}, not {eps:g} (scale the task)")
    if eps < MIN_EPS:
        raise BadInput(f"eps = {eps:g} is out of reach of float64 weights: it must be at least {MIN_EPS:g}")
    if head_dim < 2:
        raise BadInput(f"the construction needs head_dim ≥ 2, not {head_dim}")
    sides = task.box if box is None else box
    if sides is None:
        raise BadInput(
            f"{task.name} has {task.law.law} tokens, which are unbounded: a construction needs a bounded domain "
            f"(state its two corners with {option('box')})"
        )
    try:
        low, high = (np.array(side, np.float64) for side in sides)
    except (TypeError, ValueError):
        raise BadInput(
            f"the box needs two corners with a number per token coordinate ({task.dim}), not {sides!r:.60}"
        ) from None
    if low.shape != (task.dim,) or high.shape != (task.dim,) or not (low < high).all():
        raise BadInput(f"the box needs {task.dim} numbers below {task.dim} others, not {sides}")
    return task, low, high


def range_of(g: Expr, low: Array, high: Array) -> tuple[float, float]:
    """Enclose a function over the box."""
    value = expr_ball.evaluate(g, balls(low.tolist(), high.tolist()))[0]
    found = floor(value), ceil(value)
    if not all(map(math.isfinite, found)):
        raise BadInput("a function of the task is unbounded on the box")
    return found


def slopes_of(F0: Expr, low: Array, high: Array) -> list[list[float]]:
    """Return bounds on |∂F0_k/∂z_i| over the box, one row per output."""
    if not F0.smooth:
        kinks = sorted({n.op for n in F0.walk()} & {"min", "max", "norm"})
        raise BadInput(f"F0 uses {', '.join(kinks)}, which has kinks: definition 1 requires a differentiable F0")
    found = jets(F0, balls(low.tolist(), high.tolist()), 1)
    return [
        [ceil(abs(jet.gradient[i])) * (1 + 1e-12) if i in jet.gradient else 0.0 for i in range(len(low))]
        for jet in found
    ]


def _tolerances(
    f: list[Expr], F0: Expr, slopes: list[list[float]], wanted: list[int], eps: float
) -> tuple[list[float], list[float], list[float]]:
    """Divide ε: return the tolerance per f_i, per head and per output."""
    straight = [exact(g, g.in_dim)[0] if g.in_dim else True for g in f]
    bent = [i for i in wanted if not straight[i]]
    steep = [max(max(row[i] for row in slopes), 1e-300) for i in range(len(f))]
    room = 0.999 * eps
    leak = LEAKAGE_FRACTION * room if bent or not all(exact(F0, len(f))) else room
    rest = room - leak
    inexact_steps = [part for part in ("psi", "outer") if (bent if part == "psi" else not all(exact(F0, len(f))))]
    each = rest / max(len(inexact_steps), 1)
    hard = {
        i: difficulty(f[i]) for i in bent
    }  # a fit in three numbers needs a larger part than a piecewise linear network
    psi = [each * hard[i] / (sum(hard.values()) * steep[i]) if i in bent else 1e-9 for i in range(len(f))]
    heads = [leak / (max(len(wanted), 1) * s) for s in steep]
    return psi, heads, [each] * F0.out_dim


def _scale(blocks: list[tuple[tuple[float, float], float]]) -> float:
    """Return the power of two that scales the values and gates of all blocks into the unit ball."""
    total = sum((max(map(abs, reach)) + spread) ** 2 + math.ceil(spread + 1) ** 2 for reach, spread in blocks)
    return 2.0 ** min(0, math.floor(-math.log2(math.sqrt(max(total, 1e-300)))))


def _transformer(
    task: GeneralizedRetrieval,
    wanted: list[int],
    encoder: Shallow,
    feedforward: Shallow,
    heads: int,
    head_dim: int,
    gates: list[float],
    beta: float,
    scale: float,
    low: Array,
    high: Array,
) -> SavedModel:
    """Return the model with all weights set."""
    spec = ModelSpec(
        dim=task.dim,
        length=task.length,
        out_dim=task.out_dim,
        heads=heads,
        head_dim=head_dim,
        positions="gates",
        hidden=max(encoder.units, 1),
        hidden_ff=max(feedforward.units, 1),
        beta=float(beta),
        feedforward="relu2",
    )
    if spec.hidden * (spec.E + spec.dim) + spec.N_ff * (spec.E + spec.out_dim) > MAX_WEIGHTS:
        raise BadInput(f"the model would have more than {MAX_WEIGHTS:,} weights: state a larger eps")
    model = Transformer(spec, dtype=torch.float64)
    tensors = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    first, last = "layers.0.feedforward.layers.0", "layers.0.feedforward.layers.1"
    if encoder.units:
        tensors["encoder.inner.weight"][:] = torch.from_numpy(encoder.inner)
        tensors["encoder.inner.bias"][:] = torch.from_numpy(encoder.inner_bias)
    for row, i in enumerate(wanted):
        value, spare = i * head_dim, i * head_dim + 1
        if encoder.units:
            tensors["encoder.outer.weight"][value] = torch.from_numpy(scale * encoder.outer[row])
        tensors["encoder.outer.bias"][value] = scale * encoder.outer_bias[row]
        tensors["class_token"][spare] = 1.0
        tensors["layers.0.attention.query"][i, 0, spare] = 1.0
        tensors["layers.0.attention.key"][i, 0, value] = -1.0
        tensors["layers.0.attention.value"][i, 0, value] = 1.0
        tensors["layers.0.attention.output"][i, value, 0] = 1.0
        members = set(task.S[i])
        outside = [t for t in range(task.length) if t not in members]
        tensors["layers.0.attention.gates"][i, outside] = -gates[i]
        if feedforward.units:
            tensors[f"{first}.weight"][:, value] = torch.from_numpy(feedforward.inner[:, i] / scale)
    if feedforward.units:
        tensors[f"{first}.bias"][:] = torch.from_numpy(feedforward.inner_bias)
        tensors[f"{last}.weight"][:] = torch.from_numpy(feedforward.outer)
    tensors[f"{last}.bias"][:] = torch.from_numpy(feedforward.outer_bias)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(tensors[name])
    box = tuple(low.tolist()), tuple(high.tolist())
    return SavedModel(model, task.data(), box)
