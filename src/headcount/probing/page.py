"""The folder of a probe: the record, the tables, the heat map and a page that needs nothing else."""

from __future__ import annotations

from pathlib import Path

from headcount.core import check_own, json_bytes, write_all
from headcount.core.text import escape
from headcount.probing.curve import curve_chart, curve_table
from headcount.probing.heat_map import heat_figure, png, svg
from headcount.probing.heat_map import style as heat_style
from headcount.probing.record import ProbeRecord
from headcount.probing.words import MEANING, head_table, headline, layer_table, loading_text, markdown, sentences
from headcount.render import Table, as_html, document, name_list, section
from headcount.render.charts import HINT, figure, picture, script, script_hash, style

FILES = ("probe.json", "heads.md", "heads.png", "curve.png", "index.html")
STYLE = """main { max-width: 62rem; }
main > header, main > section { max-width: 50rem; }
figure.map { overflow-x: auto; }
figure.map svg { min-width: 34rem; }
"""
CAPTION = (
    "One square a head; numbers are per cent of the largest value of the map, on whose scale the colours are. Heads "
    "with a cross can go together within the budget."
)


def check_out(folder: Path) -> None:
    """Refuse a folder that holds anything but an earlier probe."""
    check_own(folder, FILES, "probe.json")


def write_folder(record: ProbeRecord, folder: Path) -> None:
    """Write probe.json, heads.md, heads.png, curve.png (where heads can be removed) and index.html, all or none."""
    check_out(folder)
    chart = curve_chart(record)
    contents = {
        "probe.json": json_bytes(record.data()), "heads.md": markdown(record).encode(),
        "heads.png": png(heat_figure(record)), "index.html": page(record).encode(),
    }  # fmt: skip
    write_all(folder, contents if chart is None else {**contents, "curve.png": picture(chart)})
    if chart is None:
        (folder / "curve.png").unlink(missing_ok=True)  # of an earlier probe


def page(record: ProbeRecord) -> str:
    """Return the page as one HTML document; its one script is the package's own, and nothing is loaded."""
    claim, _, rest = headline(record).partition("; ")
    told = "\n".join(f"<li>{escape(text)}</li>" for text in [*sentences(record), *loading_text(record), *record.notes])
    meaning = "\n".join(f"<li>{escape(text)}</li>" for text in MEANING)
    header = (
        f'<header>\n<p class="question">Which heads of {escape(record.model)} matter?</p>\n'
        f'<h1>{escape(claim)}<span class="mark">;</span> <small>{escape(rest)}</small></h1>\n'
        f'<p class="evidence"><span class="tag">measured</span> {escape(record.samples)}</p>\n</header>'
    )
    facts = [
        ("Model", record.model), ("Architecture", record.architecture), ("Data", record.samples),
        ("Loss", f"{record.loss_name}: {record.loss:.6g}"),
    ]  # fmt: skip
    parts = [
        header,
        f'<figure class="map">\n{svg(heat_figure(record))}<figcaption>{escape(CAPTION)}</figcaption>\n</figure>',
        section("What was found", f"<ul>\n{told}\n</ul>\n"),
        _curve(record),
        section("Layer by layer", _table(layer_table(record))),
        section("Head by head", f"<details>\n<summary>All {len(record.heads)} heads</summary>\n"
                f"{_table(head_table(record))}</details>\n"),
        section("What this means, and what it does not", f"<ul>\n{meaning}\n</ul>\n"),
        section("Where it comes from", name_list([*facts, *_origin(record)]) + _BESIDE),
    ]  # fmt: skip
    code = script()
    return document(
        f"{record.model}: {headline(record)}", parts, style() + heat_style() + STYLE, code, script_hash(code)
    )


_BESIDE = (
    '<p>Every number, all similarities included, is in <a href="probe.json">probe.json</a> beside this page.</p>\n'
)


def _curve(record: ProbeRecord) -> str:
    """The loss against heads removed: chart and list."""
    chart = curve_chart(record)
    if chart is None:
        return ""
    rows = f"<details>\n<summary>All {len(record.curve)} losses</summary>\n{_table(curve_table(record))}</details>\n"
    return section("Loss against heads removed", f"{figure(chart)}{HINT}\n{rows}")


def _table(table: Table) -> str:
    legend = "; ".join(f"<b>{escape(c.name)}</b>: {escape(c.meaning)}" for c in table.columns)
    return f'{as_html(table)}<p class="small">{legend}.</p>\n'


def _origin(record: ProbeRecord) -> list[tuple[str, str]]:
    made = record.provenance
    versions = made.get("versions")
    listed = ", ".join(f"{k} {v}" for k, v in versions.items()) if isinstance(versions, dict) else ""
    return [(name, text) for name, text in (("Time", str(made.get("time") or "")), ("Versions", listed)) if text]
