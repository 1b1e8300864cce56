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

from headcount.kernels.adam import adam, adam_plain
from headcount.kernels.pool import pool, pool_plain

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
    code = "import test_pool as t; [t.check_cpu_kernel(case) for case in t.CASES]; print('agrees')"
    paths = [str(repo / part) for part in ("tests/kernels", "tests", "src")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert done.stdout.strip() == "agrees", done.stderr


def check_cpu_kernel(case):
    from headcount.kernels.cpu_pool import pool_backward, pool_forward

    data = draw(case, seed=1)
    names = [n for n in ("W1", "hidden_bias", "score", "score_bias") if data[n] is not None]
    for n in names:
        data[n].requires_grad_()
    pooled = pool_plain(**data)
    d_pooled = torch.randn(pooled.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    gradients = dict(zip(names, torch.autograd.grad(pooled, [data[n] for n in names], d_pooled), strict=True))
    M, B, h, N = pooled.shape
    T, d = data["x"].shape[1:]
    for m in range(M):
        rows = data["index"][m]
        w1, bias, score = (data[n][m].detach().numpy() for n in ("W1", "hidden_bias", "score"))
        gate = np.empty((h, 0)) if data["score_bias"] is None else data["score_bias"][m].detach().numpy()
        known = np.empty((0, 0), np.bool_) if data["mask"] is None else data["mask"][rows].numpy()
        x = np.ascontiguousarray(data["x"][rows].numpy().reshape(B * T, d))
        out, a = np.empty((B, h, N)), np.empty((B, h * T))
        pool_forward(x, w1, bias, score, gate, known, out, a)
        np.testing.assert_allclose(out, pooled[m].detach().numpy(), rtol=1e-11, atol=1e-11)
        filled = [np.empty_like(v) for v in (w1, bias, score, gate)]
        pool_backward(x, w1, bias, score, a, d_pooled[m].numpy(), *filled)
        for name, value in zip(("W1", "hidden_bias", "score", "score_bias"), filled, strict=True):
            if name in gradients:
                np.testing.assert_allclose(value, gradients[name][m].numpy(), rtol=1e-10, atol=1e-10)


def test_dispatcher_says_once_why_it_is_plain(caplog):
    from headcount.kernels import pool as module

    module._say_once.cache_clear()
    data = draw(CASES[0])
    with caplog.at_level(logging.INFO):
        first, second = pool(**data), pool(**data)
    assert torch.equal(first, second)
    assert [r.message for r in caplog.records if "plain PyTorch" in r.message] == [
        "pooling runs in plain PyTorch: the tensors are on the cpu"
    ]


@pytest.mark.parametrize("decoupled", [False, True])
def test_adam_is_torchs_and_leaves_the_dead_alone(decoupled):
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
        (adam if step % 2 else adam_plain)(ours, grad, first, second, torch.tensor(rows, dtype=torch.float64).T, alive)
        for m, (p, optimiser) in enumerate(zip(alone, optimisers, strict=True)):
            p.grad = grad[m].clone()
            optimiser.step()
            torch.testing.assert_close(ours[m], p.detach(), rtol=1e-13, atol=1e-13)
    assert torch.equal(ours[2], theta[2])
    assert not first[2].any()
