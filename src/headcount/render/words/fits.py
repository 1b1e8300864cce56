"""What is said beside a fitted slope or law: what Theorem 2 (2) says there, and which cells the fit lacks."""

from __future__ import annotations

from headcount.analysis import GRID_OF_DELTA, Departure, Law, Scaling, at_edge

_DEPARTURES: dict[Departure, str] = {
    "nmse": "NMSE is not a sup error",
    "weights": "trained weights are not bounded by 1",
    "gaussian": "Gaussian tokens are not bounded",
    "depth": "more than one layer",
    "all-linear": "assumption (2.3) fails: the f_i are linear",
    "some-linear": "assumption (2.3) fails: some f_i are linear",
}


def theory_text(line: Scaling) -> str:
    """Say why Theorem 2 (2) predicts nothing at a head count and length, or why its k/2 is for orientation only."""
    sharp = "" if line.k is None else f"k = {line.k:.2f}{_bites_from(line.bites_from)}"
    printed = "" if line.k_printed is None else f"k = {line.k_printed:.2f}{_bites_from(line.bites_from_printed)}"
    match line.theory_verdict:
        case "":
            return ""
        case "unknown-d":
            return "the task has no known D"
        case "enough-heads":
            return "enough heads: the bound speaks of fewer than D"
        case "vacuous":
            return f"vacuous here: {sharp}; printed {printed}"
        case "outside":
            parts = [f"outside the assumptions: {', '.join(_DEPARTURES[one] for one in line.departures)}"]
            parts += [f"the sharp form is vacuous: {sharp}"] if line.half_k is None else []
            parts += [f"the printed form is vacuous: {printed}"] if line.half_k_printed is None else []
            return "; ".join(parts)


def _bites_from(length: int | None) -> str:
    return "" if length is None else f", it bites from T = {length}"


def law_text(law: Law) -> str:
    """Say whether δ lies at the edge of its grid, and which cells a law was fitted without."""
    parts: list[str] = []
    delta = law.coefficients.get("delta")
    if delta is not None and at_edge(delta):
        first, last = GRID_OF_DELTA[0], GRID_OF_DELTA[-1]
        parts.append(f"delta = {delta:g} is at the edge of the values tried ({first:g} to {last:g})")
    if law.cells_lacking_targets:
        parts.append(
            f"{law.cells_lacking_targets} of {law.points} cells lack some targets: each target has its own level"
        )
    if law.cells_apart:
        parts.append(f"{law.cells_apart} cells have no target in common with the others and are left out")
    if law.fitted_without:
        parts.append(f"fitted without h = {', '.join(map(str, law.fitted_without))}")
    return "; ".join(parts)
