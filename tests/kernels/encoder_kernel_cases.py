"""Cases and the judge of the encoder's kernels: in Triton's interpreter by the tests here, on a GPU by `tests/gpu`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from headcount.kernels.attention.plain import attend_plain
from headcount.kernels.residual_norm.plain import add_norm_plain

# sequences, tokens, heads, head size, with a mask, size of the scores
ATTENTION = [
    (2, 65, 2, 16, False, 1.0),
    (1, 64, 1, 16, True, 1.0),
    (1, 145, 2, 32, True, 1.0),
    (2, 33, 3, 16, False, 30.0),
    (1, 7, 1, 64, True, 1.0),
    (1, 100, 2, 32, False, 1.0),
    (1, 257, 1, 16, True, 300.0),
]
# rows, width, what is added, dropout
ADD_NORM = [(70, 48, True, 0.0), (33, 128, True, 0.3), (5, 16, False, 0.0), (9, 384, True, 0.1), (300, 17, True, 0.0)]


def attention_data(case: tuple[Any, ...], device: str, dtype: torch.dtype) -> tuple[Tensor, Tensor | None, Tensor]:
    """packed, seen and the gradient that comes back, in numbers that the dtype holds exactly."""
    sequences, tokens, heads, n, masked, size = case
    rng = torch.Generator().manual_seed(3)
    packed = torch.randn(sequences, tokens, 3, heads, n, generator=rng)
    packed[:, :, 0] *= size
    seen = torch.rand(sequences, tokens, generator=rng) < 0.6
    seen[:, tokens // 2] = True
    pull = torch.randn(sequences, tokens, heads, n, generator=rng)
    packed, pull = (t.to(torch.bfloat16).to(dtype).to(device) for t in (packed, pull))
    return packed, seen.to(device) if masked else None, pull


def attention_errors(attend: Any, case: tuple[Any, ...], device: str, dtype: torch.dtype) -> dict[str, float]:
    """How far values and gradients are from the plain twin in float64, as a share of the largest true number."""
    packed, seen, pull = attention_data(case, device, dtype)
    exact = packed.double().requires_grad_()
    true = attend_plain(exact, seen)
    (slope,) = torch.autograd.grad(true, exact, pull.double())
    leaf = packed.clone().requires_grad_()
    out = attend(leaf, seen)
    (found,) = torch.autograd.grad(out, leaf, pull)
    pairs = {"out": (out, true)} | {
        name: (found[:, :, i], slope[:, :, i]) for i, name in enumerate(("query", "key", "value"))
    }
    return {name: _apart(*pair) for name, pair in pairs.items()}


def add_norm_errors(add_norm: Any, case: tuple[Any, ...], device: str, dtype: torch.dtype) -> dict[str, float]:
    """The same for s', u and the gradients of s and of what is added."""
    rows, E, adds, dropout = case
    rng = torch.Generator().manual_seed(4)
    numbers = [torch.randn(2, rows, E, generator=rng).to(torch.bfloat16).to(dtype).to(device) for _ in range(4)]
    s, added, pull_s, pull_u = numbers
    s = s * 3 + 1
    keep = (torch.rand(2, rows, E, generator=rng) > dropout).to(device) if dropout else None
    results = []
    for do, kind in ((add_norm, dtype), (add_norm_plain, torch.float64)):
        leaves = [s.detach().to(kind).requires_grad_(), added.detach().to(kind).requires_grad_()]
        mask = None if keep is None else keep.to(kind)
        out, u = do(leaves[0], leaves[1] if adds else None, mask, dropout)
        loss = (out * pull_s.to(kind)).sum() + (u * pull_u.to(kind)).sum()
        slopes = torch.autograd.grad(loss, leaves if adds else leaves[:1])
        results.append([out, u, *slopes])
    names = ("sum", "norm", "stream", "added")
    return {name: _apart(a, b) for name, a, b in zip(names, *results, strict=False)}


def _apart(found: Tensor, true: Tensor) -> float:
    """The largest error, in units of the largest number."""
    return float((found.detach().double() - true.detach()).abs().max() / true.detach().abs().max())
