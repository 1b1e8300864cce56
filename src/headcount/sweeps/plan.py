"""Which trials form a stack, and how large it may be.

Trials stack when they read the same sequences with the same batch, steps and number of evaluations. Of these, models
of equal shape always share a stack; models that differ in heads, head_dim or hidden share one, padded with zeros,
where the step that is saved costs more than the arithmetic on zeros.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from torch import Tensor

from headcount.models.transformer import PADDED_SIZES, Flat, ModelSpec, covering_spec, why_not_collapsed, why_not_pooled
from headcount.tasks import Task
from headcount.training import Dataset, Job, TrainSpec

LARGEST = 1024  # models of a stack: more gain nothing
STEP_US = 60.0  # what a stack's step costs beside its models' work, measured on an H200
MODEL_US, TOKEN_US = 0.9, 0.0575 / 384  # a model-step, and its share a position and multiply-add, batch 256


def step_cost(model: ModelSpec, batch: int) -> float:
    """Estimate the work of one model-step in µs of an H200; only ratios of it matter."""
    rows = model.length if model.depth == 1 else model.length * (1 + model.length // 64)
    work = model.hidden * (model.dim + 2 * model.heads) * model.depth
    return MODEL_US + TOKEN_US * rows * work * batch / 256


def _digest(tensor: Tensor) -> str:
    return hashlib.blake2b(tensor.numpy().tobytes(), digest_size=16).hexdigest()


class Inputs:
    """Names the inputs of data sets by their content: tasks that differ in their target alone share them."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Tensor, str]] = {}

    def of(self, data: Dataset) -> str:
        """Return the name of a data set's inputs."""
        parts = (data.train.X, data.train.mask, data.validation.X, data.validation.mask)
        return " ".join(self._name(part) for part in parts if part is not None)

    def _name(self, part: Tensor) -> str:
        """Return the digest of a tensor, computed once: data sets may share it."""
        if id(part) not in self._known:
            self._known[id(part)] = part, _digest(part)
        return self._known[id(part)][1]


def _kind(job: Job, inputs: Inputs) -> tuple[object, ...]:
    """What trials of one stack have in common, beside a shape that padding may level."""
    t, m = job.train, job.model
    fixed = m.model_dump(exclude=set(PADDED_SIZES) if why_not_collapsed(m) is None else set())
    law = job.task.law if t.fresh and isinstance(job.task, Task) else None
    recipe = (t.batch, t.steps, t.evaluations, t.fresh, t.data_seed if t.fresh else 0, t.dtype, t.polish)
    start = 0 if job.moments is None else job.moments.step
    return (inputs.of(job.data), repr(law), *recipe, *fixed.items(), start)


def plan(jobs: Sequence[Job], free: int | None = None) -> list[list[int]]:
    """Return the jobs (by number) as stacks, the costly ones first; `free` bytes bound what one stack may take."""
    inputs = Inputs()
    kinds: dict[tuple[object, ...], dict[ModelSpec, list[int]]] = {}
    for number, job in enumerate(jobs):
        kinds.setdefault(_kind(job, inputs), {}).setdefault(job.model, []).append(number)
    stacks: list[tuple[float, list[int]]] = []
    for shapes in kinds.values():
        for members in _merged(jobs, list(shapes.values())):
            model, train = covering_spec([jobs[n].model for n in members]), jobs[members[0]].train
            most = LARGEST if free is None else max(1, min(LARGEST, free // model_bytes(model, train)))
            parts = -(-len(members) // most)
            size = -(-len(members) // parts)
            cost = step_cost(model, train.batch) * size * train.steps
            stacks += [(cost, members[i : i + size]) for i in range(0, len(members), size)]
    return [members for _, members in sorted(stacks, key=lambda stack: -stack[0])]


def _merged(jobs: Sequence[Job], groups: list[list[int]]) -> list[list[int]]:
    """Join groups of equal shape by padding, the best saving first, as long as one saves."""

    def cost(members: list[int]) -> float:
        model = covering_spec([jobs[n].model for n in members])
        return STEP_US + len(members) * step_cost(model, jobs[members[0]].train.batch)

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
    """Estimate what one more model adds to a stack: weights and their copies, a batch's activations, its indices."""
    size = 8 if train.dtype == "float64" else 4
    weights = 12 * Flat.of(model).size  # weights, gradient, two moments, and what the parts of a step leave
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
    """What a stack's data take on the device."""
    parts = (job.data.train.X, job.data.train.y, job.data.validation.X, job.data.validation.y)
    return sum(t.numel() * t.element_size() for t in parts)
