"""Everything about the GPU path in one run: precision, determinism, speed beside what people use instead.

    python benchmarks/gpu_check.py OUT [check] [tune] [profile] [time] [peers] [vmap]

prints tables and writes OUT/gpu_check.json. Without names it runs check, time and peers.
"""

# ruff: noqa: T201
from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import torch
from torch import Tensor, nn

from headcount.experiments.gpu_engine import StackTrainer
from headcount.experiments.spec import TrainSpec
from headcount.kernels.pool import pool_plain
from headcount.kernels.pool_triton import pool_triton
from headcount.models.flat import Flat
from headcount.models.spec import ModelSpec

DIM, HIDDEN, HEADS, HEAD_DIM, BATCH, SAMPLES = 4, 32, 4, 8, 256, 8000
LENGTHS = (8, 32, 128)
NAMES = ("W1", "hidden_bias", "score", "score_bias")

# models, samples, batch, length, dim, hidden, heads, positions, gates, mask, size of the scores
CASES = [
    (8, 300, 256, 128, 4, 32, 4, False, False, False, 1.0),
    (8, 300, 256, 32, 4, 32, 4, False, False, False, 1.0),
    (8, 300, 256, 8, 4, 32, 4, False, False, False, 1.0),
    (2, 40, 33, 1, 1, 17, 1, False, True, False, 1.0),
    (3, 20, 9, 1000, 4, 32, 4, True, True, True, 1.0),
    (3, 20, 19, 7, 3, 17, 17, True, True, True, 1.0),
    (2, 20, 19, 77, 16, 64, 5, True, False, True, 1.0),
    (2, 20, 19, 40, 9, 48, 3, False, True, True, 1.0),
    (4, 60, 50, 100, 4, 32, 4, False, True, True, 1e3),
    (4, 60, 50, 16, 4, 32, 4, False, False, False, 1e3),
]


def draw(case: tuple[Any, ...]) -> dict[str, Tensor | None]:
    """Random arguments of `pool` for one case."""
    M, S, B, T, d, N, h, positions, gates, mask, size = case
    g = torch.Generator(device="cuda").manual_seed(7)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=g, device="cuda")

    known = torch.rand(S, T, generator=g, device="cuda") < 0.6
    known[:, 0] = True
    return {
        "x": normal(S, T, d), "index": torch.randint(S, (M, B), generator=g, device="cuda"),
        "W1": normal(M, d, N) / d**0.5, "hidden_bias": normal(M, T if positions else 1, N) / 2,
        "score": size * normal(M, h, N) / N**0.5, "score_bias": normal(M, h, T) if gates else None,
        "mask": known if mask else None,
    }  # fmt: skip


def values(function: Callable[..., Tensor], data: dict[str, Any], dtype: torch.dtype) -> dict[str, Tensor]:
    """Pooled state and all gradients."""
    data = {k: v.to(dtype, copy=True) if v is not None and v.is_floating_point() else v for k, v in data.items()}
    names = [n for n in NAMES if data[n] is not None]
    out = function(**{**data, **{n: data[n].requires_grad_() for n in names}})
    d = torch.randn(8, *out.shape[1:], generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    gradients = torch.autograd.grad(out, [data[n] for n in names], d[: len(out)].to("cuda", dtype))
    return {"pooled": out.detach(), **dict(zip(names, gradients, strict=True))}


def check() -> list[dict[str, Any]]:
    """Relative errors against float64, beside those of the float32 twin; two runs and a smaller stack, bit for bit."""
    rows: list[dict[str, Any]] = []
    for case in CASES:
        data = draw(case)
        exact, twin = values(pool_plain, data, torch.float64), values(pool_plain, data, torch.float32)
        ours, again = values(pool_triton, data, torch.float32), values(pool_triton, data, torch.float32)
        alone = {k: v[:1].clone() if v is not None and k not in ("x", "mask") else v for k, v in data.items()}
        single = values(pool_triton, alone, torch.float32)

        def error(found: dict[str, Tensor], q: float, exact: dict[str, Tensor] = exact) -> float:
            """The q-quantile over models of the relative error, the worst over tensors.

            A hidden unit within rounding of 0 may fall on either side of the ReLU, and with millions of them one does:
            that moves one model's gradient by one token's share, so the median over models judges the arithmetic.
            """
            norm = {k: torch.linalg.vector_norm(v.flatten(1), dim=1) for k, v in exact.items()}
            least = 0.05 * max(float(v.max()) for v in norm.values())  # at T = 1 some gradients are exactly 0
            each = [
                torch.linalg.vector_norm((found[k] - exact[k]).flatten(1), dim=1) / norm[k].clamp_min(least)
                for k in exact
            ]
            return max(float(torch.quantile(e.double(), q, interpolation="lower")) for e in each)

        row = {"case": case, "triton": error(ours, 0.5), "triton worst": error(ours, 1.0)}
        row |= {"float32 twin": error(twin, 0.5), "float32 twin worst": error(twin, 1.0)}
        row["repeats"] = all(torch.equal(ours[k], again[k]) for k in ours)
        row["alone equals stacked"] = all(torch.equal(ours[k][:1], single[k]) for k in ours)
        exact_enough = row["triton"] < (1e-5 if case[-1] == 1 else 1e-3)
        row["passes"] = exact_enough and row["repeats"] and row["alone equals stacked"]
        rows.append(row)
        print(row, flush=True)
    return rows


def stack(models: int, length: int, **options: Any) -> StackTrainer:
    """The paper's synthetic model, stacked."""
    spec = ModelSpec(dim=DIM, length=length, heads=HEADS, head_dim=HEAD_DIM, hidden=HIDDEN)
    g = torch.Generator(device="cuda").manual_seed(0)
    X = torch.randn(SAMPLES, length, DIM, generator=g, device="cuda")
    y = X.amax(1).sum(1, keepdim=True)
    y = (y - y.mean()) / y.std()
    theta = torch.randn(models, Flat.of(spec).size, generator=g, device="cuda") * 0.2
    return StackTrainer(spec, [TrainSpec()] * models, list(range(models)), X, y, theta=theta, **options)


def timed(function: Callable[[], Any], repeats: int = 5) -> float:
    """The median of several runs, in seconds."""
    function()
    times: list[float] = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        start = time.perf_counter()
        function()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def tune() -> list[dict[str, Any]]:
    """Time forward and backward of the pooling alone for many ways to cut the batch."""
    import triton

    rows: list[dict[str, Any]] = []
    models = 256
    for length in LENGTHS:
        data = draw((models, SAMPLES, BATCH, length, DIM, HIDDEN, HEADS, False, False, False, 1.0))
        leaves = [data[n].requires_grad_() for n in NAMES[:3]]
        for tokens, warps, registers in ((16, 1, 0), (16, 1, 168), (32, 1, 0), (32, 1, 168), (64, 1, 0), (64, 2, 0)):
            for tiles in (8,):
                tuning = {"tokens": tokens, "warps": warps, "tiles": tiles, "registers": registers}
                out = pool_triton(**data, **tuning)
                d = torch.randn_like(out)
                there = triton.testing.do_bench(
                    lambda q=data, t=tuning: pool_triton(**q, **t), warmup=10, rep=30, return_mode="median"
                )
                back = triton.testing.do_bench(
                    lambda o=out, g=d, q=leaves: torch.autograd.grad(o, q, g, retain_graph=True),
                    warmup=10, rep=30, return_mode="median")  # fmt: skip
                rows.append({"T": length, **tuning, "forward": there / models * 1e3, "backward": back / models * 1e3})
                print({k: round(v, 3) for k, v in rows[-1].items()}, flush=True)
    return rows


def profile() -> list[dict[str, Any]]:
    """Where the time of one step goes, kernel by kernel, in µs a model."""
    rows: list[dict[str, Any]] = []
    for length in LENGTHS:
        trainer = stack(256, length)
        trainer.run(20)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
            trainer.run(10)
            torch.cuda.synchronize()
        events = sorted(seen.key_averages(), key=lambda e: -e.device_time_total)
        total = sum(e.device_time_total for e in events) / 2560
        print(f"T = {length}: {total:.2f} µs of kernels a model-step, {sum(e.count for e in events) / 10:.0f} kernels")
        for event in events[:22]:
            each = event.device_time_total / 2560
            rows.append({"T": length, "kernel": event.key[:90], "us": each, "count": event.count / 10})
            print(f"   {each:7.3f}  {event.count / 10:5.1f}  {event.key[:100]}", flush=True)
    return rows


def ours() -> dict[str, float]:
    """µs a model-step of a whole training step, everything included."""
    out: dict[str, float] = {}
    for length in LENGTHS:
        for models in (256, 1024):
            trainer = stack(models, length)
            steps = 2 * trainer.block
            out[f"T={length} models={models}"] = timed(lambda t=trainer, s=steps: t.run(s), 3) / steps / models * 1e6
            print(f"ours T={length} models={models}: {out[f'T={length} models={models}']:.2f} µs", flush=True)
            assert bool(trainer.alive.all())
    return out


class ClassQuery(nn.Module):
    """nn.MultiheadAttention with the class token as the only query."""

    def __init__(self, everything: bool) -> None:
        super().__init__()
        E = HEADS * HEAD_DIM
        self.everything = everything
        self.encoder = nn.Sequential(nn.Linear(DIM, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, E))
        self.token = nn.Parameter(torch.randn(1, 1, E))
        self.attention = nn.MultiheadAttention(E, HEADS, batch_first=True)
        self.head = nn.Sequential(nn.Linear(E, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, 1))

    def forward(self, X: Tensor) -> Tensor:
        e = self.encoder(X)
        c = self.token.expand(len(X), -1, -1)
        queries = torch.cat([c, e], dim=1) if self.everything else c
        attended, _ = self.attention(queries, e, e, need_weights=False)
        return self.head((queries + attended)[:, 0])


def one_at_a_time(length: int, everything: bool) -> float:
    """µs a step of one model out of torch's layers, fused Adam."""
    torch.manual_seed(0)
    model = ClassQuery(everything).cuda()
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    X = torch.randn(SAMPLES, length, DIM, device="cuda")
    y = X.amax(1).sum(1, keepdim=True)

    def step() -> None:
        index = torch.randint(SAMPLES, (BATCH,), device="cuda")
        loss = (model(X[index]) - y[index]).square().mean()
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()

    return timed(lambda: [step() for _ in range(50)], 3) / 50 * 1e6


def with_vmap(length: int, models: int = 256) -> float:
    """µs a model-step by torch.func.vmap over the class-query model, compiled; optimiser included."""
    from torch.func import functional_call, grad, stack_module_state, vmap

    class Explicit(nn.Module):  # vmap needs attention written out
        def __init__(self) -> None:
            super().__init__()
            E = HEADS * HEAD_DIM
            self.encoder = nn.Sequential(nn.Linear(DIM, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, E))
            self.token = nn.Parameter(torch.randn(E))
            self.q, self.k, self.v, self.o = (nn.Linear(E, E) for _ in range(4))
            self.head = nn.Sequential(nn.Linear(E, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, 1))

        def forward(self, X: Tensor) -> Tensor:
            e = self.encoder(X)
            q = self.q(self.token).view(HEADS, HEAD_DIM)
            k, v = (f(e).view(*e.shape[:2], HEADS, HEAD_DIM) for f in (self.k, self.v))
            a = torch.softmax(torch.einsum("hn,bthn->bht", q, k) / HEAD_DIM**0.5, -1)
            return self.head(self.token + self.o(torch.einsum("bht,bthn->bhn", a, v).flatten(1)))

    nets = [Explicit().cuda() for _ in range(models)]
    weights, buffers = stack_module_state(nets)
    X = torch.randn(SAMPLES, length, DIM, device="cuda")
    y = X.amax(1).sum(1, keepdim=True)

    def loss(w: Any, index: Tensor) -> Tensor:
        return (functional_call(nets[0], (w, buffers), (X[index],)) - y[index]).square().mean()

    gradients = torch.compile(vmap(grad(loss)))
    optimiser = torch.optim.Adam([w.requires_grad_() for w in weights.values()], lr=1e-3, fused=True)

    def step() -> None:
        index = torch.randint(SAMPLES, (models, BATCH), device="cuda")
        found = gradients({k: v.detach() for k, v in weights.items()}, index)
        for name, w in weights.items():
            w.grad = found[name]
        optimiser.step()

    return timed(lambda: [step() for _ in range(20)], 3) / 20 / models * 1e6


def with_jax(length: int, models: int = 256) -> float:
    """µs a model-step by JAX: vmap over models, jit, Adam, indices on the device; float32 products."""
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_default_matmul_precision", "highest")
    E, n = HEADS * HEAD_DIM, HEAD_DIM
    shapes = {"w1": (DIM, HIDDEN), "b1": (HIDDEN,), "w2": (HIDDEN, E), "b2": (E,), "c": (E,), "q": (HEADS, n, E),
              "k": (HEADS, n, E), "v": (HEADS, n, E), "o": (HEADS, E, n), "f1": (E, HIDDEN), "g1": (HIDDEN,),
              "f2": (HIDDEN, 1), "g2": (1,)}  # fmt: skip
    keys = jax.random.split(jax.random.key(0), len(shapes))
    w = {k: 0.2 * jax.random.normal(r, (models, *s)) for r, (k, s) in zip(keys, shapes.items(), strict=True)}
    X = jax.random.normal(jax.random.key(1), (SAMPLES, length, DIM))
    y = X.max(1).sum(1, keepdims=True)

    def loss(w: Any, x: Any, y: Any) -> Any:
        e = jax.nn.relu(x @ w["w1"] + w["b1"]) @ w["w2"] + w["b2"]
        q = w["q"] @ w["c"]
        k, v = (jnp.einsum("hne,bte->bhtn", w[s], e) for s in "kv")
        a = jax.nn.softmax(jnp.einsum("hn,bhtn->bht", q, k) / n**0.5, -1)
        u = w["c"] + jnp.einsum("hen,bhn->be", w["o"], jnp.einsum("bht,bhtn->bhn", a, v))
        out = jax.nn.gelu(u @ w["f1"] + w["g1"], approximate=False) @ w["f2"] + w["g2"]
        return ((out - y) ** 2).mean()

    def update(w: Any, m: Any, v: Any, g: Any, t: Any) -> Any:
        m = jax.tree.map(lambda a, b: 0.9 * a + 0.1 * b, m, g)
        v = jax.tree.map(lambda a, b: 0.999 * a + 0.001 * b * b, v, g)
        root, size = jnp.sqrt(1 - 0.999**t), 1e-3 / (1 - 0.9**t)
        return jax.tree.map(lambda a, b, c: a - size * b / (jnp.sqrt(c) / root + 1e-8), w, m, v), m, v

    @jax.jit
    def steps(w: Any, m: Any, v: Any, key: Any) -> Any:
        def one(state: Any, t: Any) -> Any:
            w, m, v, key = state
            key, sub = jax.random.split(key)
            index = jax.random.randint(sub, (models, BATCH), 0, SAMPLES)
            g = jax.vmap(jax.grad(loss))(w, X[index], y[index])
            return (*update(w, m, v, g, t + 1.0), key), None

        return jax.lax.scan(one, (w, m, v, key), jnp.arange(20))[0]

    zero = jax.tree.map(jnp.zeros_like, w)
    return timed(lambda: jax.block_until_ready(steps(w, zero, zero, jax.random.key(2))), 3) / 20 / models * 1e6


def peers(names: list[str]) -> dict[str, dict[str, float]]:
    """µs a model-step by what people use instead."""
    ways = {
        "nn.MHA loop": lambda T: one_at_a_time(T, True), "class query loop": lambda T: one_at_a_time(T, False),
        "JAX jit+vmap 256": with_jax, **({"torch vmap+compile 256": with_vmap} if "vmap" in names else {}),
    }  # fmt: skip
    out: dict[str, dict[str, float]] = {}
    for name, way in ways.items():
        out[name] = {}
        for length in LENGTHS:
            try:
                out[name][f"T={length}"] = way(length)
            except Exception as error:
                print(name, "failed:", type(error).__name__, str(error)[:200], flush=True)
                break
            print(f"{name} T={length}: {out[name][f'T={length}']:.1f} µs", flush=True)
    return out


def main() -> None:
    """Run what was asked for, print tables, write the JSON."""
    folder, names = Path(sys.argv[1]), sys.argv[2:] or ["check", "time", "peers"]
    result: dict[str, Any] = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
    steps: dict[str, Callable[[], Any]] = {"check": check, "tune": tune, "profile": profile, "time": ours}
    for name, step in {**steps, "peers": lambda: peers(names)}.items():
        if name in names:
            start = time.perf_counter()
            result[name] = step()
            print(f"-- {name}: {time.perf_counter() - start:.0f} s", flush=True)
            (folder / "gpu_check.json").write_text(json.dumps(result, indent=1))
    print("\nµs per model-step, optimiser included; batch 256, d = 4, N = 32, h = 4, n = 8")
    table = {f"headcount, {m} models": {f"T={T}": result["time"][f"T={T} models={m}"] for T in LENGTHS}
             for m in (256, 1024)} if "time" in result else {}  # fmt: skip
    for name, row in {**table, **result.get("peers", {})}.items():
        print(f"{name:28s}" + "".join(f"  T={T}: {row.get(f'T={T}', float('nan')):9.2f}" for T in LENGTHS))
    if "check" in result:
        print("check:", "all pass" if all(r["passes"] for r in result["check"]) else "FAILED", flush=True)


if __name__ == "__main__":
    main()
