"""`headcount show MODEL_DIR`: the sizes of a saved model, its hash, and its error on fresh data."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from headcount.cli.common import Json, Whole, console, print_json
from headcount.core import BadInput, working

if TYPE_CHECKING:
    from headcount.models import SavedModel


def show(
    model: Annotated[Path, Parameter(help="A model folder.")],
    /,
    *,
    samples: Annotated[Whole, Parameter(help="Fresh sequences to measure the error on.")] = 10_000,
    seed: Annotated[Whole, Parameter(help="Seed of the fresh sequences.")] = 0,
    json: Json = False,
) -> int:
    """Show a saved model: its sizes, its hash, its error on fresh data."""
    from headcount.models import load_model

    if samples < 2 or seed < 0:
        raise BadInput("--samples must be at least 2 and --seed at least 0")
    with working("measuring"):
        facts = _facts(load_model(model), samples, seed)
    if json:
        print_json(facts)
        return 0
    from headcount.render import terminal_list

    console().print(terminal_list((key.replace("_", " "), _text(value)) for key, value in facts.items()))
    return 0


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {item}" for key, item in value.items())
    return "not known" if value is None else str(value)


def _facts(saved: SavedModel, samples: int, seed: int) -> dict[str, Any]:
    from headcount.api import model_facts

    sampled = (saved.task or {}).get("kind") not in (None, "arrays")
    return {
        **model_facts(saved),
        "nmse_measured": _fresh_error(saved, samples, seed),
        "fresh_sequences": samples if sampled else 0,
        "hash": saved.hash(),
    }


def _fresh_error(saved: SavedModel, samples: int, seed: int) -> float | None:
    """Return the NMSE on sequences that training never saw; None if the task cannot be sampled, or for NaN."""
    import torch

    from headcount.tasks import parse_task

    if saved.task is None or saved.task.get("kind") == "arrays":
        return None
    task = parse_task(saved.task)
    X = task.sample(samples, seed, stream="show", dtype=saved.dtype)
    y = task.value(X.double())
    predicted = torch.cat([saved.predict(part) for part in X.split(4096)]).double()
    error = float((predicted - y).square().sum() / (y - y.mean(0)).square().sum())
    return error if math.isfinite(error) else None  # weights may be NaN
