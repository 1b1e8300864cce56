"""`headcount bounds`: the theorems' bounds for given sizes, a task or a model, and where they are vacuous."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from headcount.cli.bounds_every import print_every, read_model
from headcount.cli.common import (
    Intrinsic,
    Json,
    Setting,
    TaskSeed,
    Whole,
    console,
    print_json,
    read_task,
    round_up,
    settings,
)
from headcount.core import BadInput, working

if TYPE_CHECKING:
    from headcount.tasks import GeneralizedRetrieval
    from headcount.theory.bounds import Facts, Row, Upper

MAX_LENGTHS_NAMED = 4
"""Lengths whose smallest set is stated below the table; an ellipsis stands for the rest."""


def bounds(
    task: Annotated[
        str | None, Parameter(help="A task (headcount tasks; default: none, sizes from --intrinsic or --model).")
    ] = None,
    /,
    *,
    heads: Annotated[str, Parameter(name=["--heads", "-h"], help="Head counts: 3, 1:5 or 1,2,4.")] = "1:5",
    head_dim: Annotated[str, Parameter(name=["--head-dim", "-n"], help="Head dimensions n: 2, 2:8 or 2,4,8.")] = "2",
    length: Annotated[
        str | None, Parameter(name=["--length", "-T"], help="Lengths T: 64 or 32,64,128 (default: the task's, or 128).")
    ] = None,
    intrinsic: Intrinsic = None,
    eps: Annotated[float | None, Parameter(help="Accuracy ε, for the proved width (default: no width).")] = None,
    share: Annotated[
        str | None,
        Parameter(
            allow_leading_hyphen=True,
            help="Share of positions in the smallest S_i, 0.25 to 1 (0.5, 7/25), rounded up; for no task (default: 1).",
        ),
    ] = None,
    variation: Annotated[
        float | None,
        Parameter(help="Variation of the target on the adversary's segment (default: the task's)."),
    ] = None,
    dim: Annotated[
        Whole | None, Parameter(name=["--dim", "-d"], help="Dimension d of a token (default: the family's).")
    ] = None,
    depth: Annotated[Whole, Parameter(help="Layers L, for the conjecture on depth.")] = 1,
    task_seed: TaskSeed = None,
    set_: Setting = None,
    model: Annotated[
        Path | None,
        Parameter(help="A model folder: its task and heads, and the reach of its own block (default: none)."),
    ] = None,
    out: Annotated[
        Path | None, Parameter(help="Picture of what ε costs, for a task with --eps (default: none).")
    ] = None,
    json: Json = False,
) -> int:
    """Compute the theorems' bounds: the exponent k, whether it is vacuous here, and at which sizes it bites."""
    from headcount.api import bounds_of, bounds_table
    from headcount.theory.bounds import check_rows, family_rule, of_share, of_tasks

    sizes = {"heads": numbers(heads, "--heads"), "head_dims": numbers(head_dim, "--head-dim")}
    lengths = numbers(length, "--length") if length is not None else []
    check_rows(**sizes, lengths=lengths or [1], eps=eps)
    stated = _variation(variation)
    if out is not None:
        check_out(out, task, eps)
    made, saved = list["GeneralizedRetrieval"](), None
    if model is not None:
        saved, own = read_model(model, task, lengths, intrinsic, share)
        made = [own]
        sizes = {"heads": [saved.transformer.spec.heads], "head_dims": [saved.transformer.spec.head_dim]}
        facts = of_tasks(made, None, stated)
    elif task is None:
        if intrinsic is None:
            raise BadInput("bounds needs a task, --model or --intrinsic: headcount bounds --D 4 --heads 3 --length 128")
        facts = of_share(lengths or [128], intrinsic, Fraction(1) if share is None else read_share(share), stated)
    else:
        if share is not None:
            raise BadInput(f"--share is for sizes without a task: {task} has its own S_i (a family: --set share=0.5)")
        made = [_retrieval(task, intrinsic, T, dim, task_seed, set_) for T in lengths or [None]]
        facts = of_tasks(made, family_rule(task, settings(set_)), stated)
    with working("computing"):
        result = bounds_of(facts, made, **sizes, intrinsic=intrinsic, dim=dim, eps=eps, depth=depth, model=saved)
    if out is not None and made and eps is not None:
        from headcount.render import save_errors
        from headcount.theory.bounds import count_figure

        save_errors(count_figure(made[0], [eps * 2.0**k for k in range(6, -1, -1)]), out)
    if json:
        print_json({"task": task, "share": None if task else share or "1", **result.data()})
        return 0
    found, built, missing, last = result.rows, result.upper, result.upper_missing, result.rows[-1]
    from headcount.core.text import styled
    from headcount.render import as_terminal

    terminal = console()
    terminal.print(as_terminal(bounds_table(found, eps, _notes(found, facts, eps, share, variation))))
    if built:
        terminal.print()
    for line in _upper_lines(built, missing, eps, [f.length for f in facts]):
        terminal.print(line)
    if out is not None:
        terminal.print(f"What ε costs: {out}")
    if made:
        print_every(terminal, result.every_encoder, eps, sizes["head_dims"][0], model)
    terminal.print()
    terminal.print(f"Other results, for h = {last.heads}, n = {last.head_dim}, T = {last.length}:")
    for k in result.related:
        terminal.print(f"  {k.source}: {k.says}", styled(f"({k.kind}; {k.conditions})", "dim"))
    return 0


def read_share(text: str) -> Fraction:
    """Return a decimal or a fraction, such as 0.5 or 7/25, as an exact rational number."""
    if not re.fullmatch(r"\d{1,30}(\.\d{0,30})?|\.\d{1,30}|\d{1,30}/0*[1-9]\d{0,29}", text):
        raise BadInput(f"--share takes a decimal or a fraction, such as 0.5 or 7/25, not {text!r}")
    return Fraction(text)


def _variation(stated: float | None) -> Fraction | None:
    if stated is None:
        return None
    if not 0 < stated < float("inf"):
        raise BadInput(f"variation must be above 0, not {stated}")
    return Fraction(stated)


def numbers(text: str, flag: str) -> list[int]:
    """Return the numbers of 3, 1:5 (both ends included) or 1,2,4."""
    from headcount.theory.bounds import MAX_ROWS

    try:
        if ":" in text:
            low, high = (int(part) for part in text.split(":"))
            if high - low >= MAX_ROWS:
                raise BadInput(f"{flag}: at most {MAX_ROWS} rows: shorten the range")
            found = list(range(low, high + 1))
        else:
            found = [int(part) for part in text.split(",")]
    except ValueError:
        raise BadInput(
            f"{flag} takes a whole number, a range such as 1:5 or a list such as 1,2,4, not {text!r}"
        ) from None
    if not found or min(found) < 1:
        raise BadInput(f"{flag} takes whole numbers of at least 1, not {text!r}")
    return found


def _retrieval(
    name: str, intrinsic: int | None, length: int | None, dim: int | None, seed: int | None, extra: list[str] | None
) -> GeneralizedRetrieval:
    from headcount.tasks import GeneralizedRetrieval

    found = read_task(name, intrinsic, length, dim, seed, extra)
    if not isinstance(found, GeneralizedRetrieval):
        raise BadInput(f"{found.name} is not given by f, S and F0: the theorems do not apply to it")
    return found


def _failing(facts: list[Facts]) -> list[str]:
    """Return the distinct assumptions that fail at some length."""
    return list(dict.fromkeys(name for f in facts for name in f.failing))


def _notes(
    found: list[Row], facts: list[Facts], eps: float | None, share: str | None, stated: float | None
) -> list[str]:
    meaning = (
        "k: with h < D heads every model within ε has M = Ω(1/ε^k) parameters (Theorem 2 (2), weights ≤ 1, sup error); "
        "printed takes |S_i| = T/4, sharp the smallest |S_i|. k ≤ 0 says nothing."
    )
    first, failing = facts[0], _failing(facts)
    lines = [meaning, _sets_line(facts, share)]
    if failing:
        lines.append(f"The theorem does not apply to this task: assumption {', '.join(failing)} fails.")
    elif any(row.bites_below_eps is not None for row in found):
        given = "" if stated is None else f", if the target varies by {stated:g} on every segment (--variation)"
        lines.append(
            f"bites below ε, width: proved, with all constants of the counting argument{given}; Ω alone is no number."
        )
    elif first.why and first.variations is None:
        lines.append(f"No width is computed: {first.why}.")
    elif eps is not None and first.variations is None:
        lines.append("No width is computed: it needs a task or --variation.")
    return lines


def _sets_line(facts: list[Facts], share: str | None) -> str:
    """Return how large the smallest S_i is, and by which rule."""
    if not facts[0].why:  # no task
        return f"The smallest S_i is taken to hold {share or 1} of the positions, rounded up (--share)."
    named = [f"{f.smallest_set} positions at T = {f.length}" for f in facts[:MAX_LENGTHS_NAMED]]
    return f"The smallest S_i of the task: {', '.join(named)}{', …' if len(facts) > len(named) else ''}."


def check_out(out: Path, task: str | None, eps: float | None) -> None:
    """Refuse a picture that could not be drawn, before the work, not after it."""
    from headcount.render import check_picture

    check_picture(out)
    if task is None or eps is None:
        raise BadInput("--out draws what ε costs for a task: it needs TASK and --eps")


def _upper_lines(built: list[Upper], missing: list[str], eps: float | None, lengths: list[int]) -> list[str]:
    """Return the sizes and the proved errors of the constructions, and why some are missing."""
    if eps is None:
        return []
    where = f"ε = {eps:g}" if len(lengths) == 1 else f"ε = {eps:g}, T = {lengths[0]}"
    lines = [f"Upper bounds at {where}, by construction (proved; headcount build makes them):"] if built else []
    for u in built:
        how = f"h = {u.heads}, n = {u.head_dim}, N = {u.hidden}, N of F = {u.hidden_ff}"
        how += f", β = {u.beta:.4g}" if u.theorem == "2 (1)" else ", uniform attention, F of five layers"
        lines.append(
            f"  Theorem {u.theorem}: {how}: error at most {round_up(u.bound)} with M = {u.parameters:,} ({u.nonzero:,} "
            f"of P and F are not 0)"
        )
    return lines + [f"  Not built: {line}" for line in missing]
