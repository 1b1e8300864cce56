"""Results that display themselves: sentence, table and picture in a notebook, rows for pandas, a figure from `plot()`.

They are displayed by a view (`headcount.render.notebook.View`). A result whose room may not import `render` gets its
view from the front door (`headcount.api.views`), which may import everything.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

_registered: dict[str, Callable[..., Any]] = {}


def register_display(*, view: Callable[[Any], Any], words: Callable[[Any, Any], Any]) -> None:
    """Register the functions that make the view of a result and its sentences; the package's `__init__` calls this."""
    _registered.update(view=view, words=words)


def in_words(record: Any, grounds: Any) -> Any:
    """Return a record of verdicts and numbers with its sentences, for rooms that may not import `render`."""
    return _registered["words"](record, grounds)


class Displayable:
    """Base class of results: `plot`, `table`, HTML for notebooks and a `repr` of one line, all from one view.

    A dataclass needs `repr=False`, or it gets a `repr` of all its fields.
    """

    def _view(self) -> Any:
        """Return the view; a class that can import `headcount.render.notebook` makes its own."""
        return _registered["view"](self)

    def plot(self, path: str | Path | None = None) -> Any:
        """Return the picture as a matplotlib figure, which a notebook shows; `path` (png, pdf, svg) also saves it."""
        return self._view().plot(path)

    def table(self) -> list[dict[str, Any]]:
        """Return the numbers as rows, which `pandas.DataFrame` takes; empty columns are left out."""
        return self._view().table()

    def __repr__(self) -> str:
        return self._view().line()

    def __str__(self) -> str:
        return repr(self)  # pydantic's would list all fields

    def _repr_html_(self) -> str:
        return self._view().html()
