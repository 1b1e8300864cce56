"""Stacks of encoders against a plain loop, and every model against itself alone, resumed, and with a diverged one."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from headcount.core.errors import BadInput
from headcount.models.encoder.reference import encode
from headcount.models.encoder.spec import EncoderSpec, has_weight_decay, initial_weights, pack, unpack
from headcount.training.batches import batch_indices
from headcount.training.encoder import stacked as encoder_train
from headcount.training.encoder.measures import ranks
from headcount.training.encoder.stacked import EncoderTrainer, RealTrain
from sweeps.encoder_cases import TinyFeed, tiny_spec, tiny_train

SEEDS = [7, 0, 12]
KINDS: list[dict[str, Any]] = [{"readout": "class"}, {"readout": "each"}, {"readout": "each", "masked": True}]


def stack(feed: TinyFeed, seeds: list[int] = SEEDS, taken: int = 0, **options: Any) -> EncoderTrainer:
    """Return a trainer that has taken some steps; `options` may be of the model or of training."""
    of_train = {k: v for k, v in options.items() if k in RealTrain.model_fields}
    of_model = {k: v for k, v in options.items() if k in EncoderSpec.model_fields}
    kept = {k: v for k, v in options.items() if k not in {**of_train, **of_model}}
    trainer = EncoderTrainer(tiny_spec(feed, **of_model), tiny_train(**of_train), seeds, feed, "cpu", **kept)
    trainer.run(taken) if taken else None
    return trainer


def plain(feed: TinyFeed, spec: EncoderSpec, train: RealTrain, seed: int, steps: int) -> tuple[Tensor, list[float]]:
    """Train by the usual loop in float64: the reference, torch's AdamW with two groups, torch's clipping."""
    w = {name: tensor.double().requires_grad_() for name, tensor in initial_weights(spec, seed).items()}
    groups = [[w[name] for name in w if has_weight_decay(name) is pulled] for pulled in (True, False)]
    decays = (train.weight_decay, 0.0)
    optimiser = torch.optim.AdamW([{"params": g, "weight_decay": d} for g, d in zip(groups, decays, strict=True)])
    losses = list[float]()
    for step in range(steps):
        index = torch.from_numpy(batch_indices(seed, step, 1, train.batch, feed.train_size))
        X, y, mask = feed.train(index, step, [seed])
        scores = encode(spec, w, X[0], None if mask is None else mask[0])
        if mask is not None and spec.readout == "each":
            scores = scores.masked_fill(~mask[0], -torch.inf)
        loss = nn.functional.cross_entropy(scores, y[0], label_smoothing=train.label_smoothing)
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(list(w.values()), train.clip)
        for group in optimiser.param_groups:
            group["lr"] = train.rate(step)
        optimiser.step()
        losses.append(float(loss.detach()))
    return pack(spec, w).detach(), losses


def deviation(kind: dict[str, Any], **options: Any) -> float:
    """Return the largest difference of weights and losses between the stack and the plain loop after some steps."""
    feed = TinyFeed(**kind, dtype=torch.float64)
    trainer = stack(feed, dtype=torch.float64, **options)
    losses = trainer.run(9)
    worst = 0.0
    for m, seed in enumerate(SEEDS):
        theta, told = plain(feed, trainer.spec, trainer.train, seed, 9)
        worst = max(worst, float((trainer.theta[m] - theta).abs().max()))
        worst = max(worst, float((losses[:, m] - torch.tensor(told, dtype=torch.float64)).abs().max()))
    return worst


@pytest.mark.parametrize("kind", KINDS)
def test_the_stack_trains_as_a_plain_loop(kind: dict[str, Any]) -> None:
    assert deviation(kind) < 1e-9


def test_the_stack_trains_as_a_plain_loop_with_smoothing_and_an_inactive_clip() -> None:
    assert deviation(KINDS[0], label_smoothing=0.1, clip=1e6) < 1e-9


def _shared_norm(gradient: Tensor) -> Tensor:
    return torch.sqrt(gradient.square().sum()).expand(len(gradient))


@pytest.mark.parametrize(
    ("name", "twin"),
    [
        ("_gradient_norms", _shared_norm),
        ("has_weight_decay", lambda name: True),
        ("stacked_indices", lambda key, *rest: encoder_batches(key.roll(1), *rest)),
    ],
)
def test_sabotage_is_detected(name: str, twin: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Sabotage: one norm for all models, decay on all weights, a neighbour's batches."""
    monkeypatch.setattr(encoder_train, name, twin)
    assert deviation(KINDS[0]) > 1e-5


encoder_batches = encoder_train.stacked_indices


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_a_model_in_a_stack_is_the_model_alone(kind: dict[str, Any], dropout: float) -> None:
    feed = TinyFeed(**kind)
    together = stack(feed, taken=12, dropout=dropout)
    for m, seed in enumerate(SEEDS):
        alone = stack(feed, [seed], taken=12, dropout=dropout)
        assert float((together.theta[m] - alone.theta[0]).abs().max()) < 1e-5
    assert float((together.theta[0] - together.theta[1]).abs().max()) > 0.1


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_resume_is_an_unbroken_run_to_the_bit(dropout: float) -> None:
    feed = TinyFeed("class")
    whole = stack(feed, taken=14, dropout=dropout)
    first = stack(feed, taken=5, dropout=dropout)
    kept = first.moments()
    first.run(2)  # what a checkpoint holds is not touched by later steps
    second = stack(feed, dropout=dropout)
    second.resume([dataclasses.replace(one) for one in kept])
    assert second.steps == 5
    second.run(9)
    for one, other in zip(whole.moments(), second.moments(), strict=True):
        assert one.step == other.step == 14
        assert all(np.array_equal(getattr(one, n), getattr(other, n)) for n in ("theta", "first", "second"))
        assert one.theta.dtype == np.float32


def test_dropout_changes_training_and_not_evaluation() -> None:
    feed = TinyFeed("class")
    assert not torch.equal(stack(feed, taken=3, dropout=0.3).theta, stack(feed, taken=3).theta)
    one, other = stack(feed, dropout=0.3), stack(feed)
    assert torch.equal(one.evaluate("validation")["loss"], other.evaluate("validation")["loss"])


def test_blocks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    feed = TinyFeed("class")
    whole = stack(feed, taken=10, dropout=0.2)
    monkeypatch.setattr(encoder_train, "_BLOCK_INDICES", 3 * 8 * 4)  # four steps a block
    assert torch.equal(stack(feed, taken=10, dropout=0.2).theta, whole.theta)


def test_a_batch_made_inside_the_step_is_the_same() -> None:
    outside, inside = (stack(TinyFeed("class", captured=c), taken=10) for c in (False, True))
    assert torch.equal(outside.theta, inside.theta)


def test_a_diverged_model_is_frozen_without_affecting_others() -> None:
    sound, ruined = stack(TinyFeed("class"), dropout=0.2), stack(TinyFeed("class", poison=(0, 4)), dropout=0.2)
    sound.run(4), ruined.run(4)
    before = ruined.theta[1].clone()
    losses = ruined.run(5)
    sound.run(5)
    assert ruined.alive.tolist() == [True, False, True]
    assert ruined.taken.tolist() == [9, 4, 9]
    assert torch.equal(ruined.theta[1], before)
    assert torch.equal(ruined.theta[[0, 2]], sound.theta[[0, 2]])
    assert losses[:, 1].isnan().all()
    assert losses[:, [0, 2]].isfinite().all()
    assert [one.step for one in ruined.moments()] == [9, 4, 9]
    with pytest.raises(BadInput, match="of the same step"):
        sound.resume(ruined.moments())


def test_a_gradient_that_overflows_freezes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    sound, ruined = stack(TinyFeed("class")), stack(TinyFeed("class"))
    start, honest = ruined.theta.clone(), ruined._gradient

    def spoilt(batch: Any) -> tuple[Tensor, Tensor]:
        loss, gradient = honest(batch)
        gradient[2, 5] = torch.inf
        return loss, gradient

    monkeypatch.setattr(ruined, "_gradient", spoilt)
    sound.run(3), ruined.run(3)
    assert ruined.alive.tolist() == [True, True, False]
    assert torch.equal(ruined.theta[2], start[2])
    assert torch.equal(ruined.theta[:2], sound.theta[:2])
    assert float((sound.theta[2] - start[2]).abs().max()) > 1e-4


@pytest.mark.parametrize("kind", KINDS)
def test_evaluation_is_the_reference(kind: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    feed = TinyFeed(**kind)
    trainer = stack(feed, taken=8)
    for name, limit, count in (("train", None, 96), ("train", 17, 17), ("validation", None, 40)):
        X, y, mask = feed.part(name, 0, count)  # type: ignore[arg-type]
        monkeypatch.setattr(
            encoder_train, "_CHUNK_HIDDEN_UNITS", {"cpu": 5 * 3 * feed.tokens * 32}
        )  # five samples at once
        found = trainer.evaluate(name, limit)  # type: ignore[arg-type]
        for m in range(len(SEEDS)):
            scores = encode(trainer.spec, unpack(trainer.spec, trainer.theta[m]), X, mask)
            if mask is not None:
                scores = scores.masked_fill(~mask, -torch.inf)
            order = scores.argsort(1, descending=True).tolist()
            places = [1 + row.index(label) for row, label in zip(order, y.tolist(), strict=True)]
            assert float(found["accuracy"][m]) == pytest.approx(np.mean([p == 1 for p in places]))
            assert float(found["mrr"][m]) == pytest.approx(np.mean([1 / p for p in places]))
            assert float(found["loss"][m]) == pytest.approx(float(nn.functional.cross_entropy(scores, y)), rel=1e-5)


def test_only_read_positions_count() -> None:
    feed = TinyFeed("each", masked=True)
    feed.read = torch.tensor([3, 1, 0, 2])
    feed.y = feed.read.argsort()[feed.y]  # the place among what is read
    trainer = stack(feed, taken=4)
    X, y, mask = feed.part("validation", 0, 40)
    scores = encode(trainer.spec, unpack(trainer.spec, trainer.theta[1]), X, mask)[:, feed.read]
    found = trainer.evaluate("validation")
    assert float(found["accuracy"][1]) == pytest.approx(float((scores.argmax(1) == y).double().mean()))


def test_nan_scores_never_count_as_right() -> None:
    trainer = stack(TinyFeed("class"))
    trainer.theta[1] = torch.nan
    found = trainer.evaluate("validation")
    assert float(found["accuracy"][1]) == 0.0
    assert math.isnan(float(found["loss"][1]))
    assert found["loss"][[0, 2]].isfinite().all()


def test_ranks_with_ties() -> None:
    scores = torch.tensor([[[1.0, 1.0, 1.0], [0.0, 2.0, 2.0], [3.0, 1.0, 2.0], [-torch.inf, 0.0, -torch.inf]]])
    assert ranks(scores, torch.tensor([[1, 2, 2, 1]])).tolist() == [[2, 2, 2, 1]]


@pytest.mark.parametrize("readout", ["class", "each"])
def test_it_learns(readout: str) -> None:
    feed = TinyFeed(readout)  # type: ignore[arg-type]
    settings = {"steps": 150, "batch": 32, "learning_rate": 1e-2, "warmup": 10, "weight_decay": 0.01, "clip": 1.0}
    trainer = stack(feed, [0, 1], **settings)
    before, _ = trainer.evaluate("train"), trainer.run(150)
    after = trainer.evaluate("train")
    assert float(before["accuracy"].max()) < 0.6
    assert float(after["accuracy"].min()) > 0.9
    assert float(after["mrr"].min()) > float(after["accuracy"].min())


def test_bfloat16_trains_beside_float32() -> None:
    feed = TinyFeed("class")
    full, half = (stack(feed, precision=p).run(12) for p in ("float32", "bf16"))
    assert stack(feed, precision="auto").dtype == torch.float32
    assert half.dtype == torch.float32
    assert 1e-6 < float((full - half).abs().max()) < 0.05


def test_the_rate_warms_up_and_falls_to_zero() -> None:
    train = RealTrain(learning_rate=2.0, warmup=4, steps=20)
    rates = [train.rate(step) for step in range(21)]
    assert rates[:5] == [0.5, 1.0, 1.5, 2.0, 2.0]
    assert all(a > b for a, b in itertools.pairwise(rates[4:]))
    assert rates[12] == pytest.approx(1.0)
    assert rates[20] == pytest.approx(0.0)
    assert RealTrain(warmup=3, steps=3).rate(2) == RealTrain().learning_rate


def test_bad_settings_are_one_line() -> None:
    feed = TinyFeed("each")
    with pytest.raises(BadInput, match="warmup must be at most"):
        RealTrain(warmup=5, steps=4)
    with pytest.raises(BadInput, match="must be those of the data"):
        EncoderTrainer(tiny_spec(feed, tokens=7), tiny_train(), SEEDS, feed, "cpu")
    with pytest.raises(BadInput, match="label smoothing"):
        stack(feed, label_smoothing=0.1)
    with pytest.raises(BadInput, match="at least one seed"):
        stack(feed, [])
    with pytest.raises(BadInput, match="do not fit"):
        stack(feed).resume(stack(feed, heads=3).moments())
