"""The report of a whole run: one page that needs nothing else, its charts as files, the cells and the analysis."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

from headcount.analysis import Analysis, Dimension, Reason, blind_note
from headcount.analysis.words import heads_text
from headcount.core import BadInput, check_writable, write_bytes, write_json, write_text
from headcount.core.text import escape
from headcount.render import run_tables
from headcount.render.charts.chart import Chart, PaperValue
from headcount.render.charts.html import HINT, figure, script, script_hash, style
from headcount.render.charts.matplotlib import picture
from headcount.render.charts.of_run import KINDS, run_charts
from headcount.render.pages import FILES as OLD_FILES
from headcount.render.pages import MARK, document, name_list, section
from headcount.render.tables import Table, as_html
from headcount.render.words.run import BEST, MEAN, MEASURED, counts, done, known, rises, summary, task_words
from headcount.render.words.task import experiment_html, origin
from headcount.store import Run

FILES = ("index.html", "cells.csv", "analysis.json")
OPEN_ROWS = 40
"""A longer table is folded on the page."""
LONGEST_TITLE = 200
"""A longer title is cut in the header; the experiment's record below has it whole."""
_EXTRA = ("reversal", "steps", "settings", "hidden", "error-by-hidden", "floor", "head-dims")
"""Charts that other rooms add to the page."""
_PICTURE = re.compile(rf"({'|'.join((*KINDS, *_EXTRA))})(-\d+)?\.(png|pdf)")
_FIGURE = re.compile(r'<figure class="chart" id="([a-z][a-z0-9-]*)">')


class RunReport(NamedTuple):
    """The files of a report."""

    page: Path
    cells: Path
    analysis: Path
    pictures: list[Path]


def check_run_folder(folder: Path, ids: Collection[str] = ()) -> None:
    """Refuse a folder that holds anything but an earlier report: nothing of the user's is overwritten.

    `ids` names charts that will be written beside the usual ones.
    """
    if folder.exists() and not folder.is_dir():
        raise BadInput(f"{folder} is a file, not a folder: choose another --out")
    check_writable(folder)
    if not folder.exists():
        return
    known = {*ids, *_drawn(folder)}
    names = sorted(p.name for p in folder.iterdir())
    foreign = [name for name in names if not _ours(name, known)]
    in_the_way = [name for name in names if name not in foreign and (folder / name).is_dir()]
    if not foreign and in_the_way:
        raise BadInput(f"{folder / in_the_way[0]} is a folder, and the report has a file of that name: choose another")
    page = folder / "index.html"
    if not foreign and page.exists() and not _is_report(page):
        foreign = ["an index.html that is not a report"]
    if foreign:
        raise BadInput(f"{folder} holds other files ({', '.join(foreign[:3])}): choose an empty or new folder")


def write_run_report(
    runs: Sequence[Run], analysis: Analysis, folder: Path, reference: Sequence[PaperValue] | None = None, *,
    remarks: Sequence[str] = (), extra: Sequence[Chart] = (), tables: Sequence[Table] = (), scale: str = "",
) -> RunReport:  # fmt: skip
    """Write index.html, a PNG and a PDF of each chart, cells.csv and analysis.json; equal input, equal bytes.

    `remarks` and `tables` stand beside the paper's numbers; `extra` charts stand at the top, drawn like the rest.
    `scale` says how much smaller the run is than the one that it stands for.
    """
    first, rest = _arranged(extra, run_charts(analysis, runs, reference))
    charts = [*first, *rest]
    known = {chart.id for chart in charts}
    check_run_folder(folder, known)
    known |= _drawn(folder)
    pictures = {f"{chart.id}.{ending}": picture(chart, ending) for chart in charts for ending in ("png", "pdf")}
    html = run_page(runs, analysis, reference, rest, remarks=remarks, extra=first, tables=tables, scale=scale)
    for name, content in pictures.items():
        write_bytes(folder / name, content)
    write_text(folder / "cells.csv", run_tables.cells_csv(analysis))
    write_json(folder / "analysis.json", analysis.data())
    for path in folder.iterdir():  # of an earlier report: not of this run
        if path.name not in pictures and path.name not in FILES and _ours(path.name, known):
            path.unlink(missing_ok=True)
    write_text(folder / "index.html", html)  # last: whoever sees the page finds the rest beside it
    return RunReport(
        page=folder / "index.html", cells=folder / "cells.csv", analysis=folder / "analysis.json",
        pictures=[folder / name for name in pictures],
    )  # fmt: skip


def run_page(
    runs: Sequence[Run], analysis: Analysis, reference: Sequence[PaperValue] | None = None,
    charts: Sequence[Chart] | None = None, *, remarks: Sequence[str] = (), extra: Sequence[Chart] = (),
    tables: Sequence[Table] = (), scale: str = "",
) -> str:  # fmt: skip
    """Return the page as one HTML document; its one script is the package's own, and nothing is loaded."""
    said = [scale, *remarks] if scale and remarks else remarks
    extra, charts = _arranged(extra, run_charts(analysis, runs, reference) if charts is None else charts)
    of = {kind: _figures([c for c in charts if c.kind == kind]) for kind in KINDS}
    # a chart that joins many settings says more than one for each; beside a single one it is an aside
    order = (
        [_figures(extra), of["error-by-heads"]]
        if len(analysis.settings) > 1
        else [of["error-by-heads"], _figures(extra)]
    )
    parts = [
        _header(analysis, runs, scale),
        "\n".join(order) + (HINT if extra or charts else ""),
        section("The evidence", "".join(_evidence(d, analysis) for d in analysis.dimensions)),
        _part("The length of the sequence", of["error-by-length"], run_tables.slope_table(analysis)),
        _part("The size of the model", of["scaling"] + of["equal-error"], run_tables.scaling_table(analysis)),
        _part("Seeds and targets", of["spread"]),
        _part("Fitted laws", of["laws"], run_tables.law_table(analysis)),
        _part("Beside the paper", _listed(said), *tables, run_tables.paper_table(analysis, reference or ())),
        _part("The numbers", "", run_tables.drop_table(analysis), run_tables.cell_table(analysis)),
        section("What was done", _done(runs, analysis)),
        section("What this means, and what it does not", _meaning(analysis)),
        section("Where it comes from", _origin(runs[0])),
    ]
    code = script()
    return document(_title(analysis), parts, style(), code, script_hash(code))


def _ours(name: str, ids: Collection[str]) -> bool:
    """Whether a name is that of a file of some report; `ids` names charts beside the usual ones."""
    stem, _, ending = name.rpartition(".")
    drawn = bool(_PICTURE.fullmatch(name)) or (stem in ids and ending in ("png", "pdf"))
    return drawn or name in (*FILES, *OLD_FILES) or name.endswith(".part")


def _is_report(page: Path) -> bool:
    return MARK.encode() in page.read_bytes()[:2000]


def _drawn(folder: Path) -> set[str]:
    """The charts of the report that a folder holds already: its own page names them."""
    page = folder / "index.html"
    if not page.is_file() or not _is_report(page):
        return set()
    return set(_FIGURE.findall(page.read_text(encoding="utf-8", errors="replace")))


def _arranged(extra: Sequence[Chart], charts: Sequence[Chart]) -> tuple[list[Chart], list[Chart]]:
    """Extra charts and the run's own, all with names of their own; what is in both comes first, once."""
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
    return title if len(title) <= LONGEST_TITLE else f"{title[: LONGEST_TITLE - 1].rstrip()}…"


def _figures(charts: Sequence[Chart]) -> str:
    """Charts of one kind: several stand side by side where there is room."""
    shown = "\n".join(figure(chart) for chart in charts)
    return f'<div class="multiples">\n{shown}\n</div>\n' if len(charts) > 1 else shown


def _header(analysis: Analysis, runs: Sequence[Run], scale: str = "") -> str:
    """The answer first: the question small, the sentence big, then what became of the trials."""
    found = analysis.dimensions
    if len(found) == 1:
        # the claim is set larger than its grounds; the colon between them is for readers who hear or copy the sentence
        claim, colon, grounds = found[0].sentence.partition(": ")
        rest = f'<span class="mark">:</span> <small>{escape(grounds)}</small>' if colon else ""
        heading = escape(claim) + rest
    else:
        claimed = {d.heads_needed for d in found}
        same = claimed.pop() if len(claimed) == 1 and not any(d.hedged for d in found) else None
        agreed = f"{heads_text(same)} in all {len(found)} settings" if same else ""
        heading = agreed or f"{len(found)} settings, each with its own answer"
    answers = "".join(f"<li><b>{escape(d.setting)}</b>: {escape(d.sentence)}</li>\n" for d in found)
    listed = f"<ul>\n{answers}</ul>\n" if len(found) > 1 else ""
    states = "".join(
        f'<li{"" if state == "done" else " class=bad"} title="{escape(meaning)}">'
        f"<b>{number:,}</b> {escape(state)}</li>\n"
        for state, number, meaning in counts(analysis)
    )
    drawn = f"Intervals hold 90 % of {analysis.resamples:,} draws over seeds and targets."
    drawn = drawn if analysis.counts.get("done") else ""
    size = "".join(f'<p class="comparison">{escape(text)}</p>\n' for text in (blind_note(runs), scale) if text)
    return (
        f'<header>\n<p class="question">{escape(_title(analysis))}</p>\n<h1>{heading}</h1>\n{listed}'
        f'<p class="comparison">{escape(known(analysis, runs))}</p>\n'
        f'<p class="evidence"><span class="tag">measured</span> in this run of {escape(summary(analysis))}. '
        f"{drawn}</p>\n{size}"
        f'<ul class="states" aria-label="What became of the trials">\n{states}</ul>\n</header>'
    )


def _evidence(found: Dimension, analysis: Analysis) -> str:
    """The grounds of an estimate, each with what kind of knowledge it is."""
    told = [*found.reasons, *(Reason(text=text) for text in rises(analysis, found.setting))]
    reasons = "\n".join(
        f'<li><span class="tag {reason.tag}">{reason.tag}</span> {escape(reason.text)}</li>' for reason in told
    )
    named = len(analysis.dimensions) > 1
    title = f"<h3>{escape(found.setting)}</h3>\n<p>{escape(found.sentence)}</p>\n" if named else ""
    return f"{title}<ul>\n{reasons}\n</ul>\n"


def _part(title: str, charts: str, *tables: Table) -> str:
    """A section, where there is something to show."""
    shown = "".join(_table(table) for table in tables if table.rows)
    return section(title, charts + "\n" + shown) if charts or shown else ""


def _table(table: Table) -> str:
    legend = "; ".join(f"<b>{escape(c.name)}</b>: {escape(c.meaning)}" for c in table.columns)
    wrapped = table.columns[-1].name in run_tables.TEXTS
    body = f'<div class="wrapped">{as_html(table)}</div>' if wrapped else as_html(table)
    html = f'{body}<p class="small">{legend}.</p>\n'
    if len(table.rows) <= OPEN_ROWS:
        return html
    return f"<details>\n<summary>{escape(table.caption)}: {len(table.rows):,} rows</summary>\n{html}</details>\n"


def _done(runs: Sequence[Run], analysis: Analysis) -> str:
    words, formula = task_words(runs)
    shown = f'<p class="formula">{escape(formula)}</p>\n' if formula else ""
    return f"<p>{escape(words)}</p>\n{shown}{name_list(done(runs, analysis.on))}"


def _meaning(analysis: Analysis) -> str:
    points = [analysis.words.meaning, *analysis.notes, MEASURED, MEAN if analysis.measure == "error rate" else BEST]
    points += [f"{number:,} trials {meaning}." for state, number, meaning in counts(analysis) if state != "done"]
    return _listed(points)


def _listed(points: Sequence[str]) -> str:
    items = "\n".join(f"<li>{escape(point)}</li>" for point in points)
    return f"<ul>\n{items}\n</ul>\n" if points else ""


def _origin(run: Run) -> str:
    return (
        f"{name_list(origin(run))}"
        "<p>Beside this page: every chart as PNG and PDF, all cells in "
        '<a href="cells.csv">cells.csv</a>, every number of the analysis in <a href="analysis.json">analysis.json</a>.'
        f"</p>\n{experiment_html(run)}"
    )
