"""How a notebook shows a result: its sentences, its tables and its picture, everything escaped."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headcount.core import BadInput, write_bytes
from headcount.core.text import plain
from headcount.render.charts.chart import Chart
from headcount.render.charts.matplotlib import as_figure
from headcount.render.pages import render
from headcount.render.style import check_ending
from headcount.render.tables import NONE, Table


@dataclass(frozen=True)
class Drawing:
    """A picture that is drawn on demand: `make` returns a `Picture`, and `alt` describes it."""

    make: Callable[[], Any]
    alt: str


@dataclass(frozen=True)
class View:
    """What is shown of a result."""

    sentences: Sequence[str]
    """The answer first."""
    tables: Sequence[Table] = ()
    figures: Sequence[Chart | Drawing] = ()
    """All are shown; `plot` draws the first one."""
    rows: Sequence[Mapping[str, Any]] = ()
    """The numbers behind the tables, as `table` returns them."""
    headline: str = ""
    """The result in one line, if that is not the first sentence."""

    def line(self) -> str:
        """Return the result in one line of text, for `repr`."""
        return plain(" ".join((self.headline or self.sentences[0]).split("\n")))

    def html(self) -> str:
        """Return the result as self-contained HTML for a notebook."""
        shown = [without_empty(table) for table in self.tables]
        images = [_image(drawing(figure)) for figure in self.figures]
        return render(
            "render/view.html.j2", sentences=self.sentences, tables=[t for t in shown if t.rows], images=images
        )

    def plot(self, path: str | Path | None = None) -> Any:
        """Return the first picture as a matplotlib figure; `path` (png, pdf, svg) saves it too."""
        if not self.figures:
            raise BadInput(f"nothing to draw: {self.sentences[0]}")
        if path is not None:
            check_ending(Path(path))
        made = drawing(self.figures[0]).make()
        if path is not None:
            write_bytes(Path(path), made.as_file(Path(path)))
        return made

    def table(self) -> list[dict[str, Any]]:
        """Return the rows without columns that are empty in all of them."""
        return filled(self.rows)


def drawing(figure: Chart | Drawing) -> Drawing:
    """Return how to draw a chart."""
    return Drawing(lambda: as_figure(figure), figure.alt) if isinstance(figure, Chart) else figure


def filled(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return rows for pandas: all with the same columns, and none that is empty (None, "" or []) in every row."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    used = [name for name in names if any(row.get(name) not in (None, "", [], {}) for row in rows)]
    return [{name: row.get(name) for name in used} for row in rows]


def without_empty(table: Table) -> Table:
    """Return a table without the columns that are empty in every row."""
    used = [i for i in range(len(table.columns)) if any(row[i] not in ("", NONE) for row in table.rows)]
    columns, rows = [table.columns[i] for i in used], [[row[i] for i in used] for row in table.rows]
    return table.model_copy(update={"columns": columns, "rows": rows if used else []})


def _image(drawn: Drawing) -> dict[str, str]:
    """Return a picture for the HTML: a PNG with a white background, which is legible on a dark page too."""
    return {"alt": drawn.alt, "data": base64.b64encode(drawn.make()._repr_png_()).decode("ascii")}
