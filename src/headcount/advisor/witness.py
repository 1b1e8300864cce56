"""The witness of one head fewer: two inputs that the trained layer cannot tell apart although their targets differ.

F gets the same input for both, so every feed-forward block on top of this encoder and attention errs by half the gap of
the targets on one of them. If the task is known, the pair is proved where ball arithmetic allows it. If only data are
known, the best model stands in for the task, provided that its validation error is at most `MAX_SURROGATE_ERROR`, and
the pair is measured: its gap is the smallest that any model which does about as well sees, and it must be
`MIN_GAP_ERRORS` times their typical error.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headcount.advisor.data import Material
from headcount.advisor.record import WitnessRecord
from headcount.advisor.trials import Outcome
from headcount.advisor.words.witness import learned_words, proved_words
from headcount.core import BadInput
from headcount.models import SavedModel
from headcount.render.words import error_text
from headcount.tasks import Box, GeneralizedRetrieval, Task
from headcount.theory.attack import Among, OnProgress, attack, make_witness, state_map
from headcount.training import Stopped

MAX_SURROGATE_ERROR = 0.05
"""A best model with a larger validation error, in units of the variance of y, cannot stand in for the task."""
MIN_GAP_ERRORS = 4.0
"""A measured gap must be this many times the typical error of the models that stand in for the task."""
MIN_GAP_DEVIATIONS = 0.1
"""Smallest gap worth reporting, in standard deviations of y."""
EQUAL_OUTPUTS_RATIO = 1e-6
"""Attention outputs that differ by less, relative to their spread, count as equal if nothing is proved."""
JUDGE_ERROR_RATIO = 4.0
"""Models with enough heads and an error within this factor of the best stand in for the task …"""
MIN_JUDGES, MAX_JUDGES = 2, 8
"""… if there are this many, and at most this many of them."""
SEARCH_STARTS = 48
MAX_PAIRS_TRIED = 3
"""Pairs of a search that are tried as a witness."""
MIN_DISTINCT_VALUES = 12
"""A feature with fewer different values has no inputs between them."""
MIN_SEARCH_SECONDS = 2.0
BOX_QUANTILES = (0.01, 0.99)
"""Quantiles of every feature between which inputs are searched for if only data are known."""


def find_witness(
    trials: Sequence[Outcome],
    material: Material,
    heads: int | None,
    *,
    task: Task | None = None,
    seconds: float = 20.0,
    seed: int = 0,
    halt: threading.Event | None = None,
) -> WitnessRecord:
    """Search for a witness against the best trained layer with fewer heads than recommended.

    heads: the recommended count. task: what the data were sampled from, if known. seconds: the most that it may take.
    halt: ends the search with an error, for one that runs beside other work.
    """

    def stop_if_halted(*_: object) -> None:
        if halt is not None and halt.is_set():
            raise Stopped

    start, layer = time.monotonic(), weaker(trials, heads)
    if heads is None or layer is None:
        found: WitnessRecord | str = (
            "No number of heads is recommended, so there is no layer with fewer."
            if heads is None
            else "There is no trained layer with fewer heads than recommended."
        )
    elif seconds < MIN_SEARCH_SECONDS:
        found = f"There was no time left for the search, which takes {MIN_SEARCH_SECONDS:g} seconds or more."
    else:
        found = _unsuitable(trials, material, task)
        try:
            if not found and task is not None:
                found = _against_task(layer, material, task, seconds, seed, stop_if_halted)
            elif not found:
                found = _against_models(layer, trials, material, heads, seconds, seed, stop_if_halted)
        except BadInput as error:
            found = f"The search for a witness does not cover this case: {error}."
    if isinstance(found, str):
        target = "best model" if task is None else "task"
        found = WitnessRecord(heads=layer.heads if layer else 0, tag=None, why=found, target=target)
    return found.model_copy(update={"seconds": time.monotonic() - start})


def save_witness(
    found: WitnessRecord,
    trials: Sequence[Outcome],
    material: Material,
    heads: int | None,
    task: Task | None,
    folder: Path,
) -> None:
    """Write the layer and its proved pair as a folder that `headcount recheck` verifies."""
    layer = weaker(trials, heads)
    if found.file is None or layer is None or task is None:
        raise BadInput(f"nothing is proved, so there is nothing to verify: {found.why or 'the pair is measured'}")
    own_units(layer, material, task, _box(material, task)).save(folder, {"witness.json": found.file})


def weaker(trials: Sequence[Outcome], heads: int | None) -> Outcome | None:
    """Return the best trial of the largest head count below the recommended one."""
    fewer = [trial for trial in trials if heads is not None and trial.heads < heads and trial.wanted.tag == "heads"]
    most = max((trial.heads for trial in fewer), default=0)
    return min((trial for trial in fewer if trial.heads == most), key=lambda trial: trial.validation, default=None)


def own_units(trial: Outcome, material: Material, task: Task | None = None, box: Box | None = None) -> SavedModel:
    """Return a trained model for inputs in the units of the data: its first weights absorb the scaling."""
    network = trial.network().double()
    shift, scale = torch.from_numpy(material.shift), torch.from_numpy(material.scale)
    with torch.no_grad():
        inner = network.encoder.inner
        inner.weight.div_(scale)
        inner.bias.sub_(inner.weight @ shift)
    mean, std = (tuple(v.double().tolist()) for v in (material.center, material.width))
    known = task.data() if isinstance(task, GeneralizedRetrieval) and task.symbolic else None
    return SavedModel(network, known, box, mean, std)


def _box(material: Material, task: Task | None) -> Box:
    """Return the task's own box, or else one that holds nearly all values of every feature."""
    if task is not None and task.box is not None:
        return task.box
    low, high = np.quantile(_tokens(material), BOX_QUANTILES, axis=0)
    high = np.where(high > low, high, low + 1e-6 * np.maximum(np.abs(low), 1.0))
    return tuple(low.tolist()), tuple(high.tolist())


def _tokens(material: Material) -> NDArray[np.float64]:
    """Return all real tokens [count, dim] in the units of the data."""
    X, mask = material.task.X, material.task.mask
    return X.reshape(-1, X.shape[-1]) if mask is None else X[mask]


def _unsuitable(trials: Sequence[Outcome], material: Material, task: Task | None) -> str:
    """Return why there can be no witness; empty if there can."""
    mask = material.task.mask
    if mask is not None and not bool(mask.all(1).any()):
        return "No sequence has the full length, and the search does not support padding."
    if task is not None:
        return ""
    best = min(trial.validation for trial in trials)
    if best > MAX_SURROGATE_ERROR:
        return (
            f"The task is known only from data, and the best model errs by {error_text(best)} of the variance of y; "
            f"above {MAX_SURROGATE_ERROR:g} it cannot stand in for the task."
        )
    for k, column in enumerate(_tokens(material).T):
        count = len(np.unique(column))
        if 1 < count < MIN_DISTINCT_VALUES:
            return f"Feature {k + 1} takes only {count} values, and the search needs inputs between them."
    return ""


def _against_task(
    layer: Outcome, material: Material, task: Task, seconds: float, seed: int, on_progress: OnProgress
) -> WitnessRecord | str:
    """Return a pair for the task itself, among typical sequences first, proved if possible; or why there is none."""
    box = _box(material, task)
    model = own_units(layer, material, task, box)
    start, order = time.monotonic(), list[Among](["typical", "all"])
    for among in order if isinstance(task, GeneralizedRetrieval) else order[1:]:
        left = seconds - (time.monotonic() - start)
        share = 0.6 if among == "typical" else 0.95
        time_left = max(share * left, 1.0)
        found = attack(
            model, task, box, among=among, starts=SEARCH_STARTS, seconds=time_left, seed=seed, on_progress=on_progress
        )
        if found.near or not found.gaps:
            continue
        chances = replace(
            found, **{k: getattr(found, k)[:MAX_PAIRS_TRIED] for k in ("X", "gaps", "outputs", "distances")}
        )
        witness = make_witness(model, task, chances)
        unit = float(material.width[witness.data["output"]])
        if (
            not witness.shows_a_gap
            or witness.gap < MIN_GAP_DEVIATIONS * unit
            or (witness.kind != "exact" and not _equal(model, material, witness.X))
        ):
            continue
        return proved_words(witness, layer.heads, unit, among)
    return f"No two inputs with equal attention outputs and different targets were found in {seconds:.0f} s."


def _against_models(
    layer: Outcome,
    trials: Sequence[Outcome],
    material: Material,
    heads: int,
    seconds: float,
    seed: int,
    on_progress: OnProgress,
) -> WitnessRecord | str:
    """Return a pair with the best model in place of the task, or why there is none; all judges must see the gap."""
    most = min(JUDGE_ERROR_RATIO * min(trial.validation for trial in trials), MAX_SURROGATE_ERROR)
    near = [trial for trial in trials if trial.heads >= heads and trial.validation <= most]
    box, near = _box(material, None), sorted(near, key=lambda trial: trial.validation)[:MAX_JUDGES]
    if len(near) < MIN_JUDGES:
        return "Fewer than two models with enough heads come close to the best one, and a single model may be wrong."
    model = own_units(layer, material, None, box)
    judges = [own_units(trial, material, None, box) for trial in near]
    found = attack(
        model,
        None,
        box,
        surrogate=judges[0],
        starts=SEARCH_STARTS,
        seconds=0.95 * seconds,
        seed=seed,
        on_progress=on_progress,
    )
    pairs = zip(found.X, found.outputs, strict=True)
    gap, k = max((agreed(model, judges, material, X, j) or 0.0, k) for k, (X, j) in enumerate(pairs))
    j = found.outputs[k]
    unit, rough = float(material.width[j]), max(trial.validation for trial in near) ** 0.5
    if gap < max(MIN_GAP_DEVIATIONS, MIN_GAP_ERRORS * rough) * unit:
        return (
            f"No two inputs with equal attention outputs were found whose targets differ by more than "
            f"{MIN_GAP_ERRORS:g} times the typical error of the models that stand in for the task."
        )
    return learned_words(found, k, gap, layer.heads, unit, model, judges, material.classes, near[0].validation)


def agreed(
    model: SavedModel, judges: Sequence[SavedModel], material: Material, X: NDArray[np.float64], output: int
) -> float | None:
    """Return the gap between two inputs X[2, length, dim] that all judges see; None if the pair is not valid."""
    if model.box is None or not _equal(model, material, X):
        return None
    pair = torch.from_numpy(X)
    low, high = (torch.tensor(side, dtype=torch.float64) for side in model.box)
    if not bool(((pair >= low) & (pair <= high)).all()):
        return None
    gaps = [float(y[0, output] - y[1, output]) for y in (judge.predict(pair) for judge in judges)]
    return max(min(gaps), -max(gaps), 0.0)


@torch.no_grad()
def _equal(model: SavedModel, material: Material, X: NDArray[np.float64]) -> bool:
    """Whether the attention outputs are the same, in float64 and relative to their spread over the data."""
    layer, mask = state_map(model.transformer), material.task.mask
    unpadded = material.task.X if mask is None else material.task.X[mask.all(1)]
    outputs: Tensor = layer(torch.from_numpy(unpadded[:1000].copy()))
    first, second = layer(torch.from_numpy(X))
    spread = float((outputs - outputs.mean(0)).norm(dim=1).mean()) or float(outputs.norm(dim=1).mean())
    return float((first - second).norm()) <= EQUAL_OUTPUTS_RATIO * spread
