"""A stack of models trained together on one device, each as if it were alone.

Each model has its own weights, learning rates, weight decay, target and batches; smaller models are padded with zeros
(`models/transformer/flat.py` explains why this changes nothing). On a GPU one step (gather, loss, gradient, Adam) is
captured once as a CUDA graph and replayed; elsewhere the same lines run eagerly. Batches and rates are prepared for a
block of steps at a time, outside the graph, which reads them at a cursor on the device: nothing is transferred during a
block, and the host is free. A model whose loss is not finite is frozen at its weights before that step, which does not
affect the others.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor

from headcount.core import BadInput
from headcount.kernels import adam_at, without_kernels
from headcount.models.transformer import Flat, ModelSpec, Transformer, covering_spec, forward, loss_and_gradient
from headcount.training.batches import FRESH_STEPS, stacked_fresh_order, stacked_indices, stream_keys
from headcount.training.checkpoint import Moments
from headcount.training.data import Fresh, Part
from headcount.training.spec import TrainSpec

Batches = Callable[[int, int], Tensor]
"""(first step, count) → index[count, models, batch], rows of the training set."""

_BLOCK_INDICES = 2**22  # indices in a block of batches: 32 MB
_CHUNK_TOKENS = 2**22  # tokens evaluated at once by all models together
_capturing = threading.Lock()


@contextmanager
def full_precision() -> Generator[None]:
    """Compute products in full float32: TF32, which a user may have enabled, ruins errors below 1e-6."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


class Pools:
    """Fresh sequences for a stack: the next pool is drawn on the host while the device trains on the current one."""

    def __init__(self, sources: Sequence[Fresh], pinned: bool) -> None:
        """Take one source per target; all have the same inputs."""
        self._sources, self._pinned, self._thread = sources, pinned, ThreadPoolExecutor(1)
        self._next: tuple[int, Future[Part]] | None = None

    def _draw(self, pool: int) -> Part:
        parts = [source.at(pool * FRESH_STEPS) for source in self._sources]
        X, y = parts[0].X, torch.stack([part.y for part in parts])
        return Part(X.pin_memory(), y.pin_memory()) if self._pinned else Part(X, y)

    def at(self, pool: int) -> Part:
        """Return one pool, X[samples, length, dim] and y[targets, samples, out_dim], and start drawing the next."""
        if self._next is None or self._next[0] != pool:
            self._next = pool, self._thread.submit(self._draw, pool)
        part = self._next[1].result()
        self._next = pool + 1, self._thread.submit(self._draw, pool + 1)
        return part

    def close(self) -> None:
        """Shut down the thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)


class StackTrainer:
    """M models trained together: their weights, Adam's moments, and the step that updates all of them."""

    def __init__(
        self,
        specs: ModelSpec | Sequence[ModelSpec],
        trains: Sequence[TrainSpec],
        seeds: Sequence[int],
        X: Float[Tensor, "samples length dim"],
        y: Float[Tensor, "*targets samples out_dim"],
        mask: Bool[Tensor, "samples length"] | None = None,
        *,
        targets: Sequence[int] | None = None,
        pools: Pools | None = None,
        batches: Batches | None = None,
        theta: Float[Tensor, "models size"] | None = None,
        graph: bool | None = None,
        plain: bool = False,
    ) -> None:
        """Place a stack on the device and in the dtype of X.

        specs: one for all models, or one per model. trains, seeds: one TrainSpec and one seed per model; the TrainSpecs
        may differ in everything but `batch`. y[samples, out_dim] is shared by all models; of
        y[targets, samples, out_dim] model m learns targets[m] (default: m). pools: fresh sequences, for which X and y
        serve as buffers. theta: the initial weights (default: drawn by seed). plain: use no kernels that would have to
        be compiled. batches: other rows of the training set than those drawn by seed. graph: for tests.
        """
        self.trains, self.seeds, self.models = list(trains), list(seeds), len(seeds)
        self.specs = [specs] * self.models if isinstance(specs, ModelSpec) else list(specs)
        self.flat, device = Flat.of(covering_spec(self.specs)), X.device
        self.X, self.y, self.mask, self.pools = X, y, mask, pools
        self.batch, self.plain = self.trains[0].batch, plain
        if not len(self.trains) == len(self.specs) == self.models or len({t.batch for t in self.trains}) != 1:
            raise BadInput("a stack needs one spec and one TrainSpec per model, all with the same batch")
        chosen = range(self.models) if targets is None else targets
        if y.ndim == 3 and not (len(chosen) == self.models and 0 <= min(chosen) <= max(chosen) < len(y)):
            raise BadInput(f"each of the {self.models} models needs a target in y[{len(y)}, samples, out_dim]")
        self.target = torch.tensor(list(chosen), device=device)[:, None]
        flats = {spec: Flat.of(spec) for spec in set(self.specs)}
        places = {spec: flat.places(self.flat) for spec, flat in flats.items()}
        self._places = [places[spec] for spec in self.specs]
        self.betas = None
        if len(flats) > 1:
            self.betas = torch.tensor([s.head_dim**-0.5 for s in self.specs], dtype=X.dtype, device=device)
        if theta is None:
            theta = torch.zeros(self.models, self.flat.size, dtype=X.dtype)
            for m, (spec, seed) in enumerate(zip(self.specs, self.seeds, strict=True)):
                packed = flats[spec].pack(Transformer(spec, seed=seed, dtype=X.dtype))
                theta[m, torch.from_numpy(self._places[m])] = torch.from_numpy(packed)
        self.theta = theta.detach().to(device, X.dtype, copy=True)
        self.first, self.second = torch.zeros_like(self.theta), torch.zeros_like(self.theta)
        self.alive = torch.ones(self.models, dtype=torch.bool, device=device)
        self.taken = torch.zeros(self.models, dtype=torch.int64, device=device)  # steps each model has taken
        self.steps = 0
        self._key = torch.from_numpy(stream_keys(self.seeds, "batches" if pools is None else "fresh order")).to(device)
        # trials that differ only in their learning rate or weight decay share one schedule
        unit_specs = [train.model_copy(update={"learning_rate": 1.0, "weight_decay": 0.0}) for train in self.trains]
        self._schedules = list(dict.fromkeys(unit_specs))
        self._schedule = np.array([self._schedules.index(unit_spec) for unit_spec in unit_specs])
        self._learning_rate = np.array([train.learning_rate for train in self.trains])
        self._decay = np.array([train.weight_decay for train in self.trains])
        self._decoupled = np.array([train.optimiser == "adamw" for train in self.trains])
        self.batches = batches
        self.block = max(1, min(256, _BLOCK_INDICES // (self.models * self.batch)))
        self._index = torch.zeros(self.block, self.models, self.batch, dtype=torch.int64, device=device)
        self._rates = torch.zeros(self.block, 4, self.models, dtype=X.dtype, device=device)
        self._losses = torch.zeros(self.block, self.models, dtype=X.dtype, device=device)
        self._cursor = torch.zeros(1, dtype=torch.int64, device=device)
        self._order: tuple[int, Tensor] | None = None
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._graph = self._capture() if graph is not False and device.type == "cuda" else None

    @contextmanager
    def on_own_stream(self) -> Generator[None]:
        """Run on this stack's own CUDA stream, in full precision, so that several stacks can run concurrently."""
        with full_precision(), without_kernels() if self.plain else nullcontext():
            if self.stream is None:
                yield
                return
            self.stream.wait_stream(torch.cuda.current_stream(self.X.device))  # wait for the caller's writes
            with torch.cuda.stream(self.stream):
                yield

    def _step(self) -> None:
        """Take one step of every model, entirely on the device, at the cursor of the block."""
        index = self._index.index_select(0, self._cursor)[0]
        y = self.y[index] if self.y.ndim == 2 else self.y[self.target, index]
        loss, gradient = loss_and_gradient(self.flat, self.theta, self.X, index, y, self.mask, self.betas)
        rates, losses = self._rates, self._losses
        adam_at(self.theta, gradient, self.first, self.second, rates, self.alive, self._cursor, loss, losses)
        self._cursor.add_(1)

    def _capture(self) -> torch.cuda.CUDAGraph:
        """Return the step as a CUDA graph, captured after a few runs that compile and allocate; restore the state."""
        assert self.stream is not None
        start = self.state()
        # a capture begins with a wait for the device, which is not allowed while another thread is capturing
        with _capturing, self.on_own_stream():
            for _ in range(3):
                self._cursor.zero_()
                self._step()
            self._cursor.zero_()
            self.stream.synchronize()
            graph = torch.cuda.CUDAGraph()
            # other stacks continue meanwhile, so only this thread must not wait for the device
            with torch.cuda.graph(graph, stream=self.stream, capture_error_mode="thread_local"):
                self._step()
            self.restore(start)
        return graph

    def rates(self, first: int, count: int) -> Float[Tensor, "count 4 models"]:
        """Return Adam's factors for each step: size, root, shrink, pull (see `kernels/adam/plain.py`)."""
        steps = np.arange(first + 1, first + count + 1)[:, None]
        shape = np.array([[spec.rate(step) for spec in self._schedules] for step in range(first, first + count)])
        rate = shape[:, self._schedule] * self._learning_rate
        root = np.broadcast_to(1.0 / np.sqrt(1.0 - 0.999**steps), rate.shape)
        pull = np.broadcast_to(np.where(self._decoupled, 0.0, self._decay), rate.shape)
        shrink = np.where(self._decoupled, 1.0 - rate * self._decay, 1.0)
        return torch.from_numpy(np.stack([rate / (1.0 - 0.9**steps), root, shrink, pull], axis=1))

    def _load(self, count: int) -> int:
        """Copy the batches and rates of the next steps to the device; return the number of steps they cover."""
        part = min(count, self.block)
        if self.pools is not None:
            pool, at = divmod(self.steps, FRESH_STEPS)
            part = min(part, FRESH_STEPS - at)
            if self._order is None or self._order[0] != pool:
                fresh = self.pools.at(pool)
                self.X.copy_(fresh.X, non_blocking=True)
                self.y.copy_(fresh.y if self.y.ndim == 3 else fresh.y[0], non_blocking=True)
                self._order = pool, stacked_fresh_order(self._key, pool, self.batch)
            index = self._order[1][at : at + part]
        elif self.batches is not None:
            index = self.batches(self.steps, part)
        else:
            index = stacked_indices(self._key, self.steps, part, self.batch, len(self.X))
        self._index[:part].copy_(index)
        rates = self.rates(self.steps, part).to(self.X.dtype)
        if self.stream is not None:
            rates = rates.pin_memory()  # a copy from pageable memory would wait for the device
        self._rates[:part].copy_(rates, non_blocking=True)
        self._cursor.zero_()
        return part

    def launch(self, count: int) -> list[Tensor]:
        """Start `count` steps without waiting for a GPU to finish; return the losses, in blocks, as device tensors."""
        losses: list[Tensor] = []
        with self.on_own_stream():
            while count > 0:
                part = self._load(count)
                before = self.alive.clone()
                for _ in range(part):
                    if self._graph is None:
                        self._step()
                    else:
                        self._graph.replay()
                loss = self._losses[:part].clone()
                self.taken += torch.where(before, torch.isfinite(loss).cumprod(0).sum(0), 0)
                losses.append(loss)
                self.steps, count = self.steps + part, count - part
        return losses

    def run(self, count: int) -> Float[Tensor, "count models"]:
        """Take `count` steps; return every model's loss before each step."""
        losses = self.launch(count)
        self.wait()  # the losses are about to be read on the caller's stream
        return torch.cat(losses)

    def wait(self) -> None:
        """Wait until the device has finished everything launched on this stack's stream."""
        if self.stream is not None:
            self.stream.synchronize()

    @torch.no_grad()
    def nmse(self, X: Tensor, y: Tensor, mask: Tensor | None = None) -> Float[Tensor, " models"]:
        """Return every model's MSE/Var(y) on a set of sequences (y as in the stack), like `loop.nmse` for one model."""
        with self.on_own_stream():
            targets = y.expand(self.models, *y.shape) if y.ndim == 2 else y[self.target[:, 0]]
            spread = (y.double() - y.double().mean(-2, keepdim=True)).square().sum((-2, -1))
            error = torch.zeros(self.models, dtype=torch.float64, device=X.device)
            for rows, out in self._chunks(self.theta, X, mask):
                error += (out - targets[:, rows]).double().square().sum((1, 2))
            return error / (spread if y.ndim == 2 else spread[self.target[:, 0]])

    @torch.no_grad()
    def outputs(
        self, theta: Float[Tensor, "models size"], X: Tensor, mask: Tensor | None = None
    ) -> Float[Tensor, "models samples out_dim"]:
        """Return the outputs of every model on a set of sequences, with these (padded) weights."""
        with self.on_own_stream():
            return torch.cat([out for _, out in self._chunks(theta, X, mask)], 1)

    def _chunks(self, theta: Tensor, X: Tensor, mask: Tensor | None) -> Generator[tuple[Tensor, Tensor]]:
        """Yield chunks of rows of X with the outputs of every model on them; chunks bound the memory."""
        chunk = max(1, _CHUNK_TOKENS // (self.models * X.shape[1]))
        for rows in torch.arange(len(X), device=X.device).split(chunk):
            index = rows.expand(self.models, -1).contiguous()
            yield rows, forward(self.flat, theta, X, index, mask, self.betas)

    def unpadded(self, theta: Float[Tensor, "models size"]) -> list[NDArray[Any]]:
        """Return each model's weights without the padding."""
        padded = theta.cpu().numpy()
        return [padded[m, at] for m, at in enumerate(self._places)]

    def moments(self) -> list[Moments]:
        """Return each model's state without the padding, with the number of steps it has taken."""
        theta, first, second = (t.cpu().numpy() for t in (self.theta, self.first, self.second))
        taken: list[int] = self.taken.tolist()
        return [Moments(theta[m, at], first[m, at], second[m, at], taken[m]) for m, at in enumerate(self._places)]

    def resume(self, moments: Sequence[Moments]) -> None:
        """Resume from one checkpoint per model, all of the same step."""
        for name in ("theta", "first", "second"):
            tensor = torch.zeros_like(getattr(self, name), device="cpu")
            for m, one in enumerate(moments):
                tensor[m, torch.from_numpy(self._places[m])] = torch.from_numpy(np.asarray(getattr(one, name)))
            getattr(self, name).copy_(tensor)
        self.steps = moments[0].step
        self.taken.fill_(self.steps)

    def state(self) -> dict[str, Tensor]:
        """Return a copy of weights, moments, alive, taken and steps, padding included."""
        names = ("theta", "first", "second", "alive", "taken")
        return {**{name: getattr(self, name).cpu().clone() for name in names}, "steps": torch.tensor(self.steps)}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Restore a state returned by `state`."""
        for name in ("theta", "first", "second", "alive", "taken"):
            getattr(self, name).copy_(state[name])
        self.steps = int(state["steps"])
