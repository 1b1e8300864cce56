"""`headcount irreducible SPEC --out DIR`: the largest proved gap against the head count, as table and picture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from headcount.cli.common import (
    Json,
    StoreFolder,
    Time,
    Whole,
    console,
    duration,
    print_json,
    print_progress_kept,
    trials_status,
)
from headcount.core import BadInput


def irreducible(
    spec: Annotated[
        Path | None, Parameter(help="A TOML file; without one, the paper's task with D = 2, 3, 4, 5.")
    ] = None,
    /,
    *,
    out: Annotated[Path, Parameter(help="Folder to write: table, picture, all rows, all witnesses.")],
    store: StoreFolder = Path("headcount-runs"),
    for_: Annotated[
        Time | None,
        Parameter(
            name=["--budget", "--for"],
            help="Stop after e.g. 9m; an interrupted attack starts again later (default: at the end).",
        ),
    ] = None,
    workers: Annotated[Whole | None, Parameter(help="Attacks to run side by side (default: one per core).")] = None,
    retry: Annotated[bool, Parameter(negative=(), help="Attack failed layers again.")] = False,
    json: Json = False,
) -> int:
    """Train layers of every head count, attack them, and show what no feed-forward block can repair."""
    from headcount.api import irreducible as attack_layers
    from headcount.render import as_terminal, curve_table

    if workers is not None and workers < 1:
        raise BadInput(f"--workers must be 1 or more, not {workers}")
    seconds = None if for_ is None else duration(for_)
    try:
        found = attack_layers(spec, out=out, store=store, budget=seconds, workers=workers, retry=retry)
    except KeyboardInterrupt as stopped:
        print_progress_kept(stopped, store, "finished")
        raise
    name, counts, summary = found.spec.name, found.counts, found.summary
    if json:
        print_json(
            {
                "run": name,
                "store": str(store),
                "out": str(out),
                "trials": counts,
                "summary": summary,
                "equal_effort": found.equal_effort,
                "failed": found.failed,
            }
        )
        return trials_status(counts)
    terminal = console()
    if summary:
        terminal.print(as_terminal(curve_table(summary)))
        terminal.print()
    states = ", ".join(f"{number} {state}" for state, number in counts.items() if number)
    picture = "irreducible.png, " if summary else ""
    terminal.print(f"{name}: {states}; in {store}")
    terminal.print(f"Saved in {out}: {picture}irreducible.md, irreducible.json, {found.witnesses} witnesses")
    for reason in sorted({row["error"] for row in found.failed})[:3]:
        terminal.print(f"failed: {reason}")
    if counts["failed"]:
        terminal.print("--retry attacks the failed layers again.")
    if counts["pending"] + counts["running"]:
        terminal.print("Not finished: run the same command again to continue.")
    return trials_status(counts)
