"""`headcount sweep SPEC.toml`: train the remaining trials of a sweep, and print its answers."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from headcount.cli.common import (
    Device,
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
from headcount.core import BadInput, working


def sweep(
    spec: Annotated[Path | None, Parameter(help="The sweep's TOML file (no default; --example writes one).")] = None,
    /,
    *,
    store: StoreFolder = Path("headcount-runs"),
    for_: Annotated[
        Time | None,
        Parameter(
            name=["--budget", "--for"],
            help="Stop cleanly after e.g. 90s, 9m, 2h; a first compilation is not interrupted (default: at the end).",
        ),
    ] = None,
    device: Device = "cpu",
    workers: Annotated[Whole | None, Parameter(help="Cores to use (default: all).")] = None,
    retry: Annotated[bool, Parameter(negative=(), help="Train failed trials again.")] = False,
    example: Annotated[
        Path | None, Parameter(help="Only write a sweep file to start from, under this name (default: train).")
    ] = None,
    json: Json = False,
) -> int:
    """Train the remaining trials of a sweep: it resumes where it stopped and trains no finished trial again."""
    if example is not None:
        return _example(example)
    if spec is None:
        raise BadInput("sweep needs a TOML file: headcount sweep --example sweep.toml writes one to start from")
    if workers is not None and workers < 1:
        raise BadInput(f"--workers must be at least 1, not {workers}")
    seconds = None if for_ is None else duration(for_)
    from headcount.analysis import answers
    from headcount.render.words import blind_note
    from headcount.store import Store
    from headcount.sweeps import read_sweep, run_on_store, stored_runs
    from headcount.training import find_device

    plan = read_sweep(spec)
    find_device(device)  # before a store is created
    with Store.open(store) as opened:
        if retry:
            failed = opened.trials(run=plan.name, states=("failed",)) if plan.name in opened.runs() else []
            opened.retry([trial.hash for trial in failed])
        try:
            counts = run_on_store(plan, opened, workers=workers, seconds=seconds, device=device)
        except KeyboardInterrupt as stopped:
            print_progress_kept(stopped, store)
            raise
        runs = stored_runs(opened, plan.name, plan)
        reasons = {t.error for t in opened.trials(run=plan.name, states=("failed",)) if t.error}
    if damaged := sum(r.left_out.get("damaged", 0) for r in runs):
        counts = {**counts, "damaged": damaged}
    with working("analysing"):
        found = answers(runs)
    if json:
        records = [answer.data() for answer in found]
        notes = [note] if (note := blind_note(runs)) else []
        print_json({"run": plan.name, "store": str(store), "trials": counts, "answers": records, "notes": notes})
        return trials_status(counts)
    terminal = console()
    states = ", ".join(f"{number} {state}" for state, number in counts.items() if number)
    terminal.print(f"{plan.name}: {states}; in {store}")
    for reason in sorted(reasons)[:3]:
        terminal.print(f"failed: {reason}")
    if reasons:
        terminal.print("--retry trains the failed trials again.")
    if "damaged" in counts:
        terminal.print(f"headcount runs --check --store {store} shows what is damaged.")
    for answer in found:
        terminal.print(answer.labelled)
    if note := blind_note(runs):
        terminal.print(note)
    if counts["pending"] + counts["running"]:
        terminal.print("Not finished: run the same command again to continue.")
    else:
        terminal.print(f"headcount report {plan.name} writes the page.")
    return trials_status(counts)


def _example(path: Path) -> int:
    from headcount.core import write_text

    if path.exists():
        raise BadInput(f"{path} exists already: choose another name")
    write_text(path, (resources.files("headcount.specs") / "example.toml").read_text(encoding="utf-8"))
    console().print(f"Wrote {path}; run it with: headcount sweep {path}")
    return 0
