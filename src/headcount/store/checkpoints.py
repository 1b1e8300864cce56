"""What a trial leaves while it runs: checkpoint files, and the packed points of its curve.

A checkpoint file is safetensors and serves one trial or a whole stack of them; the arrays of a trial are named
`HASH/NAME` in it. A file never changes once it has its name, and its name is never used again, so a row that names a
file can only be right or, if the file was damaged later, be found out by the hash of the trial's arrays.

Files have their name before a row says so, and in between they look like orphans. Whoever writes one holds a shared
lock from before the file until after the commit; whoever clears away needs the lock alone, and does not wait for it.

What no row names is set aside first, in a folder of the day, and deleted a week later. A file that was set aside and
is named after all, since somebody put the rows back, is read where it is, and moved back by the next writer.
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
from headcount.store.schema import CHECKPOINTS, StoreError, locked, read_small
from headcount.store.seals import is_our_name

Arrays = dict[str, NDArray[Any]]
Points = Sequence[tuple[int, float]]

FILES_LOCK = ".checkpoints.lock"
PART_NAME = re.compile(r"\.[0-9a-f]{32}\.safetensors\.[0-9a-f]+\.part")
"""The temporary names that we make: half a file, which no row ever named."""
SET_ASIDE = "set-aside"
DAY_NAME = re.compile(r"\d{4}-\d{2}-\d{2}")
SET_ASIDE_DAYS = 7
"""So long is kept what was set aside."""
CLEAN_MARK = ".checkpoints.clean"
WRITERS = ".writers"
"""A folder with a file for every writer that is at work, or was killed."""
KINDS = "biufc"
"""Booleans, whole numbers, floats and complex numbers: what the file format can hold."""


@dataclass(frozen=True)
class Snapshot:
    """A trial as it stands after `step` steps: all that is needed to go on, and the curve since the last snapshot."""

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
        """Keep sweepers away from files that no row names yet."""
        with locked(self._lock, shared=True, patience=self._patience):
            yield

    def write(self, trials: Mapping[str, Mapping[str, NDArray[Any]]]) -> tuple[str, dict[str, str]]:
        """Write the arrays of one or many trials as one file; return its name and the hash of each trial's arrays."""
        tensors: Arrays = {}
        digests: dict[str, str] = {}
        for trial, arrays in trials.items():
            plain = {name: _plain(name, array) for name, array in arrays.items()}
            digests[trial] = arrays_hash(plain)
            tensors.update({f"{trial}/{name}": array for name, array in plain.items()})
        file = f"{uuid.uuid4().hex}.safetensors"
        write_bytes(self.folder / file, save(tensors))
        return file, digests

    def read(self, file: str, wanted: Mapping[str, str]) -> dict[str, Arrays]:
        """Read the arrays of the wanted trials (hash of the trial → hash of its arrays), leaving out damaged ones."""
        path = self.find(file)
        if path is None:
            return {}
        try:
            path.open("rb").close()  # permissions and the like are no damage, and are for the caller to report
            with safe_open(path, framework="np") as tensors:
                names: dict[str, list[str]] = {trial: [] for trial in wanted}
                for key in tensors.keys():  # noqa: SIM118 - it is no dict
                    trial, _, name = key.partition("/")
                    if trial in names:
                        names[trial].append(name)
                read = {t: {n: np.array(tensors.get_tensor(f"{t}/{n}")) for n in names[t]} for t in wanted}
        except (FileNotFoundError, SafetensorError, ValueError, TypeError, KeyError):
            return {}
        return {trial: arrays for trial, arrays in read.items() if arrays_hash(arrays) == wanted[trial]}

    def find(self, file: str) -> Path | None:
        """Return where a file is; None if it is nowhere, is a link or the like, or its name is none that we write."""
        if not is_our_name(file):
            return None
        if _is_plain_file(self.folder / file):
            return self.folder / file
        return next((day / file for day in self._days() if _is_plain_file(day / file)), None)

    def remove(self, files: Iterable[str]) -> None:
        """Delete files that no row names any more."""
        for file in files:
            if is_our_name(file):
                (self.folder / file).unlink(missing_ok=True)

    # -- what killed writers left ---------------------------------------------------------------------------

    def is_clean(self) -> bool:
        """Say whether nothing has come into the folder or left it since it was last found, or left, clean."""
        try:
            return int(read_small(self._mark)) == self.folder.stat().st_mtime_ns
        except (OSError, ValueError):
            return False

    def enter(self, owner: str) -> None:
        """Note that a writer is at work: what it leaves if it is killed must be looked for."""
        with suppress(OSError):  # on a full disk, say: an orphan may stay then, and does no harm
            write_bytes(self._writers / owner.rpartition("|")[2], owner.encode())

    def leave(self, owner: str, clean: bool) -> None:
        """Note that a writer has left; with `clean`, and nobody else at work or killed, that every file is named."""
        with suppress(OSError, StoreError):
            (self._writers / owner.rpartition("|")[2]).unlink(missing_ok=True)
            if clean and not self.is_clean():
                with locked(self._lock, patience=0.0):
                    if not any(self._writers.glob("*")):
                        write_bytes(self._mark, str(self.folder.stat().st_mtime_ns).encode())

    def clear_away(self, named: Callable[[], set[str]], keep_before: float) -> bool:
        """Set aside what killed writers left, unless somebody is writing just now; say whether that was done.

        What was set aside long ago is deleted. Files from before `keep_before` stay: rows that are lost may have
        named them.
        """
        try:
            with locked(self._lock, patience=0.0):
                keep = named()  # read under the lock: nobody is between a file and its row
                if self._aside.is_symlink():
                    return False
                self._put_back(keep)
                today = self._aside / datetime.now(UTC).date().isoformat()
                for entry in os.scandir(self.folder):
                    if PART_NAME.fullmatch(entry.name):
                        Path(entry.path).unlink(missing_ok=True)
                        continue
                    orphan = is_our_name(entry.name) and entry.name not in keep
                    if orphan and entry.stat(follow_symlinks=False).st_mtime > keep_before:
                        today.mkdir(parents=True, exist_ok=True)
                        Path(entry.path).rename(today / entry.name)
                self._delete_old(keep)
                for path in self._writers.glob("*"):  # what they left has been looked for
                    with suppress(OSError):  # a folder, or a pipe: not ours
                        if path.suffix == ".part" or is_dead(read_small(path)):
                            path.unlink(missing_ok=True)
        except StoreError:
            return False
        return True

    def unnamed(self, named: set[str]) -> list[str]:
        """Return the checkpoint files in the folder that no row names."""
        if not self.folder.is_dir():
            return []
        return sorted(e.name for e in os.scandir(self.folder) if is_our_name(e.name) and e.name not in named)

    def set_aside(self) -> list[Path]:
        """Return the files that were set aside."""
        return [path for day in self._days() for path in sorted(day.iterdir()) if is_our_name(path.name)]

    def _days(self) -> list[Path]:
        """Return the folders of files that were set aside, the latest first."""
        if self._aside.is_symlink() or not self._aside.is_dir():
            return []
        return sorted((day for day in self._aside.iterdir() if _is_day(day)), reverse=True)

    def _put_back(self, keep: set[str]) -> None:
        """Move what was set aside and is named after all to where it was."""
        for path in self.set_aside():
            if path.name in keep and not (self.folder / path.name).exists():
                path.rename(self.folder / path.name)

    def _delete_old(self, keep: set[str]) -> None:
        """Delete what was set aside so long ago that nobody misses it."""
        last = (datetime.now(UTC).date() - timedelta(days=SET_ASIDE_DAYS)).isoformat()
        for path in self.set_aside():
            if path.parent.name < last and path.name not in keep:
                path.unlink(missing_ok=True)
        for day in self._days():
            with suppress(OSError):  # it holds something
                day.rmdir()


def _is_day(path: Path) -> bool:
    return DAY_NAME.fullmatch(path.name) is not None and path.is_dir() and not path.is_symlink()


def _is_plain_file(path: Path) -> bool:
    """Say whether a path is a file itself: a link leads elsewhere, and opening a pipe would wait for ever."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except FileNotFoundError:
        return False


def _plain(name: str, value: Any) -> NDArray[Any]:
    """Return an array as the file format wants it: dense, little-endian, of a kind that it can hold."""
    array = np.asarray(value, order="C")
    if array.dtype.kind not in KINDS or array.dtype.itemsize > 8:
        raise BadInput(f"checkpoint: {name} has type {array.dtype}: only numbers of up to 64 bits can be stored")
    return array.astype(array.dtype.newbyteorder("<"), copy=False)


def pack(points: Points) -> bytes:
    """Pack (step, value) points: all steps as little-endian int64, then all values as float64."""
    steps, values = [step for step, _ in points], [value for _, value in points]
    if any(later <= earlier for earlier, later in itertools.pairwise(steps)):
        raise BadInput("the steps of a curve must increase")
    return np.array(steps, "<i8").tobytes() + np.array(values, "<f8").tobytes()


def unpack(flushes: Iterable[bytes]) -> list[tuple[int, float]]:
    """Join the flushes of a curve in order; a flush replaces whatever was there from its first step on.

    So a trial that starts again, or one that hands in its whole curve at the end, leaves no point twice.
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
