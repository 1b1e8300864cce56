"""A smoke of an installed package: every verb once at a tiny size, in this process, then the library.

    PYTHONPATH=INSTALLED python -P wheel_smoke.py [VERB ...]

works in the current folder and prints one JSON object: the folder of the package that was imported, the verbs that
the command line lists, and what failed, as {command: the end of its output}. tests/test_wheel.py runs it.
"""

# ruff: noqa: T201
from __future__ import annotations

import contextlib
import io
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

SWEEP = """
name = "tiny"
title = "Tiny"
heads = [1, 2]
seeds = 2
task = { family = "min-plus-max", length = 3 }
model = { head_dim = 2, hidden = 4 }
train = { steps = 20, warmup = 2, batch = 16, train_size = 64, validation_size = 64, evaluations = 2 }
"""
CURVE = """
name = "curve"
title = "Curve"
model = { hidden = 4 }
train = { steps = 20, warmup = 2, batch = 16, train_size = 64, validation_size = 64 }
attack = { starts = 2, seconds = 2.0, among = ["all"] }

[[cells]]
task = { family = "sum-of-maxima", intrinsic = 2, dim = 2, length = 4, limit = 2.5 }
heads = [1]
head_dim = 2
seeds = 1
random_seeds = 0
"""
TRAIN = "--length 3 --head-dim 2 --hidden 4 --steps 40 --warmup 4"
COMMANDS = [
    "tasks",
    "bounds --D 4 --heads 1:4 --length 64",
    "density mean --length 4 -q 10 --samples 20",
    "build quadratic-basins --intrinsic 1 --length 4 --eps 0.5 --out built",
    "recheck built",
    f"train min-plus-max --heads 1 {TRAIN} --out model",
    "show model --samples 100",
    "certify model --for 1s",
    "attack model --starts 4 --for 2s --out pair",
    "sweep --example example.toml",
    "sweep tiny.toml --workers 1",
    "runs",
    "export tiny best --out best",
    "analyse tiny --resamples 100",
    "report tiny --out page",
    "reproduce",
    "reproduce table4 --scale smoke",
    "irreducible curve.toml --out curve --workers 1",
    "advise data.npz --steps 20 --heads-max 2 --out advice",
    "probe bert --samples 2 --batch 2 --out heads",
    "demo --out tour",
]
"""Every verb that `headcount --help` lists; commands that need what others wrote come after them."""


def make_inputs() -> None:
    """Write the files that the commands read."""
    import transformers

    Path("tiny.toml").write_text(SWEEP, encoding="utf-8")
    Path("curve.toml").write_text(CURVE, encoding="utf-8")
    X = np.random.default_rng(0).normal(size=(200, 4, 2))
    np.savez("data.npz", X=X, y=X.max(1).sum(1))
    sizes: dict[str, Any] = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.BertConfig(**sizes, intermediate_size=8, vocab_size=20, max_position_embeddings=16)
    transformers.BertForMaskedLM(config).save_pretrained("bert")


def run_command(command: str) -> str | None:
    """Run a command of the command line in this process; return the end of its output where it fails."""
    from headcount.cli.main import main

    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        try:
            main(command.split())
        except SystemExit as left:
            if not left.code:
                return None
            print(f"exit status {left.code}")
        except Exception as error:
            print(f"{type(error).__name__}: {error}")
    return output.getvalue()[-500:]


def use_library() -> None:
    """Train a model on a task and count its heads; every public name can be imported."""
    import headcount as hc

    for name in hc.__all__:
        getattr(hc, name)
    task = hc.make_task("sum-of-maxima", intrinsic=2, dim=2, length=4)
    result = hc.sweep(task, heads=[1, 2], seeds=1, steps=20, warmup=2)
    assert "head" in str(result)
    spec = hc.ModelSpec(dim=2, length=4, heads=2, head_dim=2, hidden=4)
    assert hc.train(task, spec, hc.TrainSpec(steps=20, warmup=2)).trial.nmse > 0


def main(verbs: list[str]) -> None:
    """Run the commands of some verbs, by default of all, and the library; print what failed."""
    import headcount
    from headcount.cli.main import VERBS

    make_inputs()
    failed: dict[str, str] = {}
    for command in COMMANDS:
        if not verbs or command.split()[0] in verbs:
            start = time.monotonic()
            complaint = run_command(command)
            print(f"{time.monotonic() - start:6.2f} s  {command}", file=sys.stderr)
            if complaint is not None:
                failed[command] = complaint
    try:
        use_library()
    except Exception as error:
        failed["library"] = f"{type(error).__name__}: {error}"
    package = str(Path(str(headcount.__file__)).parent)
    print(json.dumps({"package": package, "verbs": sorted(VERBS), "failed": failed}))


if __name__ == "__main__":
    main(sys.argv[1:])
