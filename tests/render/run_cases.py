"""Runs of made-up numbers for the tests of pages: a fall at four heads, seeds, targets, lengths and sizes."""

from __future__ import annotations

import random
from typing import Any

from headcount.analysis.of_runs import analyse
from headcount.analysis.record import Analysis
from headcount.store.records import Run, Trial

ERROR = {1: 0.02, 2: 0.007, 3: 2e-4, 4: 1e-6, 5: 5e-7}


def made_trial(heads: int, seed: int, error: float | None, hidden: int) -> Trial:
    return Trial(
        heads=heads,
        seed=seed,
        state="done" if error is not None else "diverged",
        nmse=error,
        train_nmse=error,
        steps=100,
        seconds=1.5,
        parameters=13 * heads * hidden,
        parameters_total=17 * heads * hidden,
    )


def made_runs(
    *,
    lengths: tuple[int, ...] = (8, 32),
    hidden: tuple[int, ...] = (32,),
    targets: int = 2,
    seeds: int = 3,
    settings: tuple[dict[str, Any], ...] = ({},),
    diverged: int = 0,
    failed: int = 0,
    **changes: Any,
) -> list[Run]:
    """Panels of one sweep; the first trials diverge, the last are missing."""
    rng = random.Random(5)
    places = [(s, T, N, k) for s in settings for T in lengths for N in hidden for k in range(targets)]
    total = len(places) * len(ERROR) * seeds
    number, runs = 0, []
    for setting, T, N, k in places:
        ease, trials = 10 ** rng.gauss(0, 0.2), []
        for heads, base in ERROR.items():
            for seed in range(seeds):
                # the draw comes first, so that what is lost changes no other number
                error: float | None = base * ease * (T / 8) ** 0.2 * (32 / N) ** 1.1 * 10 ** abs(rng.gauss(0, 0.2))
                number += 1
                if number <= total - failed:
                    trials.append(made_trial(heads, seed, None if number <= diverged else error, N))
        values = {"length": (T, lengths), "hidden": (N, hidden), "target": (k, range(targets))}
        fields: dict[str, Any] = {
            "name": "grid",
            "title": "How many heads?",
            "intrinsic": 4,
            "task": {"kind": "retrieval", "name": "quadratic-basins", "length": T, "dim": 2},
            "spec": {
                "task": {"family": "quadratic-basins"},
                "heads": list(ERROR),
                "seeds": seeds,
                "model": {"head_dim": 8, "hidden": N, "depth": 1},
                "train": {"steps": 100, "batch": 128},
            },
            "values": {**{key: value for key, (value, some) in values.items() if len(some) > 1}, **setting},
            "trials": trials,
            "seconds": 61.0,
            "left_out": {"failed": len(ERROR) * seeds - len(trials)} if len(trials) < len(ERROR) * seeds else {},
            "provenance": {"commit": "0123456789ab", "versions": {"python": "3.11.2"}, "machine": {"cores": 2}},
        }
        runs.append(Run(**{**fields, **changes}))
    return runs


def made_case(**options: Any) -> tuple[list[Run], Analysis]:
    runs = made_runs(**options)
    return runs, analyse(runs, resamples=100)
