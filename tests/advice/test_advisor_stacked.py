"""The advisor's stacks of a GPU, here on a CPU: the same trials as on cores, kernels or not."""

from __future__ import annotations

import pytest
import torch
from advisor_cases import arrays

from headcount.advice.advisor_data import material
from headcount.advice.advisor_engine import Engine, Wanted
from headcount.base.errors import HeadcountError
from headcount.experiments.spec import ModelOptions, TrainSpec
from headcount.kernels.pool import pool, whole_step, without_kernels

RECIPE = TrainSpec(steps=40, batch=32, warmup=4, evaluations=4, train_size=160, validation_size=40)


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> tuple[Engine, Engine]:
    """The same data on cores, and in stacks."""
    stuff = material(*arrays(samples=200, length=6), kind="regression", seed=0)
    cores, stacks = Engine(stuff), Engine(stuff)
    monkeypatch.setattr(Engine, "gpu", property(lambda self: self is stacks))
    return cores, stacks


def wanted(options: dict[str, object], heads: tuple[int, ...] = (1, 2, 3)) -> list[Wanted]:
    return [Wanted(h, s, ModelOptions(head_dim=2, hidden=8, **options), RECIPE) for h in heads for s in (0, 1)]


def by_place(found):
    return {(one.heads, one.wanted.seed, str(one.wanted.options)): one for one in found}


def test_what_is_tried_out_in_stacks_is_what_cores_train(engines: tuple[Engine, Engine]) -> None:
    cores, stacks = engines
    asked = [
        *wanted({"positions": "none"}), *wanted({"positions": "concatenated"}), *wanted({"positions": "gates"}),
        *wanted({"total_head_dim": 4}), *wanted({"parameters": 400}),
    ]  # fmt: skip
    one, other = by_place(cores.try_out(asked)), by_place(stacks.try_out(asked))
    assert len(one) == len(asked)
    assert list(one) == list(by_place(cores.try_out(asked)))  # in the order in which they were asked for
    assert one.keys() == other.keys()
    for place, alone in one.items():
        assert other[place].validation == pytest.approx(alone.validation, rel=2e-3), place
        assert other[place].parameters == alone.parameters
        assert other[place].whole


def test_one_stack_has_one_recipe(engines: tuple[Engine, Engine]) -> None:
    _, stacks = engines
    with pytest.raises(HeadcountError, match="one recipe"):
        stacks.train([*wanted({"positions": "none"}), *wanted({"positions": "gates"})])


def test_a_step_is_timed_where_the_models_train(engines: tuple[Engine, Engine]) -> None:
    for engine in engines:
        assert 0 < engine.step_seconds(ModelOptions(head_dim=2, hidden=8), 2, RECIPE, steps=2) < 60


def test_after_the_deadline_nothing_is_tried_out(engines: tuple[Engine, Engine]) -> None:
    for engine in engines:
        engine.deadline = 0.0
        assert engine.try_out(wanted({})) == []


def test_without_kernels_nothing_is_compiled(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Where a kernel would apply, it does not inside; the marks on tensors that say so are made up."""
    from headcount.kernels import pool as module

    module._say_once.cache_clear()  # a test: what was said before is said again
    theta = torch.zeros(1, 4)
    with caplog.at_level("INFO", logger=module.__name__):
        with without_kernels():
            assert whole_step(theta, (1, 1, 1, 1, 1, 1, 1, 1)) is None
            x, index = torch.randn(3, 4, 2), torch.zeros(1, 2, dtype=torch.int64)
            pool(x, index, torch.randn(1, 2, 5), torch.zeros(1, 1, 5), torch.randn(1, 2, 5))
        assert whole_step(theta, (1, 1, 1, 1, 1, 1, 1, 1)) is None
    said = [record.getMessage() for record in caplog.records]
    assert said == [
        "the step goes through autograd: the run is short", "pooling runs in plain PyTorch: the run is short",
        "the step goes through autograd: the tensors are on the cpu",
    ]  # fmt: skip
