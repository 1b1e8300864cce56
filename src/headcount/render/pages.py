"""The report: one page that needs nothing else, the pictures and the record, in one folder."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import resources
from pathlib import Path
from typing import NamedTuple

from headcount.analysis import Dimension, blind_note
from headcount.analysis.words import percent, times_text
from headcount.core import BadInput, check_writable, write_bytes, write_text
from headcount.core.text import escape, plain
from headcount.render.charts.html import HINT, figure, script, script_hash, style
from headcount.render.charts.matplotlib import picture
from headcount.render.charts.of_trials import training_chart, transition_chart
from headcount.render.tables import as_html, transition_table
from headcount.render.words.task import experiment_html, origin, settings, task_text
from headcount.store import Run

MARK = '<meta name="generator" content="headcount">'
POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""The browser itself is told that nothing may be loaded."""
FILES = ("index.html", "transition.png", "training.png", "run.json")


class ReportPaths(NamedTuple):
    """The files of a report."""

    page: Path
    picture: Path
    training: Path | None
    """The training curves; None where the run recorded none."""
    run: Path


def check_report_folder(folder: Path) -> None:
    """Refuse a folder that holds anything but an earlier report: nothing of the user's is overwritten."""
    if not folder.exists():
        check_writable(folder)
        return
    if not folder.is_dir():
        raise BadInput(f"{folder} is a file, not a folder: choose another --out")
    check_writable(folder)
    foreign = sorted(p.name for p in folder.iterdir() if p.name not in FILES and not p.name.endswith(".part"))
    page = folder / "index.html"
    if not foreign and page.exists() and MARK.encode() not in page.read_bytes()[:2000]:
        foreign = ["an index.html that is not a report"]
    if foreign:
        raise BadInput(f"{folder} holds other files ({', '.join(foreign[:3])}): choose an empty or new folder")


def write_report(run: Run, transition: Dimension, folder: Path) -> ReportPaths:
    """Write index.html, transition.png, training.png and run.json; the same run gives the same bytes."""
    check_report_folder(folder)
    curves = training_chart(run, transition)
    paths = ReportPaths(
        page=folder / "index.html", picture=folder / "transition.png",
        training=folder / "training.png" if curves.series else None, run=folder / "run.json",
    )  # fmt: skip
    run.save(paths.run)
    write_bytes(paths.picture, picture(transition_chart(run, transition)))
    if paths.training is not None:
        write_bytes(paths.training, picture(curves))
    else:
        (folder / "training.png").unlink(missing_ok=True)  # of an earlier report: not of this run
    write_text(paths.page, page_html(run, transition))  # last: whoever sees the page finds the rest beside it
    return paths


def page_html(run: Run, transition: Dimension) -> str:
    """Return the page as one HTML document; its one script is the package's own, and nothing is loaded."""
    title = run.title or run.name
    curves = training_chart(run, transition)
    parts = [
        _header(title, transition),
        _picture(run, transition),
        section("The numbers", as_html(transition_table(transition)) + _legend(transition)),
        section("What was done", _done(run)),
        section("What this means, and what it does not", _meaning(run, transition)),
        section("During training", figure(curves.model_copy(update={"subtitle": ""}))) if curves.series else "",
        section("Where it comes from", _origin(run)),
    ]
    code = script()
    return document(title, parts, style(), code, script_hash(code))


def document(title: str, parts: Iterable[str], style: str = "", script: str = "", allowed: str = "") -> str:
    """Return parts of a page as one whole document in the house style, without anything to load.

    A script runs only where `allowed` is its hash: the browser refuses any other.
    """
    policy = f"{POLICY}; script-src '{allowed}'" if allowed else POLICY
    css = (resources.files("headcount.render") / "page.css").read_text(encoding="utf-8")
    text = (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'{MARK}\n<meta name="color-scheme" content="light dark">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f"<title>{escape(title)}</title>\n<style>\n{css}{style}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(part for part in parts if part)
        + f"\n</main>\n{f'<script>{script}</script>' if script else ''}</body>\n</html>\n"
    )
    return plain(text, lines=True)  # each text is escaped where it enters; this finds what was forgotten


_NMSE = (
    "The error is the NMSE: the mean squared error divided by the variance of the answer, on sequences that "
    "the model was not trained on. 0 is perfect, 0.01 leaves 1 % of the variation unexplained, 1 is guessing."
)
_MEASURED = (
    "This was measured on small models that were trained here; it is not proved. A larger model, or longer "
    "training, may reach a smaller error with the same number of heads."
)
_BEST = (
    "For each number of heads the best seed counts, because a start that got stuck says something about "
    "training, not about the number of heads."
)

_RULE = (
    "A number of heads is needed where the error falls sharply into it, more heads improve it little beside that fall, "
    "and what is left is a small part of the variation. A larger number of heads must have been tried to confirm it."
)


def _header(title: str, transition: Dimension) -> str:
    """The answer first: the question small, the sentence big, the comparison below it."""
    # the claim is set larger than its grounds, on a line of its own, so the mark between them is for readers
    # who hear or copy the sentence
    claim, mark, grounds = _split(transition.sentence)
    joint = f'<span class="mark">{mark}</span>' if mark else ""
    return (
        f'<header>\n<p class="question">{escape(title)}</p>\n'
        f"<h1>{escape(claim)}{joint} <small>{escape(grounds)}</small></h1>\n"
        f'<p class="comparison">{escape(transition.comparison)}</p>\n'
        f'<p class="evidence"><span class="tag">measured</span> '
        f"{escape(_sure(transition))}</p>\n</header>"
    )


def _split(sentence: str) -> tuple[str, str, str]:
    """Cut a sentence at its first colon or semicolon: before it, the mark, after it."""
    cuts = [sentence.find(mark) for mark in (": ", "; ") if mark in sentence]
    at = min(cuts) if cuts else len(sentence)
    return sentence[:at], sentence[at : at + 1], sentence[at + 1 :].strip()


def _sure(transition: Dimension) -> str:
    """How far the seeds support the sentence."""
    trials = sum(row.seeds for row in transition.rows)
    source = f"in this run of {trials} trained model{'' if trials == 1 else 's'}, not proved."
    if transition.agreement is None:
        return f"{source} There are too few seeds to say how sure this is."
    again = (
        f"If the seeds are drawn again and the rule's constants are varied, {percent(transition.agreement)} of "
        f"{transition.resamples:,} draws give the same answer"
    )
    low, high = transition.drop_low, transition.drop_high
    claimed = transition.verdict == "transition" or transition.bounded
    if not claimed or low is None or high is None:
        return f"{source} {again}."
    ends = times_text(low), times_text(high)
    span = f"{ends[0]} times" if ends[0] == ends[1] else f"{ends[0]} to {ends[1]} times"
    return f"{source} {again}, and the drop lies in 90 % of the draws at {span}."


def _picture(run: Run, transition: Dimension) -> str:
    """The chart of the answer; the page's heading has its title already."""
    chart = transition_chart(run, transition).model_copy(update={"title": "Error by number of heads", "subtitle": ""})
    return figure(chart) + HINT


def section(title: str, body: str) -> str:
    """Return a part of a page with its heading."""
    return f"<section>\n<h2>{escape(title)}</h2>\n{body}</section>"


def _legend(transition: Dimension) -> str:
    columns = transition_table(transition).columns
    told = "; ".join(f"<b>{escape(c.name)}</b>: {escape(c.meaning)}" for c in columns)
    return f'<p class="small">{told}.</p>\n'


def name_list(pairs: Iterable[tuple[str, str]]) -> str:
    """Return names and values, one below the other."""
    rows = "\n".join(f"<div><dt>{escape(k)}</dt><dd>{escape(v)}</dd></div>" for k, v in pairs)
    return f"<dl>\n{rows}\n</dl>\n"


def _done(run: Run) -> str:
    task = task_text(run)
    formula = f'<p class="formula">{escape(task.formula)}</p>\n' if task.formula else ""
    return f"<p>{escape(task.words)}</p>\n{formula}{name_list(settings(run))}"


def _meaning(run: Run, transition: Dimension) -> str:
    """What a reader may conclude, and what not."""
    points = [_NMSE, _MEASURED, _BEST, _RULE]
    if run.intrinsic is not None:
        points.append(
            f"Here the true number of look-ups, D = {run.intrinsic}, is known, because the task was built "
            "that way. The estimate does not use it; it is compared afterwards."
        )
    points += [note] if (note := blind_note([run])) else []
    diverged = sum(row.diverged for row in transition.rows)
    if diverged:
        points.append(
            f"{diverged} of the {len(run.trials)} models diverged: training blew up, so they have no error "
            "and are left out of the best and the median."
        )
    return "<ul>\n" + "\n".join(f"<li>{escape(point)}</li>" for point in points) + "\n</ul>\n"


def _origin(run: Run) -> str:
    return (
        f"{name_list(origin(run))}"
        "<p>To reproduce it, install the versions above and run the experiment below again: it states the "
        "task, the head counts, the seeds and the training. The full record, with every trial and curve, "
        'is in <a href="run.json">run.json</a> beside this page.</p>\n'
        f"{experiment_html(run)}"
    )
