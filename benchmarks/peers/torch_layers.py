"""A peer: the same architecture built from torch's own layers, one model at a time."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.peers.turns import LEARNING_RATE, Work
from headcount.models.transformer import ModelSpec
from headcount.training import Part


class TorchLayers(nn.Module):
    """Equation 4 with nn.MultiheadAttention, as a researcher would write it.

    With `all_rows` every row of [c; e(1); …; e(T)] is a query and the first output is used, as is usual. Otherwise the
    class token is the only query, which is the cheapest way to use the layer.
    """

    def __init__(self, spec: ModelSpec, *, all_rows: bool) -> None:
        super().__init__()
        E = spec.heads * spec.head_dim
        self.all_rows = all_rows
        self.encoder = nn.Sequential(nn.Linear(spec.dim, spec.hidden), nn.ReLU(), nn.Linear(spec.hidden, E))
        self.class_token = nn.Parameter(torch.randn(1, 1, E))
        self.attention = nn.MultiheadAttention(E, spec.heads, batch_first=True)
        self.head = nn.Sequential(nn.Linear(E, spec.N_ff), nn.GELU(), nn.Linear(spec.N_ff, spec.out_dim))

    def forward(self, X: Tensor) -> Tensor:
        """Return y[batch, out_dim]."""
        e = self.encoder(X)
        queries = self.class_token.expand(len(X), -1, -1)
        if self.all_rows:
            queries = torch.cat([queries, e], dim=1)
        attended, _ = self.attention(queries, e, e, need_weights=False)
        return self.head((queries + attended)[:, 0])


def one_at_a_time(model: nn.Module, part: Part, batch: int, steps: int, threads: int | None = None) -> Work:
    """Train one model with fused Adam, batches drawn on the device; `threads` are set on a CPU only."""
    model = model.to(part.X.device)
    optimiser = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE, fused=True)

    def work() -> int:
        if threads is not None:
            torch.set_num_threads(threads)
        for _ in range(steps):
            drawn = part.rows(torch.randint(len(part.X), (batch,), device=part.X.device))
            loss = (model(drawn.X) - drawn.y).square().mean()
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            optimiser.step()
        return steps

    return work
