"""The adaptive sweep: doubling heads, bisection, and more seeds where the answer hangs on them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from headcount.advisor.data import encoded
from headcount.advisor.decide import decide
from headcount.advisor.engine import BATCH, EVALUATIONS, TrialEngine
from headcount.advisor.record import Challenge
from headcount.advisor.trials import Outcome, Wanted
from headcount.analysis import POOR_ERROR, HeadsNeeded
from headcount.models.transformer import Positions
from headcount.sweeps import ModelOptions
from headcount.tasks.arrays import Codes, category_codes
from headcount.training import TrainSpec

RATE = 1e-2
HIDDEN = 32
FIRST = (1, 2, 4, 8)
GPU_FIRST = (1, 2, 3, 4, 5, 6, 7, 8, 16)
"""A GPU trains all of these in the time of one."""
GPU_BATCH = 256
SEEDS = 2
MORE = 3
"""Seeds of the head counts on which the answer hangs …"""
MAX_SEEDS, MAX_MORE_SEEDS = 6, 3.0
"""… how many they may get while it is uncertain, and how many times more with a larger budget, at most."""
ATTEMPTS = 3
"""Trials that a head count may get for every seed that it may have, those that diverge among them."""
OPEN = ("not-reached", "failed", "unclear", "too-few")
"""Verdicts that settle nothing."""
TRIALS = 30
"""About as many trials as a search takes: what the budget is divided by."""
RISING = 0.3
"""Decades that the largest head count gains: then a larger one is tried as well."""
MIN_TRIALS, ENOUGH_STEPS = 14, 4000
MIN_STEPS, MAX_STEPS = 400, 10_000
FOLD_STEPS = 2000
"""Steps of a model in folds, at most: hundreds of sequences are soon learned by heart."""
STILL = 0.8
"""Of the training: where the best point is later, the error may still fall."""
LONGER = 2
AS_GOOD = 1.02
"""A challenge is passed where the error is at most so many times that of the answer with the usual sizes."""
BETTER_CODE = 0.9
"""Categories replace numbers where the pilot's error is at most so much of it."""
USUAL = 5
"""The head count of an average trial."""
PILOT_STEPS = 2000
USUAL_BUDGET, MAX_PATIENCE = 300.0, 10.0
"""Seconds; and how many times longer the trials of a GPU become at most with a larger budget, in proportion."""
SHARE = 0.8
"""Of the budget that the search itself may use; the rest is for prices."""


@dataclass
class Search:
    """One search: its engine, its recipe, and all trials so far."""

    engine: TrialEngine
    heads_max: int
    confidence: float
    seed: int
    budget: float
    steps: int | None = None
    note: Callable[[str], None] = lambda _: None
    found: list[Outcome] = field(default_factory=list[Outcome])
    pilots: list[Outcome] = field(default_factory=list[Outcome])
    options: ModelOptions = field(default_factory=ModelOptions)
    train: TrainSpec = field(default_factory=TrainSpec)
    lengthened: int = 0
    """How often all head counts were trained twice as long."""
    challenges: dict[int, Challenge] = field(default_factory=dict[int, Challenge])
    """What twice the hidden units and twice the training brought, by head count."""
    aside: list[Outcome] = field(default_factory=list[Outcome])
    """Trials of other sizes than those that are compared: challenges, or what came before one was passed."""
    passed: Challenge | None = None
    """The challenge after which all head counts were trained at larger sizes."""
    limited: bool = False
    """Whether a challenge was passed and there was no time, or no further size, to compare all head counts again."""
    settled: bool = False
    tried_codes: Codes | None = None
    """Columns of whole numbers that were tried as categories, whether or not that was better."""

    def run(self) -> HeadsNeeded | None:
        """Search until the answer is settled or the time is over; None where nothing was trained.

        Where the steps are given there is no deadline: the answer must not depend on how fast the machine is.
        """
        if self.steps is not None:
            self.engine.deadline = float("inf")
        self._plan()
        self._pilot()
        self._ask(dict.fromkeys(self._first(), MORE if self.engine.gpu else SEEDS))
        while self.found:
            decision = self.decision()
            wanted = self._next(decision)
            if wanted and self.engine.left() > 0 and self._ask(wanted):
                continue
            if not wanted and (self._challenge(decision) or self._longer(decision)):
                continue
            decision = self.conclude()
            # an end that is open, failed training, or sizes that limit fewer heads leave something to settle
            self.settled = not wanted and decision.settled and decision.verdict not in OPEN and not self.limited
            return decision
        return None

    @property
    def models(self) -> int:
        """How many trials there were, whatever became of them."""
        return len(self.found) + len(self.pilots) + len(self.aside)

    @property
    def challenged(self) -> list[Challenge]:
        """All challenges that count; the one after which sizes were doubled comes first."""
        made = list(self.challenges.values())
        return made if self.passed is None or self.passed in made else [self.passed, *made]

    @property
    def most_seeds(self) -> int:
        """How many trials a head count may get while the answer hangs on it: more with a budget above the usual one."""
        return round(MAX_SEEDS * min(max(self.budget / USUAL_BUDGET, 1.0), MAX_MORE_SEEDS))

    def conclude(self) -> HeadsNeeded:
        """What the trials so far show; nothing is called too few that had no challenge.

        Where no step is sure, the head count that most draws give is named, not the one of the data as they are.
        """
        decision = self.decision()
        # where fewer heads passed, that more of them failed says nothing against fewer still
        least = min((h for h, challenge in self.challenges.items() if challenge.passed), default=self.heads_max)
        failed = max((h for h, challenge in self.challenges.items() if not challenge.passed and h < least), default=0)
        low = min(decision.least, failed + 1)
        named = decision.estimate
        if decision.verdict == "gentle":
            named = max(
                (h for h in decision.shares if h), key=lambda h: (decision.shares[h], h == named), default=named
            )
        kept = decision.sequences if named == decision.estimate else None
        return decision.model_copy(update={"low": low, "estimate": named, "sequences": kept})

    def decision(self) -> HeadsNeeded:
        """What the trials so far say."""
        splits = self.engine.material.splits
        return decide(
            self.found,
            heads_max=self.heads_max,
            confidence=self.confidence,
            seed=self.seed,
            inflation=splits.inflation,
            folded=splits.folds > 1,
        )

    def _challenge(self, decision: HeadsNeeded) -> bool:
        """Give a head count that is to be called too few twice the hidden units and twice the training.

        While none passes, these larger models count nowhere: head counts are compared at equal sizes. Where one does as
        well as the answer, hidden units or training limited it and not heads: then all head counts are trained at
        the larger sizes, once. True where there is something new.
        """
        below = self._next_challenge(decision)
        if below is None:
            return False
        wide, long = 2 * self.options.hidden, self._recipe(2 * self.train.steps, self.train.batch)
        wider = self.options.model_copy(update={"hidden": wide})
        self.note(f"h = {below}: {wide} hidden units, {long.steps} steps")
        before = [one.validation for one in self.found if one.heads == below and one.whole]
        new = self.engine.train([Wanted(below, self.seed + 100 + s, wider, long) for s in range(SEEDS)])
        whole = [one for one in new if one.whole]
        if not whole:
            return False
        # no worse than the answer with the usual sizes: less would be half a remedy, and heads the other half
        rival = min(one.validation for one in self.found if one.heads == decision.estimate)
        after = min(one.validation for one in whole)
        done = Challenge(
            heads=below,
            hidden=wide,
            steps=long.steps,
            before=min(before, default=None),
            after=after,
            passed=after <= AS_GOOD * rival,
        )
        self.aside += new
        self.challenges[below] = self._explained(done, wider, long) if done.passed else done
        if done.passed:
            self._widen(whole, wider, long)
        return True

    def _widen(self, first: Sequence[Outcome], wider: ModelOptions, long: TrainSpec) -> None:
        """Train all head counts at the larger sizes; where the time is too short, or it was done before, say so."""
        kept = self.found, self.options, self.train, self.challenges
        tried = sorted({one.heads for one in (*self.found, *first)})
        self.limited = self.passed is not None
        if self.limited:
            return
        self.note(f"all head counts with {wider.hidden} hidden units and {long.steps} steps")
        self.passed = self.challenges[first[0].heads]
        self.found, self.options, self.train, self.challenges = list(first), wider, long, {}
        self._ask(dict.fromkeys(tried, MORE if self.engine.gpu else SEEDS))
        if min(self._whole(tried).values()) < SEEDS:
            self.aside += [one for one in self.found if one not in first]
            self.found, self.options, self.train, self.challenges = kept
            self.limited = True
        else:
            self.aside += [one for one in kept[0] if one not in first]

    def _next_challenge(self, decision: HeadsNeeded) -> int | None:
        """Return the head count to be challenged; None where none is called too few, or all were."""
        answer = decision.estimate or 0
        if answer < 2 or decision.verdict not in ("transition", "gentle", "not-reached"):
            return None
        # one head fewer, unless longer training only learns by heart; and what the interval calls too few
        fewer = decision.least - 1 if decision.cause == "by-heart" else answer - 1
        asked = [h for h in (fewer, decision.least - 1) if h > 0 and h not in self.challenges]
        return None if self.limited or not asked else asked[0]

    def _explained(self, done: Challenge, wider: ModelOptions, long: TrainSpec) -> Challenge:
        """Find out which of the two helped: one model with each alone, from the same start."""
        wanted = [
            Wanted(done.heads, self.seed + 100, wider, self.train),
            Wanted(done.heads, self.seed + 100, self.options, long),
        ]
        alone = [self.engine.train([one]) for one in wanted]
        self.aside += [one for some in alone for one in some]
        errors = [some[0].validation if some and some[0].whole else None for some in alone]
        return done.model_copy(update={"hidden_alone": errors[0], "steps_alone": errors[1]})

    def _longer(self, decision: HeadsNeeded) -> bool:
        """Train all head counts twice as long where no step was seen; True where there was time for it."""
        if (
            decision.verdict not in ("gentle", "not-reached", "failed")
            or self.steps is not None
            or self.lengthened >= LONGER
        ):
            return False
        if decision.cause == "by-heart":  # more of the same
            return False
        if self.engine.folds > 1 and not self._still_falls():
            return False
        tried = sorted({one.heads for one in self.found})
        spent = sum(one.seconds for h in tried for one in [next(o for o in self.found if o.heads == h)])
        if 2 * SEEDS * spent > self.engine.left() * (1 if self.engine.gpu else self.engine.workers):
            return False
        self.lengthened += 1
        self.train = self._recipe(2 * self.train.steps, self.train.batch)
        first = self.seed + 200 * self.lengthened
        self.note(f"no step seen: again with {self.train.steps} steps")
        new = self.engine.train([Wanted(h, first + s, self.options, self.train) for h in tried for s in range(SEEDS)])
        self.found += new
        self.challenges = {}
        return bool(new)

    def _still_falls(self) -> bool:
        """Whether the best model was best near the end of its training."""
        best = min(self.found, key=lambda one: one.validation)
        return min(best.curve, key=lambda point: point[1])[0] > STILL * best.curve[-1][0]

    def _first(self) -> tuple[int, ...]:
        first = GPU_FIRST if self.engine.gpu else FIRST
        return tuple(h for h in first if h <= self.heads_max)

    def _plan(self) -> None:
        """Choose the sizes, and from the measured time of a step how many steps a trial may take."""
        material = self.engine.material
        # T·d > n·h where it can be had: otherwise one layer may copy the whole sequence
        head_dim = 4 if material.task.length * material.task.dim > 4 * FIRST[-1] else 2
        self.options = ModelOptions(head_dim=head_dim, hidden=HIDDEN)
        batch = min(GPU_BATCH if self.engine.gpu else BATCH, material.train_size)
        self.train = self._recipe(MAX_STEPS, batch)
        if self.steps is not None or self.engine.gpu:
            # a GPU is quick enough for the usual budget, whatever it is; who gives more time wants longer training
            patience = min(max(self.budget / USUAL_BUDGET, 1.0), MAX_PATIENCE)
            usual = ENOUGH_STEPS if self.engine.folds == 1 else FOLD_STEPS
            self.train = self._recipe(self.steps or int(patience * usual), batch)
            return
        self._spread_out(self.engine.step_seconds(self.options, USUAL, self.train))

    def _spread_out(self, each: float) -> None:
        """Divide the time that is left among trials, given the seconds of a step."""
        total = max(self.engine.left(), 0.0) * self.engine.workers / self.engine.folds
        # trained too little, enough heads look like too few: rather fewer trials than short ones
        steps = max(total / (TRIALS * each), min(ENOUGH_STEPS, total / (MIN_TRIALS * each)))
        folds = self.engine.folds > 1
        least, most = (FOLD_STEPS // 10, FOLD_STEPS) if folds else (MIN_STEPS, MAX_STEPS)
        self.train = self._recipe(int(max(least, min(most, steps))), self.train.batch)

    def _recipe(self, steps: int, batch: int) -> TrainSpec:
        return TrainSpec(
            steps=steps,
            warmup=min(200, steps // 10),
            learning_rate=RATE,
            evaluations=min(EVALUATIONS, steps),
            batch=batch,
            train_size=max(self.engine.material.train_size, 2),
            validation_size=max(self.engine.material.validation_size, 2),
        )

    def _pilot(self) -> None:
        """Do positions matter? The same model with and without them, on a part of the steps."""
        heads = min(4, self.heads_max)
        train = self._recipe(max(1, min(self.train.steps // 2, PILOT_STEPS)), self.train.batch)

        def score(kind: Positions) -> float:
            """The error of a pilot."""
            found = [one.validation for one in self.pilots if one.model.positions == kind]
            return min(found, default=float("inf"))

        def run(kinds: Sequence[Positions]) -> None:
            many = [self.options.model_copy(update={"positions": kind}) for kind in kinds]
            self.pilots += self.engine.try_out([Wanted(heads, self.seed, one, train, "pilot") for one in many])

        run(["none", "concatenated"])
        # a model that knows positions can always do without them: it must be better, not as good
        chosen: Positions = "concatenated" if score("concatenated") < 0.9 * score("none") else "none"
        if chosen == "concatenated" and score(chosen) > POOR_ERROR:
            # positions in the encoder can learn more, but also learn by heart: where they fail, positions in the scores
            run(["gates"])
            chosen = "gates" if score("gates") < 0.85 * score(chosen) else chosen
        self.options = self.options.model_copy(update={"positions": chosen})
        self._try_categories(score(chosen), train)
        if self.pilots and self.steps is None and not self.engine.gpu:
            # others may use the cores: what did a step really take?
            slow = max(one.seconds / max(one.steps, 1) for one in self.pilots)
            self._spread_out(slow * (1 + USUAL) / (1 + heads))
        self.note(f"positions: {chosen}")

    def _try_categories(self, error: float, train: TrainSpec) -> None:
        """Take whole numbers with few values for categories, one-hot, where the pilot then does better."""
        material = self.engine.material
        codes = None if material.categories else category_codes(material.task.X, material.task.mask)
        if codes is None:
            return
        self.engine.use(encoded(material, codes))
        heads = min(4, self.heads_max)
        tried = self.engine.try_out([Wanted(heads, self.seed, self.options, train, "pilot")])
        self.pilots += tried
        better = bool(tried) and tried[0].validation < BETTER_CODE * error
        self.tried_codes = codes
        if not better:
            self.engine.use(material)
        self.note("whole numbers as categories" if better else "whole numbers as amounts")

    def _ask(self, seeds: dict[int, int]) -> bool:
        """Train the seeds that are missing; False where nothing came of it.

        A trial that was cut off, or diverged, does not count, and another seed takes its place.
        """
        tried = {h: sum(one.heads == h for one in self.found) for h in seeds}
        whole = self._whole(seeds)
        wanted = [
            Wanted(h, self.seed + s, self.options, self.train)
            for h, count in seeds.items()
            for s in range(tried[h], min(tried[h] + count - whole[h], ATTEMPTS * self.most_seeds))
        ]
        new = self.engine.train(wanted)
        self.found += new
        for h in sorted({one.heads for one in new}):
            best = min(one.validation for one in self.found if one.heads == h)
            self.note(f"h = {h}: error {best:.2e}")
        return bool(new)

    def _whole(self, heads: Iterable[int]) -> dict[int, int]:
        """Count the trials that decide, by head count."""
        return {h: sum(one.heads == h and one.whole for one in self.found) for h in heads}

    def _next(self, decision: HeadsNeeded) -> dict[int, int]:
        """What to train next, as seeds by head count; nothing when the answer is settled."""
        tried = sorted(decision.rest)
        count = self._whole(tried)
        if decision.estimate is None and decision.verdict != "not-reached":
            return {h: MORE for h in tried if count[h] < MORE}
        bigger = min(2 * tried[-1], self.heads_max)
        if decision.verdict == "not-reached":
            if tried[-1] - tried[-2] > 1:  # the fall may end before the largest, which would then confirm it
                return {(tried[-1] + tried[-2]) // 2: SEEDS}
            return self._short(count, tried[-2:], MORE)
        answer = decision.estimate
        assert answer is not None
        open_end = decision.verdict in ("gentle", "failed") and decision.high is None and decision.cause != "by-heart"
        if open_end and bigger > tried[-1] and min(one.validation for one in self.found if one.whole) > POOR_ERROR:
            return {bigger: SEEDS}  # nothing is learned well yet, and more heads are easier to train
        index = tried.index(answer)
        below = tried[index - 1] if index else 0
        if answer - below > 1:
            return {(answer + below) // 2: SEEDS}
        if bigger > tried[-1] and (index == len(tried) - 1 or decision.rest[tried[-2]] > RISING):
            return {bigger: SEEDS}  # an answer needs a larger head count that confirms it
        if answer < self.heads_max and answer + 1 not in tried:
            return {answer + 1: SEEDS}  # the price of one head more, and the nearest confirmation
        decisive = [h for h in (below, answer, tried[min(index + 1, len(tried) - 1)]) if h]
        short = self._short(count, decisive, MORE)
        if short or decision.settled:
            return short
        return self._short(count, decisive, min(self.most_seeds, min(count[h] for h in decisive) + 1))

    @staticmethod
    def _short(count: dict[int, int], heads: Sequence[int], least: int) -> dict[int, int]:
        """Those of the head counts that have fewer seeds than they should."""
        return {h: least for h in heads if count[h] < least}
