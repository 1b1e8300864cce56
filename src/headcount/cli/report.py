"""`headcount report RUN`: the page of a run in a store, finished or not."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from headcount.cli.common import Json, StoreFolder, console, print_json


def report(
    run: Annotated[str, Parameter(help="A run of the store (headcount runs lists them).")],
    /,
    *,
    store: StoreFolder = Path("headcount-runs"),
    out: Annotated[Path | None, Parameter(help="Folder for the page (default: report-RUN).")] = None,
    json: Json = False,
) -> int:
    """Write the page of a run: its sentence, picture, table and provenance."""
    from headcount.experiments.stored import stored_runs
    from headcount.front import SweepResult
    from headcount.store.store import Store

    with Store.open(store, create=False) as opened:
        result = SweepResult(stored_runs(opened, run))
    pages = result.report(out or Path(f"report-{run}"))
    if json:
        print_json({"pages": [str(page) for page in pages], "sentences": str(result).splitlines()})
        return 0
    console().print(str(result))
    for page in pages:
        console().print(f"Page     {page}")
    return 0
