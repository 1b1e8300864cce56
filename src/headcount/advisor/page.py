"""The page of an advice: the answer first, its pictures, price and reasons, in one file that loads nothing."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from headcount.advisor.charts import advice_charts
from headcount.advisor.configuration import Configuration, configuration
from headcount.advisor.record import AdviceRecord
from headcount.advisor.tables import (
    fixed_table,
    layer_table,
    length_table,
    origin,
    price_table,
    settings,
    shorter_table,
)
from headcount.advisor.witness_words import WitnessRecord
from headcount.advisor.words import curve_table, price_text
from headcount.analysis import Reason
from headcount.analysis.words import heads_text, percent
from headcount.core import write_text
from headcount.core.text import escape
from headcount.render import Table, as_html, document, name_list, section
from headcount.render.charts import HINT, figure, script, script_hash, style

STYLE = """.answers dt { color: var(--ink); font-weight: 600; }
.answers div { grid-template-columns: 1fr; gap: .2rem; padding: .6rem 0; }
.answers .tag, .reasons .tag { font-size: .8rem; }
.reasons { padding: 0; list-style: none; }
pre { white-space: pre; }
"""
TAGS = (
    "Proved: a theorem or exact arithmetic. Measured: seen on the models that were trained here. Extrapolated: "
    "beyond what was measured."
)


def write_page(
    record: AdviceRecord, path: Path, config: Configuration | None = None, witness: WitnessRecord | None = None
) -> None:
    """Write the page as one file."""
    write_text(path, advice_page(record, config, witness))


def advice_page(record: AdviceRecord, config: Configuration | None = None, witness: WitnessRecord | None = None) -> str:
    """Return the page as one HTML document; its one script is the package's own, and nothing is loaded.

    Without a configuration the one at the measured width is shown, where the advice names a number of heads.
    """
    if config is None and record.named is not None:
        config = configuration(record)
    first, *rest = [figure(chart) for chart in advice_charts(record)] or [""]
    parts = [
        _header(record),
        first + (HINT if first else ""),
        section(
            "Why", _reasons(record.reasons) + f'<p class="small">{escape(f"{_again(record)} {TAGS}".strip())}</p>\n'
        ),
        _prices(record),
        section("At fixed head size, width or parameters", "\n".join([*rest, _table(fixed_table(record))]))
        if rest
        else "",
        section("The numbers", _table(curve_table(record))),
        _lengths(record),
        _witness(witness),
        section("What would settle it", f"<p>{escape(record.settle)}</p>\n"),
        _code(record, config),
        section("What was done", name_list(settings(record))),
        section("Where it comes from", name_list(origin(record.provenance)) + _whole(record)),
    ]
    code = script()
    return document(f"{record.name}: {record.sentence}", parts, style() + STYLE, code, script_hash(code))


def _header(record: AdviceRecord) -> str:
    """The answer first: the question small, the sentence big, then the interval and what it rests on."""
    claim, colon, grounds = record.sentence.partition(": ")
    rest = f'<span class="mark">:</span> <small>{escape(grounds)}</small>' if colon else ""
    return (
        f'<header>\n<p class="question">How many attention heads does {escape(record.name)} need?</p>\n'
        f"<h1>{escape(claim)}{rest}</h1>\n"
        f'<p class="comparison">{escape(recommended_text(record))}</p>\n'
        f'<p class="evidence"><span class="tag">measured</span> on {record.trials} models that were trained in '
        f"{record.seconds:.0f} s, {_split(record)}.</p>\n</header>"
    )


def _split(record: AdviceRecord) -> str:
    """How many sequences trained and how many decided."""
    if record.folds == 1:
        return f"{record.train_samples:,} sequences to train on and {record.validation_samples:,} others"
    return f"{record.validation_samples:,} sequences, {record.train_samples:,} at a time to train on"


def recommended_text(record: AdviceRecord) -> str:
    """The recommended heads and the interval in words."""
    low, high = record.interval
    at = f"at {percent(record.confidence)} confidence"
    end = f"{low} or more" if record.interval_open else f"{low} to {high}" if low != high else f"{low} only"
    if record.named is None:
        best = f"the best model so far has {heads_text(record.recommended_heads)}"
        return f"No number of heads is shown to be right ({best}); the interval {at}: {end}."
    sure = "" if record.settled else " The answer is not settled."
    return f"Recommended: {heads_text(record.recommended_heads)}; the interval {at}: {end}.{sure}"


def _again(record: AdviceRecord) -> str:
    """What the draws of the bootstrap answer."""
    named = {h: share for h, share in record.answers.items() if share >= 0.005}
    if not named or set(named) == {"none"}:
        return ""
    words = {h: "more than were tried" if h == "none" else heads_text(int(h)) for h in named}
    shares = ", ".join(f"{words[h]} in {percent(share)}" for h, share in named.items())
    return f"If seeds and validation sequences are drawn again, the answer is {shares} of the draws. "


def _reasons(reasons: Iterable[Reason]) -> str:
    """Sentences, each with what kind of knowledge it is."""
    items = "\n".join(f'<li><span class="tag {r.tag}">{r.tag}</span> {escape(r.text)}</li>' for r in reasons)
    return f'<ul class="reasons">\n{items}\n</ul>\n'


def _prices(record: AdviceRecord) -> str:
    """What the neighbours cost, in words and numbers."""
    if not record.prices:
        return ""
    told = "".join(f"<p>{escape(price_text(price, record.recommended_heads))}</p>\n" for price in record.prices)
    return section("The price of fewer and of more heads", told + _table(price_table(record)))


def _lengths(record: AdviceRecord) -> str:
    """How the error moves with the length, where that is known."""
    tables = [length_table(record), shorter_table(record)]
    shown = "".join(_table(table) for table in tables if table.rows)
    return section("Short and long sequences", shown) if shown else ""


def _witness(witness: WitnessRecord | None) -> str:
    """Two inputs that one head fewer confuses, or why there are none."""
    if witness is None:
        return ""
    title = f"What {heads_text(witness.heads)} cannot tell apart" if witness.heads else "A witness against fewer heads"
    if witness.why:
        return section(title, f"<p>No pair of inputs is shown. {escape(witness.why)}</p>\n")
    pair = json.dumps({"X1": witness.X1, "X2": witness.X2}, indent=None)
    return section(
        title,
        f"{_reasons(witness.sentences)}<details>\n<summary>The two inputs, in the units of the data</summary>\n"
        f"<pre>{escape(pair.replace('], [', '],' + chr(10) + ' ['))}</pre>\n</details>\n",
    )


def _code(record: AdviceRecord, config: Configuration | None) -> str:
    """The configuration: two layers, their source, and the questions that people ask."""
    if config is None:
        return section(
            "From advice to code",
            f"<p>There is no number of heads to configure yet. {escape(record.settle)}</p>\n",
        )
    asked = "\n".join(
        f'<div><dt>{escape(a.question)}</dt><dd><span class="tag {a.tag}">{a.tag}</span> {escape(a.text)}</dd></div>'
        for a in config.answers
    )
    return section(
        "From advice to code",
        f"<p>{escape(config.note)}</p>\n{_table(layer_table(config))}<pre>{escape(config.code.strip())}</pre>\n"
        f'<h3>What people ask</h3>\n<dl class="answers">\n{asked}\n</dl>\n',
    )


def _table(table: Table) -> str:
    legend = "; ".join(f"<b>{escape(c.name)}</b>: {escape(c.meaning)}" for c in table.columns)
    return f'{as_html(table)}<p class="small">{legend}.</p>\n'


def _whole(record: AdviceRecord) -> str:
    text = json.dumps(record.data(), indent=2, ensure_ascii=False)
    return f"<details>\n<summary>The whole record</summary>\n<pre>{escape(text)}</pre>\n</details>\n"
