"""`headcount tasks`: list the tasks with D, d, T and the assumptions they meet; `headcount tasks NAME`: examine one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from headcount.cli.common import (
    Dim,
    Intrinsic,
    Json,
    Length,
    Setting,
    TaskSeed,
    console,
    print_json,
    read_task,
)
from headcount.core import working
from headcount.core.text import plain

if TYPE_CHECKING:
    from headcount.render import Table
    from headcount.tasks import Task
    from headcount.tasks.arrays import ArrayTask
    from headcount.tasks.assumptions import AssumptionReport

ASSUMPTIONS = ("2.1", "2.2", "2.3", "2.4", "|S_i| ≥ T/4")
VERDICT_MARKS = {"holds": ("yes", "green"), "fails": ("no", "red"), "unknown": ("?", "yellow")}
SEARCH_NUMBERS = ("searched", "boxes", "least")
"""Numbers about the search itself, shown with --json only."""
MEANING = (
    "D intrinsic dimension (– where there is no retrieval structure), d token dimension, T length, at the default "
    "parameters. Assumptions: 2.1 each f_i has one minimiser, 2.2 the minimisers differ, 2.3 positive definite "
    "Hessians, 2.4 F0 depends on every coordinate, |S| means |S_i| ≥ T/4; ? means not known. 'headcount tasks NAME' "
    "shows the numbers and parameters."
)


def tasks(
    name: Annotated[
        str | None, Parameter(help="A task to examine: a family or a task's JSON file (default: list all families).")
    ] = None,
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
        return _examine(read_task(name, intrinsic, length, dim, task_seed, set_), name, json)
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
    from headcount.render import as_terminal

    console().print(as_terminal(_listing(rows)))
    return 0


def _facts(task: Task | ArrayTask) -> dict[str, Any]:
    return {
        "name": task.name,
        "intrinsic": task.intrinsic,
        "dim": task.dim,
        "length": task.length,
        "out_dim": task.out_dim,
    }


def _listing(rows: list[tuple[str, Task, AssumptionReport]]) -> Table:
    from headcount.render import NONE, Column, Table

    styles = dict(VERDICT_MARKS.values())
    columns = [
        Column(name="task", kind="text", key=True),
        *(Column(name=name) for name in ("D", "d", "T")),
        *(Column(name=name.replace("_i| ≥ T/4", "|"), kind="text", styles=styles) for name in ASSUMPTIONS),
        Column(name="what it computes", kind="text"),
    ]
    cells = [
        [
            task.name,
            NONE if task.intrinsic is None else str(task.intrinsic),
            str(task.dim),
            str(task.length),
            *(VERDICT_MARKS[report.finding(c).verdict][0] if report.applies else NONE for c in ASSUMPTIONS),
            summary,
        ]
        for summary, task, report in rows
    ]
    return Table(caption="", columns=columns, rows=cells, notes=[MEANING])


def _findings(report: AssumptionReport) -> Table:
    """Return a table with a row per assumption: the sentence and, below it, the numbers that were found."""
    from headcount.render import Column, Table

    columns = [
        Column(name="assumption", kind="text", key=True),
        Column(name="verdict", kind="text", styles=dict(VERDICT_MARKS.values())),
        Column(name="evidence", kind="text"),
        Column(name="what was found", kind="text", lines=True),
    ]
    rows: list[list[str]] = []
    for found in report.findings:
        numbers = ", ".join(
            f"{k.replace('_', ' ')} {_short(v)}" for k, v in found.numbers.items() if k not in SEARCH_NUMBERS
        )
        text = plain(found.sentence) + (f"\n  {plain(numbers)}" if numbers else "")
        rows.append([found.assumption, VERDICT_MARKS[found.verdict][0], found.evidence, text])
    return Table(caption="", columns=columns, rows=rows)


def _examine(task: Task | ArrayTask, name: str, json: bool) -> int:
    from headcount.core.text import bold
    from headcount.render import as_terminal
    from headcount.tasks import FAMILIES
    from headcount.tasks.assumptions import check_assumptions

    with working("checking"):
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
    terminal.print(as_terminal(_findings(report)))
    return 0


def _short(value: Any) -> str:
    """Return a value as text: numbers with four digits, of lists the first six items."""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list | tuple):
        items = [_short(v) for v in value[:6]]
        return f"[{', '.join(items)}{', …' if len(value) > 6 else ''}]"
    return str(value)
