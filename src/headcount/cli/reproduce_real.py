"""`headcount reproduce` for the paper's real data: opens the folder, trains what is left, and shows both sides."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from headcount.cli.common import console, print_json, tell_what_is_kept, trials_status
from headcount.core import BadInput

if TYPE_CHECKING:
    from headcount.analysis import Analysis, Part
    from headcount.reproduction import RealKind, RealPlan, Scale, Shown
    from headcount.store import Run, Store
    from headcount.sweeps import CifarSource, MarcoSource, RealSpec

FOLDERS: dict[RealKind, str] = {"marco": "msmarco", "cifar": "cifar10"}
NEEDED: dict[RealKind, str] = {
    "marco": "collection.tsv with queries and qrels, Hugging Face's Parquet files, or passages.jsonl.gz and "
    "queries.jsonl.gz",
    "cifar": "the official archive or its files, train/ and test/ with a folder a class, or train.npz and test.npz",
}


@dataclass(frozen=True)
class Asked:
    """What the command line says of the data; None leaves a value to the scale."""

    data: Path | None = None
    embeddings: Path | None = None
    entry: Literal["means", "tokens"] = "means"
    patch: int | None = None
    train: int | None = None
    validation: int | None = None

    def check(self, kinds: set[RealKind]) -> None:
        """Refuse options of other data than those that are asked for."""
        entry = None if self.entry == "means" else self.entry
        given: dict[RealKind, dict[str, Any]] = {
            "marco": {"--embeddings": self.embeddings, "--entry": entry}, "cifar": {"--patch": self.patch},
        }  # fmt: skip
        for kind, options in given.items():
            for name, value in options.items():
                if value is not None and kind not in kinds:
                    raise BadInput(f"{name} is for {FOLDERS[kind]} alone: leave it out here")
        for name, value in (("--train", self.train), ("--validation", self.validation), ("--patch", self.patch)):
            if value is not None and value < 1:
                raise BadInput(f"{name} must be at least 1, not {value}")

    def folder(self, kind: RealKind, several: bool) -> Path | None:
        """Return the folder of one kind of data: as given, or inside of it where both kinds are wanted."""
        if self.data is None or not several:
            return self.data
        return self.data / FOLDERS[kind]

    def plan(self, plan: RealPlan) -> RealPlan:
        """Return a run's plan with what is asked; other data than the scale's give it another name."""
        data, marks = dict(plan.data), list[str]()
        train = self.train
        if plan.kind == "marco":
            validation = self.validation or data["validation"]
            train = train or data["queries"] - data["validation"]
            asked = {"queries": train + validation, "validation": validation}
            if self.entry != "means":
                marks.append(self.entry)
        else:
            asked = {"train": train or data["train"], "validation": self.validation or data["validation"]}
            if self.patch is not None and self.patch != data["patch"]:
                sides = [int(side) for side in plan.stated["lengths"]]
                if any(side % self.patch for side in sides):
                    told = ", ".join(map(str, sides))
                    raise BadInput(f"--patch {self.patch} does not divide all sides of the frames ({told}): 2, 4, 8 do")
                data["patch"] = self.patch
                marks.append(f"patch{self.patch}")
        if {k: data[k] for k in asked} != asked:
            marks.append("-".join(map(str, asked.values())))
            data |= asked
        return replace(plan, data=data, stated={**plan.stated, "name": "-".join([plan.name, *marks])})


def reproduce_real(
    name: str, names: tuple[str, ...], scale: Scale, folder: Path, store: Path, end: float | None, device: str,
    asked: Asked, json: bool,
) -> int:  # fmt: skip
    """Train what the tables and figures on real data need, or what is left of it, and show theirs and ours."""
    from headcount.reproduction import REAL, check_folders, real_plan, real_scale_text
    from headcount.store import Store
    from headcount.training import find_device

    specs: dict[str, RealKind] = {n: REAL[n].spec for n in names}
    kinds: list[RealKind] = list(dict.fromkeys(specs.values()))
    asked.check(set(kinds))
    where = find_device(device)
    check_folders(folder, specs)
    shown: list[Shown] = []
    by_kind: dict[RealKind, dict[Part, Analysis]] = {}
    pages: dict[str, Path] = {}
    counts: dict[str, dict[str, int]] = {}
    if asked.data is None and not (store / "trials.sqlite").exists():
        raise _no_data(name, kinds[0])
    if (store / "trials.sqlite").exists():
        Store.open(store, read_only=True).close()  # a damaged one is told before anything is read or mined
    plans: dict[RealKind, RealPlan] = {kind: asked.plan(real_plan(kind, scale)) for kind in kinds}
    sources: dict[RealKind, MarcoSource | CifarSource] = {
        kind: _open(plan, data, asked, store / "cache")  # before a store is made: the folder may hold something else
        for kind, plan in plans.items() if (data := asked.folder(kind, len(kinds) > 1)) is not None
    }  # fmt: skip
    with Store.open(store, read_only=not sources) as opened:
        for kind, plan in plans.items():
            spec = None
            if kind in sources:
                spec = plan.spec(sources[kind].data).on(where)
                _train(spec, sources[kind], opened, store, end, device)
            elif plan.name not in opened.runs():
                raise _no_data(name, kind)
            runs = _stored(opened, plan.name, spec)
            if not any(run.trials for run in runs):
                stated = plan.stated
                counts[plan.name] = {"pending": len(stated["heads"]) * len(stated["lengths"]) * int(stated["seeds"])}
                continue
            own, size = [n for n in names if specs[n] == kind], real_scale_text(plan, scale)
            found, made, page = _show(kind, own, runs, folder, size)
            by_kind[kind], pages[kind] = found, page
            shown += made
            counts[plan.name] = {state: n for state, n in found["train"].counts.items() if n}
    shown.sort(key=lambda one: names.index(one.name))
    left = sum(states.get("pending", 0) + states.get("running", 0) for states in counts.values())
    status = trials_status(*counts.values())
    if json:
        print_json(_data(shown, pages, folder, scale, counts, left))
        return status
    from headcount.reproduction import print_real

    terminal, said = console(), set[str]()
    for one in shown:
        terminal.print()
        print_real(one, by_kind[REAL[one.name].spec], terminal, said)
    for path in pages.values():
        terminal.print(f"Page     {path}")
    terminal.print(f"Tables and pictures in {folder}" if shown else "No trial has finished yet: nothing was written.")
    if left:
        how = "the same command" if asked.data is not None else "this command with --data"
        terminal.print(f"Not finished ({left} trials left): {how} goes on from here.")
    return status


def _no_data(name: str, kind: RealKind) -> BadInput:
    return BadInput(
        f"{name} needs data: give --data, a folder with {NEEDED[kind]} (what is trained already is shown without)"
    )


def _train(
    spec: RealSpec, source: MarcoSource | CifarSource, store: Store, place: Path, end: float | None, device: str
) -> None:
    """Train what is left; an interruption says where things are."""
    from headcount.sweeps import run_on_store

    seconds = None if end is None else end - time.monotonic()
    if seconds is not None and seconds <= 0:
        return
    try:
        run_on_store(spec, store, feeds=source.feeds(device), device=device, seconds=seconds)
    except KeyboardInterrupt as stopped:
        tell_what_is_kept(stopped, place)
        raise


def _open(plan: RealPlan, folder: Path, asked: Asked, cache: Path) -> MarcoSource | CifarSource:
    """Read the folder; candidate sets are mined once and kept beside the store."""
    from headcount.sweeps import open_cifar, open_marco

    if plan.kind == "cifar":
        return open_cifar(folder, **plan.data)
    lengths = plan.stated["lengths"]
    return open_marco(folder, asked.embeddings, lengths=lengths, entry=asked.entry, cache=cache, **plan.data)


def _stored(store: Store, name: str, spec: RealSpec | None) -> list[Run]:
    """Return what the store has of a run: as it was trained just now, or in the precision it has most trials in."""
    from headcount.sweeps import stored_runs

    return stored_runs(store, name, spec) if name in store.runs() else []


def _show(
    kind: RealKind, names: list[str], runs: list[Run], folder: Path, scale: str
) -> tuple[dict[Part, Analysis], list[Shown], Path]:
    """Write the tables and pictures of these names, and the page of the run."""
    from headcount.reproduction import analyses, page_real, show_real

    found = analyses(runs)
    made = [show_real(name, runs, found, folder / name, scale) for name in names]
    return found, made, page_real(runs, found, folder / f"{kind}-page", scale)


def _data(
    shown: list[Shown], pages: dict[str, Path], folder: Path, scale: str, counts: dict[str, dict[str, int]], left: int
) -> dict[str, Any]:
    """Return all of it as JSON data."""
    return {
        "out": str(folder), "scale": scale, "unfinished": left, "trials": counts,
        "pages": {kind: str(path) for kind, path in pages.items()},
        "shown": {
            one.name: {
                "files": [str(f) for f in one.files], "scale": one.scale, "remarks": one.remarks,
                "counts": one.analysis.counts,
                "dimensions": [d.data() for d in one.analysis.dimensions],
                "cells": [c.data() for c in one.analysis.cells],
            }
            for one in shown
        },
    }  # fmt: skip
