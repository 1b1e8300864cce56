"""Compare the training speed of eight vision transformers: a plain loop over the models, and our stack, in turns.

    python -m benchmarks.vit_speed OUT [--device cuda] [--smoke] [--profile] [--kernels] [--skip ROW ...]

prints images per second and writes OUT/vit-speed-DEVICE.json (…-dropout.json with --dropout). Every row trains the same
models on frames of side 64 in patches of 4 (257 tokens), with h = 8, head size 16, four layers and batches of 128.
Compiling, graph capture and the first turn are not timed. A ratio is the median over turns of the ratio within a turn.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import torch

from benchmarks.peers.turns import Work, in_turns, ratio, settle, short_reason
from benchmarks.peers.vit import VitPlan, drawn_images, plain_loop, stacked_loop
from headcount.core import cores
from headcount.kernels import ATTENTION_KERNELS, fastest_attention
from headcount.training import device_name, find_device
from headcount.training.feeds import ImagesOnDevice
from results import write_result

DEFAULT_ROWS = {
    "loader_tf32": "plain loop, DataLoader on the CPU, TF32",
    "loader_bf16": "plain loop, DataLoader on the CPU, bf16 autocast",
    "device_tf32": "plain loop, frames on the device, TF32",
    "device_bf16": "plain loop, frames on the device, bf16 autocast",
    "stack_float32": "our stack, float32",
    "stack_eager": "our stack, bf16, without a graph",
    "stack": "our stack, bf16",
}
KERNEL_ROWS = {f"stack_{name}": f"our stack, bf16, attention kernel {name}" for name in ATTENTION_KERNELS}
ROW_LABELS = DEFAULT_ROWS | KERNEL_ROWS


def builders(plan: VitPlan) -> dict[str, Callable[[], Work]]:
    """Return a builder for the work of each row; ours is last, so that it gets the memory that the peers leave."""
    images = drawn_images(plan.images)
    device_images = ImagesOnDevice.of(images, plan.device)
    return {
        "loader_tf32": lambda: plain_loop(plan, images, device_images, "loader", "tf32"),
        "loader_bf16": lambda: plain_loop(plan, images, device_images, "loader", "bf16"),
        "device_tf32": lambda: plain_loop(plan, images, device_images, "device", "tf32"),
        "device_bf16": lambda: plain_loop(plan, images, device_images, "device", "bf16"),
        "stack_float32": lambda: stacked_loop(plan, device_images, "float32"),
        "stack_eager": lambda: stacked_loop(plan, device_images, "bf16", graph=False),
        **{
            f"stack_{name}": lambda name=name: stacked_loop(plan, device_images, "bf16", attention=name)
            for name in ATTENTION_KERNELS
        },
        "stack": lambda: stacked_loop(plan, device_images, "bf16"),
    }


def chosen_kernel(plan: VitPlan) -> str:
    """Return the name of the attention kernel that our stack found fastest."""
    if plan.device == "cpu":
        return "torch's choice"
    spec, rows = plan.spec, plan.models * plan.batch
    found = fastest_attention(
        rows, spec.tokens, spec.head_dim, torch.bfloat16, False, torch.device(plan.device), spec.heads
    )
    return found or "torch's choice"


def measure(plan: VitPlan, skip: Sequence[str] = ()) -> dict[str, Any]:
    """Time all rows in turns; return images per second, and how many times longer each row takes than our stack."""
    works, absent = dict[str, Work](), dict[str, str]()
    kind = plan.device.split(":")[0]
    for row, make in builders(plan).items():
        if row in skip:
            continue
        try:
            works[row] = make()
            works[row]()  # warm-up: workers start, kernels are chosen
            settle(kind)
        except (RuntimeError, OSError) as error:
            works.pop(row, None)
            absent[row] = short_reason(error)
            print(f"{ROW_LABELS[row]}: {absent[row]}", flush=True)
    times = in_turns(works, plan.turns, kind)
    rows = {
        row: {
            "label": ROW_LABELS[row],
            "us_per_model_step": these,
            "images_per_second": plan.batch * 1e6 / statistics.median(these),
        }
        for row, these in times.items()
    }
    ours = times.get("stack")
    ratios = {} if ours is None else {row: ratio(these, ours) for row, these in times.items() if row != "stack"}
    return {"plan": dataclasses.asdict(plan), "rows": rows, "times_ours": ratios, "absent": absent}


def profile(plan: VitPlan) -> str:
    """Return the time of our stack by kernel, as a table."""
    device_images = ImagesOnDevice.of(drawn_images(plan.images), plan.device)
    work = stacked_loop(dataclasses.replace(plan, steps=3), device_images, "bf16", graph=False)
    work()
    on_gpu = plan.device != "cpu"
    activity = torch.profiler.ProfilerActivity
    with torch.profiler.profile(activities=[activity.CUDA if on_gpu else activity.CPU]) as found:
        work()
        settle("cuda" if on_gpu else "cpu")
    by = "self_cuda_time_total" if on_gpu else "self_cpu_time_total"
    return found.key_averages().table(sort_by=by, row_limit=40, max_name_column_width=90)


def main(arguments: Sequence[str] | None = None) -> Path:
    """Measure, and print one line per row; return the result file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--smoke", action="store_true", help="use tiny sizes on any device, to show that all rows run")
    parser.add_argument("--profile", action="store_true", help="also print the time of each kernel of our step")
    parser.add_argument("--kernels", action="store_true", help="also time our stack with each attention kernel")
    parser.add_argument("--skip", nargs="*", default=[], choices=sorted(DEFAULT_ROWS))
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args(arguments)
    device = find_device("cpu" if options.smoke and not torch.cuda.is_available() else options.device)
    plan = VitPlan(device=str(device), dropout=options.dropout, turns=options.turns, workers=min(8, cores()))
    if options.smoke:
        plan = VitPlan(
            device=str(device),
            side=32,
            patch=8,
            heads=2,
            head_dim=4,
            depth=2,
            batch=4,
            models=2,
            images=40,
            steps=2,
            turns=2,
            workers=0,
            dropout=options.dropout,
        )
    found = measure(plan, [*options.skip, *([] if options.kernels else KERNEL_ROWS)])
    if options.profile:
        print(profile(plan))
    for row, one in found["rows"].items():
        times = f"{found['times_ours'][row]:6.2f}×" if row in found["times_ours"] else ""
        print(f"{one['label']:<50} {one['images_per_second']:>12,.0f} images/s  {times}")
    found |= {"attention": chosen_kernel(plan), "hardware": device_name(device), "cores": cores()}
    options.out.mkdir(parents=True, exist_ok=True)
    counts = {"models": plan.models, "steps": plan.steps, "turns": plan.turns, "batch": plan.batch}
    name = f"vit-speed-{device.type}" + ("-dropout" if plan.dropout else "")
    return write_result(
        name, found, seeds=list(range(plan.models)), counts=counts, device=str(device), folder=options.out
    )


if __name__ == "__main__":
    print(main())
