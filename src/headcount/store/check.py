"""Find damage in a store: a full check, and a quick one within limits. Neither changes anything."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headcount.store.checkpoints import SET_ASIDE_DAYS
from headcount.store.database import COMMIT_COUNT_FILE, read_commit_count
from headcount.store.query import left_out_line
from headcount.store.schema import StoreError
from headcount.store.seals import TRIAL_COLUMNS, row_fault
from headcount.store.trials import FINISHED

if TYPE_CHECKING:
    import sqlite3

    from headcount.store.store import Store

MAX_QUICK_TRIALS = 10_000
MAX_QUICK_BYTES = 64 << 20
"""The most trials, and bytes of checkpoint files, that are verified whenever a run is listed or reported."""


@dataclass
class Findings:
    """The result of a check: one line for each damaged item, and notes on what is worth knowing but not damage."""

    damaged: list[str] = field(default_factory=list[str])
    notes: list[str] = field(default_factory=list[str])
    trials: int = 0
    files: int = 0


def check_store(store: Store) -> Findings:
    """Verify the whole store: the database's structure, every row and curve, every checkpoint file."""
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
    if orphans := store.files.orphans(named):
        said = f"checkpoint files that no row names: {len(orphans):,} ({orphans[0]}{', …' if len(orphans) > 1 else ''})"
        if store.sealed and read_commit_count(store.folder) is None:
            found.damaged.append(f"{said}, and {COMMIT_COUNT_FILE} is missing: rows may be missing too")
        else:
            found.notes.append(said)
    if aside := store.files.set_aside():
        found.notes.append(
            f"files set aside, left by killed writers: {len(aside):,}; each is deleted after {SET_ASIDE_DAYS} days"
        )
    return found


@dataclass(frozen=True)
class CheckpointReference:
    """A checkpoint file, and the trial whose row names it."""

    trial: str
    state: str
    file: str
    digest: str

    @classmethod
    def of(cls, row: sqlite3.Row) -> CheckpointReference:
        """Read the reference from a row that names a checkpoint."""
        return cls(row["hash"], row["state"], row["checkpoint"], row["checkpoint_hash"])


def _check_runs(store: Store, found: Findings) -> None:
    """Verify the runs themselves: their lists of trials and their specs."""
    try:
        names = list(store.runs())
    except StoreError as error:
        found.damaged.append(f"runs: {error}")
        return
    for name in names:
        for read, what in ((store.members, "list of trials"), (store.about, "spec")):
            try:
                read(name)
            except StoreError:
                found.damaged.append(f"run {name!r}: its {what} is not what was written")


def _check_rows(store: Store, found: Findings) -> dict[str, CheckpointReference]:
    """Verify all rows and curves; return the checkpoints named by undamaged rows."""
    named: dict[str, CheckpointReference] = {}
    for trial, row in store.scan():
        found.trials += 1
        why = row if isinstance(row, str) else row_fault(tuple(row)[: len(TRIAL_COLUMNS)])
        if why is not None:
            found.damaged.append(f"trial {trial[:12]}: {why}")
        if isinstance(row, str):
            continue
        with store.reading() as db:
            if store.flushes(db, trial) is None and not _sound_at_second_look(store, row):
                found.damaged.append(f"trial {trial[:12]} ({row['state']}): its curve is not what was written")
        if row["checkpoint"] is not None:
            named[trial] = CheckpointReference.of(row)
    return named


def _sound_at_second_look(store: Store, row: sqlite3.Row) -> bool:
    """Return whether a curve fits its checksum when read again: a live writer may have changed it since the scan."""
    with store.reading() as db:
        return store.flushes(db, row["hash"]) is not None


def damaged_files(store: Store, named: Iterable[CheckpointReference], *, contents: bool) -> dict[str, str]:
    """Return what is wrong with each missing or, with `contents`, damaged checkpoint, by trial."""
    files: dict[str, dict[str, CheckpointReference]] = {}
    for reference in named:
        files.setdefault(reference.file, {})[reference.trial] = reference
    wrong: dict[str, str] = {}
    for file, trials in files.items():
        digests = {trial: reference.digest for trial, reference in trials.items()}
        for trial, why in _file_faults(store, file, digests, contents).items():
            with store.reading() as db:
                now = store.verified(db, trial)
            if isinstance(now, str) or now["checkpoint"] == file:  # otherwise its owner has since replaced the file
                finished = trials[trial].state in FINISHED
                wrong[trial] = why + ("; its result stands" if finished else "; the trial starts again")
    return wrong


def _file_faults(store: Store, file: str, digests: Mapping[str, str], contents: bool) -> dict[str, str]:
    """Return what is wrong with one file, for each trial that is stored in it."""
    with store.reading():
        if store.files.find(file) is None:
            return dict.fromkeys(digests, f"its checkpoint {file} is missing, or is not a regular file")
        sound = store.files.read(file, digests).keys() if contents else digests.keys()
    return {trial: f"its checkpoint in {file} is damaged" for trial in digests if trial not in sound}


def quick_check(store: Store, run: str | None = None) -> list[str]:
    """Return a line for each kind of damage that a quick check finds in a run or the store; [] if there is none.

    It verifies the rows of up to 10,000 trials and 64 MB of checkpoints; for more, use `headcount runs --check`.
    """
    if not _fits_quick_check(store, run):
        return []
    damaged = sum(isinstance(row, str) for _, row in store.scan(run))
    return [*([left_out_line(damaged)] if damaged else []), *damaged_checkpoints(store, run)]


def _fits_quick_check(store: Store, run: str | None) -> bool:
    """Return whether a run, or the store, exists and is small enough for a quick check."""
    sizes = store.runs()
    return (sum(sizes.values()) if run is None else sizes.get(run, MAX_QUICK_TRIALS + 1)) <= MAX_QUICK_TRIALS


def damaged_checkpoints(store: Store, run: str | None = None) -> list[str]:
    """Return a line with the number of damaged or missing checkpoints, within the same limits; [] if there are none."""
    if not _fits_quick_check(store, run):
        return []
    rows = (row for _, row in store.scan(run) if not isinstance(row, str))
    named = [CheckpointReference.of(row) for row in rows if row["checkpoint"] is not None]
    paths = [path for file in {reference.file for reference in named} if (path := store.files.find(file)) is not None]
    size = sum(path.stat().st_size for path in paths)
    wrong = damaged_files(store, named, contents=size <= MAX_QUICK_BYTES)
    if not wrong:
        return []
    said = "1 trial has a checkpoint that is" if len(wrong) == 1 else f"{len(wrong):,} trials have checkpoints that are"
    return [f"{said} damaged or missing: headcount runs --check"]
