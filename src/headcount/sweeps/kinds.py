"""The kinds of experiment: the one list that the runner and the readers of a store look things up in.

A kind brings a file of its own with a spec, a session and an `Experiment`. Its entry here is all that the rest needs to
know of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from headcount.core import HeadcountError, Spec
from headcount.sweeps.attack_trials import Attacks, IrreducibleSpec
from headcount.sweeps.encoder_spec import RealSpec
from headcount.sweeps.experiments import Encoders, Experiment, Feeds, Sweep
from headcount.sweeps.spec import SweepSpec


class Given(NamedTuple):
    """What the caller of the runner gives beside the spec."""

    device: torch.device
    feeds: Feeds | None = None
    weights: bool = False


@dataclass(frozen=True)
class ExperimentKind:
    """One kind: how its spec becomes an experiment, and how its runs and trials are known in a store."""

    spec: type[Spec]
    experiment: Callable[[Any, Given], Experiment]
    run_key: str = ""
    """A key that only specs of this kind have; the kind without one is what all others are not."""
    trial_key: str = ""
    """A key that only its trials have in what they are known by."""
    shown_by: str = ""
    """What its runs hold and which command shows it, where they are not those of a sweep."""
    export: str = ""
    """Why none of its models can be exported, and what can be done instead."""


def _encoders(spec: RealSpec, given: Given) -> Experiment:
    if given.feeds is None:
        raise HeadcountError("an experiment on real data needs its data: feeds=source.feeds(device)")
    return Encoders(spec, given.feeds, given.device, weights=given.weights)


KINDS = (
    ExperimentKind(
        IrreducibleSpec,
        lambda spec, _: Attacks(spec),
        run_key="attack",
        trial_key="attack",
        shown_by="holds attacks, not a sweep: headcount irreducible SPEC shows what they found",
        export="holds attacks: headcount irreducible SPEC --out DIR writes their layers",
    ),
    ExperimentKind(
        RealSpec,
        _encoders,
        run_key="kind",
        trial_key="real",
        export="is on real data: its encoders cannot be exported, only the models of a sweep can",
    ),
    ExperimentKind(SweepSpec, lambda spec, _: Sweep.of(spec)),
)


def experiment_of(spec: Spec, given: Given) -> Experiment:
    """Return the experiment that a spec states; one on real data needs `feeds`, which give its data."""
    for kind in KINDS:
        if isinstance(spec, kind.spec):
            return kind.experiment(spec, given)
    known = ", ".join(kind.spec.__name__ for kind in KINDS)
    raise HeadcountError(f"{type(spec).__name__} states no kind of experiment that is known: known are {known}")


def kind_of_run(stated: Mapping[str, Any]) -> ExperimentKind:
    """Return the kind of a run by the spec that a store has of it."""
    return next(kind for kind in KINDS if not kind.run_key or kind.run_key in stated)


def kind_of_trial(stated: Mapping[str, Any]) -> ExperimentKind:
    """Return the kind of a trial by what a store knows it by."""
    return next(kind for kind in KINDS if not kind.trial_key or kind.trial_key in stated)
