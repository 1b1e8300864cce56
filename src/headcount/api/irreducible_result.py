"""`hc.irreducible`: trains and attacks layers of every head count: what no feed-forward block can repair."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from headcount.core import BadInput, Displayable, provenance, working, write_bytes, write_json, write_text
from headcount.core.readers import read_toml
from headcount.core.text import duration
from headcount.render import (
    Drawing,
    View,
    as_markdown,
    curve_picture,
    curve_png,
    curve_rows,
    curve_table,
    equal_effort,
)
from headcount.store import State, Store
from headcount.sweeps import IrreducibleSpec, attack_rows, run_on_store, save_witnesses

OUTPUT_NAMES = {"witnesses", "irreducible.json", "irreducible.md", "irreducible.png"}
"""Names in the folder that a new run replaces."""


@dataclass(frozen=True, repr=False)
class IrreducibleResult(Displayable):
    """The largest gaps that attacks on trained and random layers found, by head count."""

    spec: IrreducibleSpec
    rows: list[dict[str, Any]]
    """One row for every attacked layer."""
    summary: list[dict[str, Any]]
    """One row for every head count of a task and head size."""
    counts: dict[State, int]
    witnesses: int = 0
    """Number of proved pairs that were written."""

    @property
    def equal_effort(self) -> bool:
        """Whether every search had as many converged starts as the spec asks for; else head counts do not compare."""
        return equal_effort(self.summary)

    @property
    def failed(self) -> list[dict[str, Any]]:
        """The rows of layers that could not be attacked, each with its `error`."""
        return [row for row in self.rows if "error" in row]

    def _view(self) -> View:
        states = ", ".join(f"{number} {state}" for state, number in self.counts.items() if number)
        drawn = Drawing(lambda: curve_picture(self.summary, self.spec.title), self.spec.title)
        return View(
            [f"{self.spec.title or self.spec.name}: {states}."],
            tables=[curve_table(self.summary)] if self.summary else [],
            figures=[drawn] if self.summary else [],
            rows=self.summary,
        )


def irreducible(
    spec: str | Path | None = None,
    *,
    out: str | Path | None = None,
    store: str | Path = "headcount-runs",
    budget: float | str | None = None,
    workers: int | None = None,
    retry: bool = False,
    quiet: bool = False,
) -> IrreducibleResult:
    """Train layers of every head count, attack them, and return what no feed-forward block can repair.

    spec: a TOML file (default: the paper's task with D = 2, 3, 4, 5). out: a folder for the table, the picture, all
    rows and every proved pair (default: none is written). store: the folder that keeps what is finished; the same call
    continues from there. budget: seconds, or a text such as "9m", after which it stops (default: at the end).
    workers: attacks side by side (default: one per core). retry: attack failed layers again. quiet: hide the progress.
    """
    if workers is not None and workers < 1:
        raise BadInput(f"workers must be 1 or more, not {workers}")
    seconds = None if budget is None else duration(budget, "budget")
    with resources.as_file(resources.files("headcount.specs") / "irreducible.toml") as default_spec:
        plan = IrreducibleSpec.parse(
            read_toml(Path(spec) if spec else default_spec), where=str(spec or "irreducible.toml")
        )
    if out is not None:
        check_out(Path(out))
    with Store.open(store) as opened:
        if retry and plan.name in opened.runs():
            opened.retry([trial.hash for trial in opened.trials(run=plan.name, states=("failed",))])
        counts = run_on_store(plan, opened, workers=workers, seconds=seconds, quiet=quiet)
        with working("drawing and saving", quiet=quiet):
            rows = attack_rows(opened, plan)
            witnesses = 0 if out is None else save_witnesses(opened, plan, Path(out) / "witnesses")
            found = IrreducibleResult(plan, rows, curve_rows(rows), counts, witnesses)
            if out is not None:
                _write(found, Path(out))
    return found


def _write(found: IrreducibleResult, out: Path) -> None:
    """Write the table, the picture and all rows."""
    data = {"spec": found.spec.data(), "rows": found.rows, "summary": found.summary, "provenance": provenance()}
    write_json(out / "irreducible.json", data)
    write_text(out / "irreducible.md", as_markdown(curve_table(found.summary)))
    if found.summary:
        write_bytes(out / "irreducible.png", curve_png(found.summary, found.spec.title))


def check_out(out: Path) -> None:
    """Refuse a file, and a folder that holds anything but the output of an earlier run."""
    if out.exists() and not out.is_dir():
        raise BadInput(f"{out} is a file, not a folder: choose another out")
    foreign = sorted(p.name for p in out.iterdir() if p.name not in OUTPUT_NAMES) if out.is_dir() else []
    if foreign:
        raise BadInput(f"{out} holds other files ({', '.join(foreign[:3])}): choose an empty or new folder")
