"""The paper's own numbers, by table and cell."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any

from headcount.core import BadInput, Spec


class PaperCell(Spec):
    """One number of one table."""

    table: str
    heads: int
    length: int
    value: float
    deviation: float | None
    """The standard deviation over seeds, where the table gives one."""

    @property
    def cell(self) -> str:
        """The name of the cell: table 2, h = 4, T = 8."""
        return f"table {self.table.removeprefix('table')}, h = {self.heads}, T = {self.length}"


@cache
def _data() -> dict[str, Any]:
    return json.loads((resources.files("headcount.reproduction") / "numbers.json").read_text(encoding="utf-8"))


def source() -> str:
    """Return which paper, in which version, the numbers are from."""
    return str(_data()["source"])


def about(table: str) -> str:
    """Return one line about what a table holds."""
    return str(_table(table)["what"])


def statistic(table: str) -> str:
    """Return how the paper combined its seeds, as it states it."""
    return str(_table(table)["statistic"])


def cells(table: str) -> list[PaperCell]:
    """Return the numbers of a table (table2, …, table9)."""
    return [PaperCell(table=table, **cell) for cell in _table(table)["cells"]]


def fitted_law() -> dict[str, float]:
    """Return δ and α of the law that the paper fits to its MS MARCO training errors."""
    stated = _data()["fit_msmarco"]
    return {"delta": float(stated["delta"]), "alpha": float(stated["alpha"])}


def transition(of: str) -> int:
    """Return the head count of the transition that the paper sees on "MS MARCO" or "CIFAR-10"."""
    return int(_data()["transitions"][of])


def _table(name: str) -> dict[str, Any]:
    tables: dict[str, Any] = _data()["tables"]
    if name not in tables:
        raise BadInput(f"the paper has no numbers for {name!r}: it has {', '.join(tables)}")
    return tables[name]
