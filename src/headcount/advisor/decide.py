"""The evidence of the advisor: from trials to the errors, levels and noise floor that the one rule reads.

Errors are validation errors at each trial's best point, in units of the variance of y, on one common validation set.
The rule itself is `analysis/heads_needed.py` (7 there); what it is handed:

1. *Noise floor.* The best trial's validation error v lies above the floor, its training error t below it: √(v·t) is
   between the two. By what the trials of head counts that do about as well lie above the best is luck of training,
   not noise, so the floor is √(v·t) less `LUCK` times that, and never below 0.
2. *Level* of h: log10 of the best seed's excess over the floor, in units of the excess of a constant. Without noise
   the floor is nearly 0 and levels are those of the errors themselves. Of classes the level counts `CLASSES` times:
   only samples near a boundary are wrong, and their share goes with the root of a squared error.
3. *Draws*: everything again on draws of the bootstrap, over seeds within a head count and over the sequences that
   validate (the same for all models: differences are paired); the rule draws its constants itself. Of n sequences a
   draw takes n over the inflation of `advisor_split.py`, since their errors depend on each other; so the level of the
   interval is nominal. Trials that the deadline cut off decide nothing.
4. *Cause*: nothing better than a constant is noise, or training that fails or learns by heart. Training failed where
   the training error is large too and seeds scatter, or longer training does better; and, however good the best, where
   the middle trial of its head count explains less than `LOTTERY` of what it does.
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
DRAWS = 1000
LUCK = 3.0
NEAR = 1.5
"""A head count whose best trial is within this factor of the best of all does about as well."""
CLOSEST = 0.95
"""The floor is at most this share of the best error: finer differences are luck, even where trials agree."""
SCATTERED = 1.2
"""… and where the middle trial of the best head count lies above the best one by this factor, training failed, and
likewise where a trial that was trained longer is better by it."""
CLASSES = 2.0
LOTTERY = 0.5
"""Where the middle trial of the best head count explains less than this share of what the best one does, training is
a lottery, however good the best …"""
PRIZE = 0.1
"""… if that explains so much at least."""
LEARNED = 0.5
"""While nothing holds on the validation part, a training error below this is learned by heart …"""
BY_HEART = 0.25
"""… and so is one below this share of a validation error …"""
LARGE = 0.1
"""… above this."""


@dataclass(frozen=True)
class Table:
    """The trials of one curve: head counts, and for each its trials."""

    heads: tuple[int, ...]
    trials: tuple[tuple[Outcome, ...], ...]

    @classmethod
    def of(cls, found: Sequence[Outcome]) -> Table:
        """Sort trials by head count; those that were cut off count where no other has the same head count."""
        heads = tuple(sorted({one.heads for one in found}))
        rows = [[one for one in found if one.heads == h] for h in heads]
        return cls(heads, tuple(tuple([one for one in row if one.whole] or row) for row in rows))

    def best(self, index: int) -> Outcome:
        """The best trial of a head count."""
        return min(self.trials[index], key=lambda one: one.validation)

    def alike(self, index: int) -> list[Outcome]:
        """The trials of a head count with the sizes and the training of its best one; all where that is alone."""
        best, row = self.best(index), self.trials[index]
        row = sorted(row, key=lambda one: one.wanted.seed)
        own = [one for one in row if (one.model.hidden, one.wanted.train) == (best.model.hidden, best.wanted.train)]
        return own if len(own) > 1 else list(row)

    @property
    def champion(self) -> Outcome:
        """The best trial of all."""
        return min((one for row in self.trials for one in row), key=lambda one: one.validation)


def noise_floor(table: Table) -> tuple[float, float]:
    """Return the noise floor and the spread of trials that do about as well as the best."""
    best = table.champion
    typical = [
        float(np.median([one.validation for one in row])) - best.validation
        for i, row in enumerate(table.trials)
        if table.best(i).validation <= NEAR * best.validation
    ]
    several = max(map(len, table.trials)) > 1  # of single trials the differences say little
    spread = float(np.median(typical) if several else max(typical)) if len(typical) > 1 else 0.5 * best.validation
    middle = float(np.sqrt(best.validation * min(best.train, CLOSEST**2 * best.validation)))
    return max(0.0, middle - LUCK * spread), spread


def drawn_errors(table: Table, draws: int, seed: int, *, inflation: float = 1.0, folded: bool = False) -> Floats:
    """Return [draw, head count]: the error of the best of the drawn seeds on the drawn samples; row 0 is the data.

    Seeds are drawn among trials alike: a challenge that one head count had must not look like luck. In folds the
    better half of the seeds counts, not the best: each is a mean over several models already, and the best of a few
    noisy means is too good.
    """
    rng = generator(seed, "advice bootstrap")
    # one draw of seeds for all head counts, as of the sequences: seeds share folds and batches
    lots = rng.random((draws + 1, max(map(len, table.trials))))
    samples = len(table.trials[0][0].squares)
    taken = max(2, round(samples / inflation))
    weights = rng.multinomial(taken, np.full(samples, 1 / samples), draws) / taken
    weights = np.concatenate([np.full((1, samples), 1 / samples), weights])
    found = np.empty((draws + 1, len(table.heads)))
    for i, row in enumerate(map(table.alike, range(len(table.heads)))):
        errors = weights @ np.stack([one.squares for one in row]).T.astype(np.float64)
        chosen = (lots[:, : len(row)] * len(row)).astype(np.int64)
        chosen[0] = np.arange(len(row))
        ranked = np.sort(np.take_along_axis(errors, chosen, 1), 1)
        found[:, i] = ranked[:, : (len(row) + 1) // 2 if folded else 1].mean(1)
    return found


def levels_of(errors: Floats, floor: float) -> Floats:
    """Return log10 of the excess over the floor, in units of a constant's; the floor moves with the drawn samples."""
    share = errors.min(1, keepdims=True) / errors[0].min()
    excess = np.maximum(errors - floor * share, 1e-12)
    return np.log10(excess / np.maximum(1.0 - floor, 1e-6))


def decide(
    found: Sequence[Outcome],
    *,
    heads_max: int,
    confidence: float = 0.95,
    seed: int = 0,
    draws: int = DRAWS,
    inflation: float = 1.0,
    folded: bool = False,
) -> HeadsNeeded:
    """Apply the rule to all trials of the curve at fixed head size; those that were cut off decide nothing.

    `inflation` and `folded` say how the sequences were split (`advisor_split.py`).
    """
    whole = [one for one in found if one.whole]
    compared = len({one.heads for one in whole}) > 1 and min(one.heads for one in whole) == 1
    table = Table.of(whole if compared else found)
    floor, spread = noise_floor(table)
    errors = drawn_errors(table, draws, seed, inflation=inflation, folded=folded)
    fitted = min(_fitted(one) for row in table.trials for one in row)
    evidence = Evidence(
        heads=list(table.heads),
        trials=[np.array([one.validation for one in row]) for row in table.trials],
        models=[np.array([e for one in row for e in (one.fold_errors or (one.validation,))]) for row in table.trials],
        errors=errors,
        levels=levels_of(errors, floor) * (1.0 if table.champion.wrong is None else CLASSES),
        floor=floor,
        spread=spread,
        gain_chance=_gain(table.champion, inflation),
        sequences=len(table.champion.squares),
        cause=_cause(table),
        unlearned="by-heart" if fitted < LEARNED else "unlearned",
        compared=compared,
    )
    return needed_above_floor(evidence, heads_max=heads_max, confidence=confidence, seed=seed)


def _fitted(one: Outcome) -> float:
    """Return the smallest training error that is known of a trial."""
    return float(np.fmin(one.train, one.fitted))


def _cause(table: Table) -> Cause:
    """Say why the best error is large, where it is: learned by heart, or not learned by luck or for lack of time."""
    best = table.champion
    if best.validation > LARGE and _fitted(best) < BY_HEART * best.validation:
        return "by-heart"
    row = table.trials[table.heads.index(best.heads)]
    alike = [one.validation for one in row if one.wanted.train.steps == best.wanted.train.steps]
    typical = float(np.median(alike) if len(alike) > 2 else max(alike))
    if len(row) > 2 and 1 - typical < LOTTERY * (1 - best.validation) and best.validation < 1 - PRIZE:
        return "lottery"
    sooner = min((one.validation for one in row if one.wanted.train.steps < best.wanted.train.steps), default=0.0)
    if 1 - sooner < LOTTERY * (1 - best.validation) and best.validation < 1 - PRIZE:
        return "patience"
    if best.validation <= POOR_ERROR:
        return ""
    if sooner > SCATTERED * best.validation:
        return "patience"
    return "scatter" if typical > SCATTERED * best.validation else ""


def one_sided(difference: Floats, inflation: float = 1.0) -> float:
    """Return the chance of so large a mean, were the true one 0 or less (paired t-test, corrected variance)."""
    spread = float(difference.std(ddof=1)) * inflation**0.5
    if spread == 0.0:
        return 0.0 if difference[0] > 0 else 1.0
    return float(special.stdtr(len(difference) - 1, -float(difference.mean()) * len(difference) ** 0.5 / spread))


def _gain(best: Outcome, inflation: float) -> float:
    """Return the chance of the best trial's gain over a constant on these samples, were there none."""
    return one_sided(1.0 - best.squares.astype(np.float64), inflation)
