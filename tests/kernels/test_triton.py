"""The Triton kernels in Triton's interpreter on the CPU, against the plain twin.

The interpreter must be chosen before triton is imported, so all cases run in one process of their own. It does not
emulate TF32: precision is measured on a GPU, by `benchmarks/gpu_check.py`.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import pytest

# models, samples, batch, length, dim, hidden, heads, positions, gates, mask, size of the scores
CASES = [
    (2, 5, 5, 8, 4, 32, 4, False, False, False, 1.0),
    (1, 4, 3, 1, 1, 1, 1, False, True, False, 1.0),
    (2, 3, 2, 7, 3, 17, 17, True, True, True, 1.0),
    (1, 2, 1, 70, 4, 20, 3, True, True, True, 1.0),
    (1, 2, 2, 40, 17, 16, 2, False, False, True, 1.0),
    (1, 1, 1, 100, 2, 8, 1, False, False, False, 1e3),
]

CHECK = """
import sys, torch
from test_pool import draw
from test_triton import CASES
from headcount.kernels.pool import pool_plain
from headcount.kernels.pool_triton import pool_triton

NAMES = ("W1", "hidden_bias", "score", "score_bias")

def run(function, data, dtype, seed, **tuning):
    data = {k: v.to(dtype) if v is not None and v.is_floating_point() else v for k, v in data.items()}
    names = [n for n in NAMES if data[n] is not None]
    leaves = [data[n].requires_grad_() for n in names]
    out = function(**data, **tuning)
    d = torch.randn(2, *out.shape[1:], generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    d = d[: len(out)].to(dtype)
    return [out.detach(), *torch.autograd.grad(out, leaves, d)]

for case in CASES:
    data = draw(case, dtype=torch.float32)
    ours = run(pool_triton, data, torch.float32, 3)
    exact = run(pool_plain, data, torch.float64, 3)
    for a, b, c in zip(ours, exact, run(pool_plain, data, torch.float32, 3), strict=True):
        error, twin = (float((v - b).norm() / b.norm().clamp_min(0.1)) for v in (a, c))
        # da − dp·p loses what cancels: the rounding of da, times a score of 1000, where the softmax is saturated
        limit = max(1e-5, 10 * twin) if case[-1] == 1 else 1e-3
        assert a.shape == b.shape and error < limit, (case, a.shape, error, twin)
    if case[0] == 1:
        continue
    alone = {k: v[:1].clone() if v is not None and k not in ("x", "mask") else v for k, v in data.items()}
    single = run(pool_triton, alone, torch.float32, 3)
    assert all(torch.equal(a[:1], b) for a, b in zip(ours, single, strict=True)), case
print("agrees")
"""


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton, a test extra, is missing")
def test_triton_in_the_interpreter(repo):
    paths = [str(repo / part) for part in ("tests/kernels", "tests", "src")]
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(
        [sys.executable, "-c", CHECK], capture_output=True, text=True, env=environment, check=False, timeout=300
    )
    assert done.stdout.strip() == "agrees", done.stderr[-3000:]
