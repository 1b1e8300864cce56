"""What every head is worth on given data: gradients of the masks, ablation, and how much heads repeat each other."""

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
Told = Callable[[float, str], None]
"""Is told the share of a stage that is done, and what is being done."""
SHARE = 0.95
"""Heads that carry this share of the effect are counted."""
ROWS = 2048
"""So many positions of the data are compared between heads; more would cost memory and tell little."""


class Meter:
    """A model, data and a loss; everything is measured through masks on the model's heads."""

    def __init__(self, module: nn.Module, layers: Sequence[Layer], batches: Sequence[Any], loss: Loss) -> None:
        self.module, self.batches, self.loss_of = module, batches, loss
        self.layers = _reached(module, layers, batches[0], loss)
        self.masks = Masks(self.layers)

    def loss(self, without: Iterable[tuple[int, int]] = ()) -> float:
        """The mean loss over all batches, with the outputs of some heads (layer, head) set to zero."""
        with self.masks, torch.no_grad():
            self.masks.without(without)
            total = sum(float(self.loss_of(self.module, batch)) for batch in self.batches)
        mean = total / len(self.batches)
        if not math.isfinite(mean):
            raise BadInput(f"the loss is {mean} on these data: nothing can be measured")
        return mean

    def gradients(self, told: Told) -> list[list[float]]:
        """The mean over batches of |∂ loss / ∂ mask| at masks of 1, for every layer and head."""
        sums = [torch.zeros(layer.heads) for layer in self.layers]
        with self.masks, torch.enable_grad():
            for i, batch in enumerate(self.batches):
                leaves = self.masks.leaves()
                for total, slope in zip(sums, _slopes(self.loss_of(self.module, batch), leaves), strict=True):
                    total += slope.abs().cpu()
                told((i + 1) / len(self.batches), "gradients of the masks")
        return [(total / len(self.batches)).tolist() for total in sums]

    def ablations(self, full: float, told: Told) -> list[list[float]]:
        """The increase of the loss when one head's output is zero, for every layer and head."""
        count, done = sum(layer.heads for layer in self.layers), 0
        found: list[list[float]] = []
        for i, layer in enumerate(self.layers):
            found.append([])
            for head in range(layer.heads):
                found[-1].append(self.loss([(i, head)]) - full)
                done += 1
                told(done / count, f"ablation of layer {i + 1}, head {head + 1}")
        return found

    def similarities(self) -> list[list[list[float]]]:
        """Linear CKA between the outputs of the heads of each layer, over positions of the data."""
        rows: list[list[Tensor]] = [[] for _ in self.layers]
        most = -(-ROWS // len(self.batches))  # of each batch, so that no batch fills the store alone

        def keep(i: int, heads: Tensor) -> None:
            rows[i].append(heads.detach().flatten(0, -3)[:most].float().cpu())

        with self.masks, torch.no_grad():
            self.masks.without([])
            self.masks.seen = keep
            try:
                for batch in self.batches:
                    self.loss_of(self.module, batch)
            finally:
                self.masks.seen = None
        return [_cka(torch.cat(found)) for found in rows]


def carriers(effects: Iterable[float], share: float = SHARE) -> int:
    """How many of the largest effects add up to the share of all; what lowers the loss when it goes counts as 0."""
    ranked = sorted((max(effect, 0.0) for effect in effects), reverse=True)
    total, carried = sum(ranked), 0.0
    for count, effect in enumerate(ranked):
        if carried >= share * total:
            return count
        carried += effect
    return len(ranked)


def _cka(outputs: Tensor) -> list[list[float]]:
    """Compare heads by outputs[rows, heads, head_dim]: 1 where they agree up to rotation and scale, 0 unrelated.

    A head whose output is the same everywhere is like no other.
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


def _reached(module: nn.Module, layers: Sequence[Layer], batch: Any, loss: Loss) -> list[Layer]:
    """Keep the layers that the data pass through: cross-attention, for one, may have nothing to attend to."""
    seen: set[int] = set()
    with Masks(layers) as masks, torch.no_grad():
        masks.seen = lambda i, _: seen.add(i)
        value = loss(module, batch)
    if not seen:
        raise BadInput("no attention layer of the model is reached by the data")
    if value.numel() != 1:
        raise BadInput(f"the loss must be one number for a batch, not {list(value.shape)}")
    return [layer for i, layer in enumerate(layers) if i in seen]
