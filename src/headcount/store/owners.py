"""Who holds a trial: a name for a process from which others can tell, without asking it, that it has ended."""

from __future__ import annotations

import os
import platform
import uuid
from pathlib import Path

_ended: set[str] = set()


def _read(path: str) -> str:
    """Read a small file of the system; "" where there is none."""
    try:
        return Path(path).read_text(errors="replace").strip()
    except OSError:
        return ""


def _namespace() -> str:
    """Name the world in which this process's number means something: a container has its own."""
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def _started(pid: int) -> str | None:
    """Return when a process started, as its system counts; "" where the system does not say, None if it has ended."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except OSError:
        pass  # it exists, but is another user's
    fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()  # the name before it may hold anything
    if not fields:
        return ""
    return None if fields[0] in "ZX" else fields[19]  # a zombie does no more work


def this_owner() -> str:
    """Return a new name for this process: host, boot, namespace, number and start of the process, and a random part.

    The start tells it from a later process of the same number, the random part one store object from another.
    """
    pid = os.getpid()
    boot = _read("/proc/sys/kernel/random/boot_id")
    return "|".join([platform.node(), boot, _namespace(), str(pid), _started(pid) or "", uuid.uuid4().hex[:8]])


def end(owner: str) -> None:
    """Say that a store object of this process has been closed, for one that could not give back its claims."""
    _ended.add(owner)


def is_dead(owner: str) -> bool:
    """Say whether a process has certainly ended; in doubt it has not, and its lease decides."""
    if owner in _ended:
        return True
    parts, mine = owner.split("|"), this_owner().split("|")
    if (
        len(parts) != len(mine)
        or parts[0] != mine[0]
        or not (parts[3].isascii() and parts[3].isdecimal() and len(parts[3]) < 10)
    ):
        return False
    if parts[1] != mine[1]:
        return True  # the machine was started again since: a store is shared on one machine only
    if parts[2] != mine[2]:
        return False
    started = _started(int(parts[3]))
    return started is None or (started != "" and parts[4] != "" and started != parts[4])
