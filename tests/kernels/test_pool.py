"""The plain twin of the hot operation: against loops in float64, and beside the CPU kernel."""

from __future__ import annotations

import logging
import math
import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from headcount.kernels import dispatch, pool_tokens
from headcount.kernels.adam.plain import adam_plain
from headcount.kernels.pool.plain import pool_plain

# models, samples, batch, length, dim, hidden, heads, positions, gates, mask, size of the scores
CASES = [
    (2, 5, 3, 4, 2, 6, 2, False, False, False, 1.0),
    (1, 4, 2, 1, 1, 1, 1, False, True, False, 1.0),
    (3, 6, 4, 7, 3, 5, 17, True, False, True, 1.0),
    (2, 5, 2, 9, 4, 17, 3, True, True, True, 1.0),
    (2, 5, 3, 8, 4, 8, 4, False, True, True, 1e3),
]


def draw(case: tuple, seed: int = 0, dtype: torch.dtype = torch.float64) -> dict[str, torch.Tensor | None]:
    M, S, B, T, d, N, h, positions, gates, mask, size = case
    g = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=g, dtype=torch.float64).to(dtype)

    known = torch.rand(S, T, generator=g) < 0.6
    known[:, 0] = True
    return {
        "x": normal(S, T, d),
        "index": torch.randint(S, (M, B), generator=g),
        "W1": normal(M, d, N),
        "hidden_bias": normal(M, T if positions else 1, N),
        "score": size * normal(M, h, N),
        "score_bias": normal(M, h, T) if gates else None,
        "mask": known if mask else None,
    }


def brute(x, index, W1, hidden_bias, score, score_bias, mask):
    """One number at a time, as the formula is read."""
    models, batch, heads, hidden = *index.shape, score.shape[1], score.shape[2]
    out = torch.zeros(models, batch, heads, hidden, dtype=torch.float64)
    for m in range(models):
        for b in range(batch):
            row = int(index[m, b])
            times = [t for t in range(x.shape[1]) if mask is None or mask[row, t]]
            u = {t: torch.relu(x[row, t] @ W1[m] + hidden_bias[m, t % hidden_bias.shape[1]]) for t in times}
            for i in range(heads):
                r = [
                    float(score[m, i] @ u[t]) + (0.0 if score_bias is None else float(score_bias[m, i, t]))
                    for t in times
                ]
                a = [math.exp(v - max(r)) for v in r]
                out[m, b, i] = sum(w / sum(a) * u[t] for w, t in zip(a, times, strict=True))
    return out


@pytest.mark.parametrize("case", CASES)
def test_twin_against_brute_force(case):
    data = draw(case)
    torch.testing.assert_close(pool_plain(**data), brute(**data), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("case", CASES[:4])
def test_twin_gradients(case):
    data = draw(case)
    names = [n for n in ("W1", "hidden_bias", "score", "score_bias") if data[n] is not None]

    def of(*weights: torch.Tensor) -> torch.Tensor:
        return pool_plain(**{**data, **dict(zip(names, weights, strict=True))})

    assert torch.autograd.gradcheck(of, [data[n].requires_grad_() for n in names])


def test_a_wrong_twin_is_caught():
    data = draw(CASES[0])
    assert not torch.allclose(pool_plain(**{**data, "score": 1.001 * data["score"]}), brute(**data), rtol=1e-6)


def test_cpu_kernel_agrees(repo):
    """In a process of its own: numba cannot compile functions that the run-time shape checks have wrapped."""
    code = """
import test_pool as t
for case in t.CASES:
    t.check_cpu_kernel(case)
for name in ("W1", "hidden_bias", "score", "score_bias"):
    try:
        t.check_cpu_kernel(t.CASES[3], spoil=name)
    except AssertionError:
        continue
    raise SystemExit(f"a wrong gradient of {name} passed")
print("agrees")
"""
    paths = [str(repo / part) for part in ("tests/kernels", "tests", "src")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert done.stdout.strip() == "agrees", done.stderr


def check_cpu_kernel(case, spoil=""):
    from headcount.kernels.pool.numba import compiled, pool_backward, pool_forward

    pool_forward, pool_backward = compiled(pool_forward.py_func), compiled(pool_backward.py_func)  # callable from here
    data = draw(case, seed=1)
    names = [n for n in ("W1", "hidden_bias", "score", "score_bias") if data[n] is not None]
    for n in names:
        data[n].requires_grad_()
    pooled = pool_plain(**data)
    d_pooled = torch.randn(pooled.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    gradients = dict(zip(names, torch.autograd.grad(pooled, [data[n] for n in names], d_pooled), strict=True))
    M, B, h, N = pooled.shape
    T, d = data["x"].shape[1:]
    wide, deep = -(-d // 4) * 4, -(-N // 4) * 4  # the kernel's sizes are multiples of four, padded with zeros

    def pad(value: np.ndarray, *shape: int) -> np.ndarray:
        return np.pad(
            np.ascontiguousarray(value), [(0, new - old) for old, new in zip(value.shape, shape, strict=True)]
        )

    for m in range(M):
        rows = data["index"][m]
        w1, bias, score = (data[n][m].detach().numpy() for n in ("W1", "hidden_bias", "score"))
        gate = np.empty((h, 0)) if data["score_bias"] is None else data["score_bias"][m].detach().numpy()
        known = np.empty((0, B), np.bool_) if data["mask"] is None else data["mask"][rows].numpy().T.copy()
        x = pad(data["x"][rows].numpy().transpose(2, 1, 0), wide, T, B)
        folded = pad(w1.T, deep, wide), pad(bias, len(bias), deep), pad(score, h, deep), gate
        u, a, out, spare = np.empty((deep, T, B)), np.empty((h, T, B)), np.empty((h, deep, B)), np.empty((3, B))
        pool_forward(x, *folded, known, u, a, out, spare)
        assert_near(out.transpose(2, 0, 1)[:, :, :N], pooled[m].detach().numpy())
        filled = [np.zeros_like(v) for v in folded]
        dp = pad(d_pooled[m].numpy().transpose(1, 2, 0), h, deep, B)
        pool_backward(x, folded[2], u, a, dp, np.empty_like(a), np.empty((T, B)), spare, *filled)
        filled = [filled[0][:N, :d].T, filled[1][:, :N], filled[2][:, :N], filled[3]]
        for name, value in zip(("W1", "hidden_bias", "score", "score_bias"), filled, strict=True):
            if name in gradients:
                assert_near(value, gradients[name][m].numpy(), spoil=name == spoil)


def assert_near(got: np.ndarray, wanted: np.ndarray, *, spoil: bool = False) -> None:
    """Within 1e-12 of the tensor's largest entry."""
    got = got * (1 + 3e-12) if spoil else got
    error = np.abs(got - wanted).max()
    # a saturated head leaves its scores 1e-32 and less, which is all rounding in autograd: the twin has no digits to
    # compare with there, test_cpu_exact.py has
    assert error <= max(1e-12 * np.abs(wanted).max(), 1e-30), error


def test_the_dispatcher_logs_once_why_it_uses_the_plain_path(caplog):
    dispatch._log_once.cache_clear()
    data = draw(CASES[0])
    with caplog.at_level(logging.INFO):
        first, second = pool_tokens(**data), pool_tokens(**data)
    assert torch.equal(first, second)
    assert [r.message for r in caplog.records if "plain PyTorch" in r.message] == [
        "pooling runs in plain PyTorch: the tensors are on the cpu"
    ]


@pytest.mark.parametrize("decoupled", [False, True])
def test_adam_matches_torch_and_skips_dead_models(decoupled):
    g = torch.Generator().manual_seed(0)
    theta = torch.randn(3, 7, generator=g, dtype=torch.float64)
    rate, decay = [0.1, 0.02, 0.3], [0.0, 0.05, 0.1]
    alive = torch.tensor([True, True, False])
    kind = torch.optim.AdamW if decoupled else torch.optim.Adam
    alone = [torch.nn.Parameter(theta[m].clone()) for m in range(2)]
    optimisers = [kind([p], lr=rate[m], weight_decay=decay[m]) for m, p in enumerate(alone)]
    ours, first, second = theta.clone(), torch.zeros_like(theta), torch.zeros_like(theta)
    for step in range(1, 6):
        grad = torch.randn(3, 7, generator=g, dtype=torch.float64)
        rows = [
            [r / (1 - 0.9**step), 1 / math.sqrt(1 - 0.999**step), 1 - r * w if decoupled else 1, 0 if decoupled else w]
            for r, w in zip(rate, decay, strict=True)
        ]
        adam_plain(ours, grad, first, second, torch.tensor(rows, dtype=torch.float64).T, alive)
        for m, (p, optimiser) in enumerate(zip(alone, optimisers, strict=True)):
            p.grad = grad[m].clone()
            optimiser.step()
            torch.testing.assert_close(ours[m], p.detach(), rtol=1e-13, atol=1e-13)
    assert torch.equal(ours[2], theta[2])
    assert not first[2].any()
