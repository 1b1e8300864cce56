"""`headcount tasks`: the tasks with D, d, T and the assumptions they meet; `headcount tasks NAME` examines one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from headcount.cli.common import (  # fmt: skip
    Dim,
    Intrinsic,
    Json,
    Length,
    Setting,
    TaskSeed,
    console,
    print_json,
    print_lines,
    read_task,
)

if TYPE_CHECKING:
    from rich.table import Table

    from headcount.tasks import Task
    from headcount.tasks.arrays import ArrayTask
    from headcount.tasks.assumptions import AssumptionReport

COLUMNS = ("2.1", "2.2", "2.3", "2.4", "|S_i| ≥ T/4")
SIGNS = {"holds": ("yes", "green"), "fails": ("no", "red"), "unknown": ("?", "yellow")}
INNER = ("searched", "boxes", "least")  # numbers of the search itself, for --json only
LEGEND = (
    "D intrinsic dimension (– where there is no retrieval structure), d token dimension, T length, at the default",
    "parameters. Assumptions: 2.1 each f_i has one minimiser, 2.2 the minimisers differ, 2.3 positive definite",
    "Hessians, 2.4 F0 feels every coordinate, |S_i| ≥ T/4. 'headcount tasks NAME' shows the numbers and parameters.",
)


def tasks(
    name: Annotated[str | None, Parameter(help="One task, to examine it: a family or a task's JSON file.")] = None,
    /,
    *,
    intrinsic: Intrinsic = None,
    length: Length = None,
    dim: Dim = None,
    task_seed: TaskSeed = None,
    set_: Setting = None,
    json: Json = False,
) -> int:
    """List the tasks, with D, d, T and the assumptions they meet; or examine one."""
    if name is not None:
        return _one(read_task(name, intrinsic, length, dim, task_seed, set_), name, json)
    from headcount.core import Progress
    from headcount.tasks import FAMILIES, make_task
    from headcount.tasks.assumptions import check_assumptions

    rows: list[tuple[str, Task, AssumptionReport]] = []
    with Progress("checking", len(FAMILIES), quiet=json) as progress:
        for family, spec in FAMILIES.items():
            task = make_task(family)
            rows.append((spec.summary, task, check_assumptions(task)))
            progress.advance(note=family)
    if json:
        print_json([{"summary": summary, **_facts(task), **report.data()} for summary, task, report in rows])
        return 0
    console().print(_listing(rows))
    print_lines(LEGEND)
    return 0


def _facts(task: Task | ArrayTask) -> dict[str, Any]:
    return {
        "name": task.name, "intrinsic": task.intrinsic, "dim": task.dim, "length": task.length, "out_dim": task.out_dim,
    }  # fmt: skip


def _listing(rows: list[tuple[str, Task, AssumptionReport]]) -> Table:
    from rich import box
    from rich.table import Table

    from headcount.core.text import styled

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("task", style="bold", no_wrap=True)
    for column in ("D", "d", "T"):
        table.add_column(column, justify="right")
    for column in COLUMNS:
        table.add_column(column.replace("|S_i| ≥ T/4", "|S|"), justify="center")
    table.add_column("what it computes")
    for summary, task, report in rows:
        signs = [styled(*SIGNS[report.finding(c).verdict]) if report.applies else "–" for c in COLUMNS]
        D = "–" if task.intrinsic is None else str(task.intrinsic)
        table.add_row(task.name, D, str(task.dim), str(task.length), *signs, summary)
    return table


def _one(task: Task | ArrayTask, name: str, json: bool) -> int:
    from rich import box
    from rich.table import Table

    from headcount.core.text import bold, cell, styled
    from headcount.tasks import FAMILIES
    from headcount.tasks.assumptions import check_assumptions

    report = check_assumptions(task)
    if json:
        print_json({**_facts(task), **report.data()})
        return 0
    terminal = console()
    sizes = ", ".join(f"{k} {'–' if v is None else v}" for k, v in _facts(task).items() if k != "name")
    terminal.print(bold(task.name), f" {sizes}")
    if name in FAMILIES:
        terminal.print(FAMILIES[name].summary)
        fields = FAMILIES[name].model_fields
        settings = [f"{k}={field.default}" for k, field in fields.items() if k != "family"]
        terminal.print(f"parameters and their defaults: {', '.join(settings)}")
    if not report.applies:
        terminal.print(report.sentence)
        return 0
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("assumption", "verdict", "evidence", "what was found"):
        table.add_column(column)
    for finding in report.findings:
        numbers = ", ".join(f"{k.replace('_', ' ')} {_short(v)}" for k, v in finding.numbers.items() if k not in INNER)
        sign, text = styled(*SIGNS[finding.verdict]), cell(finding.sentence, numbers)
        table.add_row(finding.assumption, sign, finding.evidence, text)
    terminal.print(table)
    return 0


def _short(value: Any) -> str:
    """Print numbers with four digits, lists likewise."""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list | tuple):
        items = [_short(v) for v in value[:6]]
        return f"[{', '.join(items)}{', …' if len(value) > 6 else ''}]"
    return str(value)
