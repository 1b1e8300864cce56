"""Stacks of encoders on a real GPU: captured, eager, beside the CPU, alone, resumed. Skipped where there is none."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from headcount.kernels.attention.trial import ATTENTION_KERNELS, fastest_attention
from headcount.models.encoder import stacked as encoder_stacked
from headcount.models.encoder.spec import EncoderSpec, initial_weights, pack
from headcount.models.encoder.stacked import forward
from headcount.store import Trial
from headcount.training.encoder.session import EncoderJob, EncoderSession, RealTrialSpec
from headcount.training.encoder.stacked import EncoderTrainer
from headcount.training.session import Ending
from sweeps.encoder_cases import TinyFeed, tiny_spec, tiny_train

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU here")

SEEDS = [7, 0, 12]


def stack(feed: TinyFeed, seeds: list[int] = SEEDS, *, graph: bool | None = None, **options: Any) -> EncoderTrainer:
    dropout = options.pop("dropout", 0.0)
    return EncoderTrainer(tiny_spec(feed, dropout=dropout), tiny_train(**options), seeds, feed, "cuda", graph=graph)


def apart(one: torch.Tensor, other: torch.Tensor, start: torch.Tensor) -> float:
    """How far two runs are apart, in units of how far they went: Adam makes whole steps of what is rounding."""
    return float((one - other).norm() / (one - start).norm())


@contextmanager
def no_waiting() -> Generator[None]:
    """Make whatever waits for the device an error."""
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


def gradient(
    spec: EncoderSpec, device: str, dtype: torch.dtype, compute: torch.dtype | None = None, masked: bool = False
) -> torch.Tensor:
    """The gradient of a fixed sum of three models' outputs."""
    theta = torch.stack([pack(spec, initial_weights(spec, seed)) for seed in SEEDS]).to(device, dtype).requires_grad_()
    rng = torch.Generator().manual_seed(0)
    X = torch.randn(3, 4, spec.tokens_in, spec.inputs, generator=rng).to(device, dtype)
    mask = torch.rand(3, 4, spec.tokens_in, generator=rng) < 0.7
    mask[..., 0] = True
    y = forward(spec, theta, X, mask.to(device) if masked else None, dtype=compute)
    pull = torch.randn(y.shape, generator=rng).to(device, dtype)
    return torch.autograd.grad((y * pull).sum(), theta)[0].cpu().double()


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("readout", ["class", "each"])
def test_gradients_are_those_of_the_cpu_in_float64(
    readout: str, alone: bool, masked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    outputs = 10 if readout == "class" else 1
    spec = EncoderSpec(heads=8, head_dim=16, depth=2, inputs=48, tokens=257, outputs=outputs, readout=readout)  # type: ignore[arg-type]
    true = gradient(spec, "cpu", torch.float64, masked=masked)
    monkeypatch.setattr(encoder_stacked, "_MIN_UNBATCHED_ROWS", 1 if alone else 10**9)
    monkeypatch.setattr(encoder_stacked, "_MIN_GROUP_ROWS", 128 if alone else 2048)
    for compute, bound in ((None, 1e-4), (torch.bfloat16, 0.05)):
        found = gradient(spec, "cuda", torch.float32, compute, masked)
        assert float((found - true).norm() / true.norm()) < bound


@pytest.mark.parametrize("masked", [False, True])
def test_the_fastest_kernel_is_one_that_runs(masked: bool) -> None:
    found = fastest_attention(256, 257, 16, torch.bfloat16, masked, torch.device("cuda"))
    assert found in (set(ATTENTION_KERNELS) - {"flash"} if masked else ATTENTION_KERNELS)


@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_a_captured_step_is_the_eager_one(precision: str, dropout: float, captured: bool) -> None:
    options = {"precision": precision, "dropout": dropout}
    feed = TinyFeed("class", "cuda", captured=captured)
    captured_run, eager = stack(feed, **options), stack(feed, graph=False, **options)
    start = eager.theta.clone()
    assert torch.equal(captured_run.theta, start), "capture leaves no trace"
    assert captured_run._graph is not None
    losses = captured_run.run(10), eager.run(10)
    assert torch.allclose(*losses, rtol=1e-5, atol=1e-5)
    assert apart(captured_run.theta, eager.theta, start) < 1e-2
    assert captured_run.taken.tolist() == [10, 10, 10]


@pytest.mark.parametrize("kind", [{"readout": "class"}, {"readout": "each"}, {"readout": "each", "masked": True}])
def test_it_trains_as_on_the_cpu(kind: dict[str, Any]) -> None:
    on_gpu = stack(TinyFeed(**kind, device="cuda"), precision="float32")
    feed = TinyFeed(**kind)
    on_cpu = EncoderTrainer(tiny_spec(feed), tiny_train(), SEEDS, feed, "cpu")
    assert torch.allclose(on_gpu.run(10).cpu(), on_cpu.run(10), atol=1e-4)
    found, true = on_gpu.evaluate("validation"), on_cpu.evaluate("validation")
    assert torch.allclose(found["loss"], true["loss"], atol=1e-4)
    assert torch.allclose(found["accuracy"], true["accuracy"], atol=0.051)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_alone_and_resumed(dropout: float) -> None:
    feed = TinyFeed("class", "cuda")
    whole = stack(feed, dropout=dropout, precision="float32")
    start = whole.theta.clone()
    whole.run(5)
    kept = whole.moments()
    whole.run(6)
    again = stack(feed, dropout=dropout, precision="float32")
    again.resume(kept)
    again.run(6)
    assert [one.step for one in again.moments()] == [11, 11, 11]
    assert apart(whole.theta, again.theta, start) < 1e-3
    alone = stack(feed, [SEEDS[1]], dropout=dropout, precision="float32")
    alone.run(11)
    assert apart(alone.theta[0], whole.theta[1], start[1]) < 1e-2


def test_a_ruin_disturbs_nobody() -> None:
    sound, ruined = stack(TinyFeed("class", "cuda")), stack(TinyFeed("class", "cuda", poison=(0, 4)))
    start = sound.theta.clone()
    sound.run(9), ruined.run(9)
    assert ruined.alive.tolist() == [True, False, True]
    assert ruined.taken.tolist() == [9, 4, 9]
    assert apart(ruined.theta[[0, 2]], sound.theta[[0, 2]], start[[0, 2]]) < 1e-2


def test_launching_waits_for_nothing_and_stacks_run_side_by_side() -> None:
    feeds = [TinyFeed("class", "cuda", captured=True) for _ in range(2)]
    alone = [stack(feed, [seed]) for feed, seed in zip(feeds, (1, 2), strict=True)]
    starts = [one.theta.clone() for one in alone]
    together = [stack(feed, [seed]) for feed, seed in zip(feeds, (1, 2), strict=True)]
    for one in alone:
        one.run(20)
    with no_waiting():
        for _ in range(4):
            for one in together:
                one.launch(5)
    for one, other, start in zip(alone, together, starts, strict=True):
        other.wait()
        assert apart(one.theta, other.theta, start) < 1e-2


@pytest.mark.parametrize("kind", [{"readout": "class", "captured": True}, {"readout": "each", "masked": True}])
def test_evaluations_are_launched_without_waiting(kind: dict[str, Any]) -> None:
    feed = TinyFeed(**kind, device="cuda")
    train = tiny_train(steps=24, evaluations=4)
    trials = [RealTrialSpec(real={}, model=tiny_spec(feed), train=train, seed=seed) for seed in SEEDS]
    members = [(str(trial.seed), EncoderJob(trial, feed)) for trial in trials]
    stacks = [EncoderSession(members, torch.device("cuda")) for _ in range(2)]
    ended: list[list[Ending]] = [[], []]
    for _ in range(4):
        with no_waiting():
            for one in stacks:
                one.window = 6
                one.launch(threading.Event())  # six steps, then the evaluation; the last time also on the training part
        for one, found in zip(stacks, ended, strict=True):
            while not one.ready():
                pass
            found += one.collect()
    true = EncoderTrainer(tiny_spec(feed), train, SEEDS, feed, "cuda")
    true.run(24)
    measured = true.evaluate("validation")
    for found in ended:
        assert [end.name for end in found] == [str(seed) for seed in SEEDS]
        for m, end in enumerate(found):
            assert isinstance(end.outcome, Trial)
            assert [step for step, _ in end.outcome.curve] == [6, 12, 18, 24]
            assert end.measured["loss"] == pytest.approx(float(measured["loss"][m]), rel=0.05)
            assert end.outcome.train_accuracy is not None
    with no_waiting(), pytest.raises(RuntimeError, match="synchroniz"):
        true.evaluate("validation")  # the twin that reads at once
