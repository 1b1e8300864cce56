"""`headcount bounds`: what the theorems say for given sizes, or for a task: vacuous or not, from where on they bite."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from headcount.base.errors import BadInput
from headcount.cli.common import Intrinsic, Json, Setting, TaskSeed, Whole, above, console, print_json, read_task

if TYPE_CHECKING:
    from headcount.tasks.retrieval import GeneralizedRetrieval
    from headcount.theory.calculator import Row
    from headcount.theory.upper import Upper


def bounds(
    task: Annotated[str | None, Parameter(help="A task (headcount tasks); or give --intrinsic alone.")] = None,
    /,
    *,
    heads: Annotated[str, Parameter(name=["--heads", "-h"], help="Head counts: 3, 1:5 or 1,2,4.")] = "1:5",
    head_dim: Annotated[str, Parameter(name=["--head-dim", "-n"], help="Head dimensions n: 2, 2:8 or 2,4,8.")] = "2",
    length: Annotated[str | None, Parameter(name=["--length", "-T"], help="Lengths T: 64 or 32,64,128.")] = None,
    intrinsic: Intrinsic = None,
    eps: Annotated[float | None, Parameter(help="Accuracy ε, for the proved width.")] = None,
    share: Annotated[float | None, Parameter(help="Share of positions in the smallest S_i, 0.25 to 1.")] = None,
    variation: Annotated[float | None, Parameter(help="How much the target varies on the adversary's segment.")] = None,
    dim: Annotated[Whole | None, Parameter(name=["--dim", "-d"], help="Dimension d of a token.")] = None,
    depth: Annotated[Whole, Parameter(help="Layers L, for the conjecture on depth.")] = 1,
    task_seed: TaskSeed = None,
    set_: Setting = None,
    out: Annotated[Path | None, Parameter(help="Picture of what ε costs, for a task with --eps.")] = None,
    json: Json = False,
) -> int:
    """Compute the theorems' bounds: the exponent k, whether it is vacuous here, and from where on it bites."""
    from headcount.theory.calculator import of_task, related, rows

    many = {"heads": numbers(heads, "--heads"), "head_dims": numbers(head_dim, "--head-dim")}
    lengths = numbers(length, "--length") if length is not None else None
    problem, built, missing = None, list["Upper"](), list[str]()
    if out is not None:
        check_out(out, task, eps)
    facts: dict[str, Any] = {"share": 1.0, "variation": None, "failing": [], "why": ""}
    if task is None:
        if intrinsic is None:
            raise BadInput(
                "bounds needs a task or --intrinsic: headcount bounds --D 4 --heads 3 --head-dim 2 --length 128"
            )
        lengths = lengths or [128]
    else:
        problem = _retrieval(task, intrinsic, None if lengths is None else lengths[0], dim, task_seed, set_)
        intrinsic, dim, lengths = problem.intrinsic, problem.dim, lengths or [problem.length]
        facts = of_task(problem)
    facts["share"] = facts["share"] if share is None else share
    facts["variation"] = facts["variation"] if variation is None else variation
    settings = {key: facts[key] for key in ("share", "variation", "failing")}
    found = rows(intrinsic=intrinsic, **many, lengths=lengths, eps=eps, **settings)
    if problem is not None and eps is not None:
        from headcount.theory.upper import count_figure, uppers

        built, missing = uppers(problem, eps)
        if out is not None:
            from headcount.report.theory import save_errors

            save_errors(count_figure(problem, [eps * 2.0**k for k in range(6, -1, -1)]), out)
    last = found[-1]
    others = related(
        intrinsic=intrinsic, heads=last.heads, head_dim=last.head_dim, length=last.length, dim=dim, depth=depth
    )
    if json:
        from dataclasses import asdict

        print_json({
            "task": task, **facts, "rows": [row.data() for row in found], "upper": [asdict(u) for u in built],
            "upper_missing": missing, "related": [asdict(k) for k in others],
        })  # fmt: skip
        return 0
    from headcount.base.terminal import styled

    terminal = console()
    terminal.print(_table(found, eps))
    for line in _notes(found, facts, eps):
        terminal.print(line)
    if built:
        terminal.print()
    for line in _upper_lines(built, missing, eps):
        terminal.print(line)
    if out is not None:
        terminal.print(f"What ε costs: {out}")
    terminal.print()
    terminal.print(f"Other results, for h = {last.heads}, n = {last.head_dim}, T = {last.length}:")
    for k in others:
        terminal.print(f"  {k.source}: {k.says}", styled(f"({k.kind}; {k.conditions})", "dim"))
    return 0


def numbers(text: str, flag: str) -> list[int]:
    """Read 3, 1:5 (both ends) or 1,2,4."""
    try:
        if ":" in text:
            low, high = (int(part) for part in text.split(":"))
            found = list(range(low, high + 1))
        else:
            found = [int(part) for part in text.split(",")]
    except ValueError:
        raise BadInput(f"{flag} takes a whole number, a range 1:5 or a list 1,2,4, not {text!r}") from None
    if not found or min(found) < 1:
        raise BadInput(f"{flag} takes whole numbers from 1 on, not {text!r}")
    return found


def _retrieval(
    name: str, intrinsic: int | None, length: int | None, dim: int | None, seed: int | None, extra: list[str] | None
) -> GeneralizedRetrieval:
    from headcount.tasks.retrieval import GeneralizedRetrieval

    found = read_task(name, intrinsic, length, dim, seed, extra)
    if not isinstance(found, GeneralizedRetrieval):
        raise BadInput(f"{found.name} is not stated as f, S and F0: the theorems do not speak of it")
    return found


def _table(found: list[Row], eps: float | None) -> Any:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("h", "n", "T", "k printed", "k sharp", "k/4", "bites from T", "below n"):
        table.add_column(column, justify="right")
    known = any(row.bites_below_eps is not None or row.width is not None for row in found)
    if known:
        table.add_column("bites below ε", justify="right")
        if eps is not None:
            table.add_column(f"width at ε = {eps:g}", justify="right")
    table.add_column("what it says")
    for row in found:
        few = row.heads < row.intrinsic
        cells = [str(row.heads), str(row.head_dim), str(row.length)]
        cells += [f"{row.printed.k:.2f}", f"{row.sharp.k:.2f}", f"{row.sharp.k_five_layers:.2f}"] if few else ["–"] * 3
        cells += [_or(row.sharp.bites_from_length), _or(row.sharp.bites_below_head_dim)]
        if known:
            cells.append("–" if row.bites_below_eps is None else f"{row.bites_below_eps:.1e}")
            if eps is not None:
                cells.append("–" if row.width is None else "≥ 1" if row.width <= 1 else f"≥ {row.width:.3g}")
        table.add_row(*cells, row.verdict)
    return table


def _notes(found: list[Row], facts: dict[str, Any], eps: float | None) -> list[str]:
    meaning = (
        "k: with h < D heads every model within ε has M = Ω(1/ε^k) parameters (Theorem 2 (2), weights ≤ 1, sup error); "
        "printed takes |S_i| = T/4, sharp the smallest |S_i|. k ≤ 0 says nothing."
    )
    lines = [meaning]
    if not facts["why"]:  # no task
        lines.append(f"The smallest S_i is taken to hold {facts['share']:g} of the positions (--share).")
    if facts["failing"]:
        lines.append(f"The theorem does not speak of this task: assumption {', '.join(facts['failing'])} fails.")
    elif any(row.bites_below_eps is not None for row in found):
        lines.append("bites below ε, width: proved, with all constants of the counting argument; Ω alone is no number.")
    elif facts["why"]:
        lines.append(f"No width is computed: {facts['why']}.")
    elif eps is not None and facts["variation"] is None:
        lines.append("No width is computed: it needs a task or --variation.")
    return lines


def check_out(out: Path, task: str | None, eps: float | None) -> None:
    """Refuse a picture that could not be drawn, before the work."""
    from headcount.report.theory import check_picture

    check_picture(out)
    if task is None or eps is None:
        raise BadInput("--out draws what ε costs for a task: state TASK and --eps")


def _upper_lines(built: list[Upper], missing: list[str], eps: float | None) -> list[str]:
    """Say what the constructions use."""
    lines = [f"Upper bounds at ε = {eps:g}, by construction (proved; headcount build makes them):"] if built else []
    for u in built:
        how = f"h = {u.heads}, n = {u.head_dim}, N = {u.hidden}, N of F = {u.hidden_ff}"
        how += f", β = {u.beta:.4g}" if u.theorem == "2 (1)" else ", uniform attention, F of five layers"
        lines.append(
            f"  Theorem {u.theorem}: {how}: error at most {above(u.bound)} with M = {u.parameters:,} ({u.nonzero:,} "
            f"of P and F are not 0)"
        )
    return lines + [f"  Not built: {line}" for line in missing]


def _or(value: int | None) -> str:
    return "–" if value is None else str(value)
