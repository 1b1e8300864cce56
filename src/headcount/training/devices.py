"""The device that a sweep runs on: found by name, or a one-line reason why it is not available."""

from __future__ import annotations

import re
import threading

import torch

from headcount.core import BadInput
from headcount.kernels import has_triton


def find_device(name: str) -> torch.device:
    """Return a device by name (cpu, cuda, cuda:1); raise BadInput with the reason if it is not available."""
    if re.fullmatch(r"cpu|cuda(:[0-9]{1,3})?", str(name)) is None:
        raise BadInput(f"unknown device {name!r}: use cpu, cuda or cuda:1 (by number)")
    device = torch.device(name)
    if device.type == "cpu":
        return device
    if not torch.cuda.is_available():
        why = "no NVIDIA GPU is visible" if torch.version.cuda else "this torch was built for the CPU alone"
        raise BadInput(f"device {name} not found: {why} (use cpu, which trains on all cores)")
    count = torch.cuda.device_count()
    number = int(name[5:]) if ":" in name else torch.cuda.current_device()
    if number >= count:
        raise BadInput(
            f"device {name} not found: this machine has {count} GPU{'s' if count > 1 else ''}, counted from 0"
        )
    return torch.device("cuda", number)


def warm_up_device(name: str) -> None:
    """Initialise a GPU in a background thread: its driver, memory and cuBLAS take most of a second.

    Errors are ignored here; `find_device` reports them.
    """

    def start() -> None:
        try:
            ones = torch.ones(1, 8, 8, device=torch.device(name))
            torch.bmm(ones, ones).sum().item()
        except (RuntimeError, AssertionError):  # torch without CUDA asserts
            return

    if name.startswith("cuda"):
        threading.Thread(target=start).start()  # not a daemon: exiting inside the driver could crash


def compiles_kernels(device: torch.device) -> bool:
    """Whether a stack on this device may compile kernels that are worth compiling ahead of time."""
    return device.type == "cuda" and has_triton()


def device_name(device: torch.device) -> str:
    """Return the name of the hardware, for a result's provenance."""
    return "cpu" if device.type == "cpu" else torch.cuda.get_device_name(device)
