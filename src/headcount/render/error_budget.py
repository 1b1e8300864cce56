"""The error budget as a picture: the share of ε that every step takes, against β and against the width."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headcount.render.bounds import BUDGET_STEPS
from headcount.render.style import COLOURS, _settings  # pyright: ignore[reportPrivateUsage] (one style for all)

PART_COLOURS = {"encoder": COLOURS["enough"], "leakage": COLOURS["few"], "feedforward": COLOURS["plain"]}


def budget_png(figure: Mapping[str, Any]) -> bytes:
    """Draw a budget as a PNG, the same bytes every time."""
    with _settings():
        return _draw(figure).as_png(200)


def budget_picture(figure: Mapping[str, Any]) -> Any:
    """Draw a budget as a matplotlib figure."""
    with _settings():
        return _draw(figure)


def _draw(figure: Mapping[str, Any]) -> Any:
    from matplotlib.patches import Patch
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    from headcount.render.picture import Picture

    eps, panels = figure["eps"], [p for p in figure["panels"] if len(p["x"]) > 1]
    fig = Picture(figsize=(4.9 * len(panels) + 0.6, 4.9), facecolor=COLOURS["ground"])
    for k, panel in enumerate(panels):
        axes = fig.add_axes(((0.85 + 4.9 * k) / fig.get_figwidth(), 0.25, 4.0 / fig.get_figwidth(), 0.57))
        axes.set_facecolor("none")
        names = list(panel["parts"])
        axes.stackplot(
            panel["x"],
            *(panel["parts"][n] for n in names),
            colors=[PART_COLOURS[n] for n in names],
            alpha=0.75,
            linewidth=0,
        )
        axes.set_xscale("log")
        axes.set_xlim(min(panel["x"]), max(panel["x"]))
        axes.xaxis.set_major_locator(FixedLocator([min(panel["x"]), panel["chosen"], max(panel["x"])]))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{float(f'{value:.3g}'):,g}"))
        axes.set_ylim(0, 2.2 * eps)
        axes.axhline(eps, color=COLOURS["ink"], linewidth=1.4)
        axes.annotate(
            "ε", (1, eps), (-6, 4), xycoords=("axes fraction", "data"), textcoords="offset points", ha="right"
        )
        axes.axvline(panel["chosen"], color=COLOURS["ink"], linewidth=1.2, dashes=(3, 3))
        axes.annotate(
            "as built", (panel["chosen"], 2.2 * eps), (5, -6), textcoords="offset points", va="top", fontsize=10.5
        )
        axes.set_xlabel(panel["x_label"], labelpad=5)
        if k == 0:
            axes.set_ylabel("proved error")
        axes.spines[["top", "right"]].set_visible(False)
    handles = [
        Patch(facecolor=PART_COLOURS[n], alpha=0.75, label=BUDGET_STEPS[n])
        for n in ("encoder", "leakage", "feedforward")
    ]
    fig.legend(handles=handles, loc="lower center", ncols=3, frameon=False, fontsize=11)
    fig.text(0.02, 0.97, figure["title"], va="top", fontsize=14.5, fontweight="bold")
    fig.text(
        0.02,
        0.89,
        "each step's share of the proved bound; the others as built",
        va="top",
        fontsize=11,
        color=COLOURS["muted"],
    )
    return fig
