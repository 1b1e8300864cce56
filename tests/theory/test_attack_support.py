"""Attacks keep to the task's inputs: along the sphere, with marks as drawn; and compare at equal effort."""

from __future__ import annotations

import functools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import headcount as hc
from headcount.core.errors import BadInput
from headcount.models.files import SavedModel
from headcount.models.transformer.reference import Transformer
from headcount.models.transformer.spec import ModelSpec
from headcount.recheck import support
from headcount.recheck.witness import verify_witness
from headcount.tasks.sampling import Box
from headcount.tasks.task import Task
from headcount.theory.attack.domain import Among
from headcount.theory.attack.layer import state_map
from headcount.theory.attack.pairs import Moves, Pairs
from headcount.theory.attack.search import Found, attack, starts_needed
from headcount.theory.attack.target import Target
from headcount.theory.attack.witness import Witness, conclusions, make_witness, pair_figure


def model_of(task: Task, seed: int = 1, **sizes: int) -> SavedModel:
    options = {"heads": 1, "head_dim": 2, "hidden": 8, **sizes}
    spec = ModelSpec(dim=task.dim, length=task.length, out_dim=task.out_dim, **options)
    return SavedModel(Transformer(spec, seed=seed, dtype=torch.float64), task=task.data())


@functools.cache
def found_in(task: Task, among: Among = "all") -> tuple[SavedModel, Found, Witness]:
    model = model_of(task)
    found = attack(model, task, among=among, starts=6, seconds=60.0)
    return model, found, make_witness(model, task, found)


SPHERE = hc.make_task("sphere-anchors", length=5, intrinsic=2)
MARKED = hc.make_task("sparse-regression", length=5, q=2)


@pytest.mark.parametrize("task", [SPHERE, MARKED], ids=lambda t: t.name)
def test_a_pair_lies_in_the_support_and_is_proved_there(task: Task, tmp_path: Path) -> None:
    """All reported pairs are inputs of the task, and so is the proved one, as the verifier confirms."""
    model, found, witness = found_in(task)
    assert not found.near
    assert task.outside(torch.from_numpy(found.X)) == ""
    assert (witness.kind, witness.outside, witness.in_support) == ("exact", "", True)
    assert found.effort in conclusions(witness)[0]
    model.save(tmp_path / "w", {"witness.json": witness.data})
    verdict = verify_witness(tmp_path / "w")
    assert verdict.holds, verdict.reason
    assert verdict.proved is not None
    assert verdict.proved.outside == ""
    norms = 2 * task.length if task is SPHERE else 0  # tokens of the sphere are proved to have norm 1, exactly
    assert len(witness.data["solved"]) == 2 + norms


@pytest.mark.parametrize("task", [SPHERE, MARKED], ids=lambda t: t.name)
def test_a_search_over_the_whole_box_leaves_the_support_and_says_so(task: Task) -> None:
    """A search over the box leaves the support and finds a larger gap, and every statement about the pair says so."""
    model, wide, witness = found_in(task, among="box")
    _, kept, _ = found_in(task)
    assert wide.gaps[0] > 1.05 * kept.gaps[0]
    assert witness.in_support is False
    assert "which these are not" in conclusions(witness)[0]
    assert "standard deviations" not in pair_figure(model, task, witness)["title"]
    assert pair_figure(model, task, witness)["title"].startswith("Not inputs of this task")
    assert witness.outside in pair_figure(model, task, witness)["subtitle"]


def test_without_the_tangent_the_search_would_leave_the_sphere(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sabotaged twin: steps that leave the sphere, and nothing that brings tokens back."""
    monkeypatch.setattr(Pairs, "tangent", lambda _, Z, rows: rows)
    monkeypatch.setattr(Pairs, "clamp", lambda self, Z: torch.minimum(torch.maximum(Z, self.low), self.high))
    _, found, witness = found_in.__wrapped__(SPHERE)
    assert "norm" in SPHERE.outside(torch.from_numpy(found.X))
    assert witness.in_support is False


def test_a_proof_off_the_sphere_does_not_count_as_one_on_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the equations of the norms, or with wrong slopes, the witness is rejected."""
    model, _, witness = found_in(SPHERE)
    plain = {**witness.data, "solved": witness.data["solved"][:2]}
    model.save(tmp_path / "w", {"witness.json": plain})
    assert "2 coordinates are solved for 12 equations" in verify_witness(tmp_path / "w").reason
    moved = json.loads(json.dumps(witness.data))
    first = next(k for k in moved["solved"] if k < 15)
    moved["X1"][first // 3][first % 3] = ["1", -1]
    model.save(tmp_path / "w", {"witness.json": moved})
    assert not verify_witness(tmp_path / "w").holds
    model.save(tmp_path / "w", {"witness.json": witness.data})
    assert verify_witness(tmp_path / "w").holds
    monkeypatch.setattr(support, "_square", lambda x: sum((v * v for v in x), support.arb(1e-9)))
    assert not verify_witness(tmp_path / "w").holds


def test_directions_along_the_sphere_and_with_marks_held() -> None:
    """Tangents are orthogonal to their tokens, and held coordinates do not move; without either, nothing changes."""
    model = model_of(SPHERE)
    sides = torch.full((3,), -1.0, dtype=torch.float64), torch.full((3,), 1.0, dtype=torch.float64)
    X = SPHERE.sample(8, seed=0).reshape(4, -1)
    rows = torch.randn(4, 7, X.shape[1], dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    draws = SPHERE.sample(100, seed=1)
    target = Target(SPHERE, None, draws, False)
    arguments = (state_map(model.transformer), target, *sides, SPHERE.length, torch.zeros(4, dtype=torch.long))
    on_sphere = Pairs(*arguments, Moves(sphere=True)).tangent(X, rows)
    along = (on_sphere.view(4, 7, -1, 3) * X.view(4, 1, -1, 3)).sum(-1)
    assert float(along.abs().max()) < 1e-14
    assert float((Pairs(*arguments, Moves(sphere=True)).tangent(X, on_sphere) - on_sphere).abs().max()) < 1e-14
    held = Pairs(*arguments, Moves(fixed=(1, 2))).tangent(X, rows).view(4, 7, -1, 3)
    assert not bool(held[..., 1:].any())
    assert torch.equal(held[..., 0], rows.view(4, 7, -1, 3)[..., 0])
    assert Pairs(*arguments).tangent(X, rows) is rows


@pytest.mark.parametrize(
    ("task", "box", "message"),
    [
        (SPHERE, ((-0.5,) * 3, (1.0,) * 3), "leaves out inputs of sphere-anchors"),
        (MARKED, ((0.0,) * 3, (1.0, 0.5, 1.0)), "leaves out inputs of sparse-regression"),
        (hc.make_task("min-plus-max", length=5), ((2.0,), (3.0,)), "no input of min-plus-max lies inside"),
    ],
)
def test_a_box_without_inputs_is_rejected(task: Task, box: Box, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        attack(model_of(task), task, box)


def test_a_wider_box_is_reduced_to_the_box_of_the_law() -> None:
    """All inputs in a box that is too wide are inputs of the task; with among="box", the pair is not one."""
    task = hc.make_task("min-plus-max", length=5)
    kept = attack(model_of(task), task, ((-2.0,), (0.75,)), starts=6, seconds=60.0)
    assert kept.box == ((0.0,), (0.75,))
    assert task.outside(torch.from_numpy(kept.X)) == ""
    model = model_of(task)
    wide = attack(model, task, ((-2.0,), (3.0,)), among="box", starts=6, seconds=60.0)
    assert wide.box == ((-2.0,), (3.0,))
    assert "the task's lie from 0 to 1" in (make_witness(model, task, wide).outside or "")


def test_converged_starts_are_the_measure_of_effort() -> None:
    """Rounds go on until enough starts converged; what is beyond does not count, and equal seeds give equal pairs."""
    task, model = MARKED, model_of(MARKED)
    options = {"starts": 2, "seconds": 120.0, "converged": 3, "most_starts": 40}
    one, two = (attack(model, task, **options) for _ in range(2))
    assert not one.cut_short
    assert (one.converged, one.starts) == (3, two.starts)
    assert one.starts > 2
    assert np.array_equal(one.X, two.X)
    assert one.gaps == two.gaps
    at, on = torch.arange(6.0)[:, None], torch.tensor([False, True, True, False, True, True])
    for wanted, most, count in ((1, 9, 2), (3, 9, 5), (4, 9, 6), (5, 9, 6), (3, 4, 4)):
        assert [len(part) for part in starts_needed(at, on, wanted, most)] == [count, count]
    with pytest.raises(BadInput, match="converged must be 1 or more"):
        attack(model, task, converged=0)


def test_a_pair_without_a_gap_is_not_saved(tmp_path: Path) -> None:
    model, _, witness = found_in(SPHERE)
    flat = replace(witness, data={**witness.data, "claims": {**witness.data["claims"], "gap": 0.0}})
    assert not flat.shows_a_gap
    assert "No two inputs" in conclusions(flat)[0]
    with pytest.raises(BadInput, match="a gap of 0 is not a witness"):
        hc.AttackResult(flat, model, SPHERE).save(tmp_path / "w")
    assert not (tmp_path / "w").exists()
    tiny = replace(witness, data={**witness.data, "claims": {**witness.data["claims"], "gap": 1e-12}})
    assert tiny.shows_a_gap  # proved, however small
    assert not replace(tiny, data={**tiny.data, "kind": "evidence"}).shows_a_gap  # measured: rounding
    model.save(tmp_path / "w", {"witness.json": tiny.data})
    assert verify_witness(tmp_path / "w").holds
