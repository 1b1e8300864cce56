"""Write and print what a run shows: the tables, pictures and remarks of a table or figure, and the page of the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headcount.analysis import Analysis
from headcount.core import BadInput, check_writable, write_bytes, write_json, write_text
from headcount.render import Table, as_markdown, as_terminal, check_run_folder, write_run_report
from headcount.render.charts import Chart, picture
from headcount.reproduction import numbers
from headcount.reproduction.cells import Comparison, same_frames
from headcount.reproduction.charts import charts_of, paper_values
from headcount.reproduction.items import ITEMS, paper_tables
from headcount.reproduction.tables import cell_rows, cells_csv, tables_of, trials_csv
from headcount.reproduction.words import ACCURACIES, remarks_of, sentences, source_text, stated_findings

if TYPE_CHECKING:
    from headcount.core.text import Terminal

ENDINGS = (".png", ".pdf", ".csv", ".md", ".json", ".part")
MARKER = "provenance.json"
"""The file that says that headcount wrote its folder."""
STANDARD = ("heads", "lengths", "hidden", "parameters")
"""Pictures that are on every run's page anyway."""


@dataclass(frozen=True)
class ShownItem:
    """What is shown for a table or figure."""

    name: str
    title: str
    sentences: list[str]
    """The answers of the analyses."""
    tables: list[Table]
    remarks: list[str]
    analysis: Analysis
    files: list[Path]
    size: str
    """How long its trials train, and how long they train at the paper scale, in words."""
    charts: list[Chart]
    rows: list[dict[str, Any]]
    """A row for every cell, the paper's number beside ours."""

    def data(self) -> dict[str, Any]:
        """Return all of it as JSON data, the paper's numbers beside every cell."""
        table = ITEMS[self.name].table
        return {
            "files": [str(f) for f in self.files],
            "scale": self.size,
            "remarks": self.remarks,
            "counts": self.analysis.counts,
            "dimensions": [d.data() for d in self.analysis.dimensions],
            "cells": [c.data() for c in self.analysis.cells],
            "paper": [c.data() for c in numbers.cells(table)] if table else [],
        }


def show_item(name: str, found: Comparison, folder: Path, size: str) -> ShownItem:
    """Write NAME.md, NAME.csv, trials.csv and the pictures of one table or figure into a folder."""
    item, first = ITEMS[name], found.runs[0]
    analysis = found.analyses[item.part]
    title = f"{_named(name)}: {analysis.title}"
    answers, tables, remarks = sentences(found), tables_of(item, title, found), remarks_of(item, found)
    about: dict[str, Any] = {"provenance": first.provenance, "spec": first.spec, "counts": analysis.counts}
    if found.data is not None:
        about["findings"] = [one.data() for one in stated_findings(found.cells, found.spec, found.analysis)]
    write_json(folder / MARKER, about)  # first: a folder of which only a part was written can be written again
    files: list[Path] = []
    charts = charts_of(item, found)
    for chart in charts:
        for ending in ("png", "pdf"):
            files.append(folder / f"{chart.id}.{ending}")
            write_bytes(files[-1], picture(chart, ending))
    written = [text for table in tables for text in (f"**{table.caption}**", as_markdown(table), size)]
    parts = [f"# {title}", *answers, *written, *remarks, source_text()]
    write_text(folder / f"{name}.md", "\n\n".join(parts) + "\n")
    write_text(folder / f"{name}.csv", cells_csv(name, item, found))
    write_text(folder / "trials.csv", trials_csv(found.runs))
    files += [folder / file for file in (f"{name}.md", f"{name}.csv", "trials.csv", MARKER)]
    rows = cell_rows(name, item, found)
    return ShownItem(name, title, answers, tables, remarks, analysis, files, size, charts, rows)


def _named(name: str) -> str:
    """Return Table 2 for table2, Figure 1a for figure1a, and other names as they are."""
    for word in ("table", "figure"):
        if name.startswith(word):
            return f"{word.capitalize()} {name.removeprefix(word)}"
    return name


def write_page(found: Comparison, folder: Path, size: str = "") -> Path:
    """Write the interactive page of a run, with the charts and remarks of all tables and figures it belongs to."""
    analysis, extra = found.analysis, dict[str, Chart]()
    items = [item for item in ITEMS.values() if item.spec == found.spec]
    for item in items:
        if item.picture not in STANDARD or len(analysis.settings) > 1:
            extra |= {chart.id: chart for chart in charts_of(item, found)}
    remarks = remarks_of(None, found) if paper_tables(found.spec) else []
    tables: list[Table] = []
    if found.data is not None:  # the page shows the errors of the first part: state the answer of the other
        remarks.insert(0, sentences(found)[-1])
        tables = tables_of(items[0], ACCURACIES, found)
    reference = paper_values(found.spec, analysis.on) if same_frames(found.runs[0]) else []
    if any(chart.kind == "law" for chart in extra.values()):  # the paper's law is fitted there: one law is enough
        analysis = analysis.model_copy(update={"laws": []})
    shown = list(extra.values())
    report = write_run_report(
        found.runs, analysis, folder, reference or None, remarks=remarks, extra=shown, tables=tables, scale=size
    )
    return report.page


def print_item(shown: ShownItem, terminal: Terminal, printed: set[str] | None = None) -> None:
    """Print what is shown for a table or figure; columns that do not fit side by side go below each other, uncut.

    Those of one run have most tables and remarks in common: what is in `printed` is not printed again.
    """
    printed = set[str]() if printed is None else printed

    def is_new(text: str) -> bool:
        known = text in printed
        printed.add(text)
        return not known

    terminal.print(shown.title, style="bold")
    for text in filter(is_new, shown.sentences):
        terminal.print(text)
    for table in shown.tables:
        names = [column.name for column in table.columns]
        if is_new(repr((names, table.rows))):
            terminal.print(as_terminal(_for_terminal(table)))
            terminal.print(shown.size)
    for text in filter(is_new, shown.remarks):
        terminal.print(text)


TEXTS = ("Setting", "Remark")
"""Columns of text, in which lines may break."""


def _for_terminal(table: Table) -> Table:
    """Return a table that marks the columns that name a row and those that hold text."""
    keys = _keys([column.name for column in table.columns])
    columns = [
        column.model_copy(update={"key": i < keys, "kind": "text" if column.name in TEXTS else column.kind})
        for i, column in enumerate(table.columns)
    ]
    return table.model_copy(update={"columns": columns})


def _keys(names: list[str]) -> int:
    """Return how many columns name a row."""
    if "Heads" in names:
        return names.index("Heads") + 1
    return 2 if "what" in names[1:] else 1


def check_folders(folder: Path, specs: Mapping[str, str]) -> None:
    """Refuse, before anything is trained, a folder where a user's files would be overwritten or are in the way.

    `specs` has the spec of every name: each name has a folder, and each spec has one with a page.
    """
    if folder.exists() and not folder.is_dir():
        raise BadInput(f"{folder} is a file, not a folder: choose another folder")
    check_writable(folder)
    for name, spec in specs.items():
        check_run_folder(folder / f"{spec}-page")
        own = folder / name
        if own.exists() and not own.is_dir():
            raise BadInput(f"{own} is a file, not a folder: choose another folder")
        inside = sorted(own.iterdir()) if own.is_dir() else []
        foreign = [p.name for p in inside if p.suffix not in ENDINGS or p.is_dir()]
        if not foreign and not (own / MARKER).exists():
            foreign = [p.name for p in inside if p.suffix != ".part"]  # those are left by a writer that was killed
        if foreign:
            listed = ", ".join(foreign[:3])
            raise BadInput(f"{own} holds other files ({listed}): choose an empty or new folder")
