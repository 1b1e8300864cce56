"""What is damaged in a store: all of it, or as much as can be looked at in passing. Nothing is changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headcount.store.checkpoints import SET_ASIDE_DAYS
from headcount.store.database import COMMITS, counted
from headcount.store.query import left_out_line
from headcount.store.schema import StoreError
from headcount.store.seals import TRIAL_COLUMNS, fault
from headcount.store.trials import FINISHED

if TYPE_CHECKING:
    import sqlite3

    from headcount.store.store import Store

PASSING_TRIALS = 10_000
PASSING_BYTES = 64 << 20
"""So many trials, and so many bytes of checkpoints, are verified whenever a run is listed or reported."""


@dataclass
class Findings:
    """What a check found: a line for each thing that is damaged, and lines for what is merely worth knowing."""

    damaged: list[str] = field(default_factory=list[str])
    notes: list[str] = field(default_factory=list[str])
    trials: int = 0
    files: int = 0


def check_store(store: Store) -> Findings:
    """Verify a store whole: the database's structure, every row and curve, every checkpoint file."""
    found = Findings()
    with store.reading() as db:
        problems = [" ".join(str(row[0]).split()) for row in db.execute("PRAGMA integrity_check(20)")]
    found.damaged += [f"database: {problem}" for problem in problems if problem != "ok"]
    if not store.sealed:
        found.notes.append("rows have no checksums yet: the next sweep in this store adds them")
    if (lost := store.lost_commits()) is not None:
        found.damaged.append(f"rows are missing: the database has {lost[0]:,} of {lost[1]:,} commits")
    _check_runs(store, found)
    rows = _check_rows(store, found)
    wrong = damaged_files(store, rows.values(), contents=True)
    found.damaged += [f"trial {trial[:12]} ({rows[trial].state}): {why}" for trial, why in wrong.items()]
    found.files = len({row.file for row in rows.values()})
    named = store.named_files()
    if unnamed := store.files.unnamed(named):
        said = f"checkpoint files that no row names: {len(unnamed):,} ({unnamed[0]}{', …' if len(unnamed) > 1 else ''})"
        if store.sealed and counted(store.folder) is None:
            found.damaged.append(f"{said}, and {COMMITS} is missing: rows may be missing too")
        else:
            found.notes.append(said)
    if aside := store.files.set_aside():
        found.notes.append(
            f"files set aside, left by killed writers: {len(aside):,}; each is deleted after {SET_ASIDE_DAYS} days"
        )
    return found


@dataclass(frozen=True)
class NamedFile:
    """The checkpoint that the row of a trial names."""

    trial: str
    state: str
    file: str
    digest: str

    @classmethod
    def of(cls, row: sqlite3.Row) -> NamedFile:
        """Read it from a row that names one."""
        return cls(row["hash"], row["state"], row["checkpoint"], row["checkpoint_hash"])


def _check_runs(store: Store, found: Findings) -> None:
    """Verify the runs themselves: which trials they name, and what is known about them."""
    try:
        names = list(store.runs())
    except StoreError as error:
        found.damaged.append(f"runs: {error}")
        return
    for name in names:
        for ask, what in ((store.members, "list of trials"), (store.about, "spec")):
            try:
                ask(name)
            except StoreError:
                found.damaged.append(f"run {name!r}: its {what} is not what was written")


def _check_rows(store: Store, found: Findings) -> dict[str, NamedFile]:
    """Verify all rows and curves; return the checkpoints that sound rows name."""
    named: dict[str, NamedFile] = {}
    for trial, row in store.scan():
        found.trials += 1
        why = row if isinstance(row, str) else fault(tuple(row)[: len(TRIAL_COLUMNS)])
        if why is not None:
            found.damaged.append(f"trial {trial[:12]}: {why}")
        if isinstance(row, str):
            continue
        with store.reading() as db:
            if store.flushes(db, trial) is None and not _moved_on(store, row):
                found.damaged.append(f"trial {trial[:12]} ({row['state']}): its curve is not what was written")
        if row["checkpoint"] is not None:
            named[trial] = NamedFile.of(row)
    return named


def _moved_on(store: Store, row: sqlite3.Row) -> bool:
    """Say whether a curve fits its checksum at a second look: rows of two moments may come from a live writer."""
    with store.reading() as db:
        return store.flushes(db, row["hash"]) is not None


def damaged_files(store: Store, named: Iterable[NamedFile], *, contents: bool) -> dict[str, str]:
    """Say by trial which checkpoints are missing or, with `contents`, damaged."""
    files: dict[str, dict[str, NamedFile]] = {}
    for one in named:
        files.setdefault(one.file, {})[one.trial] = one
    wrong: dict[str, str] = {}
    for file, trials in files.items():
        for trial, why in _file_faults(store, file, {t: one.digest for t, one in trials.items()}, contents).items():
            with store.reading() as db:
                now = store.verified(db, trial)
            if isinstance(now, str) or now["checkpoint"] == file:  # else its owner has replaced it meanwhile
                over = trials[trial].state in FINISHED
                wrong[trial] = why + ("; its result stands" if over else "; the trial starts again")
    return wrong


def _file_faults(store: Store, file: str, digests: Mapping[str, str], contents: bool) -> dict[str, str]:
    """Say what is wrong with one file, for each trial that it serves."""
    with store.reading():
        if store.files.find(file) is None:
            return dict.fromkeys(digests, f"its checkpoint {file} is missing, or is no plain file")
        sound = store.files.read(file, digests).keys() if contents else digests.keys()
    return {trial: f"its checkpoint in {file} is damaged" for trial in digests if trial not in sound}


def damage_in_passing(store: Store, run: str | None = None) -> list[str]:
    """Say in a line each what is damaged in a run or the store, as far as that is quickly found; [] if nothing is.

    Rows of up to 10,000 trials are verified, and 64 MB of checkpoints; of the rest `headcount runs --check` can tell.
    """
    if not _is_quick(store, run):
        return []
    damaged = sum(isinstance(row, str) for _, row in store.scan(run))
    return [*([left_out_line(damaged)] if damaged else []), *damaged_checkpoints(store, run)]


def _is_quick(store: Store, run: str | None) -> bool:
    """Say whether a run, or the store, is there and small enough to be verified in passing."""
    sizes = store.runs()
    return (sum(sizes.values()) if run is None else sizes.get(run, PASSING_TRIALS + 1)) <= PASSING_TRIALS


def damaged_checkpoints(store: Store, run: str | None = None) -> list[str]:
    """Say in a line how many checkpoints are damaged or missing, within the same limits; [] if none are."""
    if not _is_quick(store, run):
        return []
    rows = (row for _, row in store.scan(run) if not isinstance(row, str))
    named = [NamedFile.of(row) for row in rows if row["checkpoint"] is not None]
    paths = [path for file in {one.file for one in named} if (path := store.files.find(file)) is not None]
    size = sum(path.stat().st_size for path in paths)
    wrong = damaged_files(store, named, contents=size <= PASSING_BYTES)
    if not wrong:
        return []
    said = "1 trial has a checkpoint that is" if len(wrong) == 1 else f"{len(wrong):,} trials have checkpoints that are"
    return [f"{said} damaged or missing: headcount runs --check"]
