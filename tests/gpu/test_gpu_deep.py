"""Deep models and attacks on a real GPU, beside the same on the CPU in float64. Skipped where there is none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import headcount as hc
from headcount.models.transformer.flat import Flat
from headcount.models.transformer.reference import Transformer
from headcount.models.transformer.spec import ModelSpec
from headcount.models.transformer.stacked import loss_and_gradient

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU here")


@pytest.mark.parametrize("length", [16, 48, 130])  # written scores, the fused kernel, more than two of its tiles
@pytest.mark.parametrize(
    "options",
    [
        {"depth": 2, "head_dim": 8},
        {"depth": 2, "head_dim": 7, "heads": 5},
        {"depth": 3, "residual": True, "layer_norm": True},
        {"depth": 2, "positions": "gates", "beta": "learned"},
        {"depth": 1, "feedforward": "relu5", "heads": 1, "head_dim": 64},
    ],
)
def test_gradients_are_those_of_the_cpu_in_float64(options: dict[str, Any], length: int) -> None:
    spec = ModelSpec(**{"dim": 4, "length": length, "heads": 4, "hidden": 16, **options})
    flat = Flat.of(spec)
    packed = [torch.from_numpy(flat.pack(Transformer(spec, seed=s, dtype=torch.float64))) for s in range(3)]
    theta = torch.stack(packed)
    rng = torch.Generator().manual_seed(0)
    X = torch.randn(50, length, 4, generator=rng, dtype=torch.float64)
    index = torch.randint(50, (3, 32), generator=rng)
    y = torch.randn(3, 32, 1, generator=rng, dtype=torch.float64)
    loss, gradient = loss_and_gradient(flat, theta, X, index, y)
    single = [t.cuda().float() for t in (theta, X)]
    found, slope = loss_and_gradient(flat, single[0], single[1], index.cuda(), y.cuda().float())
    assert torch.allclose(found.cpu().double(), loss, rtol=1e-5)
    scale = gradient.abs().amax(1, keepdim=True)
    assert float(((slope.cpu().double() - gradient) / scale).abs().max()) < 1e-5


def test_an_attack_on_the_gpu_is_proved(tmp_path: Path, headcount_here: Any) -> None:
    task = hc.make_task("min-plus-max", length=3)
    model = hc.ModelSpec(dim=1, length=3, heads=1, head_dim=2, hidden=8)
    hc.train(task, model, hc.TrainSpec(steps=400, warmup=40, train_size=2000)).save(tmp_path / "model")
    command = ("attack", str(tmp_path / "model"), "--starts", "8", "--for", "20s", "--device", "cuda")
    done = headcount_here(*command, "--out", str(tmp_path / "found"), "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["kind"] == "exact"
    assert headcount_here("recheck", str(tmp_path / "found")).returncode == 0
