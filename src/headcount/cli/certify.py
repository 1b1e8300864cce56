"""`headcount certify MODEL_DIR`: prove a bound of a model's worst error on a box, and search for that error."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from headcount.cli.common import BoxSides, Json, Time, Whole, console, duration, print_json, read_box
from headcount.core import BadInput


def certify(
    model: Annotated[Path, Parameter(help="A model folder.")],
    /,
    *,
    for_: Annotated[
        Time, Parameter(name=["--budget", "--for"], help="Stop after e.g. 90s, 9m; what is proved by then holds.")
    ] = "60s",
    box: BoxSides = None,
    goal: Annotated[float, Parameter(help="Stop when the bound is this multiple of the worst error found.")] = 1.1,
    seed: Annotated[Whole, Parameter(help="Seed of the search for the worst error.")] = 0,
    out: Annotated[Path | None, Parameter(help="JSON file to write the result to (default: none).")] = None,
    json: Json = False,
) -> int:
    """Prove an upper bound of a saved model's worst error on a box of tokens, and search for the worst error."""
    from headcount.api import certificate_sentences
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
        console().print(" ".join(certificate_sentences(found, goal)))
    return 0
