"""From the runs on real data to what is shown: tables, remarks and pictures of one name, and the page of all."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headcount.analysis import Analysis, Part, analyse
from headcount.core import write_bytes, write_json, write_text
from headcount.render import Table, as_markdown, print_table, write_run_report
from headcount.render.charts import Chart, PaperValue, picture
from headcount.reproduction import numbers
from headcount.reproduction.findings import WORDS, findings
from headcount.reproduction.law import law_table, reversal_table
from headcount.reproduction.real_cells import PARTS, UNITS, Cells, beside, kind_of, real_cells
from headcount.reproduction.real_charts import real_charts
from headcount.reproduction.real_items import REAL, RealItem, RealKind, paper_table
from headcount.reproduction.real_tables import SAMPLES, THEIRS, accuracy_table, rank_table, real_csv, sizes_table
from headcount.reproduction.shown import Shown, trials_csv
from headcount.store import Run

if TYPE_CHECKING:
    from headcount.core.text import Terminal

WIDTH = 768
"""Numbers of a BERT embedding, which the paper uses."""
_ENTRY = {
    "means": "Here each candidate (query and passage) becomes one vector, the means of its frozen embeddings, and the "
    "encoder attends over the candidates; entry = tokens puts all their tokens into one sequence instead.",
    "tokens": "Here the tokens of all candidates stand in one sequence (entry = tokens); by default each candidate "
    "becomes one vector, and the encoder attends over the candidates.",
}


def analyses(runs: Sequence[Run], resamples: int = 1000) -> dict[Part, Analysis]:
    """Return the analyses of the training errors and of the validation errors; they may disagree."""
    return {part: analyse(runs, on=part, resamples=resamples) for part in PARTS}


def show_real(name: str, runs: Sequence[Run], found: dict[Part, Analysis], folder: Path, scale: str) -> Shown:
    """Write NAME.md, NAME.csv, trials.csv and the pictures of one name into a folder of its own."""
    item, cells, kind = REAL[name], real_cells(runs), kind_of(runs)
    word = "Table" if name.startswith("table") else "Figure"
    analysis = found[item.part]
    title = f"{word} {name.removeprefix('table').removeprefix('figure')}: {analysis.title}"
    tables, said = real_tables(item, title, cells, runs), real_remarks(item, cells, runs, found)
    files: list[Path] = []
    for chart in real_charts(item, cells):
        for ending in ("png", "pdf"):
            files.append(folder / f"{chart.id}.{ending}")
            write_bytes(files[-1], picture(chart, ending))
    source = f"Source of the paper's numbers: {numbers.source()}."
    written = [text for table in tables for text in (f"**{table.caption}**", as_markdown(table), scale)]
    parts = [f"# {title}", *sentences(found), *written, *said, source]
    write_text(folder / f"{name}.md", "\n\n".join(parts) + "\n")
    write_text(folder / f"{name}.csv", real_csv(name, cells, kind))
    write_text(folder / "trials.csv", trials_csv(runs))
    about: dict[str, Any] = {
        "provenance": runs[0].provenance, "spec": runs[0].spec, "counts": analysis.counts,
        "findings": [one.data() for one in findings(cells, kind, found["train"])],
    }  # fmt: skip
    write_json(folder / "provenance.json", about)
    files += [folder / f"{name}.md", folder / f"{name}.csv", folder / "trials.csv", folder / "provenance.json"]
    return Shown(name, title, tables, said, analysis, files, scale)


def sentences(found: dict[Part, Analysis]) -> list[str]:
    """Return what the analyses say about the number of heads, on training and on validation data."""
    return [
        f"On {analysis.words.data.removeprefix('on ')}: {dimension.sentence}"
        for analysis in found.values() for dimension in analysis.dimensions
    ]  # fmt: skip


def real_tables(item: RealItem, title: str, cells: Cells, runs: Sequence[Run]) -> list[Table]:
    """Return the tables of a name: its own, then the accuracies and the sizes that stand behind it."""
    kind = kind_of(runs)
    accuracies = accuracy_table(title, cells, kind, item.part)
    own: list[Table] = []
    if item.picture == "mrr":
        own = [rank_table(title, cells)]
    elif item.picture == "law" or (kind == "marco" and item.picture == "heads"):
        own = [accuracies, law_table(cells, kind)]
    else:
        own = [accuracies]
    return [*own, reversal_table(cells), sizes_table(runs)]


def real_remarks(
    item: RealItem | None, cells: Cells, runs: Sequence[Run], found: dict[Part, Analysis]
) -> list[str]:  # fmt: skip
    """Return what was confirmed and what was not, then what a reader must know."""
    kind, first = kind_of(runs), runs[0]
    said = [one.sentence for one in findings(cells, kind, found["train"])]
    said += [item.note] if item is not None and item.note else []
    said.append(_sizes(kind, first))
    task = first.task
    if kind == "marco":
        entry = _ENTRY.get(str(task.get("entry", "means")), "")
        said.append(f"The paper does not say how candidates enter the encoder. {entry}".strip())
        if isinstance(task.get("dim"), int) and task["dim"] != WIDTH:
            said.append(f"The frozen embeddings have {task['dim']} numbers here, {WIDTH} in the paper.")
    else:
        patch = task.get("patch", "?")
        said.append(
            f"Patches have a side of 8 in the paper's text, of 4 by the lengths of its tables; here of {patch}. The "
            "paper has dropout, and does not say how much."
        )
        if not beside(first):
            said.append("With another patch than 4 a length is another frame than the paper's: its cells are left out.")
    said.append(
        "The paper's numbers and ours are means over seeds, ± the standard deviation; how many seeds the paper has it "
        "does not say. Alike means within two standard errors, of the seeds or of counting the samples."
    )
    notes = [note for analysis in found.values() for note in analysis.notes]
    lost = {state: n for state, n in found["validation"].counts.items() if n and state != "done"}
    told = ", ".join(f"{n} {state}" for state, n in lost.items()) or "none failed or diverged"
    return [*said, *notes, f"{sum(found['validation'].counts.values())} trials: {told}."]


def _sizes(kind: RealKind, run: Run) -> str:
    """Say how much data we have against theirs."""
    what = SAMPLES[kind]
    parts: list[str] = []
    for part in PARTS:
        name = WORDS[part]
        ours = run.task.get(part)
        if isinstance(ours, int):
            percent = 100 * ours / THEIRS[kind][part]
            share = f"{percent:.0f} %" if percent >= 10 else f"{percent:.2g} %"
            parts.append(f"{ours:,} {name} {what} against the paper's {THEIRS[kind][part]:,} ({share})")
    measured = run.samples.get("train")
    known = f" Training accuracy is measured on {measured:,} of the training {what}." if measured else ""
    return f"Our data: {', '.join(parts) or 'not on record'}.{known}"


def paper_errors(kind: RealKind, part: Part) -> list[PaperValue]:
    """Return the paper's error rates in the form in which a page shows them; accuracy 1 has no place in log scale."""
    table, unit = paper_table(kind, part), UNITS[kind]
    found: list[PaperValue] = []
    for cell in numbers.cells(table):
        error = 1.0 - cell.value / unit
        if error > 1e-9:
            deviation = None if cell.deviation is None else cell.deviation / unit
            spread = deviation if deviation and deviation < error else None
            found.append(PaperValue(
                heads=cell.heads, length=cell.length, value=error, deviation=deviation,
                label=f"paper, {table.replace('table', 'table ')}",
                low=None if spread is None else error - spread, high=None if spread is None else error + spread,
            ))  # fmt: skip
    return found


def print_real(
    shown: Shown, found: dict[Part, Analysis], terminal: Terminal, said: set[str] | None = None
) -> None:  # fmt: skip
    """Print what a name has to show; where columns do not fit side by side they go below each other, uncut.

    Names of one run have most tables and remarks in common: what is in `said` is not said again.
    """
    said = set[str]() if said is None else said

    def fresh(text: str) -> bool:
        known = text in said
        said.add(text)
        return not known

    terminal.print(shown.title, style="bold")
    for text in filter(fresh, sentences(found)):
        terminal.print(text)
    for table in shown.tables:
        names = [column.name for column in table.columns]
        keys = 2 if "what" in names[1:] else 1
        if not fresh(repr((names, table.rows))):
            continue
        print_table(terminal, table.caption, names, table.rows, keys=keys)
        terminal.print(shown.scale)
    for text in filter(fresh, shown.remarks):
        terminal.print(text)


def page_real(
    runs: Sequence[Run], found: dict[Part, Analysis], folder: Path, scale: str = "", on: Part = "train"
) -> Path:  # fmt: skip
    """Write the interactive page of a run's errors on a part, with the charts and remarks of all names it serves."""
    kind, cells = kind_of(runs), real_cells(runs)
    extra: dict[str, Chart] = {}
    for item in (item for item in REAL.values() if item.spec == kind):
        extra |= {chart.id: chart for chart in real_charts(item, cells)}
    said = real_remarks(None, cells, runs, found)
    other: Part = "validation" if on == "train" else "train"
    said.insert(0, f"On {found[other].words.data.removeprefix('on ')}: {found[other].dimensions[0].sentence}")
    reference = paper_errors(kind, on) if beside(runs[0]) else None
    tables = [accuracy_table("The paper's accuracies and ours", cells, kind, on), sizes_table(runs)]
    tables += [law_table(cells, kind)] if kind == "marco" else []
    tables.append(reversal_table(cells))
    charts = list(extra.values())
    analysis = found[on]
    if any(chart.kind == "law" for chart in charts):  # the paper's law is fitted there, and no second one stands beside
        analysis = analysis.model_copy(update={"laws": []})
    return write_run_report(
        runs, analysis, folder, reference, remarks=said, extra=charts, tables=tables, scale=scale
    ).page
