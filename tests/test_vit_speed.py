"""The plain vision transformer is our encoder's function and trains as our stack does; the measurement runs, tiny."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from benchmarks import vit_speed
from benchmarks.peers.turns import Work
from benchmarks.peers.vit import Frames, PlainViT, VitPlan, drawn_images, plain_loop, stacked_loop
from headcount.datasets.cifar10.frames import cut_patches
from headcount.models.encoder.reference import encode
from headcount.models.encoder.spec import initial_weights
from headcount.training.feeds.images import ImagesOnDevice
from results import RESULTS, shape_problems

PLAN = VitPlan(
    device="cpu",
    side=32,
    patch=8,
    heads=2,
    head_dim=4,
    depth=2,
    batch=4,
    models=2,
    images=24,
    steps=2,
    turns=2,
    workers=0,
)


@torch.no_grad()
def difference(spoil: str | None = None) -> float:
    """How far the plain model is from the reference with the same weights, one of them spoilt in one."""
    rng = torch.Generator().manual_seed(0)
    w = {n: t + 0.2 * torch.randn(t.shape, generator=rng) for n, t in initial_weights(PLAN.spec, 1).items()}
    frames = torch.randn(3, 3, 32, 32, generator=rng)
    own = dict(w) if spoil is None else {**w, spoil: w[spoil].flip(0)}
    model = PlainViT(PLAN.spec, PLAN.patch).copy_weights(own)
    return float((model(frames) - encode(PLAN.spec, w, cut_patches(frames, PLAN.patch))).abs().max())


def test_the_peer_is_the_reference() -> None:
    assert difference() < 1e-5


@pytest.mark.parametrize("name", ["layers.1.attention.output", "layers.0.attention.query", "position", "embed.weight"])
def test_a_wrong_peer_is_seen(name: str) -> None:
    """Heads in another order, positions turned, channels mixed up."""
    assert difference(name) > 1e-3


def test_a_loader_makes_normalised_frames() -> None:
    images = drawn_images(24)
    frames = Frames(images, 48, ImagesOnDevice.of(images, "cpu").channel_moments)
    made = torch.stack([frames[i % 24][0] for i in range(48)])
    assert made.shape == (48, 3, 48, 48)
    assert abs(float(made.mean())) < 0.1
    assert not torch.equal(made[0], made[24])  # the same image at another spot
    assert int(frames[5][1]) == int(images.train_labels[5])


def test_every_loop_takes_its_steps() -> None:
    images = drawn_images(PLAN.images)
    device_images = ImagesOnDevice.of(images, "cpu")
    works: list[Work] = [
        plain_loop(PLAN, images, device_images, source, precision)  # type: ignore[arg-type]
        for source in ("loader", "device")
        for precision in ("tf32", "bf16")
    ]
    works += [stacked_loop(PLAN, device_images, p) for p in ("float32", "bf16")]  # type: ignore[arg-type]
    assert [work() for work in works] == [PLAN.steps * PLAN.models] * 6


@pytest.fixture
def script() -> ModuleType:
    """The measurement as a module."""
    return vit_speed


def test_the_measurement_runs_tiny(
    script: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADCOUNT_COMMIT", "test")
    path = script.main([str(tmp_path / "out"), "--smoke", "--device", "cpu", "--kernels", "--skip", "stack_eager"])
    result = json.loads(path.read_text())
    assert not shape_problems(result, path.stem)
    assert set(result["rows"]) == set(script.ROW_LABELS) - {"stack_eager"}
    assert result["absent"] == {}
    for row, one in result["rows"].items():
        assert len(one["us_per_model_step"]) == 2
        assert one["images_per_second"] > 0
        assert row == "stack" or result["times_ours"][row] > 0
    assert "images/s" in capsys.readouterr().out


def test_a_row_that_cannot_run_is_told(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> Work:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(script, "plain_loop", broken)
    found = script.measure(PLAN, skip=["stack_eager", "stack_float32", *script.KERNEL_ROWS])
    assert set(found["rows"]) == {"stack"}
    assert found["absent"]["loader_bf16"] == "out of memory"


@pytest.mark.parametrize("name", ["vit-speed-cuda", "vit-speed-cuda-dropout"])
def test_five_times_every_plain_loop(name: str) -> None:
    """What was measured on a GPU, from the times themselves: the ratio is the median over turns."""
    found = json.loads((RESULTS / f"{name}.json").read_text())
    plan, rows = found["plan"], found["rows"]
    assert (plan["side"], plan["heads"], plan["models"], plan["device"]) == (64, 8, 8, "cuda:0")
    ours = rows["stack"]["us_per_model_step"]
    peers = [row for row in rows if row.startswith(("loader", "device"))]
    assert "device_bf16" in peers
    for row in peers:
        ratios = [theirs / own for theirs, own in zip(rows[row]["us_per_model_step"], ours, strict=True)]
        assert statistics.median(ratios) == pytest.approx(found["times_ours"][row])
        assert found["times_ours"][row] > 5
