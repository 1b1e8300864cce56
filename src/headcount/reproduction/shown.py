"""Run or resume what a name needs, then write its table and picture, theirs and ours."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headcount.analysis import Analysis, analyse
from headcount.core import BadInput, check_writable, write_bytes, write_json, write_text
from headcount.core.text import plain_data
from headcount.render import Table, as_markdown, cell_table, check_run_folder, scaling_table, write_run_report
from headcount.render.charts import Chart, picture
from headcount.reproduction import numbers
from headcount.reproduction import tables as compare
from headcount.reproduction.charts import charts_of, paper_reversal, paper_values, same_lengths
from headcount.reproduction.items import ITEMS, Item, Scale, scale_text, sweep_of
from headcount.reproduction.numbers import PaperCell
from headcount.store import Run, Store
from headcount.sweeps import stored_runs

ENDINGS = (".png", ".pdf", ".csv", ".md", ".json", ".part")
STANDARD = ("heads", "lengths", "hidden", "parameters")
"""What every run's page shows anyway."""


@dataclass(frozen=True)
class Shown:
    """What a name has to show."""

    name: str
    title: str
    tables: list[Table]
    remarks: list[str]
    analysis: Analysis
    files: list[Path]
    scale: str
    """How long its trials train, and how long at the paper scale."""


def read_run(store: Store, item: Item, scale: Scale) -> tuple[list[Run], Analysis]:
    """Return the panels of a name's sweep, finished or not, and their analysis."""
    spec = sweep_of(item, scale)
    if spec.name not in store.runs():
        raise BadInput(f"nothing of {spec.name} is in the store yet: run it first")
    runs = stored_runs(store, spec.name, spec)
    return runs, analyse(runs)


def show(name: str, runs: Sequence[Run], analysis: Analysis, folder: Path, scale: Scale) -> Shown:
    """Write NAME.md, NAME.csv, trials.csv and the pictures of one name into a folder of its own."""
    item = ITEMS[name]
    theirs = numbers.cells(item.table) if item.table else []
    kept = [c for c in theirs if item.heads is None or c.heads in item.heads]
    title = f"{_named(name)}: {analysis.title}"
    cells = [c for c in analysis.cells if item.heads is None or c.heads in item.heads]
    shown = analysis.model_copy(update={"cells": cells})
    draws = {run.values.get("target") for run in runs}
    like = compare.nearest_draw(runs, theirs) if len(draws) > 1 else None
    tables = _tables(item, title, shown, runs, kept, like)
    remarks = compare.remarks(analysis, runs, kept, item.note, like)
    files: list[Path] = []
    for chart in charts_of(item, analysis, runs, theirs):
        for ending in ("png", "pdf"):
            files.append(folder / f"{chart.id}.{ending}")
            write_bytes(files[-1], picture(chart, ending))
    sentences = [d.labelled for d in analysis.dimensions]
    source = f"Source of the paper's numbers: {numbers.source()}."
    size = scale_text(item, scale)
    beside = [text for table in tables for text in (as_markdown(table), size)]
    parts = [f"# {title}", *sentences, *beside, *remarks, source]
    write_text(folder / f"{name}.md", "\n\n".join(parts) + "\n")
    write_text(folder / f"{name}.csv", compare.as_csv(name, shown, kept))
    write_text(folder / "trials.csv", trials_csv(runs))
    about: dict[str, Any] = {"provenance": runs[0].provenance, "spec": runs[0].spec, "counts": analysis.counts}
    write_json(folder / "provenance.json", about)
    files += [folder / f"{name}.md", folder / f"{name}.csv", folder / "trials.csv", folder / "provenance.json"]
    return Shown(name, title, tables, remarks, analysis, files, size)


def _tables(
    item: Item, title: str, analysis: Analysis, runs: Sequence[Run], theirs: Sequence[PaperCell],
    like: compare.Draw | None,
) -> list[Table]:  # fmt: skip
    """Return the tables of a name; where settings or hidden sizes vary there is a row for every cell."""
    if item.kind == "reversal":
        return [compare.reversal_table(title, analysis, paper_reversal(same_lengths(analysis, theirs)))]
    if len(analysis.settings) == 1 and len({c.hidden for c in analysis.cells}) == 1:
        return [compare.comparison(title, analysis, runs, theirs, like)]
    slopes = [scaling_table(analysis)] if item.kind.startswith("hidden") else []
    return [*slopes, cell_table(analysis)]


def page(spec: str, runs: Sequence[Run], analysis: Analysis, folder: Path, scale: Scale) -> Path:
    """Write the interactive page of a sweep, with the charts and remarks of all names that it serves."""
    items = {name: item for name, item in ITEMS.items() if item.spec == spec}
    table = next((item.table for item in items.values() if item.table), None)
    theirs = numbers.cells(table) if table else []
    draws = {run.values.get("target") for run in runs}
    like = compare.nearest_draw(runs, theirs) if len(draws) > 1 else None
    extra: list[Chart] = []
    for item in items.values():
        if item.kind not in STANDARD or len(analysis.settings) > 1:
            extra += charts_of(item, analysis, runs, theirs)
    said = compare.remarks(analysis, runs, theirs, "", like) if theirs else []
    reference = paper_values(theirs) if theirs else None
    size = scale_text(next(iter(items.values())), scale)
    return write_run_report(runs, analysis, folder, reference, remarks=said, extra=extra, scale=size).page


def check_folders(folder: Path, specs: Mapping[str, str]) -> None:
    """Refuse, before anything is trained, a place where something of the user's would be replaced or is in the way.

    `specs` has the spec of every name: each name has a folder, and each spec one with a page.
    """
    if folder.exists() and not folder.is_dir():
        raise BadInput(f"{folder} is a file, not a folder: choose another --out")
    check_writable(folder)
    for name, spec in specs.items():
        check_run_folder(folder / f"{spec}-page")
        own = folder / name
        if own.exists() and not own.is_dir():
            raise BadInput(f"{own} is a file, not a folder: choose another --out")
        inside = sorted(own.iterdir()) if own.is_dir() else []
        foreign = [p.name for p in inside if p.suffix not in ENDINGS or p.is_dir()]
        if inside and (foreign or not (own / "provenance.json").exists()):
            told = ", ".join((foreign or [p.name for p in inside])[:3])
            raise BadInput(f"{own} holds other files ({told}): choose an empty or new folder for --out")


COLUMNS = [
    "setting", "length", "target", "hidden", "head_dim", "learning_rate", "intrinsic", "heads", "seed", "state", "nmse",
    "train_nmse", "accuracy", "train_accuracy", "mrr", "train_mrr", "steps", "parameters", "parameters_total",
    "seconds",
]  # fmt: skip
REQUIRED = {"intrinsic", "heads", "seed", "state", "nmse", "train_nmse"}


def trials_csv(runs: Sequence[Run]) -> str:
    """Return every finished trial as a row: what is left when the store is gone."""
    text = io.StringIO()
    rows = [
        {**run.values, "intrinsic": run.intrinsic, **trial.model_dump(exclude={"curve"})}
        for run in runs for trial in run.trials
    ]  # fmt: skip
    used = [c for c in COLUMNS if c in REQUIRED or any(row.get(c) is not None for row in rows)]
    writer = csv.DictWriter(text, used, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    for row in rows:
        writer.writerow(plain_data({k: f"{v:.5g}" if isinstance(v, float) else v for k, v in row.items()}))
    return text.getvalue()


def _named(name: str) -> str:
    """Table 2, Figure 1a, or the name as it is."""
    for word in ("table", "figure"):
        if name.startswith(word):
            return f"{word.capitalize()} {name.removeprefix(word)}"
    return name
