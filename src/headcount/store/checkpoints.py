"""Checkpoint files, and the packed points of a trial's curve.

A checkpoint file is a safetensors file for one trial or a whole stack, in which the arrays of a trial are named
`HASH/NAME`. A file never changes once it has its name, and a name is never reused. So if a row names a file, either the
file is the right one, or it was damaged later and the hash of the trial's arrays reveals it.

A file gets its name before a row names it, and in between it looks like an orphan. So a writer holds a shared lock from
before the file until after the commit, and a sweep for orphans needs the lock exclusively, and does not wait for it.

An orphan is first moved to a folder named after the day, and deleted a week later. If a row names it after all, because
somebody put the rows back, it is read where it is, and the next writer moves it back.
"""

from __future__ import annotations

import itertools
import os
import re
import stat
import uuid
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from headcount.core import BadInput, arrays_hash, write_bytes
from headcount.store.owners import is_dead
from headcount.store.schema import CHECKPOINTS, StoreError, locked, read_small_file
from headcount.store.seals import is_checkpoint_name

Arrays = dict[str, NDArray[Any]]
Points = Sequence[tuple[int, float]]

FILES_LOCK = ".checkpoints.lock"
PART_NAME = re.compile(r"\.[0-9a-f]{32}\.safetensors\.[0-9a-f]+\.part")
"""The temporary names of files that are being written; no row ever names one."""
SET_ASIDE = "set-aside"
DAY_NAME = re.compile(r"\d{4}-\d{2}-\d{2}")
SET_ASIDE_DAYS = 7
"""Days until a file that was set aside is deleted."""
CLEAN_MARK = ".checkpoints.clean"
WRITERS = ".writers"
"""A folder with a file for every writer that is at work or was killed."""
STORABLE_DTYPE_KINDS = "biufc"
"""NumPy kinds that the file format can hold: booleans, whole numbers, floats and complex numbers."""


@dataclass(frozen=True)
class Snapshot:
    """The state of a trial after `step` steps: all that is needed to resume, and its curve since the last snapshot."""

    hash: str
    step: int
    arrays: Mapping[str, NDArray[Any]]
    curve: Points = field(default=())


class CheckpointFiles:
    """The checkpoint files of one store."""

    def __init__(self, store: Path, patience: float) -> None:
        self.folder, self._lock, self._patience = store / CHECKPOINTS, store / FILES_LOCK, patience
        self._aside, self._mark, self._writers = store / SET_ASIDE, store / CLEAN_MARK, store / WRITERS

    @contextmanager
    def writing(self) -> Generator[None]:
        """Protect new files from being swept before a row names them."""
        with locked(self._lock, shared=True, patience=self._patience):
            yield

    def write(self, trials: Mapping[str, Mapping[str, NDArray[Any]]]) -> tuple[str, dict[str, str]]:
        """Write the arrays of one or many trials to one file; return its name and the hash of each trial's arrays."""
        tensors: Arrays = {}
        digests: dict[str, str] = {}
        for trial, arrays in trials.items():
            plain = {name: _storable(name, array) for name, array in arrays.items()}
            digests[trial] = arrays_hash(plain)
            tensors.update({f"{trial}/{name}": array for name, array in plain.items()})
        file = f"{uuid.uuid4().hex}.safetensors"
        write_bytes(self.folder / file, save(tensors))
        return file, digests

    def read(self, file: str, wanted: Mapping[str, str]) -> dict[str, Arrays]:
        """Return the arrays of the wanted trials (hash of a trial → hash of its arrays) except for damaged ones."""
        path = self.find(file)
        if path is None:
            return {}
        try:
            path.open("rb").close()  # missing permissions and the like are not damage: let the caller report them
            with safe_open(path, framework="np") as tensors:
                names: dict[str, list[str]] = {trial: [] for trial in wanted}
                for key in tensors.keys():  # noqa: SIM118 - it is not a dict
                    trial, _, name = key.partition("/")
                    if trial in names:
                        names[trial].append(name)
                read = {t: {n: np.array(tensors.get_tensor(f"{t}/{n}")) for n in names[t]} for t in wanted}
        except (FileNotFoundError, SafetensorError, ValueError, TypeError, KeyError):
            return {}
        return {trial: arrays for trial, arrays in read.items() if arrays_hash(arrays) == wanted[trial]}

    def find(self, file: str) -> Path | None:
        """Return the path of a file; None if it is missing, is not a regular file, or has a name we never write."""
        if not is_checkpoint_name(file):
            return None
        if _is_regular_file(self.folder / file):
            return self.folder / file
        return next((day / file for day in self._days() if _is_regular_file(day / file)), None)

    def remove(self, files: Iterable[str]) -> None:
        """Delete files that no row names any more."""
        for file in files:
            if is_checkpoint_name(file):
                (self.folder / file).unlink(missing_ok=True)

    # -- orphans: files that killed writers left ------------------------------------------------------------

    def is_clean(self) -> bool:
        """Return whether no file has been added to the folder or removed since it was last known to have no orphans."""
        try:
            return int(read_small_file(self._mark)) == self.folder.stat().st_mtime_ns
        except (OSError, ValueError):
            return False

    def register_writer(self, owner: str) -> None:
        """Record that a writer is at work, so that its orphans are looked for if it is killed."""
        with suppress(OSError):  # such as a full disk: then an orphan may stay, which does no harm
            write_bytes(self._writers / owner.rpartition("|")[2], owner.encode())

    def unregister_writer(self, owner: str, clean: bool) -> None:
        """Record that a writer has closed the store.

        With `clean`, and if no other writer is at work or was killed, also record that there are no orphans.
        """
        with suppress(OSError, StoreError):
            (self._writers / owner.rpartition("|")[2]).unlink(missing_ok=True)
            if clean and not self.is_clean():
                with locked(self._lock, patience=0.0):
                    if not any(self._writers.glob("*")):
                        write_bytes(self._mark, str(self.folder.stat().st_mtime_ns).encode())

    def set_orphans_aside(self, named: Callable[[], set[str]], keep_before: float) -> bool:
        """Set aside the files that killed writers left; return False if another process is writing, and do nothing.

        Files that were set aside long ago are deleted. Files from before `keep_before`, in seconds since 1970, stay:
        lost rows may have named them.
        """
        try:
            with locked(self._lock, patience=0.0):
                keep = named()  # read under the lock, when every new file has its row
                if self._aside.is_symlink():
                    return False
                self._restore(keep)
                today = self._aside / datetime.now(UTC).date().isoformat()
                for entry in os.scandir(self.folder):
                    if PART_NAME.fullmatch(entry.name):
                        Path(entry.path).unlink(missing_ok=True)
                        continue
                    orphan = is_checkpoint_name(entry.name) and entry.name not in keep
                    if orphan and entry.stat(follow_symlinks=False).st_mtime > keep_before:
                        today.mkdir(parents=True, exist_ok=True)
                        Path(entry.path).rename(today / entry.name)
                self._delete_old(keep)
                for path in self._writers.glob("*"):  # their orphans have been dealt with
                    with suppress(OSError):  # a folder or a pipe, which is not ours
                        if path.suffix == ".part" or is_dead(read_small_file(path)):
                            path.unlink(missing_ok=True)
        except StoreError:
            return False
        return True

    def orphans(self, named: set[str]) -> list[str]:
        """Return the checkpoint files in the folder that no row names."""
        if not self.folder.is_dir():
            return []
        return sorted(e.name for e in os.scandir(self.folder) if is_checkpoint_name(e.name) and e.name not in named)

    def set_aside(self) -> list[Path]:
        """Return the paths of all files that are set aside."""
        return [path for day in self._days() for path in sorted(day.iterdir()) if is_checkpoint_name(path.name)]

    def _days(self) -> list[Path]:
        """Return the folders of files that are set aside, the latest first."""
        if self._aside.is_symlink() or not self._aside.is_dir():
            return []
        return sorted((day for day in self._aside.iterdir() if _is_day(day)), reverse=True)

    def _restore(self, keep: set[str]) -> None:
        """Move files back that were set aside but that a row names."""
        for path in self.set_aside():
            if path.name in keep and not (self.folder / path.name).exists():
                path.rename(self.folder / path.name)

    def _delete_old(self, keep: set[str]) -> None:
        """Delete files that were set aside more than `SET_ASIDE_DAYS` ago, and empty folders."""
        last = (datetime.now(UTC).date() - timedelta(days=SET_ASIDE_DAYS)).isoformat()
        for path in self.set_aside():
            if path.parent.name < last and path.name not in keep:
                path.unlink(missing_ok=True)
        for day in self._days():
            with suppress(OSError):  # the folder is not empty
                day.rmdir()


def _is_day(path: Path) -> bool:
    return DAY_NAME.fullmatch(path.name) is not None and path.is_dir() and not path.is_symlink()


def _is_regular_file(path: Path) -> bool:
    """Return whether a path is a regular file: a link leads elsewhere, and opening a pipe would wait forever."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except FileNotFoundError:
        return False


def _storable(name: str, value: Any) -> NDArray[Any]:
    """Return an array in the form that the file format requires: dense and little-endian; reject other kinds."""
    array = np.asarray(value, order="C")
    if array.dtype.kind not in STORABLE_DTYPE_KINDS or array.dtype.itemsize > 8:
        raise BadInput(f"checkpoint: {name} has type {array.dtype}: only numbers of up to 64 bits can be stored")
    return array.astype(array.dtype.newbyteorder("<"), copy=False)


def pack(points: Points) -> bytes:
    """Pack (step, value) points: all steps as little-endian int64, then all values as float64."""
    steps, values = [step for step, _ in points], [value for _, value in points]
    if any(later <= earlier for earlier, later in itertools.pairwise(steps)):
        raise BadInput("the steps of a curve must increase")
    return np.array(steps, "<i8").tobytes() + np.array(values, "<f8").tobytes()


def unpack(flushes: Iterable[bytes]) -> list[tuple[int, float]]:
    """Join the flushes of a curve in order; each flush replaces all earlier points from its first step on.

    So no point occurs twice if a trial starts again, or stores its whole curve at the end.
    """
    curve: list[tuple[int, float]] = []
    for flush in flushes:
        half = len(flush) // 2
        steps = np.frombuffer(flush[:half], "<i8").tolist()
        values = np.frombuffer(flush[half:], "<f8").tolist()
        while curve and steps and curve[-1][0] >= steps[0]:
            curve.pop()
        curve.extend(zip(steps, values, strict=True))
    return curve
