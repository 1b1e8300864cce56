"""Runs on real data made by hand: any training and validation accuracy for any head count, length and seed."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

from headcount.store.records import Run, Trial

Accuracy = Callable[[int, int], float]
MARCO_HEADS = (1, 2, 4, 6, 8, 10, 12, 14, 16)
CIFAR_HEADS = (1, 2, 4, 8, 10, 11, 12, 13, 14, 16, 20, 24)
SIDES = {65: 32, 145: 48, 257: 64, 577: 96, 1025: 128}


def real_trial(
    heads: int, seed: int, train: float, validation: float, *, rank: bool = True, state: str = "done"
) -> Trial:
    """A finished trial with these accuracies, or a diverged one."""
    done = state == "done"
    ranks = {"mrr": (1 + validation) / 2, "train_mrr": (1 + train) / 2} if rank and done else {}
    accuracies = {"accuracy": validation, "train_accuracy": train} if done else {}
    return Trial(
        heads=heads,
        seed=seed,
        state="done" if done else "diverged",
        nmse=1 - validation if done else None,
        train_nmse=1 - train if done else None,
        steps=100,
        seconds=2.0,
        parameters=1000 * heads,
        parameters_total=1500 * heads,
        **accuracies,
        **ranks,
    )


def real_runs(
    kind: str,
    train: Accuracy,
    validation: Accuracy,
    *,
    lengths: tuple[int, ...],
    heads: tuple[int, ...],
    seeds: int = 3,
    noise: float = 0.004,
    samples: dict[str, int] | None = None,
    diverged: int = 0,
) -> list[Run]:
    """Panels of a run on MS MARCO or CIFAR-10, one a length; accuracies are whole counts of the samples."""
    rng = random.Random(7)
    counts = {"train": 8192, "validation": 2000} if samples is None else samples
    runs: list[Run] = []
    for length in lengths:
        trials: list[Trial] = []
        for h in heads:
            for seed in range(seeds):
                found = [
                    _counted(accuracy(h, length) + noise * rng.gauss(0, 1), counts.get(part, 0))
                    for part, accuracy in (("train", train), ("validation", validation))
                ]
                lost = len(trials) < diverged
                trials.append(real_trial(h, seed, *found, rank=kind == "marco", state="diverged" if lost else "done"))
        source: dict[str, Any] = {"kind": kind, "train": 10_000, "validation": 2000, "length": length}
        if kind == "cifar":
            source |= {"side": SIDES[length], "patch": 4, "classes": 10}
        else:
            source |= {"entry": "means", "dim": 384}
        runs.append(
            Run(
                name=f"{kind}-made",
                title=f"Made up: {kind}",
                task={"name": kind, **source},
                intrinsic=None,
                spec={
                    "kind": kind,
                    "heads": list(heads),
                    "seeds": seeds,
                    "model": {"head_dim": 32 if kind == "marco" else 16, "depth": 2, "dropout": 0.1},
                    "train": {"steps": 6000, "batch": 128, "optimiser": "adamw", "learning_rate": 1e-3},
                },
                values={"length": length},
                measure="error rate",
                samples=counts,
                trials=trials,
                provenance={"commit": "0123456789ab"},
                seconds=60.0,
            )
        )
    return runs


def _counted(accuracy: float, samples: int) -> float:
    accuracy = min(max(accuracy, 0.0), 1.0)
    return round(accuracy * samples) / samples if samples else accuracy


def law_error(h: int, T: int, delta: float = 0.25, alpha: float = -1.4, b: float = 0.1, c: float = 0.9) -> float:
    """The error of the paper's law, at most that of a guess."""
    return min(c * T**b * math.exp(alpha * h / T**delta), 1 - 1 / T)


def marco_runs(**options: Any) -> list[Run]:
    """A run on MS MARCO whose training error follows the law; validation is best at two heads."""
    return real_runs("marco", *_marco(), **{"lengths": (8, 16, 32, 64), "heads": MARCO_HEADS, **options})


def _marco() -> tuple[Accuracy, Accuracy]:
    return (lambda h, T: 1 - law_error(h, T), lambda h, T: (0.52 - 0.004 * abs(h - 2)) * (8 / T) ** 0.6)


def cifar_runs(**options: Any) -> list[Run]:
    """A run on CIFAR-10 whose training accuracy saturates, and whose validation accuracy peaks at ten heads."""
    return real_runs(
        "cifar",
        lambda h, T: 1 - 0.6 * math.exp(-h / 4) * (T / 65) ** 0.05,
        lambda h, T: 0.7 - 0.004 * abs(h - 10) - 0.04 * math.log(T / 65),
        **{"lengths": tuple(SIDES), "heads": CIFAR_HEADS, **options},
    )
