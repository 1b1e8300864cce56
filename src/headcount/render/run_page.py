"""The report of a run: one self-contained page, its charts as files, the cells and the analysis."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from headcount.analysis import Analysis
from headcount.core import BadInput, check_writable, option, write_bytes, write_json, write_text
from headcount.render import run_tables
from headcount.render.charts.chart import Chart, PaperValue
from headcount.render.charts.matplotlib import picture
from headcount.render.charts.of_run import CHART_KINDS, run_charts
from headcount.render.pages import MARK, Illustration, page
from headcount.render.tables import Table
from headcount.render.words.errors import blind_note
from headcount.render.words.run import counts, done, evidence, grounds, headline, known, meaning, task_words
from headcount.render.words.task import experiment, experiment_title, origin
from headcount.store import Run

FILES = ("index.html", "cells.csv", "analysis.json")
PANEL_FILES = ("index.html", "transition.png", "training.png", "run.json")
"""Files of the page of one panel, which this page may replace."""
LONG_TABLES = {"open_rows": 40, "texts": run_tables.TEXT_COLUMNS}
"""Tables with more rows are collapsed on the page; last columns with these names hold text, which may break."""
MAX_TITLE = 200
"""Characters; a longer title is cut in the header, and the experiment's record has it in full."""
_EXTRA = ("reversal", "steps", "settings", "hidden", "error-by-hidden", "floor", "head-dims")
"""Charts that other rooms add to the page."""
_PICTURE = re.compile(rf"({'|'.join((*CHART_KINDS, *_EXTRA))})(-\d+)?\.(png|pdf)")
_FIGURE = re.compile(r'<figure class="chart" id="([a-z][a-z0-9-]*)">')


class Part(NamedTuple):
    """A section of the page, between the evidence and the setup."""

    title: str
    charts: Sequence[Sequence[Chart]] = ()
    """Groups of charts of one kind, side by side if there is room."""
    pictures: Sequence[Illustration] = ()
    points: Sequence[str] = ()
    tables: Sequence[Table] = ()


class RunReport(NamedTuple):
    """The files of a report."""

    page: Path
    cells: Path
    analysis: Path
    pictures: list[Path]


def check_run_folder(folder: Path, ids: Collection[str] = ()) -> None:
    """Raise BadInput for a folder with anything but an earlier report, so that no user file is overwritten.

    ids: charts that will be written besides the usual ones.
    """
    if folder.exists() and not folder.is_dir():
        raise BadInput(f"{folder} is a file, not a folder: choose another folder")
    check_writable(folder)
    if not folder.exists():
        return
    known = {*ids, *_charts_in(folder)}
    names = sorted(p.name for p in folder.iterdir())
    foreign = [name for name in names if not _is_report_file(name, known)]
    in_the_way = [name for name in names if name not in foreign and (folder / name).is_dir()]
    if not foreign and in_the_way:
        where = folder / in_the_way[0]
        raise BadInput(f"{where} is a folder where the report writes a file: choose another {option('out')}")
    page = folder / "index.html"
    if not foreign and page.exists() and not _is_report(page):
        foreign = ["an index.html that is not a report"]
    if foreign:
        raise BadInput(f"{folder} holds other files ({', '.join(foreign[:3])}): choose an empty or new folder")


def write_run_report(
    runs: Sequence[Run],
    analysis: Analysis,
    folder: Path,
    reference: Sequence[PaperValue] | None = None,
    *,
    remarks: Sequence[str] = (),
    extra: Sequence[Chart] = (),
    tables: Sequence[Table] = (),
    scale: str = "",
) -> RunReport:
    """Write index.html, a PNG and a PDF of each chart, cells.csv and analysis.json; equal input gives equal bytes.

    remarks, tables: go with the paper's numbers. extra: charts for the top of the page, drawn like the rest. scale: a
    sentence on how much smaller the run is than the one it stands for.
    """
    first, rest = _arranged(extra, run_charts(analysis, runs, reference))
    charts = [*first, *rest]
    known = {chart.id for chart in charts}
    check_run_folder(folder, known)
    known |= _charts_in(folder)
    pictures = {f"{chart.id}.{ending}": picture(chart, ending) for chart in charts for ending in ("png", "pdf")}
    html = run_page(runs, analysis, reference, rest, remarks=remarks, extra=first, tables=tables, scale=scale)
    for name, content in pictures.items():
        write_bytes(folder / name, content)
    write_text(folder / "cells.csv", run_tables.cells_csv(analysis))
    write_json(folder / "analysis.json", analysis.data())
    for path in folder.iterdir():  # left by an earlier report
        if path.name not in pictures and path.name not in FILES and _is_report_file(path.name, known):
            path.unlink(missing_ok=True)
    write_text(folder / "index.html", html)  # last: whoever sees the page finds the rest beside it
    return RunReport(
        page=folder / "index.html",
        cells=folder / "cells.csv",
        analysis=folder / "analysis.json",
        pictures=[folder / name for name in pictures],
    )


def run_page(
    runs: Sequence[Run],
    analysis: Analysis,
    reference: Sequence[PaperValue] | None = None,
    charts: Sequence[Chart] | None = None,
    *,
    remarks: Sequence[str] = (),
    extra: Sequence[Chart] = (),
    tables: Sequence[Table] = (),
    scale: str = "",
) -> str:
    """Return the page as one HTML document that loads nothing; its only script is the package's own."""
    extra, charts = _arranged(extra, run_charts(analysis, runs, reference) if charts is None else charts)
    of = {kind: [chart for chart in charts if chart.kind == kind] for kind in CHART_KINDS}
    # a chart that joins many settings says more than one for each; with a single setting it is secondary
    first = [extra, of["error-by-heads"]] if len(analysis.settings) > 1 else [of["error-by-heads"], extra]
    paper_notes = [scale, *remarks] if scale and remarks else remarks
    parts = [
        Part("The length of the sequence", [of["error-by-length"]], tables=[run_tables.slope_table(analysis)]),
        Part("The size of the model", [of["scaling"], of["equal-error"]], tables=[run_tables.scaling_table(analysis)]),
        Part("Seeds and targets", [of["spread"]]),
        Part("Fitted laws", [of["laws"]], tables=[run_tables.law_table(analysis)]),
        Part(
            "Compared with the paper",
            points=paper_notes,
            tables=[*tables, run_tables.paper_table(analysis, reference or ())],
        ),
        Part("The numbers", tables=[run_tables.drop_table(analysis), run_tables.cell_table(analysis)]),
    ]
    words, formula = task_words(runs)
    return page(
        "render/run.html.j2",
        title=_title(analysis),
        headline=headline(analysis),
        answers=analysis.dimensions,
        comparison=known(analysis, runs),
        evidence=evidence(analysis),
        remarks=[text for text in (blind_note(runs), scale) if text],
        states=counts(analysis),
        charts=first,
        pictures=[],
        hinted=bool(extra or charts),
        grounds=[(d, grounds(d, analysis)) for d in analysis.dimensions],
        parts=filled(parts),
        words=words,
        formula=formula,
        done=done(runs, analysis.on),
        meaning=meaning(analysis),
        whole_record=False,
        **provenance(runs[0]),
    )


def filled(parts: Sequence[Part]) -> list[Part]:
    """Return the parts that have something to show, without their empty tables."""
    shown = [part._replace(tables=[table for table in part.tables if table.rows]) for part in parts]
    return [part for part in shown if any(part.charts) or part.pictures or part.points or part.tables]


def provenance(run: Run) -> dict[str, Any]:
    """Return what the end of a run's page shows: where the numbers come from, and the experiment as it was run."""
    values = {"origin": origin(run), "experiment_title": experiment_title(run), "experiment": experiment(run)}
    return {**values, **LONG_TABLES}


def _is_report_file(name: str, ids: Collection[str]) -> bool:
    """Whether a name belongs to a file of a report; `ids` are charts besides the usual ones."""
    stem, _, ending = name.rpartition(".")
    is_chart = bool(_PICTURE.fullmatch(name)) or (stem in ids and ending in ("png", "pdf"))
    return is_chart or name in (*FILES, *PANEL_FILES) or name.endswith(".part")


def _is_report(page: Path) -> bool:
    return MARK.encode() in page.read_bytes()[:2000]


def _charts_in(folder: Path) -> set[str]:
    """Return the charts of a report that a folder holds, as named by its page."""
    page = folder / "index.html"
    if not page.is_file() or not _is_report(page):
        return set()
    return set(_FIGURE.findall(page.read_text(encoding="utf-8", errors="replace")))


def _arranged(extra: Sequence[Chart], charts: Sequence[Chart]) -> tuple[list[Chart], list[Chart]]:
    """Return the extra charts and the run's own, all with different ids; a chart in both is an extra one."""
    rest = [chart for chart in charts if chart not in extra]
    taken, first = {chart.id for chart in rest}, list[Chart]()
    for chart in extra:
        if any(series.points for series in chart.series):
            free = next(n for n in (chart.id, *(f"{chart.id}-{i}" for i in range(2, 1000))) if n not in taken)
            first.append(chart if free == chart.id else chart.model_copy(update={"id": free}))
            taken.add(free)
    return first, rest


def _title(analysis: Analysis) -> str:
    title = analysis.title or analysis.run
    return title if len(title) <= MAX_TITLE else f"{title[: MAX_TITLE - 1].rstrip()}…"
