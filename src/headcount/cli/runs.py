"""`headcount runs`: what a store holds; `headcount runs merge STORE` joins another store into it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from headcount.base.errors import BadInput
from headcount.cli.common import Json, StoreFolder, console, print_json

if TYPE_CHECKING:
    from headcount.store.store import Store
    from headcount.store.trials import StoredTrial


def runs(
    action: Annotated[str | None, Parameter(help="A run to list its trials, or the word merge.")] = None,
    other: Annotated[Path | None, Parameter(help="With merge: the store to take from.")] = None,
    /,
    *,
    store: StoreFolder = Path("headcount-runs"),
    sort: Annotated[Literal["order", "error"], Parameter(help="How a run's trials are sorted.")] = "order",
    json: Json = False,
) -> int:
    """List the runs of a store or the trials of one; or merge another store into it, trial by trial."""
    from headcount.store.store import Store

    if (action == "merge") != (other is not None):
        raise BadInput("headcount runs merge STORE takes the folder of another store, and only merge does")
    with Store.open(store, create=action == "merge") as opened:
        if other is not None:
            report = opened.merge(other)
            if json:
                print_json({"merged": str(other), "report": str(report)})
            else:
                console().print(str(report))
        elif action is None:
            _list(opened, json)
        else:
            _trials(opened, action, sort, json)
    return 0


def _list(store: Store, json: bool) -> None:
    rows = [{"run": name, **store.counts(name)} for name in store.runs()]
    if json:
        print_json(rows)
        return
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("run", "done", "diverged", "failed", "running", "pending"):
        table.add_column(column, justify="left" if column == "run" else "right")
    for row in rows:
        table.add_row(*(str(row[str(column.header)]) for column in table.columns))
    console().print(table if rows else "The store is empty.")


def _trials(store: Store, run: str, sort: str, json: bool) -> None:
    trials = store.trials(run=run)
    if sort == "error":
        trials.sort(key=_error)
    if json:
        print_json(store.table(run))
        return
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    varied = _varied(trials)
    for column in ("trial", "heads", *varied, "seed", "state", "step", "error"):
        table.add_column(column.rsplit(".", 1)[-1], justify="left" if column in ("trial", "state") else "right")
    for t in trials:
        flat, error = t.flat(), (t.metrics or {}).get("nmse")
        cells = [t.hash[:10], flat.get("spec.model.heads"), *(flat.get(name) for name in varied)]
        cells += [flat.get("spec.seed"), t.state, t.step]
        table.add_row(*map(str, cells), t.error or "–" if error is None else f"{error:.2e}")
    console().print(table)


def _error(trial: StoredTrial) -> float:
    """The error to sort by; an error of 0 is the best, none the last."""
    error = (trial.metrics or {}).get("nmse")
    return float("inf") if error is None else float(error)


def _varied(trials: list[StoredTrial]) -> list[str]:
    """Name the sizes and rates in which the trials of a run differ, heads and seeds apart; the length in any case."""
    rows = [t.flat() for t in trials]
    names = [name for row in rows[:1] for name in row if name.startswith(("spec.model.", "spec.train."))]
    found = [n for n in names if len({str(row.get(n)) for row in rows}) > 1 and n != "spec.model.heads"]
    tasks = ["spec.task.name"] if len({str(row.get("spec.task.name")) for row in rows}) > 1 else []
    real = any("spec.real.length" in row for row in rows)  # then the model counts its tokens, and the data say T
    length = "spec.real.length" if real else "spec.model.length"
    found = [name for name in found if not (real and name == "spec.model.tokens")]
    return [*tasks, *([length] if length not in found else []), *found]
