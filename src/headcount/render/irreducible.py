"""The irreducible-error curve as a table and a picture: the largest gaps found against the head count."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from headcount.render.style import COLOURS, _settings  # pyright: ignore[reportPrivateUsage] (one style for all)
from headcount.render.tables import NONE, Column, Table

KEY = ("intrinsic", "length", "head_dim")
KINDS = {
    "typical": ("trained, typical inputs", COLOURS["enough"], "o"),
    "all": ("trained, all inputs in the box", COLOURS["few"], "D"),
    "random": ("random weights, all inputs", COLOURS["muted"], "s"),
}
FLOOR = 0.02
"""Gaps below, and pairs that were not found, are drawn here."""


def curve_rows(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return one summary a head count: the gaps of all seeds in standard deviations, by kind, and the NMSE's median.

    `effort` has by kind how many of how many starts converged, over all seeds, and whether every search had as many
    converged starts as the spec asks for, so that head counts may be compared.
    """
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        if "error" not in row:
            groups.setdefault((*(row[k] for k in KEY), row["heads"]), []).append(row)
    summary: list[dict[str, Any]] = []
    for key, members in groups.items():
        trained = [m for m in members if m["layer"] == "trained"]
        errors = [m["nmse_measured"] for m in trained]
        entry: dict[str, Any] = dict(zip((*KEY, "heads"), key, strict=True))
        entry["nmse_measured"] = statistics.median(errors) if errors else None
        for among in ("typical", "all"):
            entry[among] = [m[among]["deviations"] for m in trained if among in m]
        entry["proved"] = [m["all"]["deviations_proved"] or 0.0 for m in trained if "all" in m]
        random = [m for m in members if m["layer"] == "random" and "all" in m]
        entry["random"] = [m["all"]["deviations"] for m in random]
        searches = {among: [m[among] for m in trained if among in m] for among in ("typical", "all")}
        searches["random"] = [m["all"] for m in random]
        entry["effort"] = {kind: _effort(found) for kind, found in searches.items()}
        summary.append(entry)
    return summary


def _effort(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    sums = {key: sum(one[key] for one in found) for key in ("converged", "starts")}
    return {**sums, "equal": all(one["equal_effort"] for one in found)}


def curve_table(summary: Sequence[Mapping[str, Any]]) -> Table:
    """Return the gaps as a table: medians over seeds, with the range where there are several, and the effort."""
    rows: list[list[str]] = []
    for row in summary:
        nmse = NONE if row["nmse_measured"] is None else f"{row['nmse_measured']:.1e}"
        efforts = {**row["effort"], "proved": row["effort"]["all"]}
        cells = [_spread(row[kind], efforts[kind]) for kind in ("typical", "all", "proved", "random")]
        rows.append([*(str(row[key]) for key in (*KEY, "heads")), nmse, *cells])
    columns = [
        *(Column(name=name, key=True) for name in ("D", "T", "n", "heads")),
        Column(name="NMSE, measured"),
        *(Column(name=name, lines=True) for name in (
            "typical inputs", "all in the box", "of these proved", "random weights",
        )),
    ]  # fmt: skip
    notes = ["In brackets: how many of how many starts converged, over all seeds."]
    if not equal_effort(summary):
        notes.append(
            "* at unequal effort: a search made the most starts allowed, or ran out of time, before as many starts as "
            "elsewhere had converged. Compare its gap with no other head count's."
        )
    return Table(caption="", columns=columns, rows=rows, notes=notes)


def equal_effort(summary: Sequence[Mapping[str, Any]]) -> bool:
    """Whether every search of the table had as many converged starts as the spec asks for."""
    return all(effort["equal"] for row in summary for effort in row["effort"].values())


def _spread(values: Sequence[float], effort: Mapping[str, Any]) -> str:
    if not values:
        return NONE
    middle = f"{statistics.median(values):.2f}{'' if effort['equal'] else '*'}"
    gaps = middle if len(values) == 1 else f"{middle} ({min(values):.2f}–{max(values):.2f})"
    return f"{gaps}\n[{effort['converged']} of {effort['starts']}]"


def curve_png(summary: Sequence[Mapping[str, Any]], title: str) -> bytes:
    """Draw one panel a task and head size, as a PNG, the same bytes every time."""
    with _settings():
        return _draw(summary, title).as_png(160)


def _draw(summary: Sequence[Mapping[str, Any]], title: str) -> Any:
    from headcount.render.picture import Picture

    panels: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in summary:
        panels.setdefault(tuple(row[k] for k in KEY), []).append(row)
    across = min(4, len(panels))
    down = -(-len(panels) // across)
    height = 1.65 + 3.1 * down
    fig = Picture(figsize=(max(3.1 * across + 0.6, 10.0), height), facecolor=COLOURS["ground"])
    top = max(max([FLOOR, *row[kind]]) for row in summary for kind in KINDS)
    for k, (key, rows) in enumerate(panels.items()):
        line, column = divmod(k, across)
        width = 0.92 / across
        axes = fig.add_axes((
            0.075 + column * width, (0.95 + 3.1 * (down - 1 - line)) / height, width - 0.035, 2.3 / height,
        ))  # fmt: skip
        _panel(axes, key, rows, top)
        if column:
            axes.set_yticklabels([])
    fig.text(0.02, 1 - 0.15 / height, title or "Irreducible gaps", va="top", fontsize=14.5, fontweight="bold")
    said = (
        "Largest target gap of two inputs with equal attention output, in standard deviations: "
        "half of it no feed-forward block can avoid.\n"
    ) + (
        "Every search went on until as many starts had converged"
        if equal_effort(summary)
        else "NOT all searches had as many converged starts: see the table before comparing head counts"
    )
    fig.text(0.02, 1 - 0.47 / height, said, va="top", fontsize=10.5, color=COLOURS["muted"])
    handles, labels = fig.axes[0].get_legend_handles_labels()
    fig.legend(handles, labels, loc="lower left", ncols=3, frameon=False, fontsize=10.5, bbox_to_anchor=(0.015, 0.0))
    return fig


def _panel(axes: Any, key: tuple[Any, ...], rows: list[Mapping[str, Any]], top: float) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    D, T, n = key
    heads = [row["heads"] for row in rows]
    axes.set_title(f"D = {D},  T = {T},  n = {n}", fontsize=11, loc="left", pad=6)
    axes.axvspan(D - 0.5, max(heads) + 0.5, color=COLOURS["enough-ground"], zorder=0)
    for shift, (kind, (name, colour, marker)) in enumerate(KINDS.items()):
        found = [(row["heads"], row[kind]) for row in rows if row[kind]]
        axes.plot(
            [h for h, _ in found], [max(statistics.median(v), FLOOR) for _, v in found], "-", color=colour, lw=1.8,
            marker=marker, ms=6, label=name, zorder=4 - shift,
        )  # fmt: skip
        points = [(h + 0.08 * (shift - 1), max(v, FLOOR)) for h, values in found for v in values]
        axes.plot(*zip(*points, strict=True) if points else ([], []), marker, ms=3, color=colour, alpha=0.45, mew=0)
    axes.set(yscale="log", ylim=(FLOOR / 1.4, top * 1.6), xlim=(min(heads) - 0.5, max(heads) + 0.5))
    axes.xaxis.set_major_locator(FixedLocator(heads))
    axes.yaxis.set_major_locator(FixedLocator([v for v in (0.02, 0.1, 0.5, 1, 2, 5, 10, 20) if v <= 1.6 * top]))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"≤ {v:g}" if v == FLOOR else f"{v:g}"))
    axes.grid(axis="y", color=COLOURS["grid"], lw=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(length=0)
    axes.set_xlabel("heads", fontsize=10)
