"""`headcount irreducible SPEC --out DIR`: the largest proved gap against the head count, as table and picture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from headcount.cli.common import Json, Whole, console, print_json, print_lines
from headcount.core import BadInput


def irreducible(
    spec: Annotated[
        Path | None, Parameter(help="A TOML file; without one, the paper's task with D = 2, 3, 4, 5.")
    ] = None,
    /,
    *,
    out: Annotated[Path, Parameter(help="Folder of the results; a second run goes on where the first stopped.")],
    workers: Annotated[Whole | None, Parameter(help="Attacks side by side (default: one a core).")] = None,
    json: Json = False,
) -> int:
    """Train layers of every head count, attack them, and show what no feed-forward block can repair."""
    from importlib import resources

    from headcount.core import Progress, provenance, write_bytes, write_json, write_text
    from headcount.core.readers import read_toml
    from headcount.render import curve_png, curve_rows, curve_table, equal_effort
    from headcount.sweeps import IrreducibleSpec, run_irreducible

    if workers is not None and workers < 1:
        raise BadInput(f"--workers must be 1 or more, not {workers}")
    with resources.as_file(resources.files("headcount.specs") / "irreducible.toml") as ours:
        plan = IrreducibleSpec.parse(read_toml(spec or ours), where=str(spec or "irreducible.toml"))
    _check_out(out)
    with Progress("attacking", sum(1 for _ in plan.units()), every=20.0) as progress:

        def told(done: int, _: int, row: dict[str, Any]) -> None:
            progress.advance(done - progress.done, note=_note(row))

        rows = run_irreducible(plan, out, workers, told)
    summary = curve_rows(rows)
    data = {"spec": plan.data(), "rows": rows, "summary": summary, "provenance": provenance()}
    write_json(out / "irreducible.json", data)
    write_text(out / "irreducible.md", curve_table(summary))
    if summary:
        write_bytes(out / "irreducible.png", curve_png(summary, plan.title))
    if json:
        failures = [row for row in rows if "error" in row]
        equal = equal_effort(summary)
        print_json({"out": str(out), "summary": summary, "equal_effort": equal, "failed": failures})
    else:
        print_lines(curve_table(summary).split("\n"))
        print_lines([f"Saved in {out}: irreducible.png, irreducible.md, irreducible.json"])
    failed = [row["error"] for row in rows if "error" in row]
    if failed:
        console().print(f"{len(failed)} attacks failed, the first with {failed[0]}; run again to try them.")
    return 1 if failed else 0


def _check_out(out: Path) -> None:
    """Refuse a file, or a folder that holds anything but an earlier run."""
    if out.exists() and not out.is_dir():
        raise BadInput(f"{out} is a file, not a folder: choose another --out")
    foreign = sorted(p.name for p in out.iterdir() if p.name not in _OURS) if out.is_dir() else []
    if foreign:
        raise BadInput(f"{out} holds other files ({', '.join(foreign[:3])}): choose an empty or new folder")


_OURS = {"units", "witnesses", "irreducible.json", "irreducible.md", "irreducible.png"}


def _note(row: dict[str, Any]) -> str:
    where = f"D = {row['intrinsic']}, T = {row['length']}, {row['heads']} heads, {row['layer']}, seed {row['seed']}"
    if "error" in row:
        return f"{where}: {row['error']}"
    searches = [(among, row[among]) for among in ("all", "typical") if among in row]
    gaps = (f"{s['deviations']:.2f} ({among}, {s['converged']} of {s['starts']} converged)" for among, s in searches)
    return f"{where}: {', '.join(gaps)} standard deviations"
