"""Measure the heads of a model on given data: gradients of the masks, ablations, and similarity between heads."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from headcount.core import BadInput
from headcount.probing.layers import Layer
from headcount.probing.masks import Masks

Loss = Callable[[nn.Module, Any], Tensor]
OnProgress = Callable[[float, str], None]
"""Called with the fraction of a stage that is done, and a note about the current work."""
CARRIED_FRACTION = 0.95
"""The fraction of the total effect for which the necessary heads are counted."""
MAX_POSITIONS = 2048
"""Positions of the data at which heads are compared; more would cost memory and add little."""


class Meter:
    """A model with data and a loss; everything is measured through masks on the model's heads."""

    def __init__(self, module: nn.Module, layers: Sequence[Layer], batches: Sequence[Any], loss: Loss) -> None:
        self.module, self.batches, self.loss_of = module, batches, loss
        self.layers = _reached_layers(module, layers, batches[0], loss)
        self.masks = Masks(self.layers)

    def loss(self, without: Iterable[tuple[int, int]] = ()) -> float:
        """Return the mean loss over all batches, with the outputs of some heads (layer, head) set to zero."""
        with self.masks, torch.no_grad():
            self.masks.without(without)
            total = sum(float(self.loss_of(self.module, batch)) for batch in self.batches)
        mean = total / len(self.batches)
        if not math.isfinite(mean):
            raise BadInput(f"the loss is {mean} on these data: nothing can be measured")
        return mean

    def gradients(self, on_progress: OnProgress) -> list[list[float]]:
        """Return the mean over batches of |∂ loss / ∂ mask| at masks of 1, for every layer and head."""
        sums = [torch.zeros(layer.heads) for layer in self.layers]
        with self.masks, torch.enable_grad():
            for i, batch in enumerate(self.batches):
                leaves = self.masks.leaves()
                for total, slope in zip(sums, _slopes(self.loss_of(self.module, batch), leaves), strict=True):
                    total += slope.abs().cpu()
                on_progress((i + 1) / len(self.batches), "gradients of the masks")
        return [(total / len(self.batches)).tolist() for total in sums]

    def ablations(self, full: float, on_progress: OnProgress) -> list[list[float]]:
        """Return the increase of the loss when one head's output is zero, for every layer and head."""
        count, done = sum(layer.heads for layer in self.layers), 0
        found: list[list[float]] = []
        for i, layer in enumerate(self.layers):
            found.append([])
            for head in range(layer.heads):
                found[-1].append(self.loss([(i, head)]) - full)
                done += 1
                on_progress(done / count, f"ablation of layer {i + 1}, head {head + 1}")
        return found

    def similarities(self) -> list[list[list[float]]]:
        """Return the linear CKA between the outputs of the heads of each layer, over positions of the data."""
        rows: list[list[Tensor]] = [[] for _ in self.layers]
        positions_per_batch = -(-MAX_POSITIONS // len(self.batches))  # so that all batches contribute

        def collect(i: int, heads: Tensor) -> None:
            rows[i].append(heads.detach().flatten(0, -3)[:positions_per_batch].float().cpu())

        with self.masks, torch.no_grad():
            self.masks.without([])
            self.masks.observer = collect
            try:
                for batch in self.batches:
                    self.loss_of(self.module, batch)
            finally:
                self.masks.observer = None
        return [_linear_cka(torch.cat(found)) for found in rows]


def carriers(effects: Iterable[float], share: float = CARRIED_FRACTION) -> int:
    """Return how many of the largest effects add up to this share of the total; negative effects count as 0."""
    ranked = sorted((max(effect, 0.0) for effect in effects), reverse=True)
    total, carried = sum(ranked), 0.0
    for count, effect in enumerate(ranked):
        if carried >= share * total:
            return count
        carried += effect
    return len(ranked)


def _linear_cka(outputs: Tensor) -> list[list[float]]:
    """Compare heads by outputs[rows, heads, head_dim]: 1 means equal up to rotation and scale, 0 unrelated.

    A head with a constant output has similarity 0 with all others.
    """
    outputs = outputs.double()
    outputs = outputs - outputs.mean(0)
    heads = outputs.shape[1]
    cross = torch.einsum("nip,njq->ijpq", outputs, outputs).square().sum((-2, -1))
    own = cross.diagonal().sqrt()
    scale = own[:, None] * own
    found = torch.where(scale > 0, cross / scale.clamp_min(1e-300), torch.zeros(()).double())
    found.fill_diagonal_(1.0)
    return [[min(float(found[i, j]), 1.0) for j in range(heads)] for i in range(heads)]


def _slopes(loss: Tensor, leaves: Sequence[Tensor]) -> list[Tensor]:
    if not loss.requires_grad:
        return [torch.zeros_like(leaf) for leaf in leaves]
    found: Any = torch.autograd.grad(loss, list(leaves), allow_unused=True)
    return [torch.zeros_like(leaf) if slope is None else slope for slope, leaf in zip(found, leaves, strict=True)]


def _reached_layers(module: nn.Module, layers: Sequence[Layer], batch: Any, loss: Loss) -> list[Layer]:
    """Return the layers that the data pass through; cross-attention, for example, may have nothing to attend to."""
    seen: set[int] = set()
    with Masks(layers) as masks, torch.no_grad():
        masks.observer = lambda i, _: seen.add(i)
        value = loss(module, batch)
    if not seen:
        raise BadInput("no attention layer of the model is reached by the data")
    if value.numel() != 1:
        raise BadInput(f"the loss must be one number per batch, not a tensor of shape {list(value.shape)}")
    return [layer for i, layer in enumerate(layers) if i in seen]
