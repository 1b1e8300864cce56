"""Settings of a sweep: variants by name, heads at fixed width, heads at a fixed number of parameters."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from headcount.core.errors import BadInput
from headcount.models.transformer.reference import Transformer
from headcount.store.store import Store
from headcount.sweeps.results import stored_runs
from headcount.sweeps.run import run_on_store, run_sweep
from headcount.sweeps.spec import ModelOptions, SweepSpec
from headcount.training.data import draw_inputs, prepare

PLAIN: dict[str, Any] = {
    "name": "settings",
    "heads": [1, 2],
    "seeds": 1,
    "task": {"family": "sum-of-maxima", "intrinsic": 2, "dim": 2},
    "model": {"head_dim": 2, "hidden": 4},
    "train": {"steps": 20, "warmup": 2, "batch": 16, "train_size": 64},
}


def spec(**changes: Any) -> SweepSpec:
    return SweepSpec.parse({**PLAIN, **changes})


def test_a_setting_changes_what_it_names_and_nothing_else() -> None:
    plan = spec(
        settings=[
            {"name": "plain"},
            {"name": "deep", "model": {"depth": 2}, "heads": [3]},
            {"name": "D = 3", "task": {"intrinsic": 3, "dim": 3}, "lengths": [4, 8], "train": {"steps": 30}},
        ]
    )
    panels = plan.panels()
    assert [p.values for p in panels] == [
        {"setting": "plain"},
        {"setting": "deep"},
        {"setting": "D = 3", "length": 4},
        {"setting": "D = 3", "length": 8},
    ]
    assert [p.heads for p in panels] == [(1, 2), (3,), (1, 2), (1, 2)]
    assert [p.model.depth for p in panels] == [1, 2, 1, 1]
    assert [p.task.intrinsic for p in panels] == [2, 2, 3, 3]
    assert [p.train.steps for p in panels] == [20, 20, 30, 30]
    (bare,) = spec().panels()
    assert panels[0].trial(1, 0).hash() == bare.trial(1, 0).hash()  # a name is no part of a trial


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ([{"name": "a", "model": {"dept": 2}}], "dept"),
        ([{"name": "a", "train": {"steps": 0}}], "steps"),
        ([{"name": "a"}, {"name": "a"}], "name of its own"),
        ([{"name": "a", "task": {"intrinsic": 0}}], "intrinsic"),
        ([{"name": "a", "modell": {}}], "modell"),
    ],
)
def test_a_bad_setting_gives_a_one_line_error(settings: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(BadInput, match=message) as caught:
        spec(settings=settings)
    assert "\n" not in str(caught.value)


def test_a_sweep_with_settings_runs_in_memory_and_on_a_store(tmp_path: Any) -> None:
    plan = spec(settings=[{"name": "plain"}, {"name": "ReLU", "model": {"feedforward": "relu2"}, "heads": [2]}])
    runs = run_sweep(plan, quiet=True, workers=1)
    assert [[t.heads for t in run.trials] for run in runs] == [[1, 2], [2]]
    with Store.open(tmp_path) as store:
        run_on_store(plan, store, quiet=True, workers=1)
        kept = stored_runs(store, "settings")
    assert [[t.nmse for t in run.trials] for run in kept] == [[t.nmse for t in run.trials] for run in runs]
    assert [run.values for run in kept] == [{"setting": "plain"}, {"setting": "ReLU"}]


def test_heads_at_a_fixed_width() -> None:
    """The paper's table 3: n = ⌈32/h⌉, so E is 32, 32, 33, 32, 35."""
    options = ModelOptions(total_head_dim=32)
    models = [options.model(heads=h, dim=4, length=8, out_dim=1) for h in range(1, 6)]
    assert [m.head_dim for m in models] == [32, 16, 11, 8, 7]
    assert [m.E for m in models] == [32, 32, 33, 32, 35]


@pytest.mark.parametrize("kind", ["gelu2", "relu5"])
@pytest.mark.parametrize("heads", [1, 3, 8])
def test_heads_at_a_fixed_number_of_parameters(kind: Any, heads: int) -> None:
    options = ModelOptions(parameters=6000, head_dim=4, feedforward=kind)
    model = options.model(heads=heads, dim=4, length=8, out_dim=1)
    larger = model.model_copy(update={"hidden": model.hidden + 1, "hidden_ff": model.hidden + 1})
    assert model.hidden == model.hidden_ff
    assert Transformer(model).counts()["total"] <= 6000 < Transformer(larger).counts()["total"]


def test_too_few_parameters_are_rejected() -> None:
    with pytest.raises(BadInput, match="too few for 8 heads"):
        ModelOptions(parameters=100).model(heads=8, dim=4, length=8, out_dim=1)


def test_targets_share_their_inputs_and_keep_their_own_answers() -> None:
    plan = spec(targets=[0, 1], task={**PLAIN["task"], "draw": "gaussian"})
    first, second = ((p.task, p.train) for p in plan.panels())
    shared = draw_inputs(*first)
    for task, train in (first, second):
        alone, together = prepare(task, train), prepare(task, train, shared)
        assert torch.equal(alone.train.X, together.train.X)
        assert torch.equal(alone.train.y, together.train.y)
        assert torch.equal(alone.validation.y, together.validation.y)
    assert not torch.equal(prepare(*first).train.y, prepare(*second, shared).train.y)
