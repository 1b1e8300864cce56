"""How long does advice take? Time the command that a user types, for D = 4 and 10,000 sequences of length 32.

    python -m benchmarks.advisor_speed OUT [--device cuda] [--times 2] [--smoke]

runs `headcount advise` on the same file several times, each time in a new process. It prints the seconds from the
command to its end, including the start of Python, compilation, page and picture, and writes
OUT/advisor-speed-DEVICE.json. On a machine without compiled kernels the first run is slow.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import numpy as np
import torch

from headcount.tasks import parse_task
from headcount.training import device_name, find_device
from results import write_result

TASK = {"family": "sum-of-maxima", "intrinsic": 4, "dim": 4, "length": 32}


def ask(file: Path, out: Path, device: str, more: Sequence[str]) -> dict[str, Any]:
    """Run the command once and return its seconds and its answer."""
    start = time.perf_counter()
    command = [sys.executable, "-m", "headcount", "advise", str(file), "--out", str(out), "--device", device, *more]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    wall = time.perf_counter() - start
    advice = json.loads((out / "advice.json").read_text(encoding="utf-8"))
    kept = ("recommended_heads", "interval", "verdict", "settled", "seconds")
    return {"wall": round(wall, 1), **{key: advice[key] for key in kept}}


def main(arguments: Sequence[str] | None = None) -> Path:
    """Make the data, time the command and print each run; return the result file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--times", type=int, default=2)
    parser.add_argument("--smoke", action="store_true", help="use tiny data, to show that the script runs")
    options = parser.parse_args(arguments)
    samples, task = (300, {**TASK, "length": 6}) if options.smoke else (10_000, TASK)
    more = ["--steps", "40", "--heads-max", "2"] if options.smoke else []
    made = parse_task(task)
    X = made.sample(samples, 0, dtype=torch.float64)
    rows: list[dict[str, Any]] = []
    with TemporaryDirectory() as folder:
        file = Path(folder) / "data.npz"
        np.savez(file, X=X.numpy(), y=made.value(X)[:, 0].numpy())
        for number in range(options.times):
            rows.append(ask(file, Path(folder) / f"advice-{number}", options.device, more))
            print(rows[-1], flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    device = find_device(options.device)
    right = sum(row["recommended_heads"] == task["intrinsic"] for row in rows)
    return write_result(
        f"advisor-speed-{device.type}",
        {"rows": rows, "task": task, "samples": samples, "hardware": device_name(device)},
        seeds=[0],
        counts={"runs": len(rows), "right": right},
        device=str(device),
        folder=options.out,
    )


if __name__ == "__main__":
    print(main())
