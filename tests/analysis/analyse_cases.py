"""Runs made by hand for the tests of the analysis: any error for any head count, length, hidden size, target, seed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from headcount.analysis.blocks import blocks
from headcount.analysis.bootstrap import draw_setting
from headcount.analysis.grounds import grounds_of
from headcount.analysis.heads_needed import dimension
from headcount.analysis.record import Dimension
from headcount.render.words.heads_needed import answer_in_words
from headcount.store.records import Run, Trial

Error = Callable[..., float | None]


def trial(heads: int, seed: int, error: float | None, hidden: int = 32) -> Trial:
    """A finished trial, or without an error a diverged one."""
    return Trial(
        heads=heads,
        seed=seed,
        state="done" if error is not None else "diverged",
        nmse=error,
        train_nmse=error,
        steps=10,
        seconds=1.0,
        parameters=hidden * (8 * heads + 5),
        parameters_total=hidden * (8 * heads + 5) + 100,
    )


def panel(trials: Sequence[Trial], left_out: dict[str, int] | None = None, **values: Any) -> Run:
    """A panel with these trials; `values` set it apart."""
    heads = sorted({t.heads for t in trials})
    seeds = max((sum(t.heads == h for t in trials) for h in heads), default=1)
    return Run(
        name="planted",
        task={"kind": "retrieval", "length": values.get("length", 8), "law": {"law": "gaussian"}},
        intrinsic=None,
        spec={"heads": heads, "seeds": seeds, "model": {"head_dim": 8, "hidden": 32}},
        values=values,
        trials=list(trials),
        left_out=left_out or {},
        provenance={},
        seconds=1.0,
    )


def planted(
    error: Error,
    *,
    heads: Iterable[int] = range(1, 7),
    lengths: Iterable[int] = (8, 16, 32),
    seeds: int = 4,
    targets: int = 2,
    hidden: Iterable[int] = (32,),
    noise: float = 0.1,
    seed: int = 0,
) -> list[Run]:
    """Panels whose errors are error(h, T, N), times 10 to a Gaussian of deviation `noise` for target and for seed."""
    rng = np.random.default_rng(seed)
    heads = list(heads)
    runs: list[Run] = []
    for T in lengths:
        for N in hidden:
            for target in range(targets):
                trials: list[Trial] = []
                for h in heads:
                    shift = noise * rng.standard_normal()
                    for s in range(seeds):
                        level = error(h, T, N)
                        factor = 10 ** (shift + noise * rng.standard_normal())
                        trials.append(trial(h, s, None if level is None else level * factor, N))
                runs.append(panel(trials, length=T, hidden=N, target=target))
    return runs


def with_dimension(D: int) -> Error:
    """Errors as trained models have them: a gentle fall below D, harder with T; then a floor that falls a little."""
    return lambda h, T, N: 0.2 / h * (T / 8) ** 0.3 if h < D else 2e-5 * 0.8 ** (h - D)


def estimate(runs: Sequence[Run], resamples: int = 300, seed: int = 0) -> Dimension:
    """The estimate of D from the only setting of some panels."""
    drawn = draw_setting(blocks(runs), resamples, seed)
    found = dimension(drawn, seed)
    return answer_in_words(found, grounds_of(found, drawn))


def covers(found: Dimension, D: int) -> bool:
    """Whether the interval holds D."""
    assert found.low is not None
    return found.low <= D and (found.high is None or found.high >= D)
