"""Make a witness of a pair that was found: prove what can be proved, state what follows, and prepare its picture."""

from __future__ import annotations

import math
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from headcount.core import BadInput, provenance
from headcount.core.readers import STATEMENT_VERSION as VERSION
from headcount.core.readers import WITNESS
from headcount.core.text import round_down, round_up
from headcount.models import SavedModel
from headcount.recheck import Weights, read_weights
from headcount.tasks import GeneralizedRetrieval, Task
from headcount.theory.attack.exact import prove_pair, sequences
from headcount.theory.attack.implied import Implied, implied
from headcount.theory.attack.layer import HeadMap, StateMap, state_map
from headcount.theory.attack.search import MAX_MAGNITUDE, Found

MIN_MEASURED_GAP = 1e-6
"""Smallest gap, in standard deviations, that counts between inputs that are not proved to collide."""
NOT_INPUTS = "not inputs of this task"


@dataclass(frozen=True)
class Witness:
    """Two sequences, what is proved about them, and what follows."""

    data: dict[str, Any]
    X: NDArray[np.float64]
    found: Found
    y: tuple[float, float]
    predictions: tuple[float, float]
    implied: Implied
    outside: str | None
    """Why the pair is not inputs of the task, as its law draws them; empty if it is, None if no law is known.

    For an exact witness this is about the pair that is proved to exist: it lies in the box and keeps marks as they are,
    and for a sphere law the norms of its tokens are proved to be 1.
    """

    @property
    def in_support(self) -> bool | None:
        """Whether both sequences are inputs of the task; None if its law is unknown."""
        return None if self.outside is None else not self.outside

    @property
    def shows_a_gap(self) -> bool:
        """Whether the targets differ; a pair without a gap is not a witness and is not written."""
        return self.gap > 0 and (self.kind == "exact" or self.gap >= MIN_MEASURED_GAP * self.unit)

    @property
    def kind(self) -> str:
        """exact: an exact pair is proved to lie nearby; near: proved of this pair itself; evidence: nothing proved."""
        return self.data["kind"]

    @property
    def gap(self) -> float:
        """The gap between the targets: a proved lower bound, or for evidence a measured value."""
        return self.data["claims"]["gap"]

    @property
    def unit(self) -> float:
        """The standard deviation of the target."""
        return self.found.unit[self.data["output"]]


def make_witness(model: SavedModel, task: Task | None, found: Found, surrogate: SavedModel | None = None) -> Witness:
    """Prove the pair with the largest provable gap; without a task of expressions the result is evidence."""
    provable = surrogate is None and isinstance(task, GeneralizedRetrieval) and task.symbolic
    data, k = _prove_best(model, task, found) if provable and task is not None else (_evidence(model, task, found), 0)
    data["provenance"] = {
        **provenance(),
        "starts": found.starts,
        "converged": found.converged,
        "seconds": found.seconds,
    }
    outside = None if task is None else task.outside(torch.from_numpy(found.X[k]))
    X, j = torch.from_numpy(found.X[k]), found.outputs[k]
    y = (surrogate.predict(X).double() if surrogate is not None else _value(task, X))[:, j].tolist()
    told = model.predict(X).double()[:, j].tolist()
    claimed_numbers = [v for name, v in data["claims"].items() if name != "lipschitz"]
    if not np.abs([*y, *told, *claimed_numbers, found.gaps[0], found.distances[0]]).max() <= MAX_MAGNITUDE:
        raise BadInput("the target, attention or model overflows at the pair that was found, so nothing can be shown")
    claims, spec = data["claims"], model.transformer.spec
    distances = (0.0, 0.0) if data["kind"] == "exact" else (claims["distance"], claims["distance_one"])
    follows = implied(claims["gap"], *distances, spec.E, claims["gap"] / 4, spec.feedforward)
    return Witness(data, found.X[k], found, (y[0], y[1]), (told[0], told[1]), follows, outside)


def _value(task: Task | None, X: torch.Tensor) -> torch.Tensor:
    assert task is not None
    return task.value(X)


def _prove_best(model: SavedModel, task: Task, found: Found) -> tuple[dict[str, Any], int]:
    """Return the first exact witness, from the largest gap down, or else the near witness with the largest gap.

    A search that ran out of time may end on the edge of the region or outside. The verifier rejects such pairs; if it
    rejects all, the result is evidence, and nothing is proved.
    """
    region = None if found.region is None else {"low": list(found.region.low), "high": list(found.region.high)}
    weights, near = _weights(model), None
    for k, ((X1, X2), output) in enumerate(zip(found.X, found.outputs, strict=True)):
        try:
            data = prove_pair(weights, task.data(), found.box, region, output, X1, X2)
        except BadInput:
            continue
        if data["kind"] == "exact":
            return data, k
        near = near or (data, k)
    return near or (_evidence(model, task, found), 0)


def _weights(model: SavedModel) -> Weights:
    """Return the weights as the verifier reads them, from files."""
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model")
        return read_weights(Path(folder) / "model")


def _evidence(model: SavedModel, task: Task | None, found: Found) -> dict[str, Any]:
    """Return the data of a witness with measured numbers only, which `headcount recheck` rejects."""
    X = found.X[0]
    first, second = StateMap(model.transformer)(torch.from_numpy(X))
    symbolic = isinstance(task, GeneralizedRetrieval) and task.symbolic
    return {
        "format": WITNESS.format,
        "version": VERSION,
        "kind": "evidence",
        "model": model.hash(),
        "task": task.data() if task is not None and (symbolic or not isinstance(task, GeneralizedRetrieval)) else None,
        "box": [list(side) for side in found.box],
        "region": None,
        "output": found.outputs[0],
        **sequences(X.flatten(), X),
        "claims": {
            "gap": found.gaps[0],
            "distance": float((first - second).norm()),
            "distance_one": float((first - second).abs().sum()),
            "sup_error": found.gaps[0] / 2,
            "lipschitz": None,
        },
    }


def pair_figure(model: SavedModel, task: Task | None, witness: Witness) -> dict[str, Any]:
    """Return the data of the picture that `render.pair` draws."""
    X, (y1, y2) = torch.from_numpy(witness.X), witness.y
    layer = state_map(model.transformer)
    weights = layer.weights(X).tolist() if isinstance(layer, HeadMap) else [None, None]
    outputs = layer(X).tolist()
    figure: dict[str, Any] = {
        "title": _title(model, witness),
        "outside": witness.outside,
        "subtitle": _subtitle(witness),
        "kind": witness.kind,
        "X1": witness.X[0].tolist(),
        "X2": witness.X[1].tolist(),
        "low": list(witness.found.box[0]),
        "high": list(witness.found.box[1]),
        "f1": None,
        "f2": None,
        "best1": None,
        "best2": None,
        "names": None,
        "weights1": weights[0],
        "weights2": weights[1],
        "out1": outputs[0],
        "out2": outputs[1],
        "heads": model.transformer.spec.heads,
        "uncovered": [],
        "y1": y1,
        "y2": y2,
        "unit": witness.unit,
        "prediction1": witness.predictions[0],
        "prediction2": witness.predictions[1],
        "sentences": conclusions(witness),
    }
    if isinstance(task, GeneralizedRetrieval):
        f, best = task.tokens(X), task.positions(X)
        figure |= {"f1": f[0].tolist(), "f2": f[1].tolist(), "best1": best[0].tolist(), "best2": best[1].tolist()}
        figure["names"] = [f"f{i + 1}" for i in range(len(task.f))]
        if isinstance(layer, HeadMap):
            figure["uncovered"] = _uncovered(task, X, layer.weights(X))
    return figure


def _heads(model: SavedModel) -> str:
    h = model.transformer.spec.heads
    return f"{h} head{'s' if h > 1 else ''}"


def _title(model: SavedModel, witness: Witness) -> str:
    same = f"{'the same' if witness.kind == 'exact' else 'almost the same'} to {_heads(model)}"
    if witness.outside:
        return f"N{NOT_INPUTS[1:]}: targets {round_down(witness.gap, 3)} apart, {same}"
    return f"Targets {round_down(witness.gap / witness.unit, 3)} standard deviations apart, {same}"


def _subtitle(witness: Witness) -> str:
    if witness.outside:
        return witness.outside
    match witness.kind:
        case "exact":
            return "Proved to exist beside the numbers of witness.json: no feed-forward block can tell the two apart"
        case "near":
            return "Attention tells the two apart by very little"
        case _:
            return "Nothing is known of the target but numbers"


def _radius(witness: Witness) -> float:
    mantissa, exponent = witness.data["radius"]
    return math.ldexp(float(int(mantissa)), exponent)


def _uncovered(task: GeneralizedRetrieval, X: torch.Tensor, weights: torch.Tensor) -> list[int]:
    """Return the functions whose minima differ although no head attends most to them in both sequences."""
    z, best = task.retrieve(X)
    most_attended = weights.argmax(-1)  # [2, heads]
    follows = (most_attended[:, :, None] == best[:, None, :]).all(0).any(0)
    moved = (z[0] - z[1]).abs() > 0.05 * (z[0] - z[1]).abs().amax().clamp_min(1e-300)
    return [i for i in range(len(task.f)) if bool(moved[i]) and not bool(follows[i])]


def _deviations(witness: Witness) -> str:
    """Return the gap in standard deviations in words; for pairs that are not inputs, say what these refer to."""
    times = round_down(witness.gap / witness.unit, 3)
    if witness.outside:
        return f"{times} times the target's standard deviation over the task's own inputs, which these are not"
    return f"{times} standard deviations as measured"


def conclusions(witness: Witness) -> list[str]:
    """Return sentences on what the pair implies, each proved or measured, with conditions; bounds round outward."""
    if not witness.shows_a_gap:
        return [f"No two inputs with equal attention outputs and different targets were found; {witness.found.effort}."]
    claims, i = witness.data["claims"], witness.implied
    gap = f"{round_down(claims['gap'])} ({_deviations(witness)}; {witness.found.effort})"
    if len(witness.found.unit) > 1:
        gap = f"{gap} in output {witness.data['output']}"
    least = round_down(claims["sup_error"])
    if witness.kind == "exact":
        radius = round_up(_radius(witness), 2)
        twins = f"within {radius} of the sequences of witness.json lie two whose attention outputs are exactly equal"
        every = "every feed-forward block on top of this encoder and attention, of any size"
        return [
            f"Proved: {twins} and whose targets differ by at least {gap}.",
            f"Proved: {every}, errs by at least {least} somewhere on the box.",
        ]
    if witness.kind == "evidence":
        return [
            f"Measured, not proved: F's inputs equal to {claims['distance']:.1e}, targets {gap} apart.",
            f"If so, every feed-forward block errs by about {least} or more on one of the two.",
        ]
    distance = round_up(claims["distance"], 3)
    sentences = [f"Proved: the targets differ by at least {gap}, F's inputs by at most {distance}."]
    if claims["lipschitz"] is not None:
        own = f"this model's F, with a Lipschitz constant of at most {round_up(claims['lipschitz'], 3)}"
        sentences.append(f"Proved: {own}, errs by at least {least} on one of the two.")
    if i.lipschitz is not None and i.width_one is not None and i.width_two is not None:
        width = round_down(max(i.width_one, i.width_two), 3)
        sentences.append(
            f"Proved: an F within {round_down(i.eps, 3)} has a Lipschitz constant of at least "
            f"{round_down(i.lipschitz, 3)}; with two layers, this activation and weights of at most 1 a width of at "
            f"least {width}; with any weights, width × largest inner × largest outer weight of at least "
            f"{round_down(i.width_one, 3)}."
        )
    return sentences
