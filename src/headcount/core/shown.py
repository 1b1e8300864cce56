"""Results that show themselves: sentence, table and picture in a notebook, rows for pandas, a figure from `plot()`.

What is shown is a view (`headcount.render.notebook.View`). A result whose room may not import that room gets its view
from the front door (`headcount.api.views`), which may import everything.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

_front_door: dict[str, Callable[..., Any]] = {}


def set_front_door(*, view: Callable[[Any], Any], words: Callable[[Any, Any], Any]) -> None:
    """Name the functions that make the view of a result, and its words; the package's `__init__` does it."""
    _front_door.update(view=view, words=words)


def in_words(record: Any, grounds: Any) -> Any:
    """Return a record of verdicts and numbers with what they say in sentences, for rooms that do not say it."""
    return _front_door["words"](record, grounds)


class Shown:
    """A result with `plot`, `table`, a notebook's HTML and a `repr` of one line, all read from one view.

    A dataclass needs `repr=False`, or it makes a `repr` of all its fields.
    """

    def _view(self) -> Any:
        """Return the view; a class that can import `headcount.render.notebook` makes its own."""
        return _front_door["view"](self)

    def plot(self, path: str | Path | None = None) -> Any:
        """Return the picture as a matplotlib figure, which a notebook shows; `path` (png, pdf, svg) keeps it too."""
        return self._view().plot(path)

    def table(self) -> list[dict[str, Any]]:
        """Return the numbers as rows, which `pandas.DataFrame` takes; columns without any value are left out."""
        return self._view().table()

    def __repr__(self) -> str:
        return self._view().line()

    def __str__(self) -> str:
        return repr(self)  # pydantic's own would list all fields

    def _repr_html_(self) -> str:
        return self._view().html()
