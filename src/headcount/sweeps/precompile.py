"""Compile the GPU kernels of a sweep's stacks ahead of time, in processes of their own.

Triton takes about ten seconds per shape on one core, and a stack of another length or size is another shape. While the
first stack compiles for itself, other processes take one step on zeros with each of the others. This fills Triton's
cache on disk, where the stacks find their kernels. It only saves time: if such a process fails, the stack compiles for
itself. Starting a process takes seconds as well, so it leaves a note of what it compiled, and no process is started for
a shape that has a note.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import torch

from headcount.core import Spec, content_hash, cores
from headcount.models.transformer import Flat, ModelSpec, covering_spec
from headcount.sweeps.plan import model_bytes
from headcount.training import DTYPES, FRESH_STEPS, Job, StackTrainer, TrainSpec, compiles_kernels

MAX_PROCESSES = 8
CONTEXT_BYTES = 2**30  # what a process takes on a GPU before it does anything
WORKER_CODE = "import sys; from headcount.sweeps.precompile import serve; serve(sys.stdin.read())"


class Shape(Spec):
    """Everything that decides which kernels a stack needs."""

    models: list[ModelSpec]
    train: TrainSpec
    samples: int
    validation: int
    targets: int
    masked: bool

    @classmethod
    def of(cls, jobs: Sequence[Job]) -> Shape:
        """Return the shape of the stack that these trials form."""
        first = jobs[0]
        rows = FRESH_STEPS * first.train.batch if first.train.fresh else len(first.data.train.X)
        same = {"learning_rate": 1e-2, "weight_decay": 0.0, "optimiser": "adam", "data_seed": 0}
        return cls(
            models=[job.model for job in jobs],
            train=first.train.model_copy(update=same),
            samples=rows,
            validation=len(first.data.validation.X),
            targets=len({id(job.data) for job in jobs}),
            masked=first.data.train.mask is not None,
        )

    def bytes(self) -> int:
        """Estimate the bytes that one step takes on the device."""
        model = covering_spec(self.models)
        data = 4 * (self.samples + self.validation) * (model.length * model.dim + self.targets * model.out_dim)
        return CONTEXT_BYTES + data + len(self.models) * model_bytes(model, self.train)

    def step(self, device: torch.device) -> None:
        """Take one training step and one evaluation on zeros."""
        model, dtype, count = covering_spec(self.models), DTYPES[self.train.dtype], len(self.models)

        def zeros(rows: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
            X = torch.zeros(rows, model.length, model.dim, dtype=dtype, device=device)
            shape = (rows, model.out_dim) if self.targets == 1 else (self.targets, rows, model.out_dim)
            mask = torch.ones(rows, model.length, dtype=torch.bool, device=device) if self.masked else None
            return X, torch.zeros(*shape, dtype=dtype, device=device), mask

        trainer = StackTrainer(
            self.models,
            [self.train] * count,
            range(count),
            *zeros(self.samples),
            targets=[0] * count,
            theta=torch.zeros(count, Flat.of(model).size, dtype=dtype),
            graph=False,
        )
        trainer.run(1)
        trainer.nmse(*zeros(self.validation))
        trainer.wait()


def serve(text: str) -> None:
    """Do the work of a process: compile the kernels of the shape in a JSON text, for its device, and leave a note."""
    request: dict[str, Any] = json.loads(text)
    shape, device = Shape.parse(request["shape"]), torch.device(request["device"])
    shape.step(device)
    note = _note(shape.hash(), device)
    if note is not None:
        with suppress(OSError):  # without a note the next sweep starts a process with nothing to compile
            note.parent.mkdir(parents=True, exist_ok=True)
            note.touch()


def _note(shape: str, device: torch.device) -> Path | None:
    """Return the path of the note that a shape's kernels are in Triton's cache; None if nothing is compiled.

    The note is in the cache itself, so that both are deleted together. Its name depends on what Triton's own keys
    depend on: the source of the kernels, the version of Triton and the kind of GPU.
    """
    if device.type != "cuda" or not torch.cuda.is_available():
        return None
    from triton import __version__, knobs

    name, capability = torch.cuda.get_device_name(device), torch.cuda.get_device_capability(device)
    versions = [__version__, torch.__version__, *_kernel_sources()]
    known_by = {"shape": shape, "versions": versions, "gpu": [name, *capability]}
    return Path(knobs.cache.dir) / "headcount-shapes" / content_hash(known_by)


@cache
def _kernel_sources() -> list[str]:
    """Return digests of the source files of all Triton kernels."""
    folder = Path(str(resources.files("headcount"))) / "kernels"  # read, not imported: they need Triton
    files = sorted(folder.glob("*/triton.py"))
    return [hashlib.blake2b(file.read_bytes(), digest_size=16).hexdigest() for file in files]


def _compiled(shape: str, device: torch.device) -> bool:
    """Return whether a shape's kernels were compiled before, by this sweep or another."""
    note = _note(shape, device)
    return note is not None and note.is_file()


class AheadCompiler:
    """Processes that compile kernels for waiting stacks; stack 0 is left to the sweep itself."""

    def __init__(self, stacks: Sequence[Sequence[Job]], device: torch.device, free: int | None) -> None:
        self._device = str(device)
        self._shape_of: list[str] = []
        self._waiting: list[tuple[str, Shape]] = []
        self._running: dict[str, subprocess.Popen[str]] = {}
        self._max_running = 0
        if not compiles_kernels(device) or len(stacks) < 2 or cores() < 4:
            return  # with few cores there is nothing to gain
        shapes = [Shape.of(jobs) for jobs in stacks]
        self._shape_of = [shape.hash() for shape in shapes]
        others = {shape.hash(): shape for shape in shapes if shape.hash() != self._shape_of[0]}
        self._waiting = [(name, shape) for name, shape in others.items() if not _compiled(name, device)]
        largest = max(shape.bytes() for shape in shapes)
        fitting = MAX_PROCESSES if free is None else free // (2 * largest)  # half the memory is left to the sweep
        self._max_running = max(0, min(MAX_PROCESSES, cores() - 1, fitting))
        if self._max_running == 0:
            self._waiting = []
        self._start()

    def ready(self, number: int) -> bool:
        """Return whether no process is compiling, or is still to compile, this stack's kernels."""
        if not self._shape_of:
            return True
        for name, process in list(self._running.items()):
            if process.poll() is not None:
                del self._running[name]
        self._start()
        name = self._shape_of[number]
        return name not in self._running and name not in dict(self._waiting)

    def _start(self) -> None:
        while self._waiting and len(self._running) < self._max_running:
            name, shape = self._waiting.pop(0)
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            process = subprocess.Popen(
                [sys.executable, "-c", WORKER_CODE],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                text=True,
                env=environment,
            )
            assert process.stdin is not None
            process.stdin.write(json.dumps({"shape": shape.data(), "device": self._device}))
            process.stdin.close()
            self._running[name] = process

    def close(self) -> None:
        """Kill the processes that are still compiling."""
        self._waiting = []
        for process in self._running.values():
            process.kill()
            process.wait()
        self._running = {}
