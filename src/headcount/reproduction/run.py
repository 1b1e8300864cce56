"""Train what a table or figure needs, as far as it is not trained yet, and show the paper's numbers beside ours."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headcount.core import BadInput, Displayable, Progress, option
from headcount.render import Table, View
from headcount.render.charts import Chart
from headcount.reproduction.cells import compare
from headcount.reproduction.items import ITEMS, names_of
from headcount.reproduction.plan import PaperPlan, RealDataOptions, Scale, check_count, plan_of
from headcount.reproduction.show import ShownItem, check_folders, print_item, show_item, write_page
from headcount.reproduction.words import closing_sentences, ending_lines, headline, size_text

if TYPE_CHECKING:
    import torch

    from headcount.core.text import Terminal
    from headcount.store import Store
    from headcount.sweeps import CifarSource, MarcoSource, RealSpec, SweepSpec

Sources = Mapping[str, "MarcoSource | CifarSource"]
"""The opened data, by the spec that needs them."""


@dataclass(repr=False)
class Reproduction(Displayable):
    """What `reproduce` has trained and written: theirs and ours, as tables and pictures in a notebook and as files."""

    folder: Path
    """The folder that was written."""
    scale: Scale
    shown: list[ShownItem] = field(default_factory=list[ShownItem])
    pages: dict[str, Path] = field(default_factory=dict[str, Path])
    """The page of every spec that has a finished trial."""
    counts: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])
    """By run, the number of trials in each state."""
    needs_data: bool = False
    """Whether training goes on only with the folder of the data, which was not given."""

    @property
    def unfinished(self) -> int:
        """The number of trials that are not finished."""
        return sum(states.get("pending", 0) + states.get("running", 0) for states in self.counts.values())

    def data(self) -> dict[str, Any]:
        """Return all of it as JSON data."""
        return {
            "out": str(self.folder),
            "scale": self.scale,
            "unfinished": self.unfinished,
            "trials": self.counts,
            "pages": {spec: str(page) for spec, page in self.pages.items()},
            "shown": {one.name: one.data() for one in self.shown},
        }

    def print(self, terminal: Terminal) -> None:
        """Print the tables and remarks, where the files are, and what is left."""
        printed: dict[str, set[str]] = {}
        for one in self.shown:
            terminal.print()
            print_item(one, terminal, printed.setdefault(ITEMS[one.name].spec, set()))
        for page in self.pages.values():
            terminal.print(f"Page     {page}")
        for line in ending_lines(
            self.folder, written=bool(self.shown), counts=self.counts, left=self.unfinished, needs_data=self.needs_data
        ):
            terminal.print(line)

    def _view(self) -> View:
        sentences, tables, charts = dict[str, None](), dict[str, Table](), dict[str, Chart]()
        for one in self.shown:  # names of one run have most of them in common
            sentences |= dict.fromkeys([f"{one.title}.", *one.sentences, one.size, *one.remarks])
            tables |= {repr(([column.name for column in table.columns], table.rows)): table for table in one.tables}
            charts |= {chart.model_dump_json(): chart for chart in one.charts}
        ending = closing_sentences(
            self.folder, written=bool(self.shown), counts=self.counts, left=self.unfinished, needs_data=self.needs_data
        )
        titles, answers = [one.title for one in self.shown], [one.sentences[:1] for one in self.shown]
        return View(
            sentences=[*sentences, *ending],
            tables=list(tables.values()),
            figures=list(charts.values()),
            rows=[row for one in self.shown for row in one.rows],
            headline=headline(titles, answers[0] if answers else [], self.scale, self.counts),
        )


def reproduce(
    name: str,
    *,
    scale: Scale = "small",
    out: Path | None = None,
    store: Path = Path("headcount-runs"),
    seconds: float | None = None,
    device: str = "cpu",
    workers: int | None = None,
    options: RealDataOptions | None = None,
    quiet: bool = False,
) -> Reproduction:
    """Train what a table or figure of the paper needs, or what is left of it, and show theirs and ours side by side.

    `name` is one of `ITEMS` or `GROUPS`. `out` is the folder to write (default: reproduce-NAME), `store` the folder of
    the store. After `seconds` training stops cleanly, and the same call continues it. `workers` is the number of cores
    that train (default: all). `options` say where real data are; without a folder, only trained runs are shown.
    quiet: no progress.
    """
    from headcount.store import Store
    from headcount.training import find_device

    end = None if seconds is None else time.monotonic() + seconds
    names, options = names_of(name), options or RealDataOptions()
    specs = list(dict.fromkeys(ITEMS[one].spec for one in names))
    options.check(name, specs)
    plans = [options.applied(plan_of(spec, scale)) for spec in specs]
    _check_workers(workers, plans)
    where = find_device(device)
    found = Reproduction(out or Path(f"reproduce-{name}"), scale)
    check_folders(found.folder, {one: ITEMS[one].spec for one in names})
    sources = _open(name, plans, options, store, quiet)  # before a store is created: the folder may hold something else
    closed = [plan for plan in plans if plan.data and plan.spec not in sources]
    found.needs_data = bool(closed)
    with Store.open(store, read_only=closed == plans) as opened:
        for plan in closed:
            if plan.name not in opened.runs():
                raise _no_data(name, plan)
        trained = _train(plans, sources, opened, where, device=device, workers=workers, end=end, quiet=quiet)
        with Progress("drawing", len(names) + len(plans), quiet=quiet, live_only=True) as progress:
            for plan in plans:
                of_plan = [one for one in names if ITEMS[one].spec == plan.spec]
                _show(found, plan, of_plan, opened, trained.get(plan.spec), progress)
    found.shown.sort(key=lambda one: names.index(one.name))
    return found


def _check_workers(workers: int | None, plans: Sequence[PaperPlan]) -> None:
    if workers is not None and all(plan.data for plan in plans):
        raise BadInput(f"{option('workers')} is for the synthetic tables only: with real data, stacks share all cores")
    if workers is not None:
        check_count(workers, "workers")


def _open(name: str, plans: Sequence[PaperPlan], options: RealDataOptions, store: Path, quiet: bool) -> Sources:
    """Open the data of the plans that need some, if their folder is given."""
    from headcount.store import Store

    real, stored = [plan for plan in plans if plan.data], (store / "trials.sqlite").exists()
    if real and options.data is None and not stored:
        raise _no_data(name, real[0])
    if real and stored:
        Store.open(store, read_only=True).close()  # report damage before anything is read or mined
    opened = {plan.spec: options.open(plan, store / "cache", several=len(real) > 1, quiet=quiet) for plan in real}
    return {spec: source for spec, source in opened.items() if source is not None}


def _no_data(name: str, plan: PaperPlan) -> BadInput:
    holds = plan.data.holds if plan.data else ""
    return BadInput(
        f"{name} needs data: give {option('data')}, a folder with {holds} (without it, only trained runs are shown)"
    )


def _train(
    plans: Sequence[PaperPlan],
    sources: Sources,
    store: Store,
    where: torch.device,
    *,
    device: str,
    workers: int | None,
    end: float | None,
    quiet: bool,
) -> dict[str, SweepSpec | RealSpec]:
    """Train what is left of the plans whose data are at hand; return their specs."""
    from headcount.sweeps import run_on_store

    trained: dict[str, SweepSpec | RealSpec] = {}
    for plan in plans:
        source = sources.get(plan.spec)
        if source is not None:
            trained[plan.spec] = plan.on_data(source.data).on(where)
        elif plan.data is None:
            trained[plan.spec] = plan.sweep()
        else:
            continue
        seconds = None if end is None else end - time.monotonic()
        if seconds is None or seconds > 0:
            feeds = None if source is None else source.feeds(device)
            run_on_store(
                trained[plan.spec], store, feeds=feeds, workers=workers, seconds=seconds, quiet=quiet, device=device
            )
    return trained


def _show(
    found: Reproduction,
    plan: PaperPlan,
    names: Sequence[str],
    store: Store,
    spec: SweepSpec | RealSpec | None,
    progress: Progress,
) -> None:
    """Show the tables and figures of one run and write its page; without a spec, use the precision with more trials."""
    from headcount.sweeps import stored_runs

    if plan.name not in store.runs():
        found.counts[plan.name] = {"pending": plan.trials()}
        return
    compared = compare(plan.spec, stored_runs(store, plan.name, spec))
    found.counts[plan.name] = compared.counts
    if compared.counts.get("done"):
        size = size_text(plan)
        for one in names:
            progress.advance(0, note=one)
            found.shown.append(show_item(one, compared, found.folder / one, size))
            progress.advance(1)
        progress.advance(0, note=f"page {plan.name}")
        found.pages[plan.spec] = write_page(compared, found.folder / f"{plan.spec}-page", size)
        progress.advance(1)
