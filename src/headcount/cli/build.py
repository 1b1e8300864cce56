"""`headcount build TASK --eps 0.05 --out DIR`: build a transformer with a proved error and its certificate."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from headcount.cli.common import (
    BoxSides,
    Dim,
    Intrinsic,
    Json,
    Length,
    Setting,
    TaskSeed,
    Whole,
    console,
    print_json,
    read_box,
    read_task,
)
from headcount.core import BadInput, working

if TYPE_CHECKING:
    from headcount.tasks import Task


def build(
    task: Annotated[str, Parameter(help="A family (headcount tasks), or a file with a task's JSON.")],
    /,
    *,
    eps: Annotated[float, Parameter(help="The largest error allowed anywhere on the input box.")],
    out: Annotated[Path, Parameter(help="Folder to write model, certificate and picture to.")],
    intrinsic: Intrinsic = None,
    length: Length = None,
    dim: Dim = None,
    task_seed: TaskSeed = None,
    set_: Setting = None,
    heads: Annotated[Whole | None, Parameter(help="Heads h ≥ D (default: D).")] = None,
    head_dim: Annotated[
        Whole | None, Parameter(name=["--head-dim", "-n"], help="Dimension n ≥ 2 of a head (default: 2).")
    ] = None,
    wide: Annotated[
        bool, Parameter(negative=(), help="One wide head and an F of five layers (Theorem 2 (3)).")
    ] = False,
    bounded: Annotated[bool, Parameter(negative=(), help="Keep all weights of attention and F at most 1.")] = False,
    box: BoxSides = None,
    json: Json = False,
) -> int:
    """Build a transformer within eps of a task, and verify its certificate from the weights up.

    By Theorem 2 (1), with a head for every minimum; with --wide by Theorem 2 (3), with one head of dimension T·d.
    """
    from headcount.api import built_facts
    from headcount.core import check_replaceable
    from headcount.render import budget_png
    from headcount.theory.bounds import budget_figure
    from headcount.theory.construct import Built, build_wide, save_verified
    from headcount.theory.construct import build as construct

    check_replaceable(out)
    problem = read_task(task, intrinsic, length, dim, task_seed, set_, small_sets=True)
    from headcount.tasks import Task

    if not isinstance(problem, Task):
        raise BadInput(
            f"{task} holds samples: only a task stated by formulas can be built (a family, or a task's JSON)"
        )
    sides = read_box(box, problem.dim)
    if wide and (heads is not None or head_dim is not None or bounded):
        raise BadInput("--wide determines the head: leave out --heads, --head-dim and --bounded")
    with working("building and verifying"):
        if wide:
            built = build_wide(problem, eps, box=sides)
        else:
            built = construct(problem, eps, heads=heads, head_dim=head_dim or 2, bounded=bounded, box=sides)
        picture = {"budget.png": budget_png(budget_figure(built.task, built))} if isinstance(built, Built) else {}
        save_verified(built.model, built.certificate(), out, picture)
    facts: dict[str, Any] = {"out": str(out), **built_facts(built)}
    if json:
        print_json(facts)
    else:
        _show(facts, problem)
    return 0


def _show(facts: dict[str, Any], task: Task) -> None:
    from headcount.api import built_sentences, weights_sentence
    from headcount.render import as_terminal, budget_table

    terminal = console()
    for sentence in built_sentences(facts, task.name):
        terminal.print(sentence)
    terminal.print(as_terminal(budget_table(facts["shares"], facts["eps"], terminal.width)))
    terminal.print()
    terminal.print(weights_sentence(facts))
    picture = "" if facts["beta"] is None else ", with the picture budget.png"
    terminal.print(f"Saved in {facts['out']}{picture}; verify it yourself:")
    terminal.print(f"  headcount recheck {facts['out']}/certificate.json", soft_wrap=True)
