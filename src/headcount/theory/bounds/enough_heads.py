"""The upper bounds 2 (1) and 2 (3) as numbers: what our constructions use, not only the order of it.

The paper says M ≤ C/ε^γ with D heads and M ≤ C/ε^(1+γ) with one wide head, and leaves C open. A construction has no
C: it has a width, a β and a count, and these are what is returned here, with the error that is proved of them.
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
    """One construction for a task at ε. `nonzero` counts the weights of P and F that are not 0."""

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
    """Theorem 2 (1), h = D and n = 2: width, β and count of the construction in `build`."""
    built = build(task, eps)
    return _upper("2 (1)", built.model, built.budget.bound, eps, built.beta)


def one_wide_head(task: Task, eps: float) -> Upper:
    """Theorem 2 (3), h = 1 and n = T·d with uniform attention: width and count of the construction in `wide`."""
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
    """Return both constructions for a task, and why one is missing."""
    found, missing = list[Upper](), list[str]()
    for make in (enough_heads, one_wide_head):
        try:
            found.append(make(task, eps))
        except BadInput as error:
            theorem = "2 (1)" if make is enough_heads else "2 (3)"
            missing.append(f"{theorem}: {error}")
    return found, missing


def count_figure(task: Task, eps: Sequence[float]) -> dict[str, Any]:
    """Return the counts against ε with the theory's slopes, as figure data: γ = 1/2 for pieces of lines.

    2 (1) has ε^(−γ). 2 (3) has ε^(−1) thresholds (Lemma 9) and ε^(−γ) units of Ψ: as units that is ε^(−max(1, γ)), but
    in five layers every threshold reads every unit, which are ε^(−(1 + γ)) weights, the paper's exponent.
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
    """Return where ε goes, against β and against the encoder's width, as figure data."""
    shares, b = built.budget.shares, built.budget
    row = b.output
    betas = (built.beta * np.geomspace(0.05, 20, 60)).tolist()
    wanted = [i for i, v in enumerate(b.leakage) if v > 0]
    low, high = (np.array(side) for side in built.model.box or ((), ()))
    gates = built.model.transformer.layers[0].attention.gates.detach().numpy()  # type: ignore[union-attr]

    def lost(beta: float) -> float:
        total = 0.0
        for i in wanted:
            gate = float(-gates[i].min())
            sizes = {"inside": len(task.S[i]), "outside": task.length - len(task.S[i])}
            spread = max(gate - built.scale, 0.0)  # the gate is at least the range and 1
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
    at = sorted(widths)
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
                    "leakage": [lost(v) for v in betas],
                },
            },
            {
                "x_label": "hidden units of the encoder",
                "x": at,
                "chosen": built.encoder.units,
                "parts": {
                    **{k: [v] * len(at) for k, v in reversed(constant.items())},
                    "encoder": [widths[n] for n in at],
                },
            },
        ],
    }
