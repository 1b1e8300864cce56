"""The stack's trainer, run eagerly on the CPU, against the plain loop with the same batches."""

from __future__ import annotations

import pytest
import torch

from headcount.core.errors import BadInput
from headcount.models.transformer.spec import ModelSpec
from headcount.tasks.families import make_task
from headcount.training.batches import batch_indices, fresh_order, stacked_fresh_order, stacked_indices, stream_keys
from headcount.training.data import prepare
from headcount.training.loop import train
from headcount.training.spec import TrainSpec
from headcount.training.stacked import StackTrainer

TASK = make_task("sum-of-maxima", intrinsic=2, dim=2, length=4)
BASE = {
    "steps": 12,
    "warmup": 3,
    "batch": 8,
    "train_size": 40,
    "validation_size": 20,
    "dtype": "float64",
    "evaluations": 2,
}
TRAINS = [
    TrainSpec(**BASE),
    TrainSpec(**BASE, optimiser="adamw", weight_decay=0.1, learning_rate=3e-2),
    TrainSpec(**BASE, schedule="constant", weight_decay=0.02),
]
SEEDS = [3, 4, 5]


def trainer(options: dict | None = None, trains=TRAINS, seeds=SEEDS, y=None) -> StackTrainer:
    spec = ModelSpec(dim=2, length=4, heads=2, head_dim=3, hidden=5, **(options or {}))
    part = prepare(TASK, trains[0]).train
    return StackTrainer(spec, trains, seeds, part.X, part.y if y is None else y)


@pytest.mark.parametrize("options", [{}, {"positions": "gates", "beta": "learned"}, {"depth": 2, "layer_norm": True}])
def test_a_stack_is_the_plain_loop(options):
    stack = trainer(options)
    losses = torch.cat([stack.run(5), stack.run(7)])  # blocks may end anywhere
    assert losses.shape == (12, 3)
    validation = prepare(TASK, TRAINS[0]).validation
    errors = stack.nmse(validation.X, validation.y)
    for m, (spec, seed) in enumerate(zip(TRAINS, SEEDS, strict=True)):
        alone = train(TASK, stack.flat.spec, spec, seed=seed)
        weights = torch.from_numpy(stack.flat.pack(alone.model))
        torch.testing.assert_close(stack.theta[m], weights, rtol=1e-10, atol=1e-10)
        assert float(errors[m]) == pytest.approx(alone.trial.nmse, rel=1e-9)


def test_outputs_are_those_of_the_models():
    stack = trainer({"positions": "gates"})
    before = stack.theta.clone()
    stack.run(3)
    X, mask = torch.randn(7, 4, 2, dtype=torch.float64), torch.ones(7, 4, dtype=torch.bool)
    mask[::2, 1:] = False
    for theta in (before, stack.theta):  # with other weights than those of now, too
        found = stack.outputs(theta, X, mask)
        for m, weights in enumerate(stack.unpadded(theta)):
            alone = stack.flat.unpack(weights)(X, mask)
            torch.testing.assert_close(found[m], alone.detach(), rtol=1e-10, atol=1e-10)
    assert not torch.allclose(stack.outputs(before, X), stack.outputs(stack.theta, X), rtol=1e-3)


def test_a_model_does_not_depend_on_its_neighbours():
    together = trainer()
    together.run(6)
    alone = trainer(trains=TRAINS[1:2], seeds=SEEDS[1:2])
    alone.run(6)
    torch.testing.assert_close(together.theta[1], alone.theta[0], rtol=1e-12, atol=1e-12)


def test_own_targets():
    part = prepare(TASK, TRAINS[0]).train
    own = trainer(y=torch.stack([part.y, -part.y, part.y]))
    own.run(4)
    flipped = trainer(y=-part.y)
    flipped.run(4)
    torch.testing.assert_close(own.theta[1], flipped.theta[1], rtol=1e-12, atol=1e-12)
    assert not torch.allclose(own.theta[2], flipped.theta[2])
    with pytest.raises(BadInput):
        trainer(y=torch.stack([part.y, -part.y]))


def test_a_diverged_model_is_frozen_and_the_others_go_on():
    spoiled, healthy = trainer(), trainer()
    spoiled.theta[1, 0] = torch.inf
    before = spoiled.theta[1].clone()
    losses = spoiled.run(6)
    healthy.run(6)
    assert spoiled.alive.tolist() == [True, False, True]
    assert not torch.isfinite(losses[:, 1]).any()
    assert torch.equal(spoiled.theta[1], before)
    for m in (0, 2):
        assert torch.equal(spoiled.theta[m], healthy.theta[m])


def test_resume_equals_an_undisturbed_run():
    straight = trainer()
    straight.run(9)
    broken = trainer()
    broken.run(4)
    resumed = trainer()
    resumed.restore(broken.state())
    resumed.run(5)
    assert torch.equal(straight.theta, resumed.theta)
    assert torch.equal(straight.second, resumed.second)


def test_batches_depend_on_seed_and_step_alone_and_are_the_plain_loops():
    key = torch.from_numpy(stream_keys([7, 8], "batches"))
    whole = stacked_indices(key, 0, 50, 64, 1000)
    assert torch.equal(whole[20:25], stacked_indices(key, 20, 5, 64, 1000))
    assert torch.equal(whole[:, 1], torch.from_numpy(batch_indices(8, 0, 50, 64, 1000)))
    assert not torch.equal(whole[:, 0], whole[:, 1])
    assert int(whole.min()) >= 0
    assert int(whole.max()) < 1000
    counts = torch.bincount(whole.flatten() // 100, minlength=10).double()
    assert float((counts - 640).abs().max()) < 5 * 640**0.5  # even over the samples
    key = torch.from_numpy(stream_keys([7, 8], "fresh order"))
    order = stacked_fresh_order(key, 3, 5)
    assert torch.equal(order[:, 1], torch.from_numpy(fresh_order(8, 3, 5)))
    assert sorted(order[:, 0].flatten().tolist()) == list(range(5 * len(order)))  # every sequence once
    assert not torch.equal(order, stacked_fresh_order(key, 4, 5))


def test_stacks_of_unequal_batches_are_refused():
    with pytest.raises(BadInput):
        trainer(trains=[TRAINS[0], TrainSpec(**{**BASE, "batch": 9})], seeds=[0, 1])
