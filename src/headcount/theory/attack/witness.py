"""A searched pair made into a witness: proved where it can be, with what it implies and the data of its picture."""

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
from headcount.core.text import above, below
from headcount.models import SavedModel
from headcount.recheck import Weights, read_weights
from headcount.tasks import GeneralizedRetrieval, Task
from headcount.theory.attack.exact import prove_pair, sequences
from headcount.theory.attack.implied import Implied, implied
from headcount.theory.attack.layer import HeadMap, StateMap, state_map
from headcount.theory.attack.search import LARGEST, Found

ROUNDING = 1e-6
"""Standard deviations: a gap below, between inputs that are not proved to collide, is no gap."""
NOT_INPUTS = "not inputs of this task"


@dataclass(frozen=True)
class Witness:
    """Two sequences, what is proved of them, and what follows. `kind` is exact, near or evidence."""

    data: dict[str, Any]
    X: NDArray[np.float64]
    found: Found
    y: tuple[float, float]
    predictions: tuple[float, float]
    implied: Implied
    outside: str | None
    """Why the pair are not inputs of the task, as its law draws them; empty where they are, None where none is known.

    Where the kind is exact this holds of the pair that is proved to exist: it lies in the box, keeps marks as they are,
    and is proved with the norms of its tokens where these are 1.
    """

    @property
    def in_support(self) -> bool | None:
        """Whether the pair are inputs of the task; None where its law is not known."""
        return None if self.outside is None else not self.outside

    @property
    def shows_a_gap(self) -> bool:
        """Whether the targets differ: a pair without a gap is no witness, and is not written."""
        return self.gap > 0 and (self.kind == "exact" or self.gap >= ROUNDING * self.unit)

    @property
    def kind(self) -> str:
        """exact: an exact pair is proved to lie beside; near: the pair itself; evidence: nothing is proved."""
        return self.data["kind"]

    @property
    def gap(self) -> float:
        """The gap of the targets: a proved lower bound, or measured for evidence."""
        return self.data["claims"]["gap"]

    @property
    def unit(self) -> float:
        """The standard deviation of the target."""
        return self.found.unit[self.data["output"]]


def make_witness(model: SavedModel, task: Task | None, found: Found, surrogate: SavedModel | None = None) -> Witness:
    """Prove the pair with the largest gap that can be proved; what is no task of expressions stays evidence."""
    provable = surrogate is None and isinstance(task, GeneralizedRetrieval) and task.symbolic
    data, k = _proved(model, task, found) if provable and task is not None else (_evidence(model, task, found), 0)
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
    claimed = [v for name, v in data["claims"].items() if name != "lipschitz"]
    if not np.abs([*y, *told, *claimed, found.gaps[0], found.distances[0]]).max() <= LARGEST:
        raise BadInput("at the pair that was found the target, attention or the model overflows: nothing can be shown")
    claims, spec = data["claims"], model.transformer.spec
    distances = (0.0, 0.0) if data["kind"] == "exact" else (claims["distance"], claims["distance_one"])
    follows = implied(claims["gap"], *distances, spec.E, claims["gap"] / 4, spec.feedforward)
    return Witness(data, found.X[k], found, (y[0], y[1]), (told[0], told[1]), follows, outside)


def _value(task: Task | None, X: torch.Tensor) -> torch.Tensor:
    assert task is not None
    return task.value(X)


def _proved(model: SavedModel, task: Task, found: Found) -> tuple[dict[str, Any], int]:
    """Return the first witness that is exact, from the largest gap down, or the near one of the best pair.

    A search that ran out of time may end on the region's edge or outside of it. The verifier rejects such a pair;
    where it rejects all, what was found is evidence, and nothing is proved.
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
    """The model as the verifier reads it: from its files."""
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model")
        return read_weights(Path(folder) / "model")


def _evidence(model: SavedModel, task: Task | None, found: Found) -> dict[str, Any]:
    """The same file with measured numbers only; `headcount recheck` refuses to call it proved."""
    X = found.X[0]
    first, second = StateMap(model.transformer)(torch.from_numpy(X))
    known = isinstance(task, GeneralizedRetrieval) and task.symbolic
    return {
        "format": WITNESS.format,
        "version": VERSION,
        "kind": "evidence",
        "model": model.hash(),
        "task": task.data() if task is not None and (known or not isinstance(task, GeneralizedRetrieval)) else None,
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
    """Return the data that `report.pair` draws."""
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
        return f"N{NOT_INPUTS[1:]}: targets {below(witness.gap, 3)} apart, {same}"
    return f"Targets {below(witness.gap / witness.unit, 3)} standard deviations apart, {same}"


def _subtitle(witness: Witness) -> str:
    if witness.outside:
        return witness.outside
    match witness.kind:
        case "exact":
            return "proved to exist beside the numbers of witness.json: no feed-forward block can tell the two apart"
        case "near":
            return "attention tells the two apart by very little"
        case _:
            return "nothing is known of the target but numbers"


def _radius(witness: Witness) -> float:
    mantissa, exponent = witness.data["radius"]
    return math.ldexp(float(int(mantissa)), exponent)


def _uncovered(task: GeneralizedRetrieval, X: torch.Tensor, weights: torch.Tensor) -> list[int]:
    """The functions whose minima differ although no head looks at them most, in both sequences."""
    z, best = task.retrieve(X)
    tops = weights.argmax(-1)  # [2, heads]
    follows = (tops[:, :, None] == best[:, None, :]).all(0).any(0)
    moved = (z[0] - z[1]).abs() > 0.05 * (z[0] - z[1]).abs().amax().clamp_min(1e-300)
    return [i for i in range(len(task.f)) if bool(moved[i]) and not bool(follows[i])]


def _deviations(witness: Witness) -> str:
    """Write the gap in standard deviations, and say of what where the pair are not what these were measured on."""
    times = below(witness.gap / witness.unit, 3)
    if witness.outside:
        return f"{times} times the target's standard deviation over the task's own inputs, which these are not"
    return f"{times} standard deviations as measured"


def conclusions(witness: Witness) -> list[str]:
    """Say what the pair implies, each with its conditions and whether it is proved; proved numbers round outward."""
    if not witness.shows_a_gap:
        return [f"No two inputs with equal attention outputs and different targets were found; {witness.found.effort}."]
    claims, i = witness.data["claims"], witness.implied
    gap = f"{below(claims['gap'])} ({_deviations(witness)}; {witness.found.effort})"
    if len(witness.found.unit) > 1:
        gap = f"{gap} in output {witness.data['output']}"
    least = below(claims["sup_error"])
    if witness.kind == "exact":
        radius = above(_radius(witness), 2)
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
    said = [f"Proved: the targets differ by at least {gap}, F's inputs by at most {above(claims['distance'], 3)}."]
    if claims["lipschitz"] is not None:
        own = f"this model's F, with a Lipschitz constant of at most {above(claims['lipschitz'], 3)}"
        said.append(f"Proved: {own}, errs by at least {least} on one of the two.")
    if i.lipschitz is not None and i.width_one is not None and i.width_two is not None:
        width = below(max(i.width_one, i.width_two), 3)
        said.append(
            f"Proved: an F within {below(i.eps, 3)} has a Lipschitz constant of at least {below(i.lipschitz, 3)}; with "
            f"two layers, this activation and weights of at most 1 a width of at least {width}; with any weights, "
            f"width × largest inner × largest outer weight of at least {below(i.width_one, 3)}."
        )
    return said
