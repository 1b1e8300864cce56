"""Sentences and views of certificates, densities and built models, for notebooks and the command line."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from headcount.core import option
from headcount.core.text import box_text, ceiling, round_up
from headcount.render import NONE, Column, Drawing, Table, View, budget_picture, budget_table, errors_chart
from headcount.theory.bounds import budget_figure
from headcount.theory.certify import Certificate
from headcount.theory.construct import Built, BuiltWide, largest_weights
from headcount.theory.density import Density, selector_constant

# -- certificates of trained models -------------------------------------------------------------------------


def certificate_sentences(found: Certificate, goal: float | None = None) -> list[str]:
    """Return what is proved, what is only measured, and whether the search finished; `goal` is the gap that ends it."""
    constant = "no constant is known to do better"
    if math.isfinite(found.constant):
        constant = f"a constant errs by at most {round_up(found.constant)}, proved"
    worst = f"worst error found: {found.worst.error:.4g}, measured"
    if not math.isfinite(found.worst.error):
        worst = "an input was found at which the error as computed is not a finite number"
    if not math.isfinite(found.bound):
        return [f"Nothing is proved about the model after {found.seconds:.0f} s ({constant}); {worst}."]
    box = box_text(([float(v) for v in found.low], [float(v) for v in found.high]))
    reached = "" if goal is None else f": the gap is at most {goal:g}"
    left = f"Not finished, the bound may be far from the truth: {found.left} boxes are left"
    return [
        f"Proved: the error is at most {round_up(found.bound)} for all {box}, in exact arithmetic.",
        f"{f'Vacuous: {constant}' if found.vacuous else _capitalized(constant)}.",
        f"{_capitalized(worst)}.",
        f"Gap {found.gap:.2f}.",
        f"{f'Finished{reached}' if found.finished else left} ({found.boxes} boxes, {found.seconds:.0f} s).",
    ]


def _capitalized(text: str) -> str:
    return text[0].upper() + text[1:]


def certificate_view(found: Certificate) -> View:
    """Return the bound beside the worst error found and the best constant."""
    columns = [
        Column(name="Error", kind="text", key=True, meaning="on the box"),
        Column(name="Value"),
        Column(name="Certainty", kind="text"),
    ]
    rows = [
        ["of the model, at most", _finite(found.bound, round_up(found.bound)), "proved"],
        ["of the model, worst found", _finite(found.worst.error, f"{found.worst.error:.4g}"), "measured"],
        ["of the best constant, at most", _finite(found.constant, round_up(found.constant)), "proved"],
    ]
    shown = {key: value for key, value in found.data().items() if key not in ("box", "worst_input")}
    sentences = certificate_sentences(found)
    table = Table(caption="", columns=columns, rows=rows)
    return View(sentences, tables=[table], rows=[shown], headline=" ".join(sentences))


def _finite(value: float, text: str) -> str:
    return text if math.isfinite(value) else NONE


# -- Theorem 1 ----------------------------------------------------------------------------------------------


def density_sentence(found: Density) -> str:
    """Return which function is rebuilt, and from how many minima."""
    m = found.length // 4
    sets = math.comb(found.length, m)
    where = f"F = {found.name}, T = {found.length}, d = {found.dim}"
    size = f"D = 2d·C(T, T/4) = 2·{found.dim}·{sets} = {found.intrinsic:,} primitives"
    return f"{where}: {size}, minima of x_j and of 1 − x_j over the sets of {m} position{'s' * (m > 1)}."


def density_table(found: Density) -> Table:
    """Return a table of the errors at every sharpness, measured and proved."""
    columns = {
        "random X": "uniform",
        "hardest X": "hardest",
        "0.2779/√q": "rate",
        "proved ≤": "proved",
        "F: random X": "F_uniform",
        "F: hardest X": "F_hardest",
        "F: proved ≤": "F_proved",
    }
    rows = [
        [f"{row.q:g}", *(_density_error(getattr(row, key), up="proved" in key) for key in columns.values())]
        for row in found.rows
    ]
    heads = [Column(name="q", key=True), *(Column(name=name) for name in columns)]
    return Table(caption="", columns=heads, rows=rows, notes=_density_notes(found))


def _density_error(error: float | None, *, up: bool) -> str:
    """Return an error in a few digits; bounds are rounded upward."""
    if error is None or error == 0:
        return NONE if error is None else "0"
    if 1e-3 <= error < 1e7:
        return ceiling(error, 5) if up else f"{error:.5f}"
    return f"{float(round_up(error, 3)) if up else error:.2e}"


def _density_notes(found: Density) -> list[str]:
    token = "largest error of a recovered token, measured on"
    lines = [f"random X, hardest X: {token} {found.samples:,} sequences each; F: that of F."]
    if found.length == 4:
        lines.append("Proved: no error at all. For T = 4 the sets are single positions, and the minima are the tokens.")
    else:
        best = max(row.hardest * math.sqrt(row.q) for row in found.rows)
        lines.append(
            f"Proved: at most {selector_constant():.6f}/√q for every X, attained from q = 0.739 on. "
            f"Measured: {best:.6f}/√q."
        )
    if found.lipschitz is None:
        lines.append(f"The error of F is measured only: with {option('lipschitz')} it is bounded too.")
    else:
        given = ", as you state it" if found.stated else ""
        lines.append(
            f"Proved of F: the bound times its Lipschitz constant in the max norm, {round_up(found.lipschitz)}{given}."
        )
    lines.append(
        f"No selector is needed: x = min(x, v) + max(0, max(x, w) − v) exactly (proved; measured: {found.exact:.1g})."
    )
    return lines


def density_view(found: Density) -> View:
    """Return how many minima the function needs, and its errors against the selector's sharpness."""
    return View(
        [density_sentence(found)],
        tables=[density_table(found)],
        figures=[errors_chart(found.figure())],
        rows=[asdict(row) for row in found.rows],
    )


# -- built models -------------------------------------------------------------------------------------------


def built_facts(built: Built | BuiltWide) -> dict[str, Any]:
    """Return the sizes of a built model and what is proved about it, as JSON data."""
    assert built.proved is not None  # every construction is verified before it is returned
    spec, counts = built.model.transformer.spec, built.model.transformer.counts()
    return {
        "box": box_text(built.model.box or ((), ())),
        "hash": built.model.hash(),
        "eps": built.budget.eps,
        "bound": built.budget.bound,
        "rechecked": built.proved.computed,
        "rechecked_exact": built.proved.bound,
        "rounding": built.proved.rounding,
        "shares": built.budget.shares,
        "heads": spec.heads,
        "head_dim": spec.head_dim,
        "hidden": spec.hidden,
        "hidden_ff": spec.N_ff,
        "beta": built.beta if isinstance(built, Built) else None,
        "parameters": counts["paper"],
        "parameters_total": counts["total"],
        "largest_weights": largest_weights(built.model),
    }


def built_sentences(facts: dict[str, Any], task: str) -> list[str]:
    """Return what was built, and what is proved about it."""
    how = "uniform attention" if facts["beta"] is None else f"β = {facts['beta']:.4g}"
    heads = f"{facts['heads']} head{'s' if facts['heads'] > 1 else ''}"
    units = f"{facts['hidden']} unit{'s' if facts['hidden'] > 1 else ''}"
    sizes = (
        f"{task}: {heads} of dimension {facts['head_dim']}, {units} in the encoder, {facts['hidden_ff']} in F, {how}; "
        f"{facts['parameters']:,} parameters by the paper's count, {facts['parameters_total']:,} in all."
    )
    proved = (
        f"Proved: for all {facts['box']} the error is at most {round_up(facts['bound'])} ≤ eps = {facts['eps']:g} "
        f"as computed in float64 (verified from the weights up: {round_up(facts['rechecked_exact'])} in exact "
        f"arithmetic, and rounding adds at most {round_up(facts['rounding'], 2)})."
    )
    return [sizes, proved]


def weights_sentence(facts: dict[str, Any]) -> str:
    """Return how large the weights are, and whether they meet Assumption 1.3."""
    largest = facts["largest_weights"]
    hint = "" if facts["beta"] is None else f": {option('bounded')} keeps it"
    kept = "kept" if max(largest["attention"], largest["feedforward"]) <= 1 else "not kept" + hint
    attention, feedforward = round_up(largest["attention"], 6), round_up(largest["feedforward"], 6)
    return (
        f"Largest weight: attention {attention}, F {feedforward} (Assumption 1.3, at most 1: {kept}); "
        f"encoder and gates {round_up(largest['encoder and gates'], 3)}."
    )


def built_view(built: Built | BuiltWide) -> View:
    """Return what was built and proved, and the part of ε that every step uses."""
    facts = built_facts(built)
    table = budget_table(facts["shares"], facts["eps"], width=0)  # a bar of characters is for terminals
    figures: list[Drawing] = []
    if isinstance(built, Built):
        wide = built
        figures = [
            Drawing(
                lambda: budget_picture(budget_figure(wide.task, wide)),
                f"What every step takes of ε = {facts['eps']:g}, against β and against the encoder's width",
            )
        ]
    task = str((built.model.task or {}).get("name", "the task"))
    rows = [{"step": step, "error": error, "of_eps": error / facts["eps"]} for step, error in facts["shares"].items()]
    sizes, proved = built_sentences(facts, task)
    return View([proved, sizes, weights_sentence(facts)], tables=[table], figures=figures, rows=rows)
