"""The page of one panel, as the demo writes it, with its pictures and its full record in one folder."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from headcount.analysis import Dimension
from headcount.core import BadInput, check_writable, write_bytes, write_text
from headcount.render.charts.chart import Chart
from headcount.render.charts.matplotlib import picture
from headcount.render.charts.of_trials import training_chart, transition_chart
from headcount.render.pages import MARK, page
from headcount.render.run_page import PANEL_FILES, Part, filled, provenance
from headcount.render.tables import transition_table
from headcount.render.words.headline import split
from headcount.render.words.run import panel_evidence, panel_meaning
from headcount.render.words.task import settings, task_text
from headcount.store import Run


class ReportPaths(NamedTuple):
    """The files of a report."""

    page: Path
    picture: Path
    training: Path | None
    """The training curves; None where the run recorded none."""
    run: Path


def check_report_folder(folder: Path) -> None:
    """Raise BadInput for a folder with anything but an earlier report, so that no user file is overwritten."""
    if not folder.exists():
        check_writable(folder)
        return
    if not folder.is_dir():
        raise BadInput(f"{folder} is a file, not a folder: choose another folder")
    check_writable(folder)
    foreign = sorted(p.name for p in folder.iterdir() if p.name not in PANEL_FILES and not p.name.endswith(".part"))
    html = folder / "index.html"
    if not foreign and html.exists() and MARK.encode() not in html.read_bytes()[:2000]:
        foreign = ["an index.html that is not a report"]
    if foreign:
        raise BadInput(f"{folder} holds other files ({', '.join(foreign[:3])}): choose an empty or new folder")


def write_report(run: Run, transition: Dimension, folder: Path) -> ReportPaths:
    """Write index.html, transition.png, training.png and run.json into a folder; the same run gives the same bytes."""
    check_report_folder(folder)
    curves = training_chart(run, transition)
    paths = ReportPaths(
        page=folder / "index.html",
        picture=folder / "transition.png",
        training=folder / "training.png" if curves.series else None,
        run=folder / "run.json",
    )
    run.save(paths.run)
    write_bytes(paths.picture, picture(transition_chart(run, transition)))
    if paths.training is not None:
        write_bytes(paths.training, picture(curves))
    else:
        (folder / "training.png").unlink(missing_ok=True)  # left by an earlier report
    write_text(paths.page, page_html(run, transition))  # last: whoever sees the page finds the rest beside it
    return paths


def page_html(run: Run, transition: Dimension) -> str:
    """Return the page as one HTML document that loads nothing; its only script is the package's own."""
    curves = training_chart(run, transition)
    words, formula = task_text(run)
    parts = [
        Part("During training", charts=[[curves.model_copy(update={"subtitle": ""})]] if curves.series else []),
        Part("The numbers", tables=[transition_table(transition)]),
    ]
    return page(
        "render/run.html.j2",
        title=run.title or run.name,
        headline=split(transition.sentence),
        answers=[transition],
        comparison=transition.comparison,
        evidence=panel_evidence(transition),
        remarks=[],
        states=[],
        charts=[[_chart(run, transition)]],
        pictures=[],
        hinted=True,
        grounds=[(transition, transition.reasons)],
        parts=filled(parts),
        words=words,
        formula=formula,
        done=settings(run),
        meaning=panel_meaning(run, transition),
        whole_record=True,
        **provenance(run),
    )


def _chart(run: Run, transition: Dimension) -> Chart:
    """Return the chart of the answer, without the title, which is the page's heading."""
    return transition_chart(run, transition).model_copy(update={"title": "Error by number of heads", "subtitle": ""})
