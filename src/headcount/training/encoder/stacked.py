"""Training of deep encoders on real data: all seeds of one spec together, each model as if it were alone.

Each model has its own weights, batches, augmentation, dropout masks, gradient norm and moments. On a GPU one step
(forward, gradient, clip, AdamW; also the batch, if the feed allows it) is captured once as a CUDA graph and replayed on
the stack's own stream; elsewhere, and with graph=False, the same lines run eagerly. Batches and rates are prepared for
a block of steps at a time and read at a cursor on the device. A model whose loss or gradient is not finite is frozen at
its weights before that step.

Dropout masks come from one generator per model, reseeded from (seed, step) before every step: on the same device a
resumed run, a stack of another size and a captured step (the graph reads seed and offset at each replay) draw the same
masks.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from headcount.core import BadInput, splitmix64
from headcount.kernels import adam_at, fastest_attention, prefer_attention, tries_attention
from headcount.models.encoder import EncoderSpec, decayed, forward, initial, pack, shapes, size, step_numbers
from headcount.training.batches import stacked_indices, stream_keys
from headcount.training.checkpoint import Moments
from headcount.training.encoder.measures import cross_entropy, mask_padding_scores, ranks
from headcount.training.encoder.settings import Batch, Feed, PartName, RealTrain
from headcount.training.stacked import full_precision

__all__ = ["Batch", "EncoderTrainer", "Feed", "PartName", "RealTrain"]

_BLOCK_INDICES = 2**22  # indices in a block of batches: 32 MB
_CHUNK_HIDDEN_UNITS = {"cpu": 2**26, "cuda": 2**30}  # hidden units of all models held at once during evaluation
_STATE_TENSORS = ("theta", "first", "second", "alive", "taken")
MEASURES = ("accuracy", "mrr", "loss")
"""The measures of an evaluation, in this order."""


class EncoderTrainer:
    """The seeds of one spec, trained together on one device.

    theta, first, second[models, size], alive[models] and taken[models] are up to date once `wait` has returned.
    """

    def __init__(
        self,
        spec: EncoderSpec,
        train: RealTrain,
        seeds: Sequence[int],
        feed: Feed,
        device: torch.device | str,
        *,
        attention: str | None = None,
        graph: bool | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """Draw the weights by seed and place the stack.

        attention: the attention kernel; by default the fastest one on a GPU is found by trial, so name it if others use
        the device at the same time. graph, dtype (of the weights): for tests.
        """
        needed = (feed.inputs, feed.tokens, feed.outputs, feed.readout)
        if needed != (spec.inputs, spec.tokens, spec.outputs, spec.readout):
            raise BadInput(f"the encoder's inputs, tokens, outputs and readout must be those of the data, {needed}")
        if train.label_smoothing and spec.readout == "each":
            raise BadInput('label smoothing needs classes: with readout "each" use label_smoothing = 0')
        if not seeds:
            raise BadInput("a stack needs at least one seed")
        self.spec, self.train, self.seeds, self.feed = spec, train, list(seeds), feed
        self.device, self.models = torch.device(device), len(seeds)
        self.dtype = train.stream_dtype(self.device, dtype)
        self.read: Tensor | None = getattr(feed, "read", None)
        packed = [pack(spec, initial(spec, seed)) for seed in seeds]
        self.theta = torch.stack(packed).to(self.device, dtype)
        self.first, self.second = torch.zeros_like(self.theta), torch.zeros_like(self.theta)
        self.alive = torch.ones(self.models, dtype=torch.bool, device=self.device)
        self.taken = torch.zeros(self.models, dtype=torch.int64, device=self.device)  # steps each model has taken
        self.steps = 0
        decay_masks = [torch.full((math.prod(shape),), float(decayed(name))) for name, shape in shapes(spec).items()]
        self._decay_mask = torch.cat(decay_masks).to(self.device, dtype)
        self._key = torch.from_numpy(stream_keys(self.seeds, "batches")).to(self.device)
        self._dropout_key = stream_keys(self.seeds, "dropout")
        self._generators = [torch.Generator(self.device) for _ in range(self.models if spec.dropout else 0)]
        self.block = max(1, min(256, _BLOCK_INDICES // (self.models * train.batch)))
        self._index = torch.zeros(self.block, self.models, train.batch, dtype=torch.int64, device=self.device)
        self._rates = torch.zeros(self.block, 4, self.models, dtype=dtype, device=self.device)
        self._decay_rates = torch.zeros(self.block, dtype=dtype, device=self.device)
        self._losses = torch.zeros(self.block, self.models, dtype=dtype, device=self.device)
        self._cursor = torch.zeros(1, dtype=torch.int64, device=self.device)
        self._first_step = torch.zeros((), dtype=torch.int64, device=self.device)  # of the block
        self.stream = torch.cuda.Stream(self.device) if self.device.type == "cuda" else None
        self.attention = attention or choose_attention(spec, train, self.models, feed, self.device)
        self._batch: Batch | None = None  # buffers from which a captured step reads a batch prepared outside the graph
        self._graph = self._capture() if self.stream is not None and graph is not False else None

    @contextmanager
    def on_own_stream(self) -> Generator[None]:
        """Run on this stack's own CUDA stream, with its attention kernel and without TF32."""
        with full_precision(), prefer_attention(self.attention):
            if self.stream is None:
                yield
                return
            self.stream.wait_stream(torch.cuda.current_stream(self.device))  # wait for the caller's writes
            with torch.cuda.stream(self.stream):
                yield

    def _draw_keep_mask(self, shape: torch.Size, dtype: torch.dtype) -> Tensor:
        """Draw a dropout mask, 1 where a number is kept; each model's part comes from its own generator."""
        mask = torch.empty(shape, dtype=dtype, device=self.device)
        for part, generator in zip(mask, self._generators, strict=True):
            part.bernoulli_(1.0 - self.spec.dropout, generator=generator)
        return mask

    def _gradient(self, batch: Batch) -> tuple[Float[Tensor, " models"], Float[Tensor, "models size"]]:
        """Return every model's loss and gradient on its own batch."""
        X, y, mask = batch
        draw_mask = self._draw_keep_mask if self._generators else None
        with torch.enable_grad():
            leaf = self.theta.detach().requires_grad_()
            scores = forward(self.spec, leaf, X, mask, dtype=self.dtype, draw_mask=draw_mask, read=self.read)
            if self.spec.readout == "each":
                scores = mask_padding_scores(scores, mask, self.read)
            loss = cross_entropy(scores, y, self.train.label_smoothing)
            (gradient,) = torch.autograd.grad(loss.sum(), leaf)
        return loss.detach(), gradient

    def _step(self, batch: Batch | None) -> None:
        """Take one step of every model at the cursor of the block; without a batch, get it from the feed."""
        if batch is None:
            index = self._index.index_select(0, self._cursor)[0]
            batch = self.feed.train(index, self._first_step + self._cursor[0], self.seeds)  # pyright: ignore[reportArgumentType]
        loss, gradient = self._gradient(batch)
        norm = _gradient_norms(gradient)
        self.alive.logical_and_(torch.isfinite(loss) & torch.isfinite(norm))
        gradient.mul_((self.train.clip / (norm + 1e-6)).clamp(max=1.0)[:, None])
        decay = self._decay_rates.index_select(0, self._cursor) * self._decay_mask
        self.theta.mul_(1.0 - self.alive[:, None] * decay)  # exactly 1 for a frozen model
        loss = torch.where(self.alive, loss, torch.nan)
        rates, losses = self._rates, self._losses
        adam_at(self.theta, gradient, self.first, self.second, rates, self.alive, self._cursor, loss, losses)
        self.taken.add_(self.alive)
        self._cursor.add_(1)

    def _make_batch(self, place: int) -> Batch | None:
        """Return the batch for a place in the block; None if the captured step makes it itself."""
        if getattr(self.feed, "captured", False):
            return None
        return self.feed.train(self._index[place], self.steps + place, self.seeds)

    def _capture(self) -> torch.cuda.CUDAGraph:
        """Return the step as a CUDA graph, captured after a few runs that compile and allocate; restore the state."""
        assert self.stream is not None
        with self.on_own_stream():
            start = {name: getattr(self, name).clone() for name in _STATE_TENSORS}
            self._load(1)
            batch = self._make_batch(0)
            if batch is not None:
                X, y, mask = batch
                self._batch = X.to(self.dtype, copy=True), y.clone(), None if mask is None else mask.clone()
            for _ in range(3):
                self._seed_dropout(self.steps)
                self._cursor.zero_()
                self._step(self._batch)
            self._cursor.zero_()
            self.stream.synchronize()
            graph = torch.cuda.CUDAGraph()
            for generator in self._generators:
                graph.register_generator_state(generator)
            # other stacks continue meanwhile, so only this thread must not wait for the device
            with torch.cuda.graph(graph, stream=self.stream, capture_error_mode="thread_local"):
                self._step(self._batch)
            for name, tensor in start.items():
                getattr(self, name).copy_(tensor)
        return graph

    def _seed_dropout(self, step: int) -> None:
        """Seed every model's generator for one step."""
        if self._generators:
            seeds = splitmix64(self._dropout_key, np.full(1, step + 1)) & 0x7FFFFFFFFFFFFFFF
            for generator, seed in zip(self._generators, seeds.tolist(), strict=True):
                generator.manual_seed(seed)

    def _load(self, count: int) -> int:
        """Copy the batches and rates of the next steps to the device; return the number of steps they cover."""
        part = min(count, self.block)
        index = stacked_indices(self._key, self.steps, part, self.train.batch, self.feed.train_size)
        self._index[:part].copy_(index)
        at = np.arange(self.steps + 1, self.steps + part + 1)
        rate = np.array([self.train.rate(step) for step in range(self.steps, self.steps + part)])
        adam = np.stack([rate / (1.0 - 0.9**at), 1.0 / np.sqrt(1.0 - 0.999**at), np.ones(part), np.zeros(part)], axis=1)
        table = torch.from_numpy(np.concatenate([adam, rate[:, None] * self.train.weight_decay], axis=1))
        table = table.to(self.theta.dtype)
        if self.stream is not None:
            table = table.pin_memory()  # a copy from pageable memory would wait for the device
        table = table.to(self.device, non_blocking=True)
        self._rates[:part].copy_(table[:, :4, None].expand(-1, -1, self.models))
        self._decay_rates[:part].copy_(table[:, 4])
        self._first_step.fill_(self.steps)
        self._cursor.zero_()
        return part

    def launch(self, steps: int) -> list[Float[Tensor, "block models"]]:
        """Start `steps` steps without waiting for a GPU to finish; return the losses before each step, in blocks.

        A frozen model's losses are NaN.
        """
        losses: list[Tensor] = []
        with self.on_own_stream():
            while steps > 0:
                part = self._load(steps)
                for place in range(part):
                    self._seed_dropout(self.steps + place)
                    self._replay(self._make_batch(place))
                losses.append(self._losses[:part].clone())
                self.steps, steps = self.steps + part, steps - part
        return losses

    def _replay(self, batch: Batch | None) -> None:
        """Take the step at the cursor: replay the captured graph if there is one."""
        if self._graph is None:
            self._step(batch)
            return
        if batch is not None and self._batch is not None:
            for buffer, values in zip(self._batch, batch, strict=True):
                if buffer is not None and values is not None:
                    buffer.copy_(values)
        self._graph.replay()

    def run(self, steps: int) -> Float[Tensor, "steps models"]:
        """Take `steps` steps; return every model's loss before each step."""
        losses = self.launch(steps)
        self.wait()  # the losses are about to be read on the caller's stream
        return torch.cat(losses)

    def wait(self) -> None:
        """Wait until the device has finished everything launched on this stack's stream."""
        if self.stream is not None:
            self.stream.synchronize()

    def evaluate(self, part: PartName, limit: int | None = None) -> dict[str, Float[Tensor, " models"]]:
        """Return every model's accuracy, mrr and loss on (the first `limit` samples of) a part, on the CPU.

        mrr is the mean of 1/rank of the right class or candidate.
        """
        measured = self.measure(part, limit)
        self.wait()
        return dict(zip(MEASURES, measured.cpu(), strict=True))

    @torch.no_grad()
    def measure(self, part: PartName, limit: int | None = None) -> Float[Tensor, "3 models"]:
        """Start an evaluation without waiting for a GPU to finish; return the values of MEASURES, on the device."""
        samples = self.feed.train_size if part == "train" else self.feed.validation_size
        samples = samples if limit is None else min(limit, samples)
        chunk = max(1, _CHUNK_HIDDEN_UNITS[self.device.type] // (self.models * _hidden_units(self.spec)))
        with self.on_own_stream():
            sums = torch.zeros(3, self.models, dtype=torch.float64, device=self.device)
            for first in range(0, samples, chunk):
                X, y, mask = self.feed.part(part, first, min(chunk, samples - first))
                scores = forward(self.spec, self.theta, X, mask, dtype=self.dtype, read=self.read)
                if self.spec.readout == "each":
                    scores = mask_padding_scores(scores, mask, self.read)
                targets = y.expand(self.models, -1)
                rank = ranks(scores, targets)
                loss = cross_entropy(scores, targets) * len(y)
                sums += torch.stack([(rank == 1).sum(1).double(), rank.double().reciprocal().sum(1), loss.double()])
            return sums / samples

    def moments(self) -> list[Moments]:
        """Return each model's state, with the number of steps it has taken."""
        with self.on_own_stream():
            theta, first, second = (t.cpu().numpy().copy() for t in (self.theta, self.first, self.second))
            taken: list[int] = self.taken.tolist()
        return [Moments(theta[m], first[m], second[m], taken[m]) for m in range(self.models)]

    def resume(self, moments: Sequence[Moments]) -> None:
        """Resume from one checkpoint per model, all of the same step."""
        if len(moments) != self.models or len({one.step for one in moments}) != 1:
            raise BadInput(f"resuming needs {self.models} checkpoints of the same step")
        if any(len(one.theta) != size(self.spec) for one in moments):
            raise BadInput(f"the checkpoints do not fit the encoder: it has {size(self.spec)} weights")
        with self.on_own_stream():
            for name in ("theta", "first", "second"):
                getattr(self, name).copy_(torch.from_numpy(np.stack([getattr(one, name) for one in moments])))
            self.alive.fill_(True)
            self.steps = moments[0].step
            self.taken.fill_(self.steps)


def choose_attention(spec: EncoderSpec, train: RealTrain, models: int, feed: Feed, device: torch.device) -> str | None:
    """Return the fastest attention kernel for a stack, by trial on an otherwise idle GPU; None leaves it to torch."""
    dtype = train.stream_dtype(device)
    if not tries_attention(spec.tokens, dtype, device):
        return None
    masked = feed.part("validation", 0, 1)[2] is not None
    return fastest_attention(models * train.batch, spec.tokens, spec.head_dim, dtype, masked, device)


def stack_bytes(spec: EncoderSpec, train: RealTrain, models: int, feed: Feed, device: torch.device) -> int:
    """Estimate the bytes that a stack needs: weights, moments and gradient, a captured step, and an evaluation."""
    samples, sample_units = max(feed.train_size, feed.validation_size), models * _hidden_units(spec)
    evaluated = min(max(_CHUNK_HIDDEN_UNITS[device.type], sample_units), samples * sample_units)
    numbers = step_numbers(spec, models * train.batch) + 4 * evaluated  # the hidden layer twice, and as much around it
    return train.stream_dtype(device).itemsize * numbers + 5 * torch.float32.itemsize * models * size(spec)


def _hidden_units(spec: EncoderSpec) -> int:
    """Return the hidden units of one sample in one layer: the largest tensor of its evaluation."""
    return spec.tokens * spec.expansion * spec.width


def _gradient_norms(gradient: Float[Tensor, "models size"]) -> Float[Tensor, " models"]:
    """Return the norm of every model's gradient, which clipping limits."""
    return torch.linalg.vector_norm(gradient, dim=1)
