"""A peer for images: a vision transformer of torch's layers in a plain loop, one model after the other.

There are four variants. Frames are made sample by sample on the CPU by a DataLoader's workers, or on the device from
tensors stored there; products are in TF32, or under bf16 autocast. Everything else is what our stack does: fused AdamW,
weight decay on matrices, clipped gradients and a cosine rate. The function is that of `models/encoder/reference.py`,
which the tests check.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Literal, cast

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from benchmarks.peers.turns import Work
from headcount.datasets.cifar10 import ChannelMoments, Images, place_images
from headcount.models.encoder import EncoderSpec, initial_weights
from headcount.training.encoder import EncoderTrainer, RealTrain
from headcount.training.feeds import ImageFeed, ImagesOnDevice

Source = Literal["loader", "device"]
Precision = Literal["tf32", "bf16"]


class Block(nn.Module):
    """x + MHA(LN x), then x + FF(LN x)."""

    def __init__(self, spec: EncoderSpec) -> None:
        super().__init__()
        E = spec.width
        self.heads = spec.heads
        self.norm1, self.norm2 = nn.LayerNorm(E), nn.LayerNorm(E)
        self.qkv, self.proj = nn.Linear(E, 3 * E), nn.Linear(E, E)
        self.mlp = nn.Sequential(nn.Linear(E, spec.expansion * E), nn.GELU(), nn.Linear(spec.expansion * E, E))
        self.drop = nn.Dropout(spec.dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Return x[b, t, e] after both parts."""
        b, t, e = x.shape
        q, k, v = self.qkv(self.norm1(x)).reshape(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        o = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, e)
        x = x + self.drop(self.proj(o))
        return x + self.drop(self.mlp(self.norm2(x)))


class PlainViT(nn.Module):
    """Patches by a convolution, a class token, learned positions, blocks, a norm and a linear head."""

    def __init__(self, spec: EncoderSpec, patch: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, spec.width, patch, patch)
        self.class_token = nn.Parameter(torch.zeros(1, 1, spec.width))
        self.position = nn.Parameter(torch.zeros(1, spec.tokens, spec.width))
        self.blocks = nn.Sequential(*(Block(spec) for _ in range(spec.depth)))
        self.norm, self.head = nn.LayerNorm(spec.width), nn.Linear(spec.width, spec.outputs)

    def forward(self, frames: Tensor) -> Tensor:
        """Return logits[b, outputs] for frames[b, 3, side, side]."""
        x = self.patches(frames).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_token.expand(len(x), -1, -1), x], dim=1) + self.position
        return self.head(self.norm(self.blocks(x))[:, 0])

    @torch.no_grad()
    def copy_weights(self, w: Mapping[str, Tensor]) -> PlainViT:
        """Copy the weights of our encoder, so that both compute the same function; our attention has no biases."""
        pairs: list[tuple[Tensor, Tensor]] = [
            (self.patches.weight, w["embed.weight"].reshape(self.patches.weight.shape)),
            (cast("Tensor", self.patches.bias), w["embed.bias"]),
            (self.class_token[0, 0], w["class_token"]),
            (self.position[0], w["position"]),
            (self.norm.weight, w["norm.weight"]),
            (self.norm.bias, w["norm.bias"]),
            (self.head.weight, w["readout.weight"]),
            (self.head.bias, w["readout.bias"]),
        ]
        for number, block in enumerate(cast("Iterator[Block]", self.blocks)):
            at = f"layers.{number}"
            maps = torch.cat([w[f"{at}.attention.{name}"].flatten(0, 1) for name in ("query", "key", "value")])
            output = w[f"{at}.attention.output"].transpose(0, 1).flatten(1)
            inner, outer = cast("nn.Linear", block.mlp[0]), cast("nn.Linear", block.mlp[2])
            block.qkv.bias.zero_()
            block.proj.bias.zero_()
            pairs += [
                (block.qkv.weight, maps),
                (block.proj.weight, output),
                (block.norm1.weight, w[f"{at}.norm_attention.weight"]),
                (block.norm1.bias, w[f"{at}.norm_attention.bias"]),
                (block.norm2.weight, w[f"{at}.norm_feedforward.weight"]),
                (block.norm2.bias, w[f"{at}.norm_feedforward.bias"]),
                (inner.weight, w[f"{at}.feedforward.inner.weight"]),
                (inner.bias, w[f"{at}.feedforward.inner.bias"]),
                (outer.weight, w[f"{at}.feedforward.outer.weight"]),
                (outer.bias, w[f"{at}.feedforward.outer.bias"]),
            ]
        for own, other in pairs:
            own.copy_(other)
        return self


@dataclass(frozen=True)
class VitPlan:
    """What is timed: the paper's ViT on frames of one side, and how much work a turn has."""

    device: str = "cuda"
    side: int = 64
    patch: int = 4
    heads: int = 8
    head_dim: int = 16
    depth: int = 4
    dropout: float = 0.0
    batch: int = 128
    models: int = 8
    images: int = 25_000
    steps: int = 20
    """Steps of every model in a turn, in every row."""
    turns: int = 5
    workers: int = 8

    @property
    def spec(self) -> EncoderSpec:
        """The spec of the encoder."""
        return EncoderSpec(
            heads=self.heads,
            head_dim=self.head_dim,
            depth=self.depth,
            inputs=3 * self.patch**2,
            tokens=(self.side // self.patch) ** 2 + 1,
            outputs=10,
            readout="class",
            dropout=self.dropout,
        )

    def train(self, precision: Literal["float32", "bf16"]) -> RealTrain:
        """Return the training settings; the learning rate does not change the amount of work."""
        return RealTrain(steps=100_000, warmup=100, batch=self.batch, precision=precision)


def drawn_images(count: int) -> Images:
    """Return images of noise: their content does not change the amount of work."""
    rng = torch.Generator().manual_seed(0)
    pixels = torch.randint(256, (count + 100, 32, 32, 3), generator=rng).to(torch.uint8)
    labels = torch.randint(10, (count + 100,), generator=rng)
    names = tuple(str(n) for n in range(10))
    return Images(pixels[:count], labels[:count], pixels[count:], labels[count:], names, "noise", "noise")


class Frames(Dataset[tuple[Tensor, Tensor]]):
    """Placed, mirrored and normalised frames, made one at a time by a DataLoader's workers."""

    def __init__(self, images: Images, side: int, by: ChannelMoments) -> None:
        self.images, self.side, self.by = images, side, by

    def __len__(self) -> int:
        return len(self.images.train_labels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        """Return a frame and its label."""
        rows, columns = torch.randint(self.side - 31, (2, 1))
        pixels = self.images.train_pixels[index : index + 1]
        frame = place_images(pixels, self.side, rows, columns, torch.rand(1) < 0.5, self.by)
        return frame[0], self.images.train_labels[index]


def _from_loader(plan: VitPlan, images: Images, by: ChannelMoments) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield batches forever, made on the CPU and copied while the device works."""
    on_gpu = plan.device != "cpu"
    frames = Frames(images, plan.side, ChannelMoments(by.mean.cpu(), by.deviation.cpu()))
    loader = DataLoader(
        frames,
        plan.batch,
        shuffle=True,
        drop_last=True,
        num_workers=plan.workers,
        pin_memory=on_gpu,
        persistent_workers=plan.workers > 0,
    )
    while True:
        for X, y in cast("Iterator[tuple[Tensor, Tensor]]", loader):
            yield X.to(plan.device, non_blocking=True), y.to(plan.device, non_blocking=True)


def _from_device(plan: VitPlan, device_images: ImagesOnDevice) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield batches forever, made on the device of the images."""
    count, batch, at = len(device_images.train_labels), plan.batch, device_images.train_pixels.device
    while True:
        index = torch.randint(count, (batch,), device=at)
        rows, columns = torch.randint(plan.side - 31, (2, batch), device=at)
        flip = torch.rand(batch, device=at) < 0.5
        pixels, moments = device_images.train_pixels[index], device_images.channel_moments
        yield place_images(pixels, plan.side, rows, columns, flip, moments), device_images.train_labels[index]


def plain_loop(
    plan: VitPlan, images: Images, device_images: ImagesOnDevice, source: Source, precision: Precision
) -> Work:
    """Return work that trains every model for the steps of a turn, one after the other, on ever new batches."""
    train, device = plan.train("float32"), torch.device(plan.device)
    models = [
        PlainViT(plan.spec, plan.patch).copy_weights(initial_weights(plan.spec, m)).to(device)
        for m in range(plan.models)
    ]
    optimisers, schedules = list[torch.optim.AdamW](), list[torch.optim.lr_scheduler.LambdaLR]()
    for model in models:
        named = dict(model.named_parameters())
        groups = [[p for p in named.values() if (p.ndim in (2, 4)) is pulled] for pulled in (True, False)]
        decays = (train.weight_decay, 0.0)
        optimiser = torch.optim.AdamW(
            [{"params": g, "weight_decay": d} for g, d in zip(groups, decays, strict=True)], lr=1.0, fused=True
        )
        optimisers.append(optimiser)
        schedules.append(torch.optim.lr_scheduler.LambdaLR(optimiser, train.rate))
    from_loader = source == "loader"
    batches = (
        _from_loader(plan, images, device_images.channel_moments) if from_loader else _from_device(plan, device_images)
    )

    def work() -> int:
        before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
        try:
            for model, optimiser, schedule in zip(models, optimisers, schedules, strict=True):
                for _ in range(plan.steps):
                    X, y = next(batches)
                    with _cast(device, precision):
                        loss = nn.functional.cross_entropy(model(X), y)
                    optimiser.zero_grad(set_to_none=True)
                    loss.backward()
                    nn.utils.clip_grad_norm_(model.parameters(), train.clip)
                    optimiser.step()
                    schedule.step()
        finally:
            torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before
        return plan.steps * plan.models

    return work


def _cast(device: torch.device, precision: Precision) -> AbstractContextManager[object]:
    """Return a context with bf16 autocast, or one that does nothing."""
    return torch.autocast(device.type, torch.bfloat16) if precision == "bf16" else nullcontext()


def stacked_loop(
    plan: VitPlan,
    device_images: ImagesOnDevice,
    precision: Literal["float32", "bf16"],
    *,
    graph: bool | None = None,
    attention: str | None = None,
) -> Work:
    """Return work that trains the same models side by side."""
    feed = ImageFeed(device_images, plan.side, patch=plan.patch)
    trainer = EncoderTrainer(
        plan.spec, plan.train(precision), list(range(plan.models)), feed, plan.device, graph=graph, attention=attention
    )

    def work() -> int:
        trainer.run(plan.steps)
        return plan.steps * plan.models

    return work
