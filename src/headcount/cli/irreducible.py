"""`headcount irreducible SPEC --out DIR`: the largest proved gap against the head count, as table and picture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from headcount.cli.common import (  # fmt: skip
    Json,
    StoreFolder,
    Time,
    Whole,
    console,
    duration,
    print_json,
    tell_what_is_kept,
    trials_status,
)
from headcount.core import BadInput


def irreducible(
    spec: Annotated[
        Path | None, Parameter(help="A TOML file; without one, the paper's task with D = 2, 3, 4, 5.")
    ] = None,
    /,
    *,
    out: Annotated[Path, Parameter(help="Folder to write: table, picture, every row, every witness.")],
    store: StoreFolder = Path("headcount-runs"),
    for_: Annotated[
        Time | None,
        Parameter(name=["--budget", "--for"], help="Stop after e.g. 9m; an attack under way begins anew later."),
    ] = None,
    workers: Annotated[Whole | None, Parameter(help="Attacks side by side (default: one a core).")] = None,
    retry: Annotated[bool, Parameter(negative=(), help="Attack layers that failed once more.")] = False,
    json: Json = False,
) -> int:
    """Train layers of every head count, attack them, and show what no feed-forward block can repair."""
    from importlib import resources

    from headcount.core.readers import read_toml
    from headcount.render import as_terminal, curve_rows, curve_table, equal_effort
    from headcount.store import Store
    from headcount.sweeps import IrreducibleSpec, attack_rows, run_on_store, save_witnesses

    if workers is not None and workers < 1:
        raise BadInput(f"--workers must be 1 or more, not {workers}")
    seconds = None if for_ is None else duration(for_)
    with resources.as_file(resources.files("headcount.specs") / "irreducible.toml") as ours:
        plan = IrreducibleSpec.parse(read_toml(spec or ours), where=str(spec or "irreducible.toml"))
    _check_out(out)
    with Store.open(store) as opened:
        if retry and plan.name in opened.runs():
            opened.retry([trial.hash for trial in opened.trials(run=plan.name, states=("failed",))])
        try:
            counts = run_on_store(plan, opened, workers=workers, seconds=seconds)
        except KeyboardInterrupt as stopped:
            tell_what_is_kept(stopped, store, "finished")
            raise
        rows = attack_rows(opened, plan)
        witnesses = save_witnesses(opened, plan, out / "witnesses")
    summary, failed = curve_rows(rows), [row for row in rows if "error" in row]
    _write(out, plan, rows, summary)
    if json:
        equal = equal_effort(summary)
        print_json({
            "run": plan.name, "store": str(store), "out": str(out), "trials": counts, "summary": summary,
            "equal_effort": equal, "failed": failed,
        })  # fmt: skip
        return trials_status(counts)
    terminal = console()
    if summary:
        terminal.print(as_terminal(curve_table(summary)))
        terminal.print()
    told = ", ".join(f"{number} {state}" for state, number in counts.items() if number)
    picture = "irreducible.png, " if summary else ""
    terminal.print(f"{plan.name}: {told}; in {store}")
    terminal.print(f"Saved in {out}: {picture}irreducible.md, irreducible.json, {witnesses} witnesses")
    for reason in sorted({row["error"] for row in failed})[:3]:
        terminal.print(f"failed: {reason}")
    if counts["failed"]:
        terminal.print("--retry attacks what failed once more.")
    if counts["pending"] + counts["running"]:
        terminal.print("Not finished: the same command goes on from here.")
    return trials_status(counts)


def _write(out: Path, plan: Any, rows: list[dict[str, Any]], summary: list[dict[str, Any]]) -> None:
    """Write table, picture and rows."""
    from headcount.core import provenance, write_bytes, write_json, write_text
    from headcount.render import as_markdown, curve_png, curve_table

    data = {"spec": plan.data(), "rows": rows, "summary": summary, "provenance": provenance()}
    write_json(out / "irreducible.json", data)
    write_text(out / "irreducible.md", as_markdown(curve_table(summary)))
    if summary:
        write_bytes(out / "irreducible.png", curve_png(summary, plan.title))


def _check_out(out: Path) -> None:
    """Refuse a file, or a folder that holds anything but an earlier run."""
    if out.exists() and not out.is_dir():
        raise BadInput(f"{out} is a file, not a folder: choose another --out")
    foreign = sorted(p.name for p in out.iterdir() if p.name not in _OURS) if out.is_dir() else []
    if foreign:
        raise BadInput(f"{out} holds other files ({', '.join(foreign[:3])}): choose an empty or new folder")


_OURS = {"witnesses", "irreducible.json", "irreducible.md", "irreducible.png"}
