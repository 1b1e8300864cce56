"""The evidence of the advisor: from trials to the errors, levels and noise floor that the one rule reads.

Errors are validation errors at each trial's best point, in units of the variance of y, on one common validation set.
The rule itself is in `analysis/heads_needed.py` (7 there). This module hands it:

1. *Noise floor.* The best trial's validation error v lies above the floor and its training error t below it; √(v·t) is
   between the two. The amount by which trials of head counts that do about as well exceed the best is luck of training,
   not noise, so the floor is √(v·t) less `LUCK_FACTOR` times that, and never below 0.
2. *Level* of h: log10 of the best seed's excess over the floor, in units of the excess of a constant. Without noise
   the floor is nearly 0 and levels are those of the errors themselves. For classes the level is multiplied by
   `CLASS_LEVEL_FACTOR`: only samples near a boundary are wrong, and their share grows like the root of a squared error.
3. *Draws*: the same on bootstrap draws over the seeds of a head count and over the validation sequences (the same for
   all models, so differences are paired); the rule draws its constants itself. Of n sequences a draw takes n divided by
   the inflation of `split.py`, since their errors depend on each other; so the level of the interval is nominal.
   Trials that the deadline cut off decide nothing.
4. *Cause*: if nothing beats a constant, y is noise, or training failed, or the models memorised. Training failed if
   the training error is large too and seeds scatter, or if longer training does better; and, however good the best, if
   the middle trial of its head count explains less than `LOTTERY_FRACTION` of what it does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special  # scipy.stats, which has the same, takes a second to load

from headcount.advisor.trials import Outcome
from headcount.analysis import POOR_ERROR, Cause, Evidence, HeadsNeeded, needed_above_floor
from headcount.core import generator

Floats = NDArray[np.float64]
BOOTSTRAP_DRAWS = 1000
LUCK_FACTOR = 3.0
"""The floor lies this many typical spreads of equally good trials below √(v·t)."""
SIMILAR_ERROR_RATIO = 1.5
"""A head count does about as well as the best if its best trial is within this factor of the best of all."""
MAX_FLOOR_FRACTION = 0.95
"""The floor is at most this fraction of the best error: finer differences are luck, even if trials agree."""
FAILED_TRAINING_RATIO = 1.2
"""If the best error is large, training failed if the middle trial of the best head count is above the best one by
this factor, or if a trial that was trained longer is better by it."""
CLASS_LEVEL_FACTOR = 2.0
"""Factor on the levels of classes."""
LOTTERY_FRACTION = 0.5
"""If the middle trial of the best head count explains less than this fraction of what the best one does, training is a
lottery, however good the best …"""
MIN_LOTTERY_GAIN = 0.1
"""… provided that the best explains at least this share of the variance."""
LEARNED_TRAIN_ERROR = 0.5
"""If nothing carries over to the validation part, a training error below this means memorisation …"""
MEMORISED_RATIO = 0.25
"""… and so does one below this fraction of a validation error …"""
LARGE_ERROR = 0.1
"""… that is above this."""


@dataclass(frozen=True)
class TrialsByHeads:
    """The trials of one curve, by head count."""

    heads: tuple[int, ...]
    trials: tuple[tuple[Outcome, ...], ...]

    @classmethod
    def of(cls, found: Sequence[Outcome]) -> TrialsByHeads:
        """Return the trials sorted by head count; those cut off count only if no other has the same head count."""
        heads = tuple(sorted({trial.heads for trial in found}))
        rows = [[trial for trial in found if trial.heads == h] for h in heads]
        return cls(heads, tuple(tuple([trial for trial in row if trial.completed] or row) for row in rows))

    def best(self, index: int) -> Outcome:
        """Return the best trial of a head count."""
        return min(self.trials[index], key=lambda trial: trial.validation)

    def same_recipe(self, index: int) -> list[Outcome]:
        """Return the trials of a head count with the sizes and training of its best one; all, if that one is alone."""
        best, row = self.best(index), self.trials[index]
        row = sorted(row, key=lambda trial: trial.wanted.seed)
        own = [
            trial for trial in row if (trial.model.hidden, trial.wanted.train) == (best.model.hidden, best.wanted.train)
        ]
        return own if len(own) > 1 else list(row)

    @property
    def champion(self) -> Outcome:
        """The best trial of all."""
        return min((trial for row in self.trials for trial in row), key=lambda trial: trial.validation)


def noise_floor(table: TrialsByHeads) -> tuple[float, float]:
    """Return the noise floor, and the spread among trials that do about as well as the best."""
    best = table.champion
    typical = [
        float(np.median([trial.validation for trial in row])) - best.validation
        for i, row in enumerate(table.trials)
        if table.best(i).validation <= SIMILAR_ERROR_RATIO * best.validation
    ]
    several = max(map(len, table.trials)) > 1  # differences between single trials say little
    spread = float(np.median(typical) if several else max(typical)) if len(typical) > 1 else 0.5 * best.validation
    middle = float(np.sqrt(best.validation * min(best.train, MAX_FLOOR_FRACTION**2 * best.validation)))
    return max(0.0, middle - LUCK_FACTOR * spread), spread


def drawn_errors(
    table: TrialsByHeads, draws: int, seed: int, *, inflation: float = 1.0, folded: bool = False
) -> Floats:
    """Return [draw, head count]: the error of the best of the drawn seeds on the drawn samples; row 0 is the data.

    Seeds are drawn among trials of the same recipe: a challenge that one head count had must not look like luck. In
    folds the better half of the seeds counts, not the best: each is already a mean over several models, and the best of
    a few noisy means is too good.
    """
    rng = generator(seed, "advice bootstrap")
    # one draw of seeds for all head counts, as for the sequences: seeds share folds and batches
    lots = rng.random((draws + 1, max(map(len, table.trials))))
    samples = len(table.trials[0][0].squares)
    taken = max(2, round(samples / inflation))
    weights = rng.multinomial(taken, np.full(samples, 1 / samples), draws) / taken
    weights = np.concatenate([np.full((1, samples), 1 / samples), weights])
    found = np.empty((draws + 1, len(table.heads)))
    for i, row in enumerate(map(table.same_recipe, range(len(table.heads)))):
        errors = weights @ np.stack([trial.squares for trial in row]).T.astype(np.float64)
        chosen = (lots[:, : len(row)] * len(row)).astype(np.int64)
        chosen[0] = np.arange(len(row))
        ranked = np.sort(np.take_along_axis(errors, chosen, 1), 1)
        found[:, i] = ranked[:, : (len(row) + 1) // 2 if folded else 1].mean(1)
    return found


def levels_of(errors: Floats, floor: float) -> Floats:
    """Return log10 of the excess over the floor, in units of a constant's excess; the floor follows the draws."""
    share = errors.min(1, keepdims=True) / errors[0].min()
    excess = np.maximum(errors - floor * share, 1e-12)
    return np.log10(excess / np.maximum(1.0 - floor, 1e-6))


def decide(
    found: Sequence[Outcome],
    *,
    heads_max: int,
    confidence: float = 0.95,
    seed: int = 0,
    draws: int = BOOTSTRAP_DRAWS,
    inflation: float = 1.0,
    folded: bool = False,
) -> HeadsNeeded:
    """Apply the rule to all trials of the curve at fixed head size; those that were cut off decide nothing.

    heads_max: the largest head count allowed. draws: of the bootstrap. inflation, folded: how the sequences were split
    (`split.py`).
    """
    completed = [trial for trial in found if trial.completed]
    compared = len({trial.heads for trial in completed}) > 1 and min(trial.heads for trial in completed) == 1
    table = TrialsByHeads.of(completed if compared else found)
    floor, spread = noise_floor(table)
    errors = drawn_errors(table, draws, seed, inflation=inflation, folded=folded)
    fitted = min(_fitted(trial) for row in table.trials for trial in row)
    evidence = Evidence(
        heads=list(table.heads),
        trials=[np.array([trial.validation for trial in row]) for row in table.trials],
        models=[
            np.array([e for trial in row for e in (trial.fold_errors or (trial.validation,))]) for row in table.trials
        ],
        errors=errors,
        levels=levels_of(errors, floor) * (1.0 if table.champion.wrong is None else CLASS_LEVEL_FACTOR),
        floor=floor,
        spread=spread,
        gain_chance=_gain_chance(table.champion, inflation),
        sequences=len(table.champion.squares),
        cause=_cause(table),
        unlearned="by-heart" if fitted < LEARNED_TRAIN_ERROR else "unlearned",
        compared=compared,
    )
    return needed_above_floor(evidence, heads_max=heads_max, confidence=confidence, seed=seed)


def _fitted(trial: Outcome) -> float:
    """Return the smaller of the two training errors of a trial."""
    return float(np.fmin(trial.train, trial.fitted))


def _cause(table: TrialsByHeads) -> Cause:
    """Return why the best error is large, if it is: memorisation, or failed training by luck or for lack of time."""
    best = table.champion
    if best.validation > LARGE_ERROR and _fitted(best) < MEMORISED_RATIO * best.validation:
        return "by-heart"
    row = table.trials[table.heads.index(best.heads)]
    same_recipe = [trial.validation for trial in row if trial.wanted.train.steps == best.wanted.train.steps]
    typical = float(np.median(same_recipe) if len(same_recipe) > 2 else max(same_recipe))
    if (
        len(row) > 2
        and 1 - typical < LOTTERY_FRACTION * (1 - best.validation)
        and best.validation < 1 - MIN_LOTTERY_GAIN
    ):
        return "lottery"
    sooner = min((trial.validation for trial in row if trial.wanted.train.steps < best.wanted.train.steps), default=0.0)
    if 1 - sooner < LOTTERY_FRACTION * (1 - best.validation) and best.validation < 1 - MIN_LOTTERY_GAIN:
        return "patience"
    if best.validation <= POOR_ERROR:
        return ""
    if sooner > FAILED_TRAINING_RATIO * best.validation:
        return "patience"
    return "scatter" if typical > FAILED_TRAINING_RATIO * best.validation else ""


def one_sided(difference: Floats, inflation: float = 1.0) -> float:
    """Return the chance of a mean this large if the true one is 0 or less (paired t-test, corrected variance)."""
    spread = float(difference.std(ddof=1)) * inflation**0.5
    if spread == 0.0:
        return 0.0 if difference[0] > 0 else 1.0
    return float(special.stdtr(len(difference) - 1, -float(difference.mean()) * len(difference) ** 0.5 / spread))


def _gain_chance(best: Outcome, inflation: float) -> float:
    """Return the chance of the best trial's gain over a constant on these samples if there is no true gain."""
    return one_sided(1.0 - best.squares.astype(np.float64), inflation)
