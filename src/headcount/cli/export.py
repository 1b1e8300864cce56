"""`headcount export RUN TRIAL --out DIR`: save one trained model of a run as a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from headcount.cli.common import Json, StoreFolder, print_json, print_lines


def export(
    run: Annotated[str, Parameter(help="A run (headcount runs lists them).")],
    trial: Annotated[str, Parameter(help="A trial of the run: the beginning of its hash, or the word best.")],
    /,
    *,
    out: Annotated[Path, Parameter(help="Folder to write the model to.")],
    store: StoreFolder = Path("headcount-runs"),
    json: Json = False,
) -> int:
    """Take one trained model out of a run, as a folder like that of `headcount train`."""
    from headcount.core import check_replaceable, working
    from headcount.store import Store
    from headcount.sweeps import stored_model

    check_replaceable(out)
    with working("exporting"), Store.open(store, read_only=True) as opened:
        name, saved, history = stored_model(opened, run, trial)
        identity = saved.save(out, extra={"history.json": history})
    heads, error = saved.transformer.spec.heads, history["trial"]["nmse"]
    if json:
        print_json({"out": str(out), "hash": identity, "trial": name, "heads": heads, "nmse": error})
    else:
        summary = f"Trial {name[:10]}: {heads} head{'s' if heads > 1 else ''}, validation NMSE {error:.2e}, measured."
        print_lines([summary, f"Saved in {out}"])
    return 0
