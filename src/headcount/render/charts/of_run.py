"""The charts of a whole run, from its analysis: error by heads, by length and by size, spreads and laws."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from headcount.analysis import STEP, Analysis, Cell, EqualError, Law, predicted, with_errors_on
from headcount.render.charts.chart import Chart, ChartSeries, Dot, PaperValue, doubling_axis, log_axis, whole_axis
from headcount.render.charts.series import (
    HEADS_LABEL,
    Group,
    alt,
    dot,
    errors_axis,
    fitted,
    for_log_scale,
    groups,
    known_dimension,
    known_dimensions,
    lanes,
    left_out,
    level,
    lines,
    look,
    missing_trials,
    numbered,
    paper_series,
    paper_values,
    shades,
    shared,
    subtitle,
    target_dots,
    trial_dots,
    values,
    where,
)
from headcount.render.words.errors import terms_of
from headcount.render.words.numbers import error_text, heads_text, times_text
from headcount.store import Run

LENGTH_LABEL, HIDDEN_LABEL = "Sequence length T", "Hidden size N"
CHART_KINDS = ("error-by-heads", "error-by-length", "scaling", "equal-error", "spread", "laws")
"""The kinds of charts, in the order of the page; a chart's name is its kind, with a number if there are several."""
LINE_SHIFT = 7.0
"""Pixels between the dots of neighbouring lines."""


def run_charts(
    analysis: Analysis, runs: Sequence[Run] = (), reference: Sequence[PaperValue] | None = None
) -> list[Chart]:
    """Return all charts that the analysis has data for, kind by kind."""
    paper = list(reference or [])
    kinds = (
        error_by_heads(analysis, runs, paper),
        error_by_length(analysis, paper, runs),
        scaling(analysis),
        equal_error(analysis),
        spread(analysis),
        laws(analysis, runs),
    )
    return [chart for charts in kinds for chart in numbered(charts)]


def error_by_heads(analysis: Analysis, runs: Sequence[Run] = (), paper: Sequence[PaperValue] = ()) -> list[Chart]:
    """Return error against heads, with a line for each length (or size) and a dot for each trial or target."""
    charts: list[Chart] = []
    runs = with_errors_on(runs, analysis.on)
    known = known_dimensions(analysis, runs)
    for group, named in lines(analysis):
        trials, theirs = trial_dots(runs, group.setting), paper_values(paper, analysis, group.setting)
        series: list[ChartSeries] = []
        for i, (name, members) in enumerate(named):
            shift = (i - (len(named) - 1) / 2) * LINE_SHIFT
            points = [
                Dot(x=float(c.heads or 0), y=for_log_scale(error), text=text)
                for c in members
                for error, text in trials.get((c.length, c.hidden, c.heads), target_dots(c))
            ]
            if len(points) > len(members):
                series += [
                    ChartSeries(name=name, style="dots", points=some, **look(i, len(named), beside))
                    for beside, some in lanes(points, shift)
                ]
            line = [dot(c, float(c.heads or 0)) for c in members if level(c) is not None]
            series.append(ChartSeries(name=name, style="line", points=line, **look(i, len(named))))
            beside = look(i, len(named), shift)
            series += paper_series([v for v in theirs if v.length == members[0].length], beside, lambda v: v.heads)
        series.sort(key=lambda s: ("dots", "line", "rings").index(s.style))  # the paper over lines, lines over dots
        axis = whole_axis(HEADS_LABEL, [*(c.heads or 0 for c in group.cells), *_places(series)])
        y, levels = errors_axis(series, analysis, runs)
        found = next((d for d in analysis.dimensions if d.setting == group.setting), None)
        kind = terms_of(analysis).targets if _several(group.cells) else terms_of(analysis).seeds
        dots = "one trained model each" if trials else f"the {terms_of(analysis).seeds} of one target each"
        shown = (
            f" Small marks: {dots}{', lines side by side' if len(named) > 1 else ''}."
            if any(s.style == "dots" for s in series)
            else ""
        )
        charts.append(
            Chart(
                id="error-by-heads",
                kind="error-by-heads",
                title=f"{terms_of(analysis).title} by number of heads",
                subtitle=subtitle(group, [name for name, _ in named]),
                x=axis,
                y=y,
                series=series,
                levels=levels,
                shades=shades(found, axis),
                marks=known_dimension(known.get(group.setting), axis),
                notes=[*missing_trials(group.cells, left_out(analysis, runs, group)), *analysis.notes],
                caption=f"Lines: the {kind}.{shown} Lower is better.",
                alt=alt(f"the {terms_of(analysis).noun} against the number of heads", series),
            )
        )
    return shared(charts, analysis, runs)


def error_by_length(analysis: Analysis, paper: Sequence[PaperValue] = (), runs: Sequence[Run] = ()) -> list[Chart]:
    """Return charts of error against T: a line for each head count, with a band from the best target to the worst."""
    charts: list[Chart] = []
    for group in groups(analysis):
        lengths, heads = values(group.cells, "length"), values(group.cells, "heads")
        if len(lengths) < 2:
            continue
        theirs = paper_values(paper, analysis, group.setting)
        series: list[ChartSeries] = []
        for i, count in enumerate(heads):
            members = [c for c in group.cells if c.heads == count and level(c) is not None]
            style, name = look(i, len(heads)), heads_text(count)
            line = [dot(c, float(c.length or 0)) for c in members]
            if any(p.low is not None for p in line):
                series.append(ChartSeries(name=name, style="band", points=line, **style))
            series.append(ChartSeries(name=name, style="line", points=line, **style))
            series += paper_series([v for v in theirs if v.heads == count], style, lambda v: v.length)
        series.sort(key=lambda s: ("band", "line", "rings").index(s.style))
        y, levels = errors_axis(series, analysis, runs)
        mean = f": the {terms_of(analysis).targets if _several(group.cells) else terms_of(analysis).seeds}"
        banded = " Shaded: from the best target to the worst." if any(s.style == "band" for s in series) else ""
        charts.append(
            Chart(
                id="error-by-length",
                kind="error-by-length",
                title=f"{terms_of(analysis).title} by length of the sequence",
                subtitle=subtitle(group),
                x=doubling_axis(LENGTH_LABEL, [*lengths, *_places(series)]),
                y=y,
                series=series,
                levels=levels,
                caption=f"One line for each number of heads{mean}.{banded}",
                alt=alt(f"the {terms_of(analysis).noun} against the length of the sequence", series),
            )
        )
    return shared(charts, analysis, runs)


def scaling(analysis: Analysis) -> list[Chart]:
    """Return error against the hidden size N, with a line for each head count and the fitted slope dashed."""
    charts: list[Chart] = []
    for place in dict.fromkeys((s.setting, s.length) for s in analysis.scaling):
        some = sorted((s for s in analysis.scaling if (s.setting, s.length) == place), key=lambda s: s.heads or 0)
        series: list[ChartSeries] = []
        for i, one in enumerate(some):
            name, style = heads_text(one.heads or 0), look(i, len(some))
            text = f"slope {one.slope:.2f} ({one.low:.2f} to {one.high:.2f})"
            line = [Dot(x=float(n), y=for_log_scale(e), text=text) for n, e in one.points]
            series.append(ChartSeries(name=name, style="dashed", points=fitted(line, one.slope), **style))
            series.append(ChartSeries(name=name, style="line", points=line, **style))
        y, levels = errors_axis(series, analysis)
        where_parts = [part for part in (place[0], f"T = {place[1]}" if place[1] else "") if part]
        charts.append(
            Chart(
                id="scaling",
                kind="scaling",
                title=f"{terms_of(analysis).title} by size of the hidden layer",
                subtitle=", ".join(where_parts),
                x=doubling_axis(HIDDEN_LABEL, [n for s in some for n, _ in s.points]),
                y=y,
                series=series,
                levels=levels,
                caption="Dashed: a power law of N with the fitted slope.",
                alt=alt(f"{terms_of(analysis).noun} against hidden size", series),
            )
        )
    return shared(charts, analysis)


def equal_error(analysis: Analysis) -> list[Chart]:
    """Return the parameters that reach an error against the length, one chart per head count."""
    charts: list[Chart] = []
    for setting, heads in dict.fromkeys((e.setting, e.heads) for e in analysis.equal_errors):
        some = [e for e in analysis.equal_errors if (e.setting, e.heads) == (setting, heads)]
        some.sort(key=lambda e: -e.error)
        notes = [note for one in some if (note := no_size(one))]
        series = [
            ChartSeries(
                name=f"error {error_text(one.error)}",
                style="line",
                **look(i, len(some)),
                points=[Dot(x=float(t), y=m) for t, m in one.points if m is not None],
            )
            for i, one in enumerate(some)
        ]
        points = [p for s in series for p in s.points]
        if all(len(s.points) < 2 for s in series):
            continue
        only = series[0].name if len(series) == 1 else ""  # a line alone has no legend that names it
        where_parts = [part for part in (setting, heads_text(heads) if heads else "", only) if part]
        charts.append(
            Chart(
                id="equal-error",
                kind="equal-error",
                title="Parameters for an equal error",
                subtitle=", ".join(where_parts),
                x=doubling_axis(LENGTH_LABEL, [int(p.x) for p in points]),
                y=log_axis("Parameters M", [p.y for p in points]),
                series=[s for s in series if s.points],
                alt=alt("parameters against length", series),
                caption="The parameters M that just reach an error, interpolated between the sizes that were tried.",
                notes=notes,
            )
        )
    return charts


def no_size(line: EqualError) -> str:
    """Return why a line of equal error has no point at some lengths; empty if it has all."""
    reasons: Sequence[str] = getattr(line, "reasons", ())
    why: dict[str, list[str]] = {}
    for i, (length, parameters) in enumerate(line.points):
        if parameters is None:
            reason = (reasons[i] if i < len(reasons) else "") or "not reached, or reached by the smallest size already"
            why.setdefault(reason, []).append(str(length))
    lengths_and_reasons = "; ".join(f"at T = {', '.join(lengths)}: {reason}" for reason, lengths in why.items())
    return f"Error {error_text(line.error)} has no point {lengths_and_reasons}." if lengths_and_reasons else ""


def spread(analysis: Analysis) -> list[Chart]:
    """Return the factors by which the errors of one cell typically differ between seeds, and between targets."""
    charts: list[Chart] = []
    kinds: list[tuple[str, Callable[[Cell], float | None]]] = [
        ("seeds", lambda c: c.seed_spread),
        ("targets", lambda c: c.target_spread),
    ]
    for setting in analysis.settings:
        cells = [c for c in analysis.cells if c.setting == setting]
        several = len({(c.length, c.hidden) for c in cells}) > 1
        series: list[ChartSeries] = []
        for i, (name, factor) in enumerate(kinds):
            known = [(c, f) for c in cells if (f := factor(c)) is not None]
            style = look(i, 3, (2 * i - 1) * LINE_SHIFT)
            if several and known:
                dots = [Dot(x=float(c.heads or 0), y=f, text=where(c)) for c, f in known]
                series.append(ChartSeries(name=name, style="dots", points=dots, **style))
            by_heads = {h: [math.log(f) for c, f in known if c.heads == h] for h in values(cells, "heads")}
            line = [Dot(x=float(h), y=math.exp(sum(v) / len(v))) for h, v in by_heads.items() if v]
            if line:
                series.append(ChartSeries(name=name, style="line", points=line, **look(i, 3)))
        if not series:
            continue
        y = log_axis("Typical factor", [1.0, 2.0, *(p.y for s in series for p in s.points)])
        single = " Small marks: single cells; lines: their average." if several else ""
        charts.append(
            Chart(
                id="spread",
                kind="spread",
                title="How much seeds and targets matter",
                subtitle=subtitle(Group(setting, None, cells)),
                x=whole_axis(HEADS_LABEL, values(cells, "heads")),
                y=y,
                series=series,
                alt=alt("the spread of errors", series),
                caption="The factor by which errors of one cell typically lie above or below their middle, among the "
                f"seeds of one target and among the best seeds of the targets; 1 means no difference.{single}",
            )
        )
    return charts


def laws(analysis: Analysis, runs: Sequence[Run] = ()) -> list[Chart]:
    """Return measured errors and the chosen law against the number of heads."""
    charts: list[Chart] = []
    for law in (law for law in analysis.laws if law.chosen):
        cells = [c for c in analysis.cells if c.setting == law.setting and law.hidden in (None, c.hidden)]
        cells = [c for c in cells if level(c) is not None]
        lengths, heads = values(cells, "length"), values(cells, "heads")
        series: list[ChartSeries] = []
        for i, length in enumerate(lengths):
            style, name = look(i, len(lengths)), f"T = {length}"
            curve = _law_curve(law, heads, length)
            series.append(ChartSeries(name=name, style="dashed", points=curve, **style))
            dots = [Dot(x=float(c.heads or 0), y=for_log_scale(level(c) or 0.0)) for c in cells if c.length == length]
            series.append(ChartSeries(name=name, style="rings", points=dots, **style))
        series.sort(key=lambda s: s.style)
        y, levels = errors_axis(series, analysis, runs)
        charts.append(
            Chart(
                id="laws",
                kind="laws",
                title=law_title(law, heads, terms_of(analysis).noun),
                series=series,
                subtitle=subtitle(Group(law.setting, law.hidden, cells)),
                x=whole_axis(HEADS_LABEL, heads),
                y=y,
                levels=levels,
                caption="Open marks: measured. Dashed: the law, which sums up this run and promises nothing beyond it. "
                f"Cells left out of the fit are missed by a factor of {times_text(10**law.score)} on average.",
                alt=alt(f"measured {terms_of(analysis).noun}s and a fitted law", series),
            )
        )
    return charts


def law_title(law: Law, heads: Sequence[int], noun: str) -> str:
    """Return the title of a fitted law: its formula, or words if it is a step between two of the tried head counts."""
    if law.name != STEP.name:
        return f"The fitted law: {noun} = {law.formula}"
    known, before = law.coefficients, max(h for h in heads if h < law.coefficients["s"])
    levels = f"from {error_text(known['a'])} to {error_text(known['b'])}"
    turn = "down" if known["b"] < known["a"] else "up"
    return f"The fitted law: the {noun} steps {turn} between h = {before} and {known['s']:.0f}, {levels}"


def _law_curve(law: Law, heads: Sequence[int], length: int) -> list[Dot]:
    """Return the points of a law; a step is drawn half-way between its two head counts."""
    if law.name == STEP.name:
        s = law.coefficients["s"]
        middle = (s + max(h for h in heads if h < s)) / 2
        places = [(heads[0], heads[0]), (middle, heads[0]), (middle, heads[-1]), (heads[-1], heads[-1])]
        return [Dot(x=x, y=for_log_scale(predicted(law, of, length))) for x, of in places]
    grid = [heads[0] + (heads[-1] - heads[0]) * k / 24 for k in range(25)]
    return [Dot(x=h, y=for_log_scale(predicted(law, h, length))) for h in grid]


def _several(cells: Sequence[Cell]) -> bool:
    return any(c.targets > 1 for c in cells)


def _places(series: Sequence[ChartSeries]) -> list[int]:
    """Return the x values of the paper's marks."""
    return [int(p.x) for s in series if s.style == "rings" for p in s.points]
