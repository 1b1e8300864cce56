"""Which device a sweep runs on: the name a user gives, or one line on why that one is not there."""

from __future__ import annotations

import re
import threading

import torch

from headcount.core import BadInput
from headcount.kernels import has_triton


def find_device(name: str) -> torch.device:
    """Return a device by name (cpu, cuda, cuda:1), or say what is missing."""
    if re.fullmatch(r"cpu|cuda(:[0-9]{1,3})?", name) is None:
        raise BadInput(f"a device is cpu, cuda or cuda:1 (by number), not {name!r}")
    device = torch.device(name)
    if device.type == "cpu":
        return device
    if not torch.cuda.is_available():
        why = "no NVIDIA GPU is visible" if torch.version.cuda else "this torch was built for the CPU alone"
        raise BadInput(f"device {name} is not there: {why}; the device cpu trains on all cores")
    count = torch.cuda.device_count()
    number = int(name[5:]) if ":" in name else torch.cuda.current_device()
    if number >= count:
        raise BadInput(f"device {name} is not there: {count} GPU{'s' if count > 1 else ''} found, counted from 0")
    return torch.device("cuda", number)


def wake(name: str) -> None:
    """Start a GPU in a thread while the caller does other things: its driver, memory and cuBLAS take most of a second.

    What is wrong with a device `find_device` says; here it is passed over.
    """

    def start() -> None:
        try:
            some = torch.ones(1, 8, 8, device=torch.device(name))
            torch.bmm(some, some).sum().item()
        except (RuntimeError, AssertionError):  # torch without CUDA asserts
            return

    if name.startswith("cuda"):
        threading.Thread(target=start).start()  # waited for at the end: none may be cut off inside the driver


def compiles_kernels(device: torch.device) -> bool:
    """Whether a stack on a device may compile kernels that are worth compiling ahead."""
    return device.type == "cuda" and has_triton()


def device_name(device: torch.device) -> str:
    """Name the hardware, for the record of where a result came from."""
    return "cpu" if device.type == "cpu" else torch.cuda.get_device_name(device)
