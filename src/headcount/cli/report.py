"""`headcount report RUN`: the page of a run in a store, finished or not, or its summary in the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from headcount.analysis import Part
from headcount.cli.common import Json, StoreFolder, console, print_files, print_json
from headcount.core import BadInput, working


def report(
    run: Annotated[str, Parameter(help="A run of the store (headcount runs lists them).")],
    /,
    *,
    store: StoreFolder = Path("headcount-runs"),
    out: Annotated[Path | None, Parameter(help="Folder for the page (default: report-RUN).")] = None,
    on: Annotated[
        Part, Parameter(help="Which errors to read: those on validation or on training data.")
    ] = "validation",
    terminal: Annotated[
        bool, Parameter(name="--terminal", negative=(), help="Print a summary with a chart; write no files.")
    ] = False,
    json: Json = False,
) -> int:
    """Write the page of a run: its answer, charts, tables and provenance, in one file that needs no network."""
    if terminal and (out is not None or json):
        raise BadInput(f"--terminal writes no files: leave {'--json' if json else '--out'} out")
    from headcount.api import read_run
    from headcount.render import check_run_folder, write_run_report

    folder = out or Path(f"report-{run}")
    if not terminal:
        check_run_folder(folder)  # before the work, not after it
    with working("analysing"):
        runs, found = read_run(run, store=store, on=on)
    if terminal:
        from headcount.render.charts import print_run

        print_run(found, console(), runs)
        return 0
    with working("drawing"):
        files = write_run_report(runs, found, folder)
    if json:
        answers = [{"setting": d.setting, "sentence": d.sentence, "estimate": d.estimate} for d in found.dimensions]
        print_json(
            {
                "page": str(files.page),
                "pictures": [str(p) for p in files.pictures],
                "answers": answers,
                "measure": found.measure,
                "on": found.on,
                "notes": found.notes,
            }
        )
        return 0
    for answer in found.dimensions:
        console().print(answer.labelled)
    for note in found.notes:
        console().print(note)
    print_files([("Page", files.page)])
    return 0
