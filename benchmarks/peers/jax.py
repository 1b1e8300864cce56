"""A peer: many models at once in JAX, with jit, vmap over models, lax.scan over steps and batches drawn on the device.

JAX is not a dependency; it is imported only when it is used. The weights have the names of our reference's. All
products are in float32 (precision "highest"), because JAX's default on a GPU, TF32, is less precise than our engine.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from benchmarks.peers.turns import LEARNING_RATE, PeerUnavailable
from headcount.training import Part

Tree = dict[str, Any]


class Jax:
    """JAX on one device, with equation 4 and Adam."""

    def __init__(self, device: str) -> None:
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # or JAX takes most of the memory from torch
        try:
            self.jax: Any = importlib.import_module("jax")
        except ImportError:
            raise PeerUnavailable("JAX is not installed") from None
        try:
            self.device = self.jax.devices(device)[0]
        except RuntimeError:
            raise PeerUnavailable(f"JAX is installed without {device}") from None

    def put(self, value: Any) -> Any:
        """Move an array or a tree of arrays to the device, where jit then runs."""
        return self.jax.device_put(value, self.device)

    def arrays(self, part: Part) -> tuple[Any, Any]:
        """Return X and y on the device."""
        return self.put(part.X.cpu().numpy()), self.put(part.y.cpu().numpy())

    def start(self, weights: Mapping[str, Tensor], seed: int = 0) -> tuple[Tree, Tree, Tree, Any]:
        """Return the initial state of a stack: weights, Adam's moments and the key of the batches."""
        w = {name: self.put(tensor.detach().cpu().numpy()) for name, tensor in weights.items()}
        zero = self.jax.tree.map(self.jax.numpy.zeros_like, w)
        return w, zero, self.jax.tree.map(self.jax.numpy.zeros_like, w), self.put(self.jax.random.key(seed))

    def predict(self, w: Tree, x: Any) -> Any:
        """Return y[batch, out_dim] for x[batch, length, dim]: equation 4 for one model."""
        jax, jnp = self.jax, self.jax.numpy
        inner, outer, at, F = "encoder.inner", "encoder.outer", "layers.0.attention", "layers.0.feedforward.layers"
        with jax.default_matmul_precision("highest"):
            e = jax.nn.relu(x @ w[f"{inner}.weight"].T + w[f"{inner}.bias"])
            e = e @ w[f"{outer}.weight"].T + w[f"{outer}.bias"]
            c = w["class_token"]
            q = w[f"{at}.query"] @ c
            k, v = (jnp.einsum("hne,bte->bhtn", w[f"{at}.{name}"], e) for name in ("key", "value"))
            a = jax.nn.softmax(jnp.einsum("hn,bhtn->bht", q, k) / q.shape[1] ** 0.5, -1)
            u = c + jnp.einsum("hen,bhn->be", w[f"{at}.output"], jnp.einsum("bht,bhtn->bhn", a, v))
            hidden = jax.nn.gelu(u @ w[f"{F}.0.weight"].T + w[f"{F}.0.bias"], approximate=False)
            return hidden @ w[f"{F}.1.weight"].T + w[f"{F}.1.bias"]

    def rates(self, rates: Sequence[float], done: int = 0) -> tuple[Any, Any]:
        """Return Adam's step sizes and roots after `done` steps, with bias corrections, computed in float64."""
        t, rate = np.arange(done + 1, done + len(rates) + 1), np.asarray(rates)
        size, root = rate / (1 - 0.9**t), 1 / np.sqrt(1 - 0.999**t)
        return self.put((size.astype(np.float32), root.astype(np.float32)))

    def adam(self, w: Tree, m: Tree, v: Tree, g: Tree, size: Any, root: Any) -> tuple[Tree, Tree, Tree]:
        """Return the state after one step of Adam, as torch defines it."""
        jnp, over = self.jax.numpy, self.jax.tree.map
        m = over(lambda a, b: 0.9 * a + 0.1 * b, m, g)
        v = over(lambda a, b: 0.999 * a + 0.001 * b * b, v, g)
        return over(lambda a, b, c: a - size * b / (jnp.sqrt(c) * root + 1e-8), w, m, v), m, v

    def steps(self, models: int, batch: int) -> Any:
        """Return the function (state, rates, X, y) → state that takes a step for every rate; jit is the caller's."""
        jax, jnp = self.jax, self.jax.numpy

        def loss(w: Tree, x: Any, y: Any) -> Any:
            return jnp.square(self.predict(w, x) - y).mean()

        def run(state: Any, rates: Any, X: Any, y: Any) -> Any:
            def one(state: Any, now: Any) -> Any:
                w, m, v, key = state
                key, sub = jax.random.split(key)
                index = jax.random.randint(sub, (models, batch), 0, len(X))
                with jax.default_matmul_precision("highest"):  # the backward products too
                    g = jax.vmap(jax.grad(loss))(w, X[index], y[index])
                return (*self.adam(w, m, v, g, *now), key), None

            return jax.lax.scan(one, state, rates)[0]

        return run


class JaxTraining:
    """A stack of models trained by one compiled program of a fixed number of steps."""

    def __init__(self, device: str, weights: Mapping[str, Tensor], part: Part, batch: int, steps: int) -> None:
        self.peer = Jax(device)
        self.models, self.steps, self.done = len(next(iter(weights.values()))), steps, 0
        self.X, self.y = self.peer.arrays(part)
        self.state = self.peer.start(weights)
        self.program = self.peer.jax.jit(self.peer.steps(self.models, batch), donate_argnums=0)

    def run(self) -> int:
        """Take the steps and wait for them; return the number of model-steps."""
        rates = self.peer.rates([LEARNING_RATE] * self.steps, self.done)
        self.state = self.peer.jax.block_until_ready(self.program(self.state, rates, self.X, self.y))
        self.done += self.steps
        return self.steps * self.models
