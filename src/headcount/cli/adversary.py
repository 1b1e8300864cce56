"""`headcount attack MODEL_DIR --adversary`: the adversary of Theorem 2 (2) at several ε, as table and picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from headcount.cli.common import console, print_json
from headcount.core import BadInput
from headcount.core.text import exponent_text, round_down

if TYPE_CHECKING:
    from headcount.models import SavedModel
    from headcount.render import Table
    from headcount.tasks import Task
    from headcount.theory.adversary import AdversaryRun, Collision


def run_paper(saved: SavedModel, task: Task | None, out: Path | None, seed: int, json: bool) -> int:
    """Run the adversary on a model, print its table and write adversary.json and adversary.png."""
    import numpy as np
    import torch

    from headcount.core import Progress, atomic_folder, write_json
    from headcount.render import save_errors
    from headcount.tasks import GeneralizedRetrieval, saved_task
    from headcount.theory.adversary import POINTS_PER_GRID, run_adversary

    problem = task or saved_task(saved.task)
    if not isinstance(problem, GeneralizedRetrieval):
        raise BadInput("the paper's adversary needs a retrieval task of expressions, such as quadratic-basins")
    with Progress("colliding", len(POINTS_PER_GRID), every=5.0, closes=False) as progress:
        progress.start(f"{len(POINTS_PER_GRID)} grids")
        run = run_adversary(saved, problem, seed=seed)
    outside = problem.outside(torch.from_numpy(np.stack([X for c in run.collisions for X in c.X])))
    data = {"in_support": not outside, "not_inputs_because": outside or None, **_data(run)}
    if out is not None:
        with atomic_folder(out) as folder:
            write_json(folder / "adversary.json", data)
            save_errors(run.figure(), folder / "adversary.png")
    if json:
        print_json(data)
    else:
        _print(run, out, outside)
    return 0


def _data(run: AdversaryRun) -> dict[str, Any]:
    first = run.collisions[0].plan
    return {
        "k": first.exponent.k,
        "vacuous": first.exponent.vacuous,
        "uncovered": first.uncovered,
        "free_positions": list(first.free),
        "fitted_exponent": run.slope,
        "below_the_line": run.is_below_line,
        "rows": [
            {
                "eps": c.eps,
                "gap": c.gap,
                "distance": c.distance,
                "distance_one": c.distance_l1,
                "counted": c.pigeonhole_distance,
                "line": line,
                "width_lemma_4": _width(c),
                "X1": c.X[0].tolist(),
                "X2": c.X[1].tolist(),
            }
            for c, line in zip(run.collisions, run.line(), strict=True)
        ],
    }


def _width(c: Collision) -> float | None:
    """Return the width that Lemma 4 implies, or None if the distance is within rounding."""
    from headcount.theory.adversary import DISTANCE_FLOOR

    return c.width if c.distance > DISTANCE_FLOOR else None


def _table(run: AdversaryRun) -> Table:
    """Return the gap and the distance at every ε, and the width that Lemma 4 implies."""
    from headcount.render import NONE, Column, Table
    from headcount.theory.adversary import DISTANCE_FLOOR

    rows: list[list[str]] = []
    for c, line in zip(run.collisions, run.line(), strict=True):
        distance = f"{c.distance:.3g}" if c.distance > DISTANCE_FLOOR else "rounding"
        width = _width(c)
        wide = NONE if width is None else round_down(max(width, 0.0), 3)
        rows.append([f"{c.eps:.3g}", f"{c.gap:.3g}", distance, f"{line:.3g}", wide])
    names = ("ε", "target gap", "distance found", "C·ε^(k+1)", "Lemma 4: width at least")
    return Table(caption="", columns=[Column(name=name) for name in names], rows=rows)


def _print(run: AdversaryRun, out: Path | None, outside: str) -> None:
    from headcount.render import as_terminal

    first, terminal = run.collisions[0].plan, console()
    condition = f", on sequences that are not inputs of this task ({outside})" if outside else ""
    vacuous = ", vacuous here" if first.exponent.vacuous else ""
    terminal.print(
        f"Theorem 2 (2)'s adversary, measured{condition}: basin {first.uncovered + 1} is picked by no head, "
        f"{len(first.free)} positions are free, k = {exponent_text(first.exponent.k)}{vacuous}."
    )
    terminal.print(as_terminal(_table(run)))
    if out is not None:
        terminal.print()
        terminal.print(f"Saved in {out}: adversary.png, adversary.json")
