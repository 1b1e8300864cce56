"""The upper bounds 2 (1) and 2 (3) as numbers: the sizes of our constructions instead of orders of magnitude.

The paper states M ≤ C/ε^γ with D heads and M ≤ C/ε^(1+γ) with one wide head, without giving C. A construction has a
definite width, β and parameter count. These are returned here, with the construction's proved error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headcount.core import BadInput
from headcount.tasks import GeneralizedRetrieval, Task
from headcount.tasks.expressions import Node
from headcount.theory.bounds.softmax_leakage import leakage
from headcount.theory.construct.enough_heads import Built, build
from headcount.theory.construct.one_wide_head import build_wide
from headcount.theory.construct.shallow import shallow


@dataclass(frozen=True)
class Upper:
    """The sizes of one construction for a task at ε; `nonzero` counts the nonzero weights of P and F."""

    theorem: str
    eps: float
    bound: float
    heads: int
    head_dim: int
    hidden: int
    hidden_ff: int
    beta: float
    parameters: int
    parameters_total: int
    nonzero: int


def enough_heads(task: Task, eps: float) -> Upper:
    """Return the sizes of the construction of Theorem 2 (1), h = D and n = 2, in `construct.enough_heads`."""
    built = build(task, eps)
    return _upper("2 (1)", built.model, built.budget.bound, eps, built.beta)


def one_wide_head(task: Task, eps: float) -> Upper:
    """Return the sizes of the construction of Theorem 2 (3), h = 1 and n = T·d, in `construct.one_wide_head`."""
    built = build_wide(task, eps)
    return _upper("2 (3)", built.model, built.budget.bound, eps, 1.0)


def _upper(theorem: str, model: Any, bound: float, eps: float, beta: float) -> Upper:
    transformer = model.transformer
    counts, spec = transformer.counts(), transformer.spec
    named = transformer.named_parameters()
    nonzero = sum(int((p != 0).sum()) for name, p in named if name.startswith("encoder.") or ".feedforward." in name)
    return Upper(
        theorem,
        eps,
        bound,
        spec.heads,
        spec.head_dim,
        spec.hidden,
        spec.N_ff,
        beta,
        counts["paper"],
        counts["total"],
        nonzero,
    )


def uppers(task: Task, eps: float) -> tuple[list[Upper], list[str]]:
    """Return both constructions for a task, and the reason for each that is missing."""
    found, missing = list[Upper](), list[str]()
    for make in (enough_heads, one_wide_head):
        try:
            found.append(make(task, eps))
        except BadInput as error:
            theorem = "2 (1)" if make is enough_heads else "2 (3)"
            missing.append(f"{theorem}: {error}")
    return found, missing


def count_figure(task: Task, eps: Sequence[float]) -> dict[str, Any]:
    """Return figure data of the counts against ε, with the slopes of the theory; γ = 1/2 for piecewise linear Ψ.

    For 2 (1) the slope is ε^(−γ). The construction of 2 (3) has ε^(−1) thresholds (Lemma 9) and ε^(−γ) units of Ψ, that
    is ε^(−max(1, γ)) units. But with five layers every threshold reads every unit, which takes ε^(−(1 + γ)) weights,
    the paper's exponent.
    """
    points: dict[str, list[tuple[float, int]]] = {"2 (1)": [], "2 (3)": []}
    for e in eps:
        for upper in uppers(task, float(e))[0]:
            points[upper.theorem].append((float(e), upper.nonzero))
    series: list[dict[str, Any]] = []
    for theorem, slope, tone, name in (("2 (1)", 0.5, "enough", "D heads"), ("2 (3)", 1.5, "few", "one wide head")):
        if not points[theorem]:
            continue
        x, y = (np.array(side) for side in zip(*points[theorem], strict=True))
        scale = float(np.exp(np.mean(np.log(y) + slope * np.log(x))))
        series += [
            {
                "name": f"{theorem}, {name}: weights of P and F that are not 0, as built",
                "style": "dots",
                "tone": tone,
                "x": x.tolist(),
                "y": y.tolist(),
            },
            {
                "name": f"the theory's slope, ε^(−{slope:g})",
                "style": "dashes",
                "tone": tone,
                "x": x.tolist(),
                "y": (scale * x**-slope).tolist(),
            },
        ]
    return {
        "title": f"What ε costs: {task.name}, D = {task.intrinsic}, d = {task.dim}, T = {task.length}",
        "subtitle": "every dot is a transformer whose error is proved",
        "x_label": "ε",
        "y_label": "weights that are not 0",
        "series": series,
    }


def budget_figure(task: GeneralizedRetrieval, built: Built) -> dict[str, Any]:
    """Return figure data of the error budget against β and against the encoder's width."""
    shares, b = built.budget.shares, built.budget
    row = b.output
    betas = (built.beta * np.geomspace(0.05, 20, 60)).tolist()
    wanted = [i for i, v in enumerate(b.leakage) if v > 0]
    low, high = (np.array(side) for side in built.model.box or ((), ()))
    gates = built.model.transformer.layers[0].attention.gates.detach().numpy()  # type: ignore[union-attr]

    def leakage_error_at(beta: float) -> float:
        total = 0.0
        for i in wanted:
            gate = float(-gates[i].min())
            sizes = {"inside": len(task.S[i]), "outside": task.length - len(task.S[i])}
            spread = max(gate - built.scale, 0.0)  # the gate is at least the range plus 1
            total += b.slopes[row][i] * leakage(beta, **sizes, spread=spread, gate=gate).error / built.scale
        return total

    functions = [g for i, g in enumerate(task.f) if i in wanted and isinstance(g, Node)]
    widths: dict[int, float] = {}
    for factor in (16.0, 8.0, 4.0, 2.0, 1.0, 0.5, 0.25, 0.125):
        tolerances = [b.encoder[i] * factor for i in wanted]
        if all(t < 1e-9 for t in tolerances) or (factor < 1 and max(widths, default=0) > 300):  # seconds, not minutes
            break
        try:
            net = shallow(functions, tolerances, low, high, ["f"] * len(functions))
        except BadInput:
            break
        psi = sum(b.slopes[row][i] * err for i, err in zip(wanted, net.errors, strict=True))
        widths[max(net.units, 1)] = min(psi, widths.get(net.units, np.inf))
    unit_counts = sorted(widths)
    constant = {"leakage": shares["leakage"], "feedforward": shares["feedforward"]}
    return {
        "title": f"Where ε = {b.eps:g} goes: {task.name}",
        "eps": b.eps,
        "panels": [
            {
                "x_label": "β, the inverse temperature",
                "x": betas,
                "chosen": built.beta,
                "parts": {
                    "feedforward": [shares["feedforward"]] * len(betas),
                    "encoder": [shares["encoder"]] * len(betas),
                    "leakage": [leakage_error_at(v) for v in betas],
                },
            },
            {
                "x_label": "hidden units of the encoder",
                "x": unit_counts,
                "chosen": built.encoder.units,
                "parts": {
                    **{k: [v] * len(unit_counts) for k, v in reversed(constant.items())},
                    "encoder": [widths[n] for n in unit_counts],
                },
            },
        ],
    }
