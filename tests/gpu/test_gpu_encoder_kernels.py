"""The encoder's kernels on a real GPU, in bfloat16, beside their plain twins. Skipped where there is none."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from headcount.kernels import add_norm, explain, prefer_attention
from headcount.kernels.attention.plain import attend_fused, attend_plain
from headcount.kernels.residual_norm.plain import add_norm_plain
from kernels import encoder_kernel_cases as cases

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU here")


@pytest.mark.parametrize("case", [*cases.ATTENTION, (3, 1025, 2, 16, False, 1.0), (16, 257, 8, 16, True, 3.0)])
def test_narrow_attention_is_as_good_as_twin_and_peer_in_bfloat16(case: tuple[Any, ...]) -> None:
    from headcount.kernels.attention.triton import attend_narrow

    ours, twin, peer = (
        cases.attention_errors(do, case, "cuda", torch.bfloat16) for do in (attend_narrow, attend_plain, attend_fused)
    )
    for name, error in ours.items():  # the twin keeps all digits of the weights' gradient, fused kernels round o
        assert error < 1.5 * max(twin[name], peer[name]) + 2**-9, (name, ours, twin, peer)


def test_narrow_attention_is_the_same_twice() -> None:
    from headcount.kernels.attention.triton import attend_narrow

    packed, seen, pull = cases.attention_data((8, 257, 4, 16, True, 2.0), "cuda", torch.bfloat16)
    found = []
    for _ in range(2):
        leaf = packed.clone().requires_grad_()
        out = attend_narrow(leaf, seen)
        found.append((out, torch.autograd.grad(out, leaf, pull)[0]))
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
    with prefer_attention("narrow"):
        assert explain("attend", packed)[0].why_not is None
        assert "bfloat16" in str(explain("attend", packed.float())[0].why_not)


@pytest.mark.parametrize("case", cases.ADD_NORM)
def test_the_join_is_as_good_as_the_twin_in_bfloat16(case: tuple[Any, ...]) -> None:
    ours = cases.add_norm_errors(add_norm, case, "cuda", torch.bfloat16)
    twin = cases.add_norm_errors(add_norm_plain, case, "cuda", torch.bfloat16)
    for name, error in ours.items():
        assert error < 1.5 * twin[name] + 2**-9, (name, ours, twin)
