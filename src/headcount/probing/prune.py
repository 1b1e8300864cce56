"""Remove heads from a model, check that its outputs equal those with masks, and measure size and time."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from headcount.probing.architectures import FamilyLayer
from headcount.probing.attention import twin, without_fast_path
from headcount.probing.layers import Layer
from headcount.probing.measure import Loss, Meter
from headcount.probing.record import Pruned

TIMING_REPEATS = 11
"""How many times the two models are timed in turns."""
OUTPUT_TOLERANCE = 1e-4
"""Largest accepted difference, relative to the largest output: float32 sums in another order."""
MIN_TIMING_SECONDS = 0.02
"""Shortest time that is measured; a faster pass is repeated until it takes this long."""


def remove_heads(module: nn.Module, layers: Sequence[Layer], gone: Sequence[tuple[int, int]]) -> nn.Module:
    """Return a twin of the module without the heads in `gone` (layer, head); the module itself is not changed.

    If layers share a position bias (T5), a head that any layer of the stack keeps becomes zeros in the others.
    """
    made = twin(module)
    removed = {layer.name: {head for where, head in gone if where == i} for i, layer in enumerate(layers)}
    found = layers[0].matching_layers(made)
    kept = {layer.name: [h for h in range(layer.heads) if h not in removed.get(layer.name, ())] for layer in found}
    blocks = [layer for layer in found if isinstance(layer, FamilyLayer)]
    if any(layer.layout.bias for layer in blocks):
        arrange_equal(blocks, kept)
        return made
    for layer in found:
        if removed.get(layer.name):
            layer.keep_only(kept[layer.name])
    return made


def arrange_equal(layers: Sequence[FamilyLayer], kept: Mapping[str, Sequence[int]], count: int = 0) -> None:
    """Give all layers the same number of heads: `count`, or as many as any layer keeps; the others are zeros."""
    slots, biases = equal_slots(layers, kept, count)
    for layer in layers:
        layer.arrange(slots[layer.name], biases[layer.name])


Slots = dict[str, list[int | None]]


def equal_slots(
    layers: Sequence[FamilyLayer], kept: Mapping[str, Sequence[int]], count: int = 0
) -> tuple[Slots, Slots]:
    """Return the slots of heads if all layers have equally many, and the slots of their stacks' position biases."""
    slots: Slots = {layer.name: [*sorted(kept[layer.name])] for layer in layers}
    biases: Slots = {layer.name: [] for layer in layers}
    stacks: dict[str, list[FamilyLayer]] = {}
    for layer in layers:
        stacks.setdefault(re.sub(r"\.\d+", "", layer.name), []).append(layer)
    for stack in stacks.values():
        if any(layer.layout.bias and hasattr(layer.block, layer.layout.bias) for layer in stack):
            union = sorted({head for layer in stack for head in kept[layer.name]})
            for layer in stack:
                slots[layer.name] = [head if head in kept[layer.name] else None for head in union]
                biases[layer.name] = [*union]
    count = max(count, *(len(found) for found in slots.values()))
    for found in [*slots.values(), *(bias for bias in biases.values() if bias)]:
        found += [None] * (count - len(found))
    return slots, biases


def compare(
    original: nn.Module, meter: Meter, pruned: nn.Module, gone: Sequence[tuple[int, int]], repeats: int = TIMING_REPEATS
) -> Pruned:
    """Compare the pruned model with the masked one in outputs, and with the original in size and time."""
    difference = 0.0
    with without_fast_path(), torch.no_grad():
        for batch in meter.batches:
            with meter.masks:
                meter.masks.without(gone)
                masked = outputs(meter.module, batch, meter.loss_of)
            difference = max(difference, relative_difference(masked, outputs(pruned, batch, meter.loss_of)))
    before, after, ratios = time_in_turns(original, pruned, meter.batches, meter.loss_of, repeats)
    return Pruned(
        difference=difference,
        tolerance=OUTPUT_TOLERANCE,
        equal=difference <= OUTPUT_TOLERANCE,
        parameters_before=count_parameters(original),
        parameters_after=count_parameters(pruned),
        seconds_before=before,
        seconds_after=after,
        ratio=after / before,
        ratio_low=min(ratios),
        ratio_high=max(ratios),
        repeats=repeats,
    )


def outputs(module: nn.Module, batch: Any, loss: Loss) -> list[Tensor]:
    """Return all float tensors that a module returns for a batch, or the loss if the loss does not call the module."""
    found: list[Tensor] = []
    hook = module.register_forward_hook(lambda *called: found.extend(_tensors(called[-1])))
    try:
        value = loss(module, batch)
    finally:
        hook.remove()
    return found or [value]


def relative_difference(first: Sequence[Tensor], second: Sequence[Tensor]) -> float:
    """Return the largest difference between two lists of tensors, relative to the largest number in the first."""
    if [t.shape for t in first] != [t.shape for t in second]:
        return math.inf
    scale = max((float(t.abs().max()) for t in first if t.numel()), default=0.0)
    gap = max((float((a - b).abs().max()) for a, b in zip(first, second, strict=True) if a.numel()), default=0.0)
    return gap / scale if scale > 0 else gap


def count_parameters(module: nn.Module) -> int:
    """Return the number of a module's parameters, counting shared ones once."""
    return sum(p.numel() for p in module.parameters())


def time_in_turns(
    first: nn.Module, second: nn.Module, batches: Sequence[Any], loss: Loss, repeats: int
) -> tuple[float, float, list[float]]:
    """Return the fastest pass of each module over the first batch, and the ratios of neighbouring passes.

    The fastest counts because other work on the machine makes passes slower, never faster.
    """
    clock = [_timer(module, batches[0], loss) for module in (first, second)]
    with torch.no_grad():
        rounds = max(1, math.ceil(MIN_TIMING_SECONDS / max(min(run(2) for run in clock) / 2, 1e-9)))
        pairs: list[tuple[float, float]] = []
        for i in range(repeats):  # in alternating order: whatever slows the machine slows both
            order = (0, 1) if i % 2 == 0 else (1, 0)
            spent = {which: clock[which](rounds) / rounds for which in order}
            pairs.append((spent[0], spent[1]))
    return min(pair[0] for pair in pairs), min(pair[1] for pair in pairs), [after / before for before, after in pairs]


def _timer(module: nn.Module, batch: Any, loss: Loss) -> Callable[[int], float]:
    """Return a function that times a number of passes, in seconds."""
    cuda = next((p.is_cuda for p in module.parameters()), False)

    def run(rounds: int) -> float:
        start = time.perf_counter()
        for _ in range(rounds):
            loss(module, batch)
        if cuda:
            torch.cuda.synchronize()
        return time.perf_counter() - start

    return run


def _tensors(value: Any) -> list[Tensor]:
    """Return the float tensors in the output of a module, skipping caches and the like."""
    if isinstance(value, Tensor):
        return [value] if value.is_floating_point() else []
    if isinstance(value, Mapping):
        return [tensor for part in value.values() for tensor in _tensors(part)]
    if isinstance(value, tuple | list):
        return [tensor for part in value for tensor in _tensors(part)]
    return []
