"""Data and made-up trials for the tests of the advisor."""

from __future__ import annotations

import numpy as np
import torch

from headcount.advisor.trials import Outcome, Wanted
from headcount.sweeps.spec import ModelOptions
from headcount.tasks.families import make_task
from headcount.training.spec import TrainSpec


def arrays(family: str = "sum-of-maxima", samples: int = 1500, noise: float = 0.0, **options):
    """X and y of a family's task, with noise in units of the deviation of y."""
    task = make_task(family, **options)
    X = task.sample(samples, 0, dtype=torch.float64)
    y = task.value(X)[:, 0].numpy()
    return X.numpy(), y + noise * y.std() * np.random.default_rng(0).standard_normal(samples)


def made_up(
    errors: dict[int, list[float]],
    floor: float = 0.0,
    *,
    train: float = 0.9,
    samples: int = 2000,
    classes: bool = False,
) -> list[Outcome]:
    """Trials with given excesses over a noise floor, on one common validation set.

    A sample's squared error is (noise + error of the model)²; `train` is the training error over the validation one.
    """
    rng = np.random.default_rng(7)
    noise = rng.standard_normal(samples) * np.sqrt(floor)
    wanted = ModelOptions(), TrainSpec()
    found: list[Outcome] = []
    for heads, excesses in errors.items():
        for seed, excess in enumerate(excesses):
            wrong = rng.standard_normal(samples)
            wrong = (wrong - wrong.mean()) / wrong.std() * np.sqrt(excess)
            squares = np.square(noise + wrong).astype(np.float32)
            value = float(squares.mean())
            model = ModelOptions().model(heads=heads, dim=2, length=8, out_dim=1)
            found.append(
                Outcome(
                    Wanted(heads, seed, *wanted),
                    model,
                    np.zeros(1),
                    [(1, value)],
                    1,
                    True,
                    1.0,
                    value,
                    value * train,
                    squares,
                    0.1 if classes else None,
                    100 * heads,
                )
            )
    return found
