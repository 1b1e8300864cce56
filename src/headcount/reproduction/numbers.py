"""The paper's own numbers, each known by its table and cell."""

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
        """Where it stands: table 2, h = 4, T = 8."""
        return f"table {self.table.removeprefix('table')}, h = {self.heads}, T = {self.length}"


@cache
def _data() -> dict[str, Any]:
    return json.loads((resources.files("headcount.reproduction") / "numbers.json").read_text(encoding="utf-8"))


def source() -> str:
    """Say which paper, which version."""
    return str(_data()["source"])


def about(table: str) -> str:
    """Say what a table holds, in a line."""
    return str(_table(table)["what"])


def statistic(table: str) -> str:
    """Say what the paper did with its seeds: the mean, or nothing that it states."""
    return str(_table(table)["statistic"])


def cells(table: str) -> list[PaperCell]:
    """Return the numbers of a table (table2, …, table9)."""
    return [PaperCell(table=table, **cell) for cell in _table(table)["cells"]]


def fitted_law() -> dict[str, float]:
    """Return δ and α of the law that the paper fits to its MS MARCO training errors."""
    stated = _data()["fit_msmarco"]
    return {"delta": float(stated["delta"]), "alpha": float(stated["alpha"])}


def transition(of: str) -> int:
    """Return the head count at which the paper sees its transition: of "MS MARCO", "CIFAR-10"."""
    return int(_data()["transitions"][of])


def _table(name: str) -> dict[str, Any]:
    tables: dict[str, Any] = _data()["tables"]
    if name not in tables:
        raise BadInput(f"the paper has no {name!r} with numbers: {', '.join(tables)} have")
    return tables[name]
