"""`headcount certify MODEL_DIR`: a proved bound of a model's worst error on a box, beside the worst error found."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from headcount.cli.common import (
    BoxSides,
    Json,
    Time,
    Whole,
    box_text,
    console,
    duration,
    print_json,
    read_box,
    round_up,
)
from headcount.core import BadInput

if TYPE_CHECKING:
    from headcount.theory.certify import Certificate


def certify(
    model: Annotated[Path, Parameter(help="A model folder.")],
    /,
    *,
    for_: Annotated[
        Time, Parameter(name=["--budget", "--for"], help="Stop after e.g. 90s, 9m; what is proved by then holds.")
    ] = "60s",
    box: BoxSides = None,
    goal: Annotated[float, Parameter(help="Finished when the bound is this multiple of the worst error.")] = 1.1,
    seed: Annotated[Whole, Parameter(help="Seed of the search for the worst error.")] = 0,
    out: Annotated[Path | None, Parameter(help="Also write the result to this JSON file.")] = None,
    json: Json = False,
) -> int:
    """Prove an upper bound of a saved model's worst error on a box of tokens, and search for the worst error."""
    from headcount.api import certify as prove
    from headcount.core import write_json
    from headcount.models import load_model

    seconds = duration(for_)
    if out is not None and out.exists():
        raise BadInput(f"{out} exists already: choose another name")
    saved = load_model(model)
    corners = read_box(box, saved.transformer.spec.dim)
    found = prove(saved, corners, budget=seconds, goal=goal, seed=seed, quiet=False)
    data = {"model": str(model), "hash": saved.hash(), "goal": goal, **found.data()}
    if out is not None:
        write_json(out, data)
    if json:
        print_json(data)
    else:
        console().print(_sentence(found, goal))
    return 0


def _sentence(found: Certificate, goal: float) -> str:
    """Say what is proved, what is only measured, and whether the search ended."""
    constant = "no constant is known to do better"
    if math.isfinite(found.constant):
        constant = f"a constant errs by at most {round_up(found.constant)}, proved"
    worst = f"worst error found: {found.worst.error:.4g}, measured"
    if not math.isfinite(found.worst.error):
        worst = "an input was found at which the error as computed is no finite number"
    if not math.isfinite(found.bound):
        return f"Nothing is proved of the model after {found.seconds:.0f} s ({constant}); {worst}."
    box = box_text(([float(v) for v in found.low], [float(v) for v in found.high]))
    ended = (
        f"Finished: the gap is at most {goal:g}"
        if found.finished
        else f"Not finished, the bound may be far from the truth: {found.left} boxes are left"
    )
    return (
        f"Proved: the error is at most {round_up(found.bound)} for all {box}, in exact arithmetic. "
        f"{f'Vacuous: {constant}' if found.vacuous else _capital(constant)}. "
        f"{_capital(worst)}. Gap {found.gap:.2f}. "
        f"{ended} ({found.boxes} boxes, {found.seconds:.0f} s)."
    )


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]
