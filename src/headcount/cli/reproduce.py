"""`headcount reproduce NAME`: a table or figure of the paper, theirs and ours side by side."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from headcount.base.errors import BadInput
from headcount.cli.common import Device, Json, StoreFolder, Whole, console, print_json
from headcount.cli.sweep import duration


def reproduce(
    name: Annotated[
        str | None, Parameter(help="table2, …, figure4, synthetic (all of them); without one, a list.")
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
        str | None, Parameter(name="--for", help="Stop cleanly after e.g. 90s, 9m, 2h; the same command goes on.")
    ] = None,
    device: Device = "cpu",
    workers: Annotated[Whole | None, Parameter(help="Cores to use (default: all).")] = None,
    json: Json = False,
) -> int:
    """Train what a table or figure of the paper needs, or what is left of it, and show theirs and ours side by side."""
    from headcount.paper.plan import ITEMS, names_of, sweep_of

    if name is None:
        return _list(json)
    names = names_of(name)
    if workers is not None and workers < 1:
        raise BadInput(f"--workers must be at least 1, not {workers}")
    end = None if for_ is None else time.monotonic() + duration(for_)
    folder = out or Path(f"reproduce-{name}")
    from headcount.experiments.devices import find_device
    from headcount.experiments.runner import run_on_store
    from headcount.paper.reproduce import check_folder, page, read_run, show
    from headcount.store.store import Store

    find_device(device)
    check_folder(folder)
    found: list[Any] = []
    pages: dict[str, Path] = {}
    left = 0
    with Store.open(store) as opened:
        for spec in {ITEMS[n].spec: sweep_of(ITEMS[n], scale) for n in names}.values():
            seconds = None if end is None else end - time.monotonic()
            if seconds is None or seconds > 0:
                try:
                    run_on_store(spec, opened, workers=workers, seconds=seconds, device=device)
                except KeyboardInterrupt:
                    sys.stderr.write(f"headcount: what was trained is kept in {store}; the same command goes on\n")
                    raise
        for n in names:
            item = ITEMS[n]
            if f"{item.spec}-{scale}" not in opened.runs():
                left += 1
                continue
            runs, analysis = read_run(opened, item, scale)
            counts = analysis.counts
            left += counts.get("pending", 0) + counts.get("running", 0)
            if not counts.get("done"):
                continue
            found.append(show(n, runs, analysis, folder / n))
            if item.spec not in pages:
                pages[item.spec] = page(n, runs, analysis, folder / f"{item.spec}-page")
    if json:
        print_json({
            "out": str(folder), "scale": scale, "unfinished": left, "pages": {k: str(v) for k, v in pages.items()},
            "shown": {s.name: {
                "files": [str(f) for f in s.files], "remarks": s.remarks, "counts": s.analysis.counts,
                "dimensions": [d.data() for d in s.analysis.dimensions],
            } for s in found},
        })  # fmt: skip
        return 0
    _print(found, pages, folder)
    if left:
        console().print("Not finished: the same command goes on from here.")
    return 0


def _print(found: list[Any], pages: dict[str, Path], folder: Path) -> None:
    """Show the tables and say where the files are."""
    from headcount.report.tables import as_terminal

    terminal = console()
    for shown in found:
        terminal.print()
        for found_dimension in shown.analysis.dimensions:
            label = f"{found_dimension.setting}: " if found_dimension.setting else ""
            terminal.print(f"{label}{found_dimension.sentence}", markup=False)
        terminal.print(as_terminal(shown.table))
        for remark in shown.remarks:
            terminal.print(remark, markup=False)
    for path in pages.values():
        terminal.print(f"Page     {path}", markup=False)
    terminal.print(f"Tables and pictures in {folder}", markup=False)


def _list(json: bool) -> int:
    """Say what can be reproduced."""
    from headcount.paper.plan import BEYOND, GROUPS, PAPER, sweep_of

    rows = {name: sweep_of(item, "paper").title for name, item in {**PAPER, **BEYOND}.items()}
    if json:
        print_json({"names": rows, "groups": {k: list(v) for k, v in GROUPS.items()}})
        return 0
    terminal = console()
    terminal.print("Of the paper (synthetic runs all of them):")
    for name in PAPER:
        terminal.print(f"  {name:<12} {rows[name]}", markup=False)
    terminal.print("Beyond it (beyond-the-paper runs all of them):")
    for name in BEYOND:
        terminal.print(f"  {name:<12} {rows[name]}", markup=False)
    return 0
