"""Plan which trials form a stack, and how large it may be.

Trials can stack if they read the same sequences with the same batch size, steps and number of evaluations. Among these,
models of equal shape always share a stack. Models that differ in heads, head_dim or hidden share one, padded with
zeros, if the saved step costs more than the arithmetic on zeros.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from torch import Tensor

from headcount.models.transformer import PADDED_SIZES, Flat, ModelSpec, covering_spec, why_not_collapsed, why_not_pooled
from headcount.tasks import Task
from headcount.training import Dataset, Job, TrainSpec

MAX_STACK_MODELS = 1024  # models in a stack: more are no faster
STACK_STEP_US = 60.0  # overhead of a stack's step in µs, without its models' work, measured on an H200
MODEL_US, TOKEN_US = 0.9, 0.0575 / 384  # µs of a model-step: fixed, and per position and multiply-add at batch 256


def step_cost(model: ModelSpec, batch: int) -> float:
    """Estimate the work of one model-step in µs of an H200; only ratios of it matter."""
    rows = model.length if model.depth == 1 else model.length * (1 + model.length // 64)
    work = model.hidden * (model.dim + 2 * model.heads) * model.depth
    return MODEL_US + TOKEN_US * rows * work * batch / 256


def _digest(tensor: Tensor) -> str:
    return hashlib.blake2b(tensor.numpy().tobytes(), digest_size=16).hexdigest()


class Inputs:
    """Gives names to the inputs of data sets by their content: tasks that differ only in their target share inputs."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Tensor, str]] = {}

    def of(self, data: Dataset) -> str:
        """Return the name of a data set's inputs."""
        parts = (data.train.X, data.train.mask, data.validation.X, data.validation.mask)
        return " ".join(self._name(part) for part in parts if part is not None)

    def _name(self, part: Tensor) -> str:
        """Return the digest of a tensor, computed only once, since data sets may share it."""
        if id(part) not in self._known:
            self._known[id(part)] = part, _digest(part)
        return self._known[id(part)][1]


def _stack_key(job: Job, inputs: Inputs) -> tuple[object, ...]:
    """Return what trials must have in common to share a stack, apart from sizes that padding can equalise."""
    t, m = job.train, job.model
    fixed = m.model_dump(exclude=set(PADDED_SIZES) if why_not_collapsed(m) is None else set())
    law = job.task.law if t.fresh and isinstance(job.task, Task) else None
    recipe = (t.batch, t.steps, t.evaluations, t.fresh, t.data_seed if t.fresh else 0, t.dtype, t.polish)
    start = 0 if job.moments is None else job.moments.step
    return (inputs.of(job.data), repr(law), *recipe, *fixed.items(), start)


def plan(jobs: Sequence[Job], free: int | None = None) -> list[list[int]]:
    """Return stacks of jobs, by number, the costliest first; each stack takes at most `free` bytes."""
    inputs = Inputs()
    kinds: dict[tuple[object, ...], dict[ModelSpec, list[int]]] = {}
    for number, job in enumerate(jobs):
        kinds.setdefault(_stack_key(job, inputs), {}).setdefault(job.model, []).append(number)
    stacks: list[tuple[float, list[int]]] = []
    for shapes in kinds.values():
        for members in _merged(jobs, list(shapes.values())):
            model, train = covering_spec([jobs[n].model for n in members]), jobs[members[0]].train
            most = (
                MAX_STACK_MODELS if free is None else max(1, min(MAX_STACK_MODELS, free // model_bytes(model, train)))
            )
            parts = -(-len(members) // most)
            size = -(-len(members) // parts)
            cost = step_cost(model, train.batch) * size * train.steps
            stacks += [(cost, members[i : i + size]) for i in range(0, len(members), size)]
    return [members for _, members in sorted(stacks, key=lambda stack: -stack[0])]


def _merged(jobs: Sequence[Job], groups: list[list[int]]) -> list[list[int]]:
    """Merge groups of equal shape by padding, the largest saving first, until no merge saves time."""

    def cost(members: list[int]) -> float:
        model = covering_spec([jobs[n].model for n in members])
        return STACK_STEP_US + len(members) * step_cost(model, jobs[members[0]].train.batch)

    while len(groups) > 1:
        pairs = [(a, b) for b in range(len(groups)) for a in range(b)]
        saved = [cost(groups[a]) + cost(groups[b]) - cost(groups[a] + groups[b]) for a, b in pairs]
        best = max(range(len(pairs)), key=saved.__getitem__)
        if saved[best] <= 0:
            break
        a, b = pairs[best]
        groups = [g for n, g in enumerate(groups) if n not in (a, b)] + [groups[a] + groups[b]]
    return groups


def model_bytes(model: ModelSpec, train: TrainSpec) -> int:
    """Estimate the bytes that one more model adds to a stack: weights, their copies, activations and indices."""
    size = 8 if train.dtype == "float64" else 4
    weights = 12 * Flat.of(model).size  # weights, gradient, two moments, and intermediate results of a step
    layers = 4 if model.feedforward == "relu5" else 1
    if why_not_pooled(model) is None:
        pooled = train.batch * (model.heads * model.hidden + layers * model.N_ff)
        per_token = 0 if size == 4 else train.batch * model.length * (3 * model.hidden + 4 * model.heads)
        work = 8 * pooled + per_token
    else:
        E = 2 * model.E if model.layer_norm else model.E
        embedded = 3 * model.hidden + 4 * E + 4 * model.heads  # the last layer adds one query's scores
        inner = 6 * E + 8 * model.heads * (model.head_dim + 4) + 3 * layers * model.N_ff
        if size == 8:  # the fused attention is float32's: float64 writes the scores to memory
            inner += 4 * model.heads * (model.length + 1)
        work = train.batch * (model.length + 1) * (embedded + (model.depth - 1) * inner)
    return size * (weights + work) + 64 * train.batch * 8


def data_bytes(job: Job) -> int:
    """Return the bytes that a stack's data take on the device."""
    parts = (job.data.train.X, job.data.train.y, job.data.validation.X, job.data.validation.y)
    return sum(t.numel() * t.element_size() for t in parts)
