"""What a trial leaves while it runs: checkpoint files, and the packed points of its curve.

A checkpoint file is safetensors and serves one trial or a whole stack of them; the arrays of a trial are named
`HASH/NAME` in it. A file never changes once it has its name, and its name is never used again, so a row that names a
file can only be right or, if the file was damaged later, be found out by the hash of the trial's arrays.

Files have their name before a row says so, and in between they look like orphans. Whoever writes one holds a shared
lock from before the file until after the commit; whoever sweeps needs the lock alone, and does not wait for it.
"""

from __future__ import annotations

import itertools
import os
import re
import uuid
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from headcount.base.errors import BadInput
from headcount.base.files import write_bytes
from headcount.base.hashing import arrays_hash
from headcount.store.schema import CHECKPOINTS, StoreError, locked

Arrays = dict[str, NDArray[Any]]
Points = Sequence[tuple[int, float]]

FILES_LOCK = ".checkpoints.lock"
OURS = re.compile(r"\.?[0-9a-f]{32}\.safetensors(\..*\.part)?$")
"""The names that we make, temporary ones included: nothing else is ever swept."""
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
        path = self.folder / file
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

    def remove(self, files: Iterable[str]) -> None:
        """Delete files that no row names any more."""
        for file in files:
            (self.folder / file).unlink(missing_ok=True)

    def sweep(self, named: Callable[[], set[str]]) -> int:
        """Delete what killed writers left behind, unless somebody is writing just now; return how many files."""
        swept = 0
        try:
            with locked(self._lock, patience=0.0):
                keep = named()  # read under the lock: nobody is between a file and its row
                for entry in os.scandir(self.folder):
                    if OURS.match(entry.name) and entry.name not in keep:
                        Path(entry.path).unlink(missing_ok=True)
                        swept += 1
        except StoreError:
            return 0
        return swept


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
