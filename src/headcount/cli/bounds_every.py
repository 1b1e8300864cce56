"""The second half of `headcount bounds TASK`: the bound over all encoders, and the transition it proves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headcount.cli.common import round_down, round_up
from headcount.core import BadInput

if TYPE_CHECKING:
    from headcount.core.text import Terminal
    from headcount.models import SavedModel
    from headcount.render import Table
    from headcount.tasks import GeneralizedRetrieval
    from headcount.theory.bounds import Transition


def read_model(
    folder: Path, task: str | None, lengths: Sequence[int], intrinsic: int | None, share: str | None
) -> tuple[SavedModel, GeneralizedRetrieval]:
    """Return a model and its own task; the bound is then that of the model's reach and heads."""
    from headcount.models import load_model
    from headcount.tasks import GeneralizedRetrieval, saved_task

    if task is not None or lengths or intrinsic is not None or share is not None:
        raise BadInput("--model brings its own task, length, heads and head size: use it alone or with --eps")
    model = load_model(folder)
    own = None if model.task is None else saved_task(model.task)
    if not isinstance(own, GeneralizedRetrieval):
        raise BadInput(f"the model in {folder} has no task given by f, S and F0: the bounds do not apply to it")
    return model, own


def every_table(found: Sequence[Transition], eps: float | None, head_dim: int, whose: str = "") -> Table | None:
    """Return the rows as a table, or None if there are none; `whose` is a note on whose reach R they state."""
    from headcount.render import NONE, Column, Table

    rows = [row for one in found for row in one.rows]
    if not rows:
        return None
    has_reach = any(row.reach is not None for row in rows)
    at_reach = ["R", "error"] if has_reach else []
    at_eps = [f"R for {eps:g}", f"width, n = {head_dim}"] if eps else []
    columns = [Column(name=name, key=name in "hT") for name in ("h", "T", "γ", "N", *at_reach, *at_eps)]
    table = Table(caption="", columns=columns, rows=[], notes=[whose] if whose else [])
    for one in found:
        for row in one.rows:
            cells = [str(row.heads), str(row.length), round_down(row.gap, 3), f"{row.copies} | {row.copies_any}"]
            if has_reach:
                cells += [
                    _maybe(row.reach, round_up),
                    f"≥ {_maybe(row.error, round_down)} | {_maybe(row.error_any, round_down)}",
                ]
            if eps:
                cells += [f"≥ {_maybe(row.needed, round_down)} | {_maybe(row.needed_any, round_down)}"]
                cells += [f"≥ {_maybe(row.width_any, round_down)}"]
            table.rows.append(cells)
        if one.built is not None:
            cells = [str(one.intrinsic), str(one.length), NONE, NONE, "as above" if one.rows else NONE]
            table.rows.append([*cells, f"≤ {round_up(one.built)}", *([NONE, NONE] if eps else [])])
    return table


def print_every(
    terminal: Terminal, found: Sequence[Transition], eps: float | None, head_dim: int, model: Path | None
) -> None:
    """Print what the table means, the table, and why bounds are missing."""
    from headcount.render import as_terminal

    table = every_table(found, eps, head_dim, _whose(found, model))
    if table is not None:
        terminal.print()
        terminal.print(MEANING)
        terminal.print(as_terminal(table))
    for line in dict.fromkeys(line for one in found for line in one.missing):
        terminal.print(f"No bound over all encoders: {line}.")


MEANING = (
    "Over all encoders and attentions: with h heads, and a block behind them whose output moves by at most R while "
    "each head's output crosses the range of its values at h + 1 letters, the sup error is at least (γ − R/N)/2 "
    "(proved). "
    "Left of | without positions, right with positions of any kind."
)


def _whose(found: Sequence[Transition], model: Path | None) -> str:
    if model is not None:
        return f"R is that of the model in {model} over these letters, proved from its weights."
    if any(one.built is not None for one in found):
        return (
            "R is that of the model which headcount build makes with D heads, over the letters of each row; its own "
            "error is the last row of a length (proved)."
        )
    return ""


def _maybe(value: float | None, shown: Any) -> str:
    """Return a number with three digits, rounded by `shown` to the side on which the bound holds; None as a dash."""
    return "–" if value is None else shown(value, 3)
