"""Atomic writes: to a temporary name beside the target, synced, then renamed."""

from __future__ import annotations

import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headcount.core.errors import BadInput
from headcount.core.text.harmless import json_text


def _sync_directory(path: Path) -> None:
    """Make a rename itself durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _temporary_name(path: Path) -> Path:
    """Return an unused name beside a path; `tempfile` would also create the file, with mode 0600."""
    return path.with_name(f".{path.name}.{secrets.token_hex(6)}.part")


def _keep_mode(new: Path, old: Path) -> None:
    """Give a file or folder the permissions of the one that it replaces, if any; otherwise the umask's remain."""
    if old.exists():
        new.chmod(stat.S_IMODE(old.stat().st_mode) & 0o777)


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically: no reader, crash or full disk ever leaves half of it.

    A link stays, and its target is replaced; a device or a pipe, which a rename would replace, is written to directly.
    A new file gets the mode 0666 less the umask, a replaced one keeps its mode.
    """
    is_stream = str(path.absolute().parent) in ("/dev", "/dev/fd", "/proc/self/fd")  # /dev/stdout may be a plain file
    if path.exists() and not path.is_dir() and (is_stream or not path.is_file()):
        with path.open("ab") as handle:
            handle.write(content)
        return
    path = path.resolve() if path.is_symlink() else path
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _temporary_name(path)
    try:
        with temporary.open("xb") as handle:
            handle.write(content)
            handle.flush()
            os.fsync(handle.fileno())
        _keep_mode(temporary, path)
        temporary.replace(path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):  # name the path that the user knows; a full disk gives none
            raise OSError(error.errno, error.strerror, str(path)) from None
        raise
    _sync_directory(path.parent)


def write_files(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Write the files of a folder, all or none: existing files are replaced only when all new ones are on disk."""
    new = next((p for p in reversed((folder, *folder.parents)) if not p.exists()), None)
    folder.mkdir(parents=True, exist_ok=True)
    parts = {name: folder / f".{name}.part" for name in contents}
    try:
        for name, content in contents.items():
            try:
                parts[name].unlink(missing_ok=True)  # left by a killed writer; its mode must not be kept
                write_bytes(parts[name], content)
                _keep_mode(parts[name], folder / name)
            except OSError as error:
                raise OSError(error.errno, error.strerror, str(folder / name)) from None
        for name, part in parts.items():
            part.replace(folder / name)
    except BaseException:
        for part in parts.values():
            part.unlink(missing_ok=True)
        if new is not None:
            shutil.rmtree(new, ignore_errors=True)
        raise
    _sync_directory(folder)


def json_bytes(value: Any) -> bytes:
    """Return JSON for people and programs: indented, NaN refused, hidden characters escaped."""
    return (json_text(value) + "\n").encode()


def write_text(path: Path, content: str) -> None:
    """Write text as UTF-8, atomically."""
    write_bytes(path, content.encode())


def write_json(path: Path, value: Any) -> None:
    """Write JSON atomically."""
    write_bytes(path, json_bytes(value))


_RESULT_FILES = {
    "model.safetensors",
    "config.json",
    "history.json",
    "certificate.json",
    "budget.png",
    "witness.json",
    "pair.png",
    "pair.html",
    "adversary.json",
    "adversary.png",
}
"""The files of a model, certificate or witness folder: a folder of only these may be replaced."""


def check_replaceable(target: Path) -> None:
    """Refuse an --out that is a file, or a folder with any file that headcount did not write."""
    if target.is_dir():
        foreign = sorted(p.name for p in target.iterdir() if p.name not in _RESULT_FILES)
        config = target / "config.json"
        if not foreign and config.exists() and b'"headcount-model"' not in config.read_bytes()[:200]:
            foreign = ["a config.json of another program"]
        if foreign:
            raise BadInput(f"{target} holds other files ({', '.join(foreign[:3])}): choose an empty or new folder")
    elif target.exists():
        raise BadInput(f"{target} is a file, not a folder: choose another --out")
    if target.is_symlink() or target.is_mount() or target.resolve() == Path.cwd():
        raise BadInput(f"{target} is a link, a mount point or the current folder: choose a new folder as --out")
    check_writable(target.absolute().parent)


def check_output_folder(folder: Path, names: Collection[str], marker: str) -> None:
    """Refuse an --out that is a file, or a folder of anything but an earlier result (`names`, with `marker`)."""
    if folder == Path():
        raise BadInput("--out is the current folder: choose an empty or new folder")
    if folder.exists() and not folder.is_dir():
        raise BadInput(f"{folder} is a file, not a folder: choose another --out")
    present = sorted(p.name for p in folder.iterdir()) if folder.is_dir() else []
    foreign = [name for name in present if name not in names] or (present if marker not in present else [])
    if foreign:
        raise BadInput(f"{folder} holds other files ({', '.join(foreign[:3])}): choose an empty or new folder")
    check_writable(folder)


def check_writable(folder: Path, what: str = "--out") -> None:
    """Refuse a folder in which no file can be created, before the work and not after it; `what` names the option."""
    parent = next(p for p in (folder.absolute(), *folder.absolute().parents) if p.exists())
    try:  # permission bits are not enough: some file systems refuse regardless
        Path(tempfile.mkdtemp(dir=parent, prefix=".headcount-")).rmdir()
    except OSError:
        raise BadInput(f"{parent} is not a writable folder: choose another {what}") from None


@contextmanager
def atomic_folder(target: Path) -> Generator[Path]:
    """Yield a temporary folder to fill, and rename it to the target at the end; on any error nothing is left behind."""
    check_replaceable(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = _temporary_name(target)
    try:
        temporary.mkdir()
        yield temporary
        for path in (temporary, *temporary.iterdir()):
            _keep_mode(path, target / path.relative_to(temporary))
        old = temporary.with_suffix(".old")
        if target.exists():
            target.replace(old)  # moved aside first: at every moment a complete folder exists under some name
        temporary.replace(target)
        shutil.rmtree(old, ignore_errors=True)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    _sync_directory(target.parent)
