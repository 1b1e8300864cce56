"""`headcount runs`: list a store's runs or a run's trials, verify the store, or merge another one into it."""

from __future__ import annotations

import logging
from json import JSONEncoder, loads
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from headcount.cli.common import Json, StoreFolder, console, print_json
from headcount.core import BadInput, working
from headcount.core.text import write_output

if TYPE_CHECKING:
    from headcount.render import Table
    from headcount.store import Store, StoredTrial

log = logging.getLogger("headcount")

DAMAGED = 1
"""The exit status of --check for a store that is damaged."""


def runs(
    action: Annotated[
        str | None, Parameter(help="A run, to list its trials, or the word merge (default: list the runs).")
    ] = None,
    other: Annotated[Path | None, Parameter(help="With merge: the store to take trials from (no default).")] = None,
    /,
    *,
    store: StoreFolder = Path("headcount-runs"),
    sort: Annotated[Literal["order", "error"], Parameter(help="How a run's trials are sorted.")] = "order",
    check: Annotated[
        bool, Parameter(negative=(), help="Verify the whole store; exit status 0 if it is intact, 1 if it is damaged.")
    ] = False,
    json: Json = False,
) -> int:
    """List the runs of a store or the trials of one; verify a store; or merge another one into it, trial by trial."""
    from headcount.store import Store

    if (action == "merge") != (other is not None):
        raise BadInput("only merge takes a second argument, the folder of another store: headcount runs merge STORE")
    if check:
        if action is not None:
            raise BadInput(f"--check verifies the whole store: leave out {action}")
        return _check(store, json)
    if other is not None:
        with working("merging"), Store.open(store) as opened:
            report = opened.merge(other)
        if json:
            print_json({"merged": str(other), "report": str(report)})
        else:
            console().print(str(report))
        return 0
    with Store.open(store, read_only=True) as opened:
        if action is None:
            _list(opened, json)
        else:
            _trials(opened, action, sort, json)
    return 0


def _check(folder: Path, json: bool) -> int:
    """Verify a store, print what is damaged and return the exit status."""
    from headcount.store import DamagedStore, Findings, Store, check_store

    found = Findings()
    try:
        with working("verifying"), Store.open(folder, read_only=True) as opened:
            found = check_store(opened)
    except DamagedStore as error:
        found.damaged.append(str(error))
    status = DAMAGED if found.damaged else 0
    if json:
        print_json({"store": str(folder), "whole": not found.damaged, "damaged": found.damaged, "notes": found.notes})
        return status
    for line in (*found.damaged, *found.notes):
        console().print(line)
    number = len(found.damaged)
    if number:
        console().print(f"{folder} is damaged: {number:,} {'problem' if number == 1 else 'problems'} found")
    else:
        read = f"{found.trials:,} trials and {found.files:,} checkpoint files"
        console().print(f"{folder} is whole: {read}, all verified")
    return status


def _list(store: Store, json: bool) -> None:
    from headcount.render import as_terminal
    from headcount.store import left_out_line, quick_check

    sizes, counts = store.runs(), store.counts_by_run()
    rows: list[dict[str, Any]] = []
    for name, size in sizes.items():
        states = dict(counts.get(name, {}))
        damaged = size - sum(states.values())
        rows.append({"run": name, **states, **({"damaged": damaged} if damaged else {})})
    problems = quick_check(store)
    if not rows and (files := store.files.orphans(store.named_files())):
        problems = [f"No runs are left: rows are missing, and no row names {len(files):,} of the checkpoint files."]
    if not problems and (damaged := sum(row.get("damaged", 0) for row in rows)):
        problems = [left_out_line(damaged)]
    if json:
        print_json(rows)
        for line in problems:  # on standard error: standard output is JSON only
            log.warning("%s", line)
        return
    if rows:
        console().print(as_terminal(_counts_table(rows)))
    elif not problems:
        console().print("The store is empty.")
    for line in problems:
        console().print(line)


def _counts_table(rows: list[dict[str, Any]]) -> Table:
    """Return a table of how many trials of each run are in each state."""
    from headcount.render import Column, Table

    damaged = ["damaged"] if any("damaged" in row for row in rows) else []
    states = ["done", "diverged", "failed", "running", "pending", *damaged]
    columns = [Column(name="run", kind="text", key=True), *(Column(name=state) for state in states)]
    cells = [[row["run"], *(str(row.get(state, 0)) for state in states)] for row in rows]
    return Table(caption="", columns=columns, rows=cells)


def _trials(store: Store, run: str, sort: str, json: bool) -> None:
    from headcount.render import as_terminal
    from headcount.store import damaged_checkpoints

    if json:
        _print_rows(store, run, sort)
        for line in damaged_checkpoints(store, run):
            log.warning("%s", line)
        return
    trials = store.trials(run=run)
    if sort == "error":
        trials.sort(key=_error)
    console().print(as_terminal(_trials_table(trials)))
    for line in damaged_checkpoints(store, run):  # damaged rows, which are left out, are logged
        console().print(line)


def _trials_table(trials: list[StoredTrial]) -> Table:
    """Return a table with a row per trial: what is varied, its state, and its error or why it has none."""
    from headcount.render import NONE, Column, Table

    varied, reasons = _varied(trials), any(t.error for t in trials)
    words = {name for name in varied if any(isinstance(t.flat().get(name), str) for t in trials)}
    columns = [
        Column(name="trial", kind="text", key=True),
        Column(name="heads"),
        *(Column(name=name.rsplit(".", 1)[-1], kind="text" if name in words else "number") for name in varied),
        Column(name="seed"),
        Column(name="state", kind="text"),
        Column(name="step"),
        Column(name="error"),
        *([Column(name="why it has none", kind="text")] if reasons else []),
    ]
    rows: list[list[str]] = []
    for t in trials:
        flat, error = t.flat(), (t.metrics or {}).get("nmse")
        cells = [t.hash[:10], flat.get("spec.model.heads"), *(flat.get(name) for name in varied)]
        cells += [flat.get("spec.seed"), t.state, t.step, NONE if error is None else f"{error:.2e}"]
        rows.append([*map(str, cells), *([(t.error or "") if error is None else ""] if reasons else [])])
    return Table(caption="", columns=columns, rows=rows)


def _print_rows(store: Store, run: str, sort: str) -> None:
    """Write a flat row per trial as JSON, all with the same columns.

    The columns are known only after the last row, so the rows are spooled to a temporary file, not held in memory.
    """
    columns: dict[str, None] = {}
    places: list[tuple[float, int, tuple[str, ...]]] = []  # sort key, offset of the row in the file, its columns
    shapes: dict[tuple[str, ...], tuple[str, ...]] = {}
    encode = JSONEncoder(allow_nan=False).encode
    with TemporaryFile() as spool:
        for trial in store.each(run):
            flat = trial.flat()
            shape = shapes.setdefault(tuple(flat), tuple(flat))
            places.append((_error(trial) if sort == "error" else 0.0, spool.tell(), shape))
            spool.write(encode(flat).encode() + b"\n")
        for shape in shapes:
            columns.update(dict.fromkeys(shape))
        places.sort(key=lambda place: place[0])
        all_columns, before = tuple(columns), "[\n  "
        for _, begin, shape in places:
            spool.seek(begin)
            line = spool.readline().decode().rstrip("\n")
            if shape != all_columns:
                row = loads(line)
                line = encode({name: row.get(name) for name in all_columns})
            write_output(before + line, end="")
            before = ",\n  "
    write_output("\n]" if places else "[]")


def _error(trial: StoredTrial) -> float:
    """Return the error to sort by; trials without one come last."""
    error = (trial.metrics or {}).get("nmse")
    return float("inf") if error is None else float(error)


def _varied(trials: list[StoredTrial]) -> list[str]:
    """Return the names of what differs between a run's trials, except heads and seeds; the length is always one."""
    rows = [t.flat() for t in trials]
    names = [name for row in rows[:1] for name in row if name.startswith(("spec.model.", "spec.train."))]
    found = [n for n in names if len({str(row.get(n)) for row in rows}) > 1 and n != "spec.model.heads"]
    tasks = ["spec.layer"] if any("spec.layer" in row for row in rows) else []
    tasks += ["spec.task.name"] if len({str(row.get("spec.task.name")) for row in rows}) > 1 else []
    real = any("spec.real.length" in row for row in rows)  # the model's length then counts its tokens
    length = "spec.real.length" if real else "spec.model.length"
    found = [name for name in found if not (real and name == "spec.model.tokens")]
    return [*tasks, *([length] if length not in found else []), *found]
