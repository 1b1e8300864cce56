"""Positions where nobody states them, and `hc.sweep` with all that a sweep file may state."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

import headcount as hc
from headcount.core.readers.toml import toml_text
from headcount.render.words.errors import BLIND
from headcount.store.store import Store
from headcount.sweeps.file import choose_positions, read_sweep, sweep_toml
from headcount.sweeps.spec import SweepSpec

QUICK: dict[str, Any] = {"steps": 20, "warmup": 2, "batch": 16, "train_size": 64, "validation_size": 32}
BASINS = {"family": "quadratic-basins", "intrinsic": 2, "length": 6}
PLAN: dict[str, Any] = {
    "name": "plan",
    "heads": [1, 2],
    "seeds": 1,
    "task": BASINS,
    "model": {"head_dim": 2, "hidden": 4},
    "train": QUICK,
}


def own_task(S: list[range] | None, plain: bool = False) -> hc.GeneralizedRetrieval:
    """The task of one's own in README; `plain` states it by bare functions."""
    x, z = hc.variable(2), hc.variable(2)
    near: Any = [((x - c) ** 2).sum() / 2 for c in ([0.1, 0.9], [0.9, 0.1])]
    F0: Any = z[0] * z[1] + z.sum()
    if plain:
        near, F0 = [lambda x: x[..., 0], lambda x: x[..., 1]], lambda z: z.sum(-1)
    return hc.GeneralizedRetrieval(near, S, F0, length=6, dim=2)


def hashes(spec: SweepSpec) -> list[str]:
    return [panel.trial(h, s).hash() for panel in spec.panels() for h in panel.heads for s in range(spec.seeds)]


PARTS = [range(4), range(2, 6)]


@pytest.mark.parametrize("plain", [False, True])
def test_positions_default_to_what_the_task_needs(plain: bool, tmp_path: Path) -> None:
    def chosen(task: Any, **options: Any) -> str:
        run = hc.sweep(task, heads=1, seeds=1, quiet=True, **QUICK, **options).runs[0]
        assert run.blind == ("blind" in options.get("name", ""))
        return run.spec["model"]["positions"]

    assert chosen(own_task(PARTS, plain)) == "concatenated"
    assert chosen(own_task(None, plain)) == "none"
    assert chosen(own_task(PARTS, plain), positions="gates") == "gates"
    assert chosen(own_task(PARTS, plain), positions="none", name="blind") == "none"
    if not plain:
        assert chosen("quadratic-basins", sets="halves") == "concatenated"
        hc.sweep(own_task(PARTS), heads=1, seeds=1, quiet=True, store=tmp_path, **QUICK)
        with Store.open(tmp_path) as store:
            assert store.trials(run="sweep")[0].spec["model"]["positions"] == "concatenated"


def test_models_without_positions_are_reported_with_the_cause(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    seeing = hc.sweep(own_task(PARTS), heads=[1, 2], seeds=1, quiet=True, **QUICK)
    blind = hc.sweep(own_task(PARTS), heads=[1, 2], seeds=1, quiet=True, positions="none", **QUICK)
    assert BLIND in repr(blind)
    assert BLIND in blind.analysis.notes
    header = blind.report(tmp_path / "blind").read_text().split("</header>")[0]
    assert "see no positions" in header
    assert "see no positions" in hc.write_report(blind.runs[0], blind.transition, tmp_path / "one").page.read_text()
    assert BLIND not in repr(seeing)
    assert seeing.analysis.notes == []
    assert "see no positions" not in seeing.report(tmp_path / "seeing").read_text()
    one = hc.sweep("quadratic-basins", heads=2, seeds=1, quiet=True, positions="none", hidden=[4, 8], **QUICK)
    assert one.analysis.notes == []
    with caplog.at_level(logging.WARNING):
        hc.train(own_task(None), hc.ModelSpec(dim=2, length=6, heads=1), hc.TrainSpec(**QUICK))
        assert BLIND not in caplog.text
        hc.train(own_task(PARTS), hc.ModelSpec(dim=2, length=6, heads=1), hc.TrainSpec(**QUICK))
        assert BLIND in caplog.text


def test_a_spec_that_states_its_positions_keeps_its_hashes() -> None:
    bands = {**BASINS, "sets": "bands"}
    open_one = SweepSpec.parse({**PLAN, "task": bands})
    chosen = choose_positions(open_one)
    assert chosen.model.positions == "concatenated"
    assert {**chosen.data(), "model": open_one.data()["model"]} == open_one.data()  # nothing else has changed
    for stated in (SweepSpec.parse(open_one.data()), SweepSpec.parse(chosen.data()), SweepSpec.parse(PLAN)):
        assert choose_positions(stated) == stated
        assert hashes(choose_positions(stated)) == hashes(stated)


def test_every_setting_gets_its_own_positions() -> None:
    plan = {
        **PLAN,
        "settings": [
            {"name": "all"},
            {"name": "bands", "task": {"sets": "bands"}},
            {"name": "gates", "task": {"sets": "bands"}, "model": {"positions": "gates"}},
        ],
    }
    panels = choose_positions(SweepSpec.parse(plan)).panels()
    assert [panel.model.positions for panel in panels] == ["none", "concatenated", "gates"]
    stated = SweepSpec.parse({**plan, "model": {"positions": "none"}})
    assert [panel.model.positions for panel in choose_positions(stated).panels()] == ["none", "none", "gates"]


def test_a_sweep_in_python_equals_the_sweep_of_its_file(tmp_path: Path) -> None:
    """All listed values, as arguments, as a SweepSpec, and as a file by text and by path: the same trials."""
    lists: dict[str, Any] = {
        "lengths": [4, 6],
        "hidden": [4],
        "head_dims": [2],
        "learning_rates": [0.02],
        "targets": [0, 3],
    }
    spec = SweepSpec.parse({**PLAN, "heads": [1], "model": {}, **lists, "task": {**BASINS, "sets": "halves"}})
    path = tmp_path / "plan.toml"
    path.write_text(sweep_toml(spec).replace('positions = "none"\n', ""))
    stated: dict[str, Any] = {"heads": 1, "seeds": 1, "name": "plan", "intrinsic": 2, "sets": "halves", **lists}
    ways: list[tuple[Any, dict[str, Any]]] = [
        ("quadratic-basins", {**stated, **QUICK}),
        (spec, {}),
        (path, {}),
        (str(path), {}),
    ]
    found: list[list[dict[str, Any]]] = []
    for task, arguments in ways[:2]:
        result = hc.sweep(task, quiet=True, workers=1, **arguments)
        assert len(result.runs) == 4
        assert result.runs[0].values == {"length": 4, "target": 0, "hidden": 4, "head_dim": 2, "learning_rate": 0.02}
        found.append([{**row, "seconds": 0} for row in result.table()])
        assert hashes(SweepSpec.parse(result.runs[0].sweep)) == hashes(read_sweep(path))
    assert found[0] == found[1]
    store = tmp_path / "store"
    for task, arguments in ways[2:]:
        assert len(hc.sweep(task, quiet=True, workers=1, store=store, **arguments).runs) == 4
    with Store.open(store) as opened:
        assert sorted(t.hash for t in opened.trials(run="plan")) == sorted(hashes(read_sweep(path)))


def test_sizes_and_rates_vary_on_arrays_too() -> None:
    task = own_task(PARTS, plain=True)
    X = task.sample(100)
    arrays = hc.ArrayTask.from_arrays(X.numpy(), task.value(X).numpy())
    quick = {k: v for k, v in QUICK.items() if not k.endswith("size")}
    for one in (task, arrays):
        result = hc.sweep(one, heads=1, seeds=1, quiet=True, hidden=[4, 8], learning_rates=[0.01, 0.02], **quick)
        assert [run.values["hidden"] for run in result.runs] == [4, 4, 8, 8]
        assert len({row["nmse"] for row in result.table()}) == 4
        assert result.runs[0].sweep == {}  # no file can state it


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"heads": [1]}, "heads: a SweepSpec or a sweep file states the whole sweep"),
        ({"seeds": 2}, "seeds: a Sweep"),
        ({"lengths": [4]}, "lengths: a"),
        ({"steps": 5}, "steps: a"),
        ({"name": "x"}, "name: a"),
    ],
)
def test_a_complete_spec_takes_no_further_arguments(arguments: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(sweep_toml(SweepSpec.parse(PLAN)))
    for whole in (path, SweepSpec.parse(PLAN)):
        with pytest.raises(hc.BadInput, match=message):
            hc.sweep(whole, quiet=True, **arguments)


BOTH = {
    "length": ({"length": 8}, {"lengths": [8, 16]}, "task"),
    "target": ({"seed": 1}, {"targets": [1, 2]}, "task"),
    "head_dim": ({"head_dim": 3}, {"head_dims": [2, 4]}, "model"),
    "rate": ({"learning_rate": 0.1}, {"learning_rates": 0.2}, "train"),
    "total": ({"total_head_dim": 8}, {"head_dims": [2, 4]}, "model"),
    "parameters": ({"parameters": 3000}, {"hidden": [4, 8]}, "model"),
}


@pytest.mark.parametrize("case", BOTH)
def test_a_single_value_beside_its_list_is_rejected(case: str) -> None:
    """The value was ignored, without a word."""
    one, several, part = BOTH[case]
    wanted = f"^{next(iter(one))} and {next(iter(several))} exclude each other: .*give"
    tasks: list[Any] = ["quadratic-basins", own_task(PARTS)]
    for task in tasks:
        with pytest.raises(hc.BadInput, match=wanted) as caught:
            hc.sweep(task, heads=1, seeds=1, quiet=True, **one, **several, **QUICK)
        assert "\n" not in str(caught.value)
    for given in (one, several) if part != "task" else ():
        assert hc.sweep(tasks[1], heads=1, seeds=1, quiet=True, **given, **QUICK).runs


@pytest.mark.parametrize("case", [*BOTH, "hidden"])
def test_a_single_value_beside_its_list_is_rejected_in_a_file(case: str, tmp_path: Path) -> None:
    """A default and a value of the list are not: a file with everything written out has them."""
    one, several, part = {**BOTH, "hidden": ({"hidden": 5}, {"hidden": [4, 8]}, "model")}[case]
    (key, value), (name, listed) = next(iter(one.items())), next(iter(several.items()))
    path = tmp_path / "plan.toml"
    plan: dict[str, Any] = {
        **PLAN,
        "task": {k: v for k, v in BASINS.items() if k != "length"},
        "model": {},
        name: listed,
    }

    def write(**stated: Any) -> Path:
        path.write_text(toml_text({**plan, part: {**plan[part], **stated}}))
        return path

    chosen = 5 if part == "task" else value
    with pytest.raises(hc.BadInput, match=rf"^{key} of \[{part}\] in {path} and {name} exclude each other"):
        read_sweep(write(**{key: chosen}))
    written = sweep_toml(read_sweep(write()))
    path.write_text(written)
    assert sweep_toml(read_sweep(path)) == written
    if case in ("length", "target"):
        assert read_sweep(write(**{key: value})).panels(), "one of the listed values"


def test_a_custom_task_takes_no_family_parameters() -> None:
    with pytest.raises(hc.BadInput, match="^length: this task has its own: to choose another, name a family"):
        hc.sweep(own_task(PARTS), heads=1, length=8)


def test_several_lengths_of_one_task_are_rejected_with_advice() -> None:
    task = hc.make_task("quadratic-basins", length=6)
    X = task.sample(40, seed=1)
    arrays = hc.ArrayTask.from_arrays(X.numpy(), task.value(X).numpy())
    for given in ({"lengths": [4, 6]}, {"targets": [0, 1]}):
        ((key, values),) = given.items()
        with pytest.raises(hc.BadInput) as caught:
            hc.sweep(task, heads=1, **given)
        assert f'give the family\'s name, hc.sweep("quadratic-basins", {key}={values}, …)' in str(caught.value)
        with pytest.raises(
            hc.BadInput, match=f"^{key}: this task belongs to no family and has one .*: sweep one task for"
        ):
            hc.sweep(own_task(PARTS), heads=1, **given)
        with pytest.raises(hc.BadInput, match=f"^{key}: this task belongs to no family"):
            hc.sweep(arrays, heads=1, **given)


@pytest.mark.parametrize(
    ("misspelt", "meant"),
    [
        ("lenghts", "lengths"),
        ("target", "targets"),
        ("heds", "heads"),
        ("stpes", "steps"),
        ("quite", "quiet"),
        ("head_dimm", "head_dim"),
        ("learnin_rates", "learning_rates"),
        ("intrinsics", "intrinsic"),
        ("stroe", "store"),
    ],
)
def test_a_misspelt_argument_suggests_the_nearest_one(misspelt: str, meant: str, tmp_path: Path) -> None:
    """Whichever spec would have refused it: the arguments, the model, the training or the task's family."""
    path = tmp_path / "plan.toml"
    path.write_text(sweep_toml(SweepSpec.parse(PLAN)))
    for task in ("quadratic-basins", own_task(PARTS), path):
        if (task is path and meant not in ("quiet", "store")) or (task is not path and meant == "intrinsic"):
            continue  # a file takes few arguments, a task of one's own has no parameters
        with pytest.raises(hc.BadInput, match=f"unknown option '{misspelt}': did you mean '{meant}'") as caught:
            hc.sweep(task, seeds=None, **{misspelt: [8]})
        assert "\n" not in str(caught.value)


def test_bad_files_and_tasks_give_a_one_line_error(tmp_path: Path) -> None:
    for task, message in (("none.toml", "no such file: none.toml"), (tmp_path, "cannot read"), (3, "not int")):
        with pytest.raises(hc.BadInput, match=message) as caught:
            hc.sweep(task, quiet=True)  # pyright: ignore[reportArgumentType]
        assert "\n" not in str(caught.value)
