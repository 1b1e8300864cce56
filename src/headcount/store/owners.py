"""The owner of a trial: a name for a process that lets other processes tell whether it has ended."""

from __future__ import annotations

import os
import platform
import uuid
from pathlib import Path

_ended: set[str] = set()


def _read(path: str) -> str:
    """Return the text of a small system file; "" if it cannot be read."""
    try:
        return Path(path).read_text(errors="replace").strip()
    except OSError:
        return ""


def _namespace() -> str:
    """Return the name of this process's PID namespace, since a container has its own; "" if the system has none."""
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def _start_time(pid: int) -> str | None:
    """Return when a process started, in the system's ticks; "" if the system does not say, None if it has ended."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except OSError:
        pass  # it exists, but belongs to another user
    fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()  # the process name before it may hold anything
    if not fields:
        return ""
    return None if fields[0] in "ZX" else fields[19]  # a zombie does no more work


def this_owner() -> str:
    """Return a new owner name: host, boot, PID namespace, PID and start time of this process, and a random part.

    The start time tells the process from a later one with the same PID, the random part one store object from another.
    """
    pid = os.getpid()
    boot = _read("/proc/sys/kernel/random/boot_id")
    return "|".join([platform.node(), boot, _namespace(), str(pid), _start_time(pid) or "", uuid.uuid4().hex[:8]])


def mark_ended(owner: str) -> None:
    """Record that a store object of this process was closed without being able to release its claims."""
    _ended.add(owner)


def is_dead(owner: str) -> bool:
    """Return whether an owner has certainly ended; in doubt return False, and its lease decides."""
    if owner in _ended:
        return True
    parts, own = owner.split("|"), this_owner().split("|")
    if (
        len(parts) != len(own)
        or parts[0] != own[0]
        or not (parts[3].isascii() and parts[3].isdecimal() and len(parts[3]) < 10)
    ):
        return False
    if parts[1] != own[1]:
        return True  # the machine has been rebooted since: a store is shared on one machine only
    if parts[2] != own[2]:
        return False
    started = _start_time(int(parts[3]))
    return started is None or (started != "" and parts[4] != "" and started != parts[4])
