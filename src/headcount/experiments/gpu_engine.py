"""A stack of models trained side by side on one device, every model as if it were alone.

Each model keeps its own weights, rates, weight decay, target and batches. On a GPU one step (indices, gather, loss,
gradient, Adam) is captured once as a CUDA graph and replayed; elsewhere the same lines run eagerly. Batches and rates
are made for a block of steps at a time, outside the graph, which reads them at a cursor that lives on the device: so
nothing crosses to the device during a block, and the host is free. A model whose loss is not finite is frozen at the
weights it had before that step; the others do not notice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from headcount.base.errors import BadInput
from headcount.experiments.batches import batch_indices
from headcount.experiments.spec import TrainSpec
from headcount.models.flat import Flat
from headcount.models.reference import Transformer
from headcount.models.spec import ModelSpec
from headcount.models.stacked import adam, forward, loss_and_gradient

Batches = Callable[[int, int], Tensor]
"""(first step, count) → index[count, models, batch], rows of the training set."""

_BLOCK_INDICES = 2**24  # numbers in a block of batches: 128 MB
_CHUNK_TOKENS = 2**24  # tokens that all models together evaluate at once


def loop_batches(seeds: Sequence[int], samples: int, batch: int) -> Batches:
    """The batches of the plain loop, drawn on the host."""

    def draw(first: int, count: int) -> Tensor:
        rows = [batch_indices(seed, first, count, batch, samples) for seed in seeds]
        return torch.from_numpy(np.stack(rows, axis=1))

    return draw


def hashed_batches(seeds: Sequence[int], samples: int, batch: int, device: torch.device | str = "cpu") -> Batches:
    """Batches drawn on the device: a hash (splitmix64) of the trial's seed, the step and the place in the batch.

    Any block may be asked for at any time, and a trial's batches depend on nothing but its own seed.
    """
    states = [np.random.SeedSequence([seed, *b"hashed batches"]).generate_state(1, np.uint64) for seed in seeds]
    keys = torch.from_numpy(np.concatenate(states).astype(np.int64)).to(device)

    def draw(first: int, count: int) -> Tensor:
        place = torch.arange(1, count * batch + 1, device=device).reshape(count, 1, batch) + first * batch
        z = keys[:, None] + place * -0x61C8864680B583EB  # 0x9E3779B97F4A7C15 as a signed number; products wrap
        z = (z ^ ((z >> 30) & 0x3FFFFFFFF)) * -0x40A7B892E31B1A47
        z = (z ^ ((z >> 27) & 0x1FFFFFFFFF)) * -0x6B2FB644ECCEEE15
        z = z ^ ((z >> 31) & 0x1FFFFFFFF)
        return (((z >> 33) & 0x7FFFFFFF) * samples) >> 31

    return draw


class StackTrainer:
    """M models of one spec: weights, Adam's moments, and the step that moves them all."""

    def __init__(
        self,
        spec: ModelSpec,
        trains: Sequence[TrainSpec],
        seeds: Sequence[int],
        X: Float[Tensor, "samples length dim"],
        y: Float[Tensor, "*models samples out_dim"],
        mask: Bool[Tensor, "samples length"] | None = None,
        *,
        batches: Batches | None = None,
        theta: Float[Tensor, "models size"] | None = None,
        graph: bool | None = None,
    ) -> None:
        """Place a stack on the device and in the dtype of X.

        One TrainSpec and one seed a model; the specs may differ in all but `batch`. y[samples, out_dim] is shared,
        y[models, samples, out_dim] gives each model its own target. Weights are drawn by seed unless handed in;
        batches are hashed on the device unless handed in. `graph` is for tests: None captures wherever it can.
        """
        self.flat, self.trains, self.seeds = Flat.of(spec), list(trains), list(seeds)
        self.X, self.y, self.mask, device = X, y, mask, X.device
        self.models, self.batch = len(self.seeds), self.trains[0].batch
        if len(self.trains) != self.models or len({train.batch for train in self.trains}) != 1:
            raise BadInput("a stack needs one TrainSpec a model, all with the same batch")
        if y.ndim == 3 and len(y) != self.models:
            raise BadInput(f"own targets must be y[{self.models}, samples, out_dim], not {tuple(y.shape)}")
        if theta is None:
            packed = [self.flat.pack(Transformer(spec, seed=seed, dtype=X.dtype)) for seed in self.seeds]
            theta = torch.from_numpy(np.stack(packed))
        self.theta = theta.detach().to(device, X.dtype, copy=True)
        self.first, self.second = torch.zeros_like(self.theta), torch.zeros_like(self.theta)
        self.alive = torch.ones(self.models, dtype=torch.bool, device=device)
        self.steps = 0
        self.batches = batches or hashed_batches(self.seeds, len(X), self.batch, device)
        self.block = max(1, min(256, _BLOCK_INDICES // (self.models * self.batch)))
        self._index = torch.zeros(self.block, self.models, self.batch, dtype=torch.int64, device=device)
        self._rates = torch.zeros(self.block, 4, self.models, dtype=X.dtype, device=device)
        self._losses = torch.zeros(self.block, self.models, dtype=X.dtype, device=device)
        self._cursor = torch.zeros(1, dtype=torch.int64, device=device)
        self._own = torch.arange(self.models, device=device)[:, None]
        self._graph = self._capture() if graph is not False and device.type == "cuda" else None

    def _step(self) -> None:
        """One step of every model, all on the device, at the cursor of the block."""
        index = self._index.index_select(0, self._cursor)[0]
        y = self.y[index] if self.y.ndim == 2 else self.y[self._own, index]
        loss, gradient = loss_and_gradient(self.flat, self.theta, self.X, index, y, self.mask)
        self.alive.logical_and_(torch.isfinite(loss))
        rates = self._rates.index_select(0, self._cursor)[0]
        adam(self.theta, gradient, self.first, self.second, rates, self.alive)
        self._losses.index_copy_(0, self._cursor, loss[None])
        self._cursor.add_(1)

    def _capture(self) -> torch.cuda.CUDAGraph:
        """Run the step a few times, so that all is compiled and allocated, put the state back, and record it."""
        start = self.state()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self._cursor.zero_()
                self._step()
        torch.cuda.current_stream().wait_stream(side)
        self._cursor.zero_()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._step()
        self.restore(start)
        return graph

    def rates(self, first: int, count: int) -> Float[Tensor, "count 4 models"]:
        """Return what Adam multiplies by in each step: size, root, shrink, pull (`kernels/adam.py`)."""
        steps = np.arange(first + 1, first + count + 1)[:, None]
        shapes: dict[tuple[int, str, int], list[float]] = {}  # one schedule for all trials that differ in height alone
        for train in self.trains:
            key = (train.warmup, train.schedule, train.steps)
            if key not in shapes:
                one = train.model_copy(update={"learning_rate": 1.0})
                shapes[key] = [one.rate(step) for step in range(first, first + count)]
        rate = np.array([[t.learning_rate] for t in self.trains]) * np.array(
            [shapes[t.warmup, t.schedule, t.steps] for t in self.trains]
        )
        rate, decay = rate.T, np.array([t.weight_decay for t in self.trains])
        decoupled = np.array([t.optimiser == "adamw" for t in self.trains])
        root = np.broadcast_to(1.0 / np.sqrt(1.0 - 0.999**steps), rate.shape)
        pull = np.broadcast_to(np.where(decoupled, 0.0, decay), rate.shape)
        shrink = np.where(decoupled, 1.0 - rate * decay, 1.0)
        return torch.from_numpy(np.stack([rate / (1.0 - 0.9**steps), root, shrink, pull], axis=1))

    def run(self, count: int) -> Float[Tensor, "count models"]:
        """Take `count` steps; return the loss of every model before each of them, NaN from where one diverged."""
        losses: list[Tensor] = []
        while count > 0:
            part = min(count, self.block)
            self._index[:part].copy_(self.batches(self.steps, part))
            self._rates[:part].copy_(self.rates(self.steps, part))
            self._cursor.zero_()
            for _ in range(part):
                if self._graph is None:
                    self._step()
                else:
                    self._graph.replay()
            losses.append(self._losses[:part].clone())
            self.steps, count = self.steps + part, count - part
        return torch.cat(losses)

    def refill(self, X: Float[Tensor, "samples length dim"], y: Float[Tensor, "*models samples out_dim"]) -> None:
        """Put fresh data in the place of the old, which the captured step goes on reading."""
        self.X.copy_(X)
        self.y.copy_(y)

    @torch.no_grad()
    def nmse(
        self,
        X: Float[Tensor, "samples length dim"],
        y: Float[Tensor, "*models samples out_dim"],
        mask: Bool[Tensor, "samples length"] | None = None,
    ) -> Float[Tensor, " models"]:
        """Return every model's MSE/Var(y) on a set of sequences, as `train.nmse` does for one."""
        targets = y.expand(self.models, *y.shape[-2:])
        spread = (y.double() - y.double().mean(-2, keepdim=True)).square().sum((-2, -1))
        error = torch.zeros(self.models, dtype=torch.float64, device=X.device)
        chunk = max(1, _CHUNK_TOKENS // (self.models * X.shape[1]))
        for rows in torch.arange(len(X), device=X.device).split(chunk):
            out = forward(self.flat, self.theta, X, rows.expand(self.models, -1).contiguous(), mask)
            error += (out - targets[:, rows]).double().square().sum((1, 2))
        return error / spread

    def model(self, m: int) -> Transformer:
        """Return one model of the stack as a reference model on the CPU."""
        return self.flat.unpack(self.theta[m].cpu().numpy())

    def state(self) -> dict[str, Tensor]:
        """Return what a checkpoint must hold: weights, moments, marks, steps done."""
        tensors = {"theta": self.theta, "first": self.first, "second": self.second, "alive": self.alive}
        return {**{name: t.cpu().clone() for name, t in tensors.items()}, "steps": torch.tensor(self.steps)}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Go on from a checkpoint of the same stack."""
        for name in ("theta", "first", "second", "alive"):
            getattr(self, name).copy_(state[name])
        self.steps = int(state["steps"])
