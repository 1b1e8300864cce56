"""Check and time the GPU kernels: precision and determinism, tuning, profile, speed (peers: `benchmarks/speed.py`).

    python -m benchmarks.gpu_check OUT [check] [tune] [profile] [time]

prints tables and writes OUT/gpu_check.json, and with check also OUT/gpu-precision.json. The default is check and time.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "kernels"))

import torch
import triton_cases as cases
from torch import Tensor

from headcount.kernels import adam_plain, adam_triton, explain, pool_plain, pool_tokens, pool_triton
from headcount.models.transformer import Flat, ModelSpec
from headcount.training import StackTrainer, TrainSpec
from results import write_result

DIM, HIDDEN, HEADS, HEAD_DIM, BATCH, SAMPLES = 4, 32, 4, 8, 256, 8000
LENGTHS = (8, 32, 128)
WHAT_IS_CHECKED = (
    "worst relative error over models and tensors against float64, beside the same in float32 PyTorch; "
    "bits from run to run and alone against stacked"
)

# models, samples, batch, length, dim, hidden, heads, positions, gates, mask, size of the scores
POOL_CASES = [
    (8, 300, 256, 128, 4, 32, 4, False, False, False, 1.0),
    (8, 300, 256, 32, 4, 32, 4, False, False, False, 1.0),
    (8, 300, 256, 8, 4, 32, 4, False, False, False, 1.0),
    (2, 40, 33, 1, 1, 17, 1, False, True, False, 1.0),
    (2, 40, 33, 1, 3, 32, 6, False, False, False, 1e3),
    (3, 20, 9, 1000, 4, 32, 4, True, True, True, 1.0),
    (3, 20, 19, 7, 3, 17, 17, True, True, True, 1.0),
    (2, 20, 19, 77, 16, 64, 5, True, False, True, 1.0),
    (2, 20, 19, 40, 9, 48, 3, False, True, True, 1.0),
    (2, 30, 21, 100, 31, 33, 2, True, True, False, 1.0),
    (2, 30, 21, 13, 31, 61, 9, False, False, True, 1.0),
    (2, 30, 21, 5, 2, 1, 16, False, False, False, 1.0),
    (2, 30, 21, 128, 31, 128, 3, False, True, False, 1.0),  # beyond the kernel: the dispatcher must be right
    *((8, 300, 256, T, 4, 32, 4, False, False, False, 20.0) for T in (8, 32, 128)),
    (4, 60, 50, 100, 4, 32, 4, True, True, True, 20.0),
    (3, 20, 9, 1000, 4, 32, 4, False, False, False, 20.0),
    *((8, 300, 256, T, 4, 32, 4, False, False, False, 1e3) for T in (8, 32, 128)),
    (4, 60, 50, 100, 4, 32, 4, False, True, True, 1e3),
    (3, 20, 9, 1000, 4, 32, 4, True, True, True, 1e3),
]

# options of the model, models, batch, options of the data
STEP_CASES: list[tuple[dict[str, Any], int, int, dict[str, Any]]] = [
    *(({"length": T}, 8, 256, {}) for T in LENGTHS),
    *(({"length": T}, 8, 256, {"size": 40.0}) for T in LENGTHS),
    ({"length": 128}, 8, 256, {"size": 1e3}),
    ({"positions": "gates", "beta": "learned", "out_dim": 3, "length": 7}, 3, 50, {"mask": True}),
    ({"positions": "concatenated", "feedforward": "relu2", "length": 100}, 3, 33, {"mask": True, "betas": True}),
    ({"heads": 3, "head_dim": 5, "width": 11, "hidden_ff": 20, "hidden": 17, "feedforward": "relu2"}, 3, 70, {}),
    ({"heads": 17, "length": 12}, 2, 64, {"betas": True}),
    ({"heads": 8, "hidden": 64, "hidden_ff": 64, "dim": 31}, 2, 64, {}),
    ({"heads": 1, "head_dim": 1, "hidden": 1, "length": 1, "beta": 0.7}, 2, 5, {"shift": 5.0}),
    ({"heads": 2, "head_dim": 33, "length": 1000, "positions": "gates"}, 2, 9, {"mask": True}),
]


def same_bits(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    """Whether the models of `b` have the same bits as the first models of `a`."""
    return all(torch.equal(a[k][: len(b[k])], b[k]) for k in a)


def check_pool(case: tuple[Any, ...]) -> dict[str, Any]:
    """Return errors of the pooling and of its float32 twin against float64, and whether repeats give the same bits."""
    data = cases.draw(case, "cuda")
    assert cases.is_exact(data["x"], data["W1"], data["hidden_bias"])
    exact, twin = (cases.pooled_and_gradients(pool_plain, data, t) for t in (torch.float64, torch.float32))
    ours, again = (cases.pooled_and_gradients(pool_tokens, data, torch.float32) for _ in range(2))
    alone = cases.pooled_and_gradients(pool_tokens, cases.first_only(data), torch.float32)
    u = torch.einsum("std,mdk->mstk", data["x"], data["W1"]) + data["hidden_bias"][:, None]
    scale = exact["pooled"].flatten(1).shape[1] ** 0.5 * u.flatten(1).abs().amax(1).double()  # ‖d_pooled‖ ~ its root
    row = {"kind": "pool", "case": str(case), **cases.judge(ours, twin, exact, scale, case[-1] >= 1e3)}
    row |= {
        "kernel": explain("pool_tokens", data["x"], data["score"])[0].why_not is None,
        "repeats": same_bits(ours, again),
    }
    return row | ({"alone": same_bits(ours, alone)} if row["kernel"] else {})  # the twin's library may cut as it likes


def check_step(options: dict[str, Any], models: int, batch: int, more: dict[str, Any]) -> dict[str, Any]:
    """Return the same for the loss and gradient of a whole step."""
    flat, data = cases.draw_step(options, models, batch, device="cuda", **more)
    results = [cases.step_twin(flat, data, t) for t in (torch.float64, torch.float32)]
    single = {k: v[:1].clone() if v is not None and k not in ("X", "mask") else v for k, v in data.items()}
    results += [cases.step_ours(flat, d) for d in (data, data, single)]
    exact, twin, ours, again, alone = (cases.split(flat, *r) for r in results)
    scale, extreme = torch.linalg.vector_norm(results[0][1], dim=1), more.get("size", 1.0) >= 1e3
    row = {"kind": "step", "case": f"{options} M={models} B={batch} {more}"}
    row |= cases.judge(ours, twin, exact, scale, extreme)
    return row | {"repeats": same_bits(ours, again), "alone": same_bits(ours, alone)}


def check_adam() -> dict[str, Any]:
    """Return the error of one step of Adam against float64: a few units in the last place of the terms."""
    (error, rests), (twin, _) = cases.adam_error(adam_triton, "cuda"), cases.adam_error(adam_plain, "cuda")
    passes = error < 1e-6 and rests
    return {"kind": "adam", "case": "", "worst": "", "error": error, "twin": twin, "limit": 1e-6, "passes": passes}


def check() -> list[dict[str, Any]]:
    """Check every case in a process of its own, since compiling takes longer than everything else."""
    cases_to_run: list[tuple[Callable[..., dict[str, Any]], tuple[Any, ...]]] = [(check_adam, ())]
    cases_to_run += [(check_step, case) for case in STEP_CASES] + [(check_pool, (case,)) for case in POOL_CASES]
    rows: list[dict[str, Any]] = []
    with ProcessPoolExecutor(14, get_context("spawn"), max_tasks_per_child=1) as workers:
        for (function, args), future in [(one, workers.submit(one[0], *one[1])) for one in cases_to_run]:
            try:
                row = future.result()
            except Exception as error:
                row = {"kind": function.__name__, "case": str(args), "passes": False, "broke": repr(error)[-600:]}
            row["passes"] = row["passes"] and row.get("repeats", True) and row.get("alone", True)
            rows.append(row)
            brief = {k: f"{v:.1e}" if isinstance(v, float) else v for k, v in row.items() if "errors" not in k}
            print(brief, flush=True)
    return rows


def make_stack(models: int, length: int, **options: Any) -> StackTrainer:
    """The paper's synthetic model, stacked."""
    spec = ModelSpec(dim=DIM, length=length, heads=HEADS, head_dim=HEAD_DIM, hidden=HIDDEN)
    g = torch.Generator(device="cuda").manual_seed(0)
    X = torch.randn(SAMPLES, length, DIM, generator=g, device="cuda")
    y = X.amax(1).sum(1, keepdim=True)
    y = (y - y.mean()) / y.std()
    theta = torch.randn(models, Flat.of(spec).size, generator=g, device="cuda") * 0.2
    return StackTrainer(spec, [TrainSpec()] * models, list(range(models)), X, y, theta=theta, **options)


def timed(function: Callable[[], Any], repeats: int = 5) -> float:
    """Return the median time of several runs, in seconds."""
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
    """Time forward and backward of the pooling alone for several tile sizes."""
    import triton

    rows: list[dict[str, Any]] = []
    models = 256
    for length in LENGTHS:
        data = cases.draw((models, SAMPLES, BATCH, length, DIM, HIDDEN, HEADS, False, False, False, 1.0), "cuda")
        leaves = [data[n].requires_grad_() for n in cases.NAMES[:3]]
        for tokens, warps, registers in ((16, 1, 0), (16, 1, 168), (32, 1, 0), (32, 1, 168), (64, 1, 0), (64, 2, 0)):
            for tiles in (8,):
                tuning: dict[str, Any] = {"tokens": tokens, "warps": warps, "tiles": tiles, "registers": registers}
                out = pool_triton(**data, **tuning)
                d = torch.randn_like(out)
                forward: Any = triton.testing.do_bench(
                    lambda q=data, t=tuning: pool_triton(**q, **t), warmup=10, rep=30, return_mode="median"
                )
                backward: Any = triton.testing.do_bench(
                    lambda o=out, g=d, q=leaves: torch.autograd.grad(o, q, g, retain_graph=True),
                    warmup=10,
                    rep=30,
                    return_mode="median",
                )
                rows.append(
                    {"T": length, **tuning, "forward": forward / models * 1e3, "backward": backward / models * 1e3}
                )
                print({k: round(v, 3) for k, v in rows[-1].items()}, flush=True)
    return rows


def profile() -> list[dict[str, Any]]:
    """Return the time of one step by kernel, in µs per model."""
    rows: list[dict[str, Any]] = []
    for length in LENGTHS:
        trainer = make_stack(256, length)
        trainer.run(20)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
            trainer.run(10)
            torch.cuda.synchronize()
        events: list[Any] = sorted(profiler.key_averages(), key=lambda e: -e.device_time_total)
        total = sum(e.device_time_total for e in events) / 2560
        print(
            f"T = {length}: {total:.2f} µs of kernels per model-step, {sum(e.count for e in events) / 10:.0f} kernels"
        )
        for event in events[:22]:
            each = event.device_time_total / 2560
            rows.append({"T": length, "kernel": event.key[:90], "us": each, "count": event.count / 10})
            print(f"   {each:7.3f}  {event.count / 10:5.1f}  {event.key[:100]}", flush=True)
    return rows


def ours() -> dict[str, float]:
    """Return the time of a whole training step, in µs per model."""
    out: dict[str, float] = {}
    for length in LENGTHS:
        for models in (256, 1024):
            trainer = make_stack(models, length)
            steps = 2 * trainer.block
            out[f"T={length} models={models}"] = timed(lambda t=trainer, s=steps: t.run(s), 3) / steps / models * 1e6
            print(f"ours T={length} models={models}: {out[f'T={length} models={models}']:.2f} µs", flush=True)
            assert bool(trainer.alive.all())
    return out


def main() -> None:
    """Run the requested parts, print tables and write the JSON."""
    folder, names = Path(sys.argv[1]), sys.argv[2:] or ["check", "time"]
    result: dict[str, Any] = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
    steps: dict[str, Callable[[], Any]] = {"check": check, "tune": tune, "profile": profile, "time": ours}
    for name, step in steps.items():
        if name in names:
            start = time.perf_counter()
            result[name] = step()
            print(f"-- {name}: {time.perf_counter() - start:.0f} s", flush=True)
            (folder / "gpu_check.json").write_text(json.dumps(result, indent=1))
        if name == "check" and name in result:
            counts = {"cases": len(result[name]), "pass": sum(row["passes"] for row in result[name])}
            content = {"what": WHAT_IS_CHECKED, "cases": result[name]}
            write_result("gpu-precision", content, seeds=[7], counts=counts, device=result["device"], folder=folder)
    print("\nµs per model-step, optimiser included; batch 256, d = 4, N = 32, h = 4, n = 8")
    table = (
        {
            f"headcount, {m} models": {f"T={T}": result["time"][f"T={T} models={m}"] for T in LENGTHS}
            for m in (256, 1024)
        }
        if "time" in result
        else {}
    )
    for name, row in table.items():
        print(f"{name:28s}" + "".join(f"  T={T}: {row.get(f'T={T}', float('nan')):9.2f}" for T in LENGTHS))
    if "check" in result:
        print("check:", "all pass" if all(r["passes"] for r in result["check"]) else "FAILED", flush=True)


if __name__ == "__main__":
    main()
