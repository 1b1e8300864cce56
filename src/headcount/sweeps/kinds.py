"""The kinds of experiment: the one list that the runner and the readers of a store use.

A kind has a file of its own with a spec, a session and an `Experiment`. Its entry here is all that the rest needs to
know about it.
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


class RunnerOptions(NamedTuple):
    """Options of a run beside the spec: the device, and for real data the feeds and whether to keep weights."""

    device: torch.device
    feeds: Feeds | None = None
    weights: bool = False


@dataclass(frozen=True)
class ExperimentKind:
    """One kind: how its spec becomes an experiment, and how to recognise its runs and trials in a store."""

    spec: type[Spec]
    experiment: Callable[[Any, RunnerOptions], Experiment]
    run_key: str = ""
    """A key that only specs of this kind have; the kind with "" is that of all other specs."""
    trial_key: str = ""
    """A key that only the stored specs of this kind's trials have."""
    shown_by: str = ""
    """If its runs are not sweeps: what they hold, and which command shows it."""
    export_refusal: str = ""
    """If its models cannot be exported: why, and what can be done instead."""


def _encoders(spec: RealSpec, given: RunnerOptions) -> Experiment:
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
        export_refusal="holds attacks: headcount irreducible SPEC --out DIR writes their layers",
    ),
    ExperimentKind(
        RealSpec,
        _encoders,
        run_key="kind",
        trial_key="real",
        export_refusal="is on real data: its encoders cannot be exported, only the models of a sweep can",
    ),
    ExperimentKind(SweepSpec, lambda spec, _: Sweep.of(spec)),
)


def experiment_of(spec: Spec, given: RunnerOptions) -> Experiment:
    """Return the experiment for a spec; experiments on real data read it from `feeds`."""
    for kind in KINDS:
        if isinstance(spec, kind.spec):
            return kind.experiment(spec, given)
    known = ", ".join(kind.spec.__name__ for kind in KINDS)
    raise HeadcountError(f"{type(spec).__name__} is not a kind of experiment: use one of {known}")


def kind_of_run(stated: Mapping[str, Any]) -> ExperimentKind:
    """Return the kind of a run, given its stored spec."""
    return next(kind for kind in KINDS if not kind.run_key or kind.run_key in stated)


def kind_of_trial(stated: Mapping[str, Any]) -> ExperimentKind:
    """Return the kind of a trial, given its stored spec."""
    return next(kind for kind in KINDS if not kind.trial_key or kind.trial_key in stated)
