"""The public functions: every verb is one, every parameter is documented, old names warn."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import headcount as hc
from headcount.cli.main import GROUPS, VERBS
from headcount.core import renamed_argument, warn_deprecated

AS_FUNCTION = {
    "advise": "advise",
    "analyse": "analyse",
    "attack": "attack",
    "bounds": "bounds",
    "build": "build",
    "certify": "certify",
    "density": "density",
    "export": "export",
    "irreducible": "irreducible",
    "probe": "probe_folder",
    "recheck": "verify",
    "report": "report",
    "reproduce": "reproduce",
    "show": "load_model",
    "sweep": "sweep",
    "tasks": "check_assumptions",
    "train": "train",
}
"""What each verb is called in Python."""
ON_THE_COMMAND_LINE_ALONE = {"demo", "runs"}
"""A tour, and a list of what a store holds."""


def undocumented(name: str, thing: Any) -> list[str]:
    """Return the parameters of a function, or of a class and its methods, that no docstring names."""
    missing: list[str] = []
    for owner, function in _functions(name, thing):
        text = inspect.getdoc(function) or ""
        if inspect.isclass(function):
            text += " ".join(_attribute_docs(function))
        try:
            parameters = inspect.signature(function).parameters.values()
        except ValueError:
            continue
        names = [p.name for p in parameters if p.name not in ("self", "cls") and p.kind not in (p.VAR_POSITIONAL,)]
        missing += [f"{owner}: {one}" for one in names if not re.search(rf"\b{re.escape(one)}\b", text)]
    return missing


def _functions(name: str, thing: Any) -> Iterator[tuple[str, Any]]:
    yield name, thing
    if inspect.isclass(thing):
        for method, found in vars(thing).items():
            if not method.startswith("_") and inspect.isfunction(found):
                yield f"{name}.{method}", found


def _attribute_docs(kind: type) -> Iterator[str]:
    """The fields of a class that stand with a docstring of their own or say in their type what they are."""
    for base in kind.__mro__:
        if not base.__module__.startswith("headcount"):
            continue
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        assert isinstance(tree, ast.ClassDef)
        for field, after in zip(tree.body, [*tree.body[1:], None], strict=True):
            described = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and described:
                yield field.target.id


PUBLIC = {name: getattr(hc, name) for name in dir(hc) if not name.startswith("_")}
RESULTS = {"Advice", "AttackResult", "BoundsResult", "IrreducibleResult", "SweepResult"}
"""What functions return and nobody makes: their fields are documented, their constructors are not called."""


@pytest.mark.parametrize("name", sorted(name for name, thing in PUBLIC.items() if callable(thing)))
def test_every_parameter_is_documented(name: str) -> None:
    found = undocumented(name, PUBLIC[name])
    assert [one for one in found if not (name in RESULTS and one.startswith(f"{name}:"))] == []


def test_an_undocumented_parameter_is_reported() -> None:
    def function(one: int, two: int) -> None:
        """Take one."""

    assert undocumented("function", function) == ["function: two"]


def test_every_verb_is_a_function() -> None:
    assert set(AS_FUNCTION) | ON_THE_COMMAND_LINE_ALONE == set(VERBS)
    assert all(callable(getattr(hc, name)) for name in AS_FUNCTION.values())


def test_help_shows_every_verb_in_its_group_with_an_example(headcount_here: Any) -> None:
    shown = headcount_here("--help").stdout
    places = [shown.index(title) for title in GROUPS]
    assert places == sorted(places)
    text = " ".join(re.sub(r"[│╭╰─╮╯]", " ", shown).split())
    for verb in VERBS.values():
        assert f"Example: headcount {verb.example}" in text


@pytest.mark.parametrize("verb", VERBS)
def test_examples_parse(verb: str) -> None:
    from headcount.cli.main import make_app

    app = make_app()
    command, bound, _ = app.parse_args(VERBS[verb].example.split(), exit_on_error=False, print_error=False)
    assert command.__name__ == verb
    assert bound is not None


def test_an_old_name_warns_and_works(recwarn: pytest.WarningsRecorder) -> None:
    def old() -> None:
        warn_deprecated("old", "use new", removed="0.3")

    with pytest.warns(
        DeprecationWarning, match=r"old is deprecated and will be removed in headcount 0\.3: use new"
    ) as caught:
        old()
    assert Path(caught[0].filename) == Path(__file__), "the caller's own line is named"
    with pytest.warns(DeprecationWarning, match="use budget"):
        assert renamed_argument("seconds", 3, "budget", None, removed="0.3") == 3
    assert renamed_argument("seconds", None, "budget", 4, removed="0.3") == 4
    with pytest.raises(hc.BadInput, match="seconds is the old name of budget"):
        renamed_argument("seconds", 3, "budget", 4, removed="0.3")


@pytest.mark.parametrize("name", ["attack", "probe", "probe_folder"])
def test_progress_has_one_name(name: str) -> None:
    named = inspect.signature(getattr(hc, name)).parameters
    assert {"on_progress", "told"} <= named.keys()


@pytest.mark.parametrize(
    "call",
    [
        lambda: hc.build("sum-of-maxima", 0.1),  # pyright: ignore[reportArgumentType]
        lambda: hc.train("sum-of-maxima", hc.ModelSpec(dim=4, length=8, heads=2)),  # pyright: ignore[reportArgumentType]
        lambda: hc.bounds(3),  # pyright: ignore[reportArgumentType]
    ],
)
def test_what_is_no_task_is_refused(call: Callable[[], object]) -> None:
    with pytest.raises(hc.BadInput, match=r"is not a task: pass one, as hc\.make_task\('sum-of-maxima'\) makes it"):
        call()


@pytest.mark.parametrize("box", [3, "ab", [[0.0], 1.0]])
def test_what_is_no_box_is_refused(box: Any, tmp_path: Path) -> None:
    task = hc.make_task("quadratic-basins", intrinsic=1, dim=1, length=4)
    hc.build(task, 0.2).save(tmp_path / "built")
    for verb in (hc.certify, hc.attack):
        with pytest.raises(hc.BadInput, match="the box needs"):
            verb(tmp_path / "built", box=box)
    with pytest.raises(hc.BadInput, match="the box needs"):
        hc.build(task, 0.2, box=box)


@pytest.mark.parametrize("in_the_way", ["folder", "broken link"])
def test_no_statement_of_a_folder_is_passed_over(in_the_way: str, tmp_path: Path) -> None:
    hc.build(hc.make_task("quadratic-basins", intrinsic=1, dim=1, length=4), 0.2).save(tmp_path / "built")
    witness = tmp_path / "built" / "witness.json"
    assert hc.verify(witness.parent).holds
    if in_the_way == "folder":
        witness.mkdir()
    else:
        witness.symlink_to(tmp_path / "nowhere")
    with pytest.raises(hc.BadInput, match=r"witness\.json"):
        hc.verify(witness.parent)


def test_both_kinds_of_file_are_verified(tmp_path: Path) -> None:
    task = hc.make_task("quadratic-basins", intrinsic=1, dim=1, length=2)
    built = hc.build(task, 0.5)
    built.save(tmp_path / "built")
    assert hc.verify(tmp_path / "built").holds
    assert hc.verify(tmp_path / "built" / "certificate.json").holds
    (tmp_path / "empty").mkdir()
    with pytest.raises(hc.BadInput, match="nothing to verify"):
        hc.verify(tmp_path / "empty")


def test_bounds_in_python_are_those_of_the_command(headcount_here: Any) -> None:
    import json

    told = json.loads(headcount_here("bounds", "quadratic-basins", "--heads", "1:2", "--eps", "0.05", "--json").stdout)
    found = hc.bounds("quadratic-basins", heads=[1, 2], eps=0.05).data()
    again = json.loads(json.dumps(found))
    assert {key: told[key] for key in again} == again


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "needs a task"),
        ({"intrinsic": 2, "heads": 0}, "from 1 on"),
        ({"task": "mean"}, "is not given by f, S"),
        ({"task": "quadratic-basins", "share": 0.5}, "share is for sizes without a task"),
    ],
)
def test_bad_bounds_are_refused(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(hc.BadInput, match=said):
        hc.bounds(**arguments)


def flags(verb: str) -> Iterator[tuple[str, Any, str]]:
    """Yield every parameter of a verb: its first name, its default and its help."""
    from headcount.cli.main import make_app

    for argument in make_app()[verb].assemble_argument_collection():
        info = argument.field_info
        if not info.required:
            yield argument.names[0], info.default, argument.parameter.help or ""


@pytest.mark.parametrize("verb", VERBS)
def test_help_shows_every_default(verb: str, headcount_here: Any) -> None:
    """Those that the function states are shown by themselves; what None stands for is said in words."""
    assert [
        name for name, default, text in flags(verb) if default is None and not re.search("default|without", text)
    ] == []
    stated = sum(default is not None for _, default, _ in flags(verb))
    assert headcount_here(verb, "--help").stdout.count("[default: ") == stated


def test_defaults_of_training_are_those_of_the_specs() -> None:
    from headcount.sweeps import ModelOptions

    fields = {**ModelOptions.model_fields, **hc.TrainSpec.model_fields}
    shown: dict[str, str] = {}
    for name, _, text in flags("train"):
        if (found := re.search(r"\(default: ([\w.]+)[,)]", text)) is not None:
            shown[name.removeprefix("--").replace("-", "_")] = found[1]
    compared = {name: default for name, default in shown.items() if fields.get(name) is not None}
    assert {"head_dim", "hidden", "depth", "beta", "steps", "batch", "learning_rate", "warmup"} <= set(compared)
    for name, default in compared.items():
        known = fields[name].default
        if known not in (None, False):
            assert default in (str(known), f"{known:g}" if isinstance(known, float) else ""), name
