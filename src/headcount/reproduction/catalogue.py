"""The list of what can be reproduced, as `headcount reproduce` prints it and `hc.reproduce()` returns it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headcount.core import Displayable
from headcount.reproduction.items import GROUPS, ITEMS
from headcount.reproduction.plan import plan_of

if TYPE_CHECKING:
    from headcount.render import View

_HEADINGS = {
    "synthetic": "Of the paper (synthetic runs all of them):",
    "real": "Of the paper, on real data (marco, cifar or real runs all; {data} names the folder):",
    "beyond-the-paper": "Beyond it (beyond-the-paper runs all of them):",
}


@dataclass(frozen=True, repr=False)
class Catalogue(Displayable):
    """The names that `reproduce` takes: tables, figures and questions beyond them, and the groups that hold several."""

    titles: dict[str, str]
    """What each table, figure or question is about."""
    groups: dict[str, tuple[str, ...]]
    """The names that each group stands for."""

    def data(self) -> dict[str, Any]:
        """Return the names and groups as JSON data."""
        return {"names": self.titles, "groups": {group: list(names) for group, names in self.groups.items()}}

    def lines(self) -> Iterator[str]:
        """Yield the list as lines of text for a terminal."""
        for group, heading in _HEADINGS.items():
            yield heading.format(data="--data")
            yield from (f"  {name:<12} {self.titles[name]}" for name in self.groups[group])

    def _view(self) -> View:
        from headcount.render import Column, Table, View  # here, since the list on the command line needs none of it

        columns = [
            Column(name="Name", kind="text", key=True, meaning="what hc.reproduce takes"),
            Column(name="What it is about", kind="text"),
        ]
        tables = [
            Table(
                caption=heading.format(data="data").removesuffix(":"),
                columns=columns,
                rows=[[name, self.titles[name]] for name in self.groups[group]],
                marked=None,
            )
            for group, heading in _HEADINGS.items()
        ]
        rows = [
            {"group": group, "name": name, "title": self.titles[name]}
            for group in _HEADINGS
            for name in self.groups[group]
        ]
        count = f"{len(self.titles)} tables, figures and questions can be reproduced"
        return View([f"{count}: hc.reproduce(NAME)."], tables=tables, rows=rows)


def list_names() -> Catalogue:
    """Return the list of what can be reproduced."""
    return Catalogue({name: plan_of(item.spec, "paper").title for name, item in ITEMS.items()}, dict(GROUPS))
