"""Write the folder of a probe: the record, the tables, the pictures and a self-contained page."""

from __future__ import annotations

from pathlib import Path

from headcount.core import check_output_folder, json_bytes, write_files
from headcount.probing.curve import curve_chart, curve_table
from headcount.probing.heat_map import heat_figure, png, svg
from headcount.probing.heat_map import style as heat_style
from headcount.probing.record import ProbeRecord
from headcount.probing.words import MEANING, head_table, headline, layer_table, loading_text, markdown, sentences
from headcount.render import Illustration
from headcount.render import page as html_page
from headcount.render.charts import picture
from headcount.render.words import split

FILES = ("probe.json", "heads.md", "heads.png", "curve.png", "index.html")
CAPTION = (
    "One square per head. Colours and numbers (in per cent) are relative to the largest value of the map. Heads with a "
    "cross can be removed together within the budget."
)


def check_out(folder: Path) -> None:
    """Refuse a folder that contains anything but an earlier probe."""
    check_output_folder(folder, FILES, "probe.json")


def write_folder(record: ProbeRecord, folder: Path) -> None:
    """Write probe.json, heads.md, heads.png, curve.png (if heads can be removed) and index.html, all or none."""
    check_out(folder)
    chart = curve_chart(record)
    contents = {
        "probe.json": json_bytes(record.data()),
        "heads.md": markdown(record).encode(),
        "heads.png": png(heat_figure(record)),
        "index.html": page(record).encode(),
    }
    write_files(folder, contents if chart is None else {**contents, "curve.png": picture(chart)})
    if chart is None:
        (folder / "curve.png").unlink(missing_ok=True)  # of an earlier probe


def page(record: ProbeRecord) -> str:
    """Return the page as one HTML document, which loads nothing and has only the package's own script."""
    chart = curve_chart(record)
    return html_page(
        "probing/probe.html.j2",
        rules=heat_style(),
        title=f"{record.model}: {headline(record)}",
        record=record,
        claim=split(headline(record)),
        map=_map(record),
        found=[*sentences(record), *loading_text(record), *record.notes],
        charts=[] if chart is None else [chart],
        curve_table=curve_table(record),
        layer_table=layer_table(record),
        head_table=head_table(record),
        meaning=MEANING,
        origin=_origin(record),
    )


def _map(record: ProbeRecord) -> Illustration:
    """Return the heat map: ablation and gradient side by side, or one below the other on a phone."""
    figure = heat_figure(record)
    panels = [figure.model_copy(update={"panels": [one]}) for one in figure.panels]
    return Illustration(svg(figure), CAPTION, [svg(panel) for panel in panels])


def _origin(record: ProbeRecord) -> list[tuple[str, str]]:
    """Return what was probed, when and with which versions."""
    made = record.provenance
    versions = made.get("versions")
    listed = ", ".join(f"{k} {v}" for k, v in versions.items()) if isinstance(versions, dict) else ""
    facts = [
        ("Model", record.model),
        ("Architecture", record.architecture),
        ("Data", record.samples),
        ("Loss", f"{record.loss_name}: {record.loss:.6g}"),
        ("Time", str(made.get("time") or "")),
        ("Versions", listed),
    ]
    return [(name, text) for name, text in facts if text]
