"""The Triton kernels in Triton's interpreter on the CPU, against the plain twins in float64.

The interpreter must be chosen before triton is imported, so the checks run in processes of their own. It rounds as
NumPy does, not as a matrix unit: precision is measured on a GPU, by `benchmarks/gpu_check.py`, with the same judge.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import pytest
import torch
import triton_cases as cases

# models, samples, batch, length, dim, hidden, heads, positions, gates, mask, size of the scores
POOL_CASES = [
    (2, 5, 5, 8, 4, 32, 4, False, False, False, 1.0),
    (1, 4, 3, 1, 1, 1, 1, False, True, False, 1.0),
    (2, 3, 2, 7, 3, 17, 17, True, True, True, 1.0),
    (1, 2, 1, 77, 4, 20, 3, True, True, True, 1.0),
    (1, 2, 2, 32, 31, 16, 2, False, False, True, 1.0),
    (1, 2, 2, 128, 4, 32, 4, False, False, False, 20.0),
    (1, 1, 1, 100, 2, 8, 1, False, False, False, 1e3),
    (1, 4, 3, 8, 4, 33, 4, False, True, True, 1e3),
    (1, 1, 1, 1000, 2, 8, 2, False, False, False, 1.0),
    *((1, 3, 2, 2 + h % 4, 2, 9, h, h % 2 == 0, h % 3 == 0, h % 5 == 0, 1.0) for h in range(1, 18)),
]

# options of the model, models, batch, options of the data
STEP_CASES = [
    ({}, 2, 20, {}),
    (
        {
            "positions": "gates",
            "beta": "learned",
            "feedforward": "relu2",
            "out_dim": 3,
            "heads": 3,
            "head_dim": 5,
            "width": 11,
            "hidden_ff": 20,
            "hidden": 17,
            "length": 5,
        },
        2,
        70,
        {"mask": True},
    ),
    ({"positions": "concatenated", "length": 40, "hidden_ff": 33}, 1, 3, {"betas": True}),
    ({"length": 1, "heads": 1, "head_dim": 1, "beta": 0.7}, 1, 3, {"shift": 5.0}),
    ({"length": 2, "heads": 5, "head_dim": 20, "hidden": 4, "positions": "gates"}, 1, 3, {"betas": True}),
    ({"length": 9}, 1, 9, {"size": 40.0}),
]
STEP_SAMPLE = [(*STEP_CASES[1][:2], 20, STEP_CASES[1][3])]  # all options at once; half the time of a batch of 70


def check_pool(sample: bool = False) -> None:
    from headcount.kernels.pool.plain import pool_plain
    from headcount.kernels.pool.triton import pool_triton

    for case in [*POOL_CASES[1:8], POOL_CASES[-1]] if sample else POOL_CASES:
        data = cases.draw(case)
        assert cases.is_exact(data["x"], data["W1"], data["hidden_bias"])
        exact, twin = (cases.pooled_and_gradients(pool_plain, data, t) for t in (torch.float64, torch.float32))
        found = cases.pooled_and_gradients(pool_triton, data, torch.float32)
        scale = torch.full((case[0],), exact["pooled"].numel() ** 0.5, dtype=torch.float64)
        row = cases.judge(found, twin, exact, scale, case[-1] >= 1e3)
        assert row["passes"], (case, row)
        if case[0] > 1:
            alone = cases.pooled_and_gradients(pool_triton, cases.first_only(data), torch.float32)
            assert all(torch.equal(found[k][:1], alone[k]) for k in found), case


def check_step(sample: bool = False) -> None:
    for options, models, batch, more in STEP_SAMPLE if sample else STEP_CASES:
        flat, data = cases.draw_step(options, models, batch, **more)
        exact, twin = (cases.step_twin(flat, data, t) for t in (torch.float64, torch.float32))
        found = cases.step_ours(flat, data)
        scale = torch.linalg.vector_norm(exact[1], dim=1)
        row = cases.judge(*(cases.split(flat, *pair) for pair in (found, twin, exact)), scale, False)
        assert row["passes"], (options, row)
        if models > 1:
            alone = cases.step_ours(flat, {k: v if k in ("X", "mask", "betas") else v[:1] for k, v in data.items()})
            assert all(torch.equal(a[:1], b) for a, b in zip(found, alone, strict=True)), options


def check_padding() -> None:
    """A model among zeros: its own gradient, and 0 in every padded place."""
    small, data = cases.draw_step({"heads": 2, "head_dim": 4, "width": 6, "hidden": 7, "hidden_ff": 5}, 2, 6)
    large = cases.Flat.of(cases.spec_of({"heads": 3, "head_dim": 8, "width": 20, "hidden": 17, "hidden_ff": 9}))
    places = torch.from_numpy(small.places(large))
    theta = torch.zeros(2, large.size)
    theta[:, places] = data["theta"]
    betas = torch.full((2,), 4**-0.5)
    loss, gradient = cases.step_ours(large, {**data, "theta": theta, "betas": betas})
    exact = cases.step_twin(small, data, torch.float64)
    scale = torch.linalg.vector_norm(exact[1], dim=1)
    found = cases.split(small, loss, gradient[:, places])
    assert max(cases.errors(found, cases.split(small, *exact), scale).values()) < cases.LIMIT
    gradient[:, places] = 0
    assert not gradient.any()


def check_divergence() -> None:
    """A weight that is not finite is seen in the loss of its own model, and in no other's."""
    small = {"beta": "learned", "heads": 2, "head_dim": 2, "hidden": 5, "length": 3}
    both = (({"positions": "gates"}, torch.nan), ({"positions": "concatenated"}, torch.inf))
    for more, bad in both:
        flat, data = cases.draw_step({**small, **more}, 1, 4)
        count = 1 + len(flat.shapes)  # one model that is well, and one for each tensor that is not
        stack = {k: v if k in ("X", "mask", "betas") else v.repeat(count, *[1] * (v.ndim - 1)) for k, v in data.items()}
        at = 0
        for m, shape in enumerate(flat.shapes.values(), 1):
            stack["theta"][m, at] = bad
            at += int(torch.tensor(shape).prod())
        loss, gradient = cases.step_ours(flat, stack)
        well = cases.step_ours(flat, data)
        assert torch.isfinite(loss).tolist() == [True] + [False] * (count - 1), (more, loss)
        assert torch.equal(loss[:1], well[0])
        assert torch.equal(gradient[:1], well[1])


def check_adam() -> None:
    """Against float64; and the step at a cursor is the plain step, bit for bit, with the dead left alone."""
    from headcount.kernels.adam.plain import adam_plain
    from headcount.kernels.adam.triton import adam_triton

    for step in (adam_triton, adam_plain):
        error, rests = cases.adam_error(step)
        assert error < 1e-6, (step, error)
        assert rests
    g = torch.Generator().manual_seed(0)
    theta, grad, first, second = (torch.rand(4, 1500, generator=g) for _ in range(4))
    rates, losses = torch.rand(3, 4, 4, generator=g), torch.zeros(3, 4)
    loss, alive = torch.tensor([1.0, torch.nan, 2.0, torch.inf]), torch.tensor([True, True, False, True])
    plain, at = [t.clone() for t in (theta, first, second)], [t.clone() for t in (theta, first, second)]
    adam_triton(plain[0], grad, plain[1], plain[2], rates[1], alive & torch.isfinite(loss))
    adam_triton(at[0], grad, at[1], at[2], rates, alive, torch.tensor([1]), loss, losses)
    assert all(torch.equal(a, b) for a, b in zip(plain, at, strict=True))
    assert torch.equal(at[0][1:], theta[1:])
    assert not torch.equal(at[0][0], theta[0])
    assert alive.tolist() == [True, False, False, False]
    assert torch.equal(losses[1].nan_to_num(7.0), loss.nan_to_num(7.0))
    assert not losses[[0, 2]].any()


def check_encoder(sample: bool = False) -> None:
    """Narrow attention and the join in float32, against the twins in float64; and a twin that is slightly off."""
    import encoder_kernel_cases as encoders

    from headcount.kernels.attention.plain import attend_plain
    from headcount.kernels.attention.triton import attend_narrow
    from headcount.kernels.residual_norm.triton import add_norm_triton

    def unscaled(packed, seen):
        return attend_plain(packed * torch.tensor([1.01, 1.0, 1.0])[:, None, None], seen)

    for case in encoders.ATTENTION[1:4] if sample else encoders.ATTENTION:
        errors = encoders.attention_errors(attend_narrow, case, "cpu", torch.float32)
        assert max(errors.values()) < 1e-6 * max(1.0, case[-1] / 3), (case, errors)
        assert max(encoders.attention_errors(unscaled, case, "cpu", torch.float32).values()) > 1e-3
    for case in encoders.ADD_NORM:
        errors = encoders.add_norm_errors(add_norm_triton, case, "cpu", torch.float32)
        assert max(errors.values()) < 1e-6, (case, errors)


def check_all(sample: bool = False) -> None:
    """In one process: to import what they need takes longer than to check Adam."""
    check_pool(sample)
    check_step(sample)
    check_adam()
    check_encoder(sample)


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton, a test extra, is missing")
@pytest.mark.parametrize(
    "check",
    [
        "all(sample=True)",
        *(
            pytest.param(f"{name}()", marks=pytest.mark.slow)
            for name in ("pool", "step", "encoder", "padding", "divergence")
        ),
    ],
)
def test_triton_in_the_interpreter(repo, check):
    code = f"import torch, test_triton as t; torch.use_deterministic_algorithms(True); t.check_{check}; print('agrees')"
    paths = [str(repo / part) for part in ("tests/kernels", "tests", "src")]
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False, timeout=600
    )
    assert done.stdout.strip() == "agrees", done.stderr[-3000:]


def test_the_comparison_detects_small_errors_and_gaps():
    exact = {"W": torch.ones(3, 4, dtype=torch.float64), "zero": torch.zeros(3, 2, dtype=torch.float64)}
    scale = torch.ones(3, dtype=torch.float64)
    assert cases.judge(exact, exact, exact, scale, False)["passes"]
    for name, at, value in (("W", (2, 1), 1 + 5e-5), ("W", (0, 0), torch.nan), ("zero", (1, 1), 2e-5)):
        wrong = {k: v.clone() for k, v in exact.items()}
        wrong[name][at] = value
        assert not cases.judge(wrong, exact, exact, scale, False)["passes"], name
        assert not cases.judge(wrong, exact, exact, scale, True)["passes"], name


def test_adams_error_detects_a_wrong_constant():
    from headcount.kernels.adam.plain import adam_plain

    def wrong(theta, grad, *rest):
        adam_plain(theta, grad * (1 + 1e-5), *rest)

    assert cases.adam_error(wrong)[0] > 1e-6
