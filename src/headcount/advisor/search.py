"""The adaptive search: doubling head counts, bisection, and more seeds where they decide the answer."""

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

LEARNING_RATE = 1e-2
HIDDEN_UNITS = 32
FIRST_HEADS = (1, 2, 4, 8)
GPU_FIRST_HEADS = (1, 2, 3, 4, 5, 6, 7, 8, 16)
"""A GPU trains all of these in the time that one takes."""
GPU_BATCH = 256
MIN_SEEDS = 2
DECISIVE_SEEDS = 3
"""Seeds of the head counts that decide the answer …"""
MAX_SEEDS, MAX_SEEDS_FACTOR = 6, 3.0
"""… how many they may get while it is uncertain, and the largest factor on that with a larger budget."""
ATTEMPTS_PER_SEED = 3
"""Trials that a head count may get for every seed that it may have, including those that diverge."""
OPEN_VERDICTS = ("not-reached", "failed", "unclear", "too-few")
"""Verdicts that do not settle the answer."""
TYPICAL_TRIALS = 30
"""About as many trials as a search takes: the budget is divided by this."""
MIN_GAIN_DECADES = 0.3
"""If the largest head count gains more decades than this, a larger one is tried too."""
MIN_TRIALS, ENOUGH_STEPS = 14, 4000
MIN_STEPS, MAX_STEPS = 400, 10_000
MAX_FOLD_STEPS = 2000
"""Largest number of steps in folds: hundreds of sequences are soon memorised."""
LATE_BEST_FRACTION = 0.8
"""If the best point lies beyond this fraction of the training, the error may still fall."""
MAX_EXTENSIONS = 2
"""How often all head counts may be trained twice as long."""
CHALLENGE_PASS_RATIO = 1.02
"""A challenge is passed if the error is at most this many times that of the answer with the usual sizes."""
CATEGORY_PASS_RATIO = 0.9
"""Categories replace amounts if they bring the pilot's error below this fraction of it."""
TYPICAL_HEADS = 5
"""The head count of an average trial."""
PILOT_STEPS = 2000
USUAL_BUDGET = 300.0
"""Seconds."""
MAX_STEPS_FACTOR = 10.0
"""A larger budget makes the trials on a GPU longer in proportion, up to this factor."""
SEARCH_FRACTION = 0.8
"""Fraction of the budget for the search itself; the rest is for prices."""


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
    """How often all head counts have been trained twice as long."""
    challenges: dict[int, Challenge] = field(default_factory=dict[int, Challenge])
    """The effect of twice the hidden units and twice the training, by head count."""
    set_aside: list[Outcome] = field(default_factory=list[Outcome])
    """Trials of other sizes than the ones compared: challenges, or earlier trials before one was passed."""
    passed: Challenge | None = None
    """The challenge after which all head counts were trained at larger sizes."""
    limited: bool = False
    """Whether a challenge was passed without time, or a further size, to compare all head counts again."""
    settled: bool = False
    tried_codes: Codes | None = None
    """Columns of whole numbers that were tried as categories, whether or not that was better."""

    def run(self) -> HeadsNeeded | None:
        """Search until the answer is settled or the time is over; return None if nothing was trained.

        If the steps are given there is no deadline: the answer must not depend on the speed of the machine.
        """
        if self.steps is not None:
            self.engine.deadline = float("inf")
        self._choose_sizes()
        self._pilot()
        self._train_missing(dict.fromkeys(self._first_heads(), DECISIVE_SEEDS if self.engine.gpu else MIN_SEEDS))
        while self.found:
            decision = self.decision()
            wanted = self._next(decision)
            if wanted and self.engine.left() > 0 and self._train_missing(wanted):
                continue
            if not wanted and (self._challenge(decision) or self._train_longer(decision)):
                continue
            decision = self.conclude()
            # an open end, failed training, or sizes that limit fewer heads leave the answer unsettled
            self.settled = (
                not wanted and decision.settled and decision.verdict not in OPEN_VERDICTS and not self.limited
            )
            return decision
        return None

    @property
    def models(self) -> int:
        """The number of trials so far, whatever their outcome."""
        return len(self.found) + len(self.pilots) + len(self.set_aside)

    @property
    def challenged(self) -> list[Challenge]:
        """All challenges that count, the one that doubled the sizes first."""
        made = list(self.challenges.values())
        return made if self.passed is None or self.passed in made else [self.passed, *made]

    @property
    def max_seeds(self) -> int:
        """How many trials a head count that decides the answer may get: more with a budget above the usual one."""
        return round(MAX_SEEDS * min(max(self.budget / USUAL_BUDGET, 1.0), MAX_SEEDS_FACTOR))

    def conclude(self) -> HeadsNeeded:
        """Return what the trials so far show; no head count without a challenge is called too few.

        If no step is certain, the answer is the head count that most draws give, not the one read off the data.
        """
        decision = self.decision()
        # if fewer heads passed a challenge, a failure with more heads says nothing against fewer still
        least = min((h for h, challenge in self.challenges.items() if challenge.passed), default=self.heads_max)
        failed = max((h for h, challenge in self.challenges.items() if not challenge.passed and h < least), default=0)
        low = min(decision.least, failed + 1)
        named = decision.estimate
        if decision.verdict == "gentle":
            named = max(
                (h for h in decision.shares if h), key=lambda h: (decision.shares[h], h == named), default=named
            )
        sequences = decision.sequences if named == decision.estimate else None
        return decision.model_copy(update={"low": low, "estimate": named, "sequences": sequences})

    def decision(self) -> HeadsNeeded:
        """Return what the rule makes of the trials so far."""
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
        """Give a head count that would be called too few twice the hidden units and twice the training.

        Unless one passes, these larger models do not count: head counts are compared at equal sizes. If one does as
        well as the answer, hidden units or training limited it, not heads: then all head counts are trained once at
        the larger sizes. Return whether there is anything new.
        """
        below = self._next_challenge(decision)
        if below is None:
            return False
        wide, long = 2 * self.options.hidden, self._recipe(2 * self.train.steps, self.train.batch)
        wider = self.options.model_copy(update={"hidden": wide})
        self.note(f"h = {below}: {wide} hidden units, {long.steps} steps")
        before = [trial.validation for trial in self.found if trial.heads == below and trial.completed]
        new = self.engine.train([Wanted(below, self.seed + 100 + s, wider, long) for s in range(MIN_SEEDS)])
        completed = [trial for trial in new if trial.completed]
        if not completed:
            return False
        # it must do as well as the answer with the usual sizes: a smaller gain would leave part of the gap to heads
        rival = min(trial.validation for trial in self.found if trial.heads == decision.estimate)
        after = min(trial.validation for trial in completed)
        challenge = Challenge(
            heads=below,
            hidden=wide,
            steps=long.steps,
            before=min(before, default=None),
            after=after,
            passed=after <= CHALLENGE_PASS_RATIO * rival,
        )
        self.set_aside += new
        self.challenges[below] = self._with_causes(challenge, wider, long) if challenge.passed else challenge
        if challenge.passed:
            self._train_all_larger(completed, wider, long)
        return True

    def _train_all_larger(self, first: Sequence[Outcome], wider: ModelOptions, long: TrainSpec) -> None:
        """Train all head counts at the larger sizes; set `limited` if time is too short or it was done before."""
        previous = self.found, self.options, self.train, self.challenges
        tried = sorted({trial.heads for trial in (*self.found, *first)})
        self.limited = self.passed is not None
        if self.limited:
            return
        self.note(f"all head counts with {wider.hidden} hidden units and {long.steps} steps")
        self.passed = self.challenges[first[0].heads]
        self.found, self.options, self.train, self.challenges = list(first), wider, long, {}
        self._train_missing(dict.fromkeys(tried, DECISIVE_SEEDS if self.engine.gpu else MIN_SEEDS))
        if min(self._completed_counts(tried).values()) < MIN_SEEDS:
            self.set_aside += [trial for trial in self.found if trial not in first]
            self.found, self.options, self.train, self.challenges = previous
            self.limited = True
        else:
            self.set_aside += [trial for trial in previous[0] if trial not in first]

    def _next_challenge(self, decision: HeadsNeeded) -> int | None:
        """Return the head count to challenge; None if none is called too few, or all of these were challenged."""
        answer = decision.estimate or 0
        if answer < 2 or decision.verdict not in ("transition", "gentle", "not-reached"):
            return None
        # one head fewer, unless longer training only memorises; and what the interval calls too few
        fewer = decision.least - 1 if decision.cause == "by-heart" else answer - 1
        candidates = [h for h in (fewer, decision.least - 1) if h > 0 and h not in self.challenges]
        return None if self.limited or not candidates else candidates[0]

    def _with_causes(self, passed: Challenge, wider: ModelOptions, long: TrainSpec) -> Challenge:
        """Return a passed challenge with the error of each change alone, for one model from the same start."""
        wanted = [
            Wanted(passed.heads, self.seed + 100, wider, self.train),
            Wanted(passed.heads, self.seed + 100, self.options, long),
        ]
        alone = [self.engine.train([request]) for request in wanted]
        self.set_aside += [trial for trials in alone for trial in trials]
        errors = [trials[0].validation if trials and trials[0].completed else None for trials in alone]
        return passed.model_copy(update={"hidden_alone": errors[0], "steps_alone": errors[1]})

    def _train_longer(self, decision: HeadsNeeded) -> bool:
        """Train all head counts twice as long if no step was seen; return whether there was time for it."""
        if (
            decision.verdict not in ("gentle", "not-reached", "failed")
            or self.steps is not None
            or self.lengthened >= MAX_EXTENSIONS
        ):
            return False
        if decision.cause == "by-heart":  # longer training would only memorise more
            return False
        if self.engine.folds > 1 and not self._still_falls():
            return False
        tried = sorted({trial.heads for trial in self.found})
        spent = sum(next(trial for trial in self.found if trial.heads == h).seconds for h in tried)
        if 2 * MIN_SEEDS * spent > self.engine.left() * (1 if self.engine.gpu else self.engine.workers):
            return False
        self.lengthened += 1
        self.train = self._recipe(2 * self.train.steps, self.train.batch)
        first = self.seed + 200 * self.lengthened
        self.note(f"no step seen: again with {self.train.steps} steps")
        new = self.engine.train(
            [Wanted(h, first + s, self.options, self.train) for h in tried for s in range(MIN_SEEDS)]
        )
        self.found += new
        self.challenges = {}
        return bool(new)

    def _still_falls(self) -> bool:
        """Whether the best model had its best point near the end of its training."""
        best = min(self.found, key=lambda trial: trial.validation)
        return min(best.curve, key=lambda point: point[1])[0] > LATE_BEST_FRACTION * best.curve[-1][0]

    def _first_heads(self) -> tuple[int, ...]:
        first = GPU_FIRST_HEADS if self.engine.gpu else FIRST_HEADS
        return tuple(h for h in first if h <= self.heads_max)

    def _choose_sizes(self) -> None:
        """Choose the sizes and, from the measured time of a step, how many steps a trial may take."""
        material = self.engine.material
        # T·d > n·h if possible: otherwise one layer could copy the whole sequence
        head_dim = 4 if material.task.length * material.task.dim > 4 * FIRST_HEADS[-1] else 2
        self.options = ModelOptions(head_dim=head_dim, hidden=HIDDEN_UNITS)
        batch = min(GPU_BATCH if self.engine.gpu else BATCH, material.train_size)
        self.train = self._recipe(MAX_STEPS, batch)
        if self.steps is not None or self.engine.gpu:
            # any GPU is fast enough for the usual budget; a larger budget asks for longer training
            factor = min(max(self.budget / USUAL_BUDGET, 1.0), MAX_STEPS_FACTOR)
            usual = ENOUGH_STEPS if self.engine.folds == 1 else MAX_FOLD_STEPS
            self.train = self._recipe(self.steps or int(factor * usual), batch)
            return
        self._divide_time(self.engine.step_seconds(self.options, TYPICAL_HEADS, self.train))

    def _divide_time(self, step_seconds: float) -> None:
        """Set the steps of a trial from the time left and the seconds of a step."""
        total = max(self.engine.left(), 0.0) * self.engine.workers / self.engine.folds
        # with too little training, enough heads look like too few: prefer fewer trials to shorter ones
        most_trials, fewest_trials = TYPICAL_TRIALS * step_seconds, MIN_TRIALS * step_seconds
        steps = max(total / most_trials, min(ENOUGH_STEPS, total / fewest_trials))
        folds = self.engine.folds > 1
        least, most = (MAX_FOLD_STEPS // 10, MAX_FOLD_STEPS) if folds else (MIN_STEPS, MAX_STEPS)
        self.train = self._recipe(int(max(least, min(most, steps))), self.train.batch)

    def _recipe(self, steps: int, batch: int) -> TrainSpec:
        return TrainSpec(
            steps=steps,
            warmup=min(200, steps // 10),
            learning_rate=LEARNING_RATE,
            evaluations=min(EVALUATIONS, steps),
            batch=batch,
            train_size=max(self.engine.material.train_size, 2),
            validation_size=max(self.engine.material.validation_size, 2),
        )

    def _pilot(self) -> None:
        """Choose whether the models see positions, by short trials with and without them."""
        heads = min(4, self.heads_max)
        train = self._recipe(max(1, min(self.train.steps // 2, PILOT_STEPS)), self.train.batch)

        def score(kind: Positions) -> float:
            """Return the error of a pilot."""
            found = [trial.validation for trial in self.pilots if trial.model.positions == kind]
            return min(found, default=float("inf"))

        def run(kinds: Sequence[Positions]) -> None:
            variants = [self.options.model_copy(update={"positions": kind}) for kind in kinds]
            self.pilots += self.engine.try_out(
                [Wanted(heads, self.seed, options, train, "pilot") for options in variants]
            )

        run(["none", "concatenated"])
        # a model that sees positions can always ignore them: it must be better, not just as good
        chosen: Positions = "concatenated" if score("concatenated") < 0.9 * score("none") else "none"
        if chosen == "concatenated" and score(chosen) > POOR_ERROR:
            # positions in the encoder can learn more, but also memorise: if they fail, try positions in the scores
            run(["gates"])
            chosen = "gates" if score("gates") < 0.85 * score(chosen) else chosen
        self.options = self.options.model_copy(update={"positions": chosen})
        self._try_categories(score(chosen), train)
        if self.pilots and self.steps is None and not self.engine.gpu:
            # other processes may use the cores: take the time of a step that the pilots needed
            slowest = max(trial.seconds / max(trial.steps, 1) for trial in self.pilots)
            self._divide_time(slowest * (1 + TYPICAL_HEADS) / (1 + heads))
        self.note(f"positions: {chosen}")

    def _try_categories(self, error: float, train: TrainSpec) -> None:
        """Treat columns of a few whole numbers as categories, one-hot, if the pilot then does better."""
        material = self.engine.material
        codes = None if material.categories else category_codes(material.task.X, material.task.mask)
        if codes is None:
            return
        self.engine.use(encoded(material, codes))
        heads = min(4, self.heads_max)
        tried = self.engine.try_out([Wanted(heads, self.seed, self.options, train, "pilot")])
        self.pilots += tried
        better = bool(tried) and tried[0].validation < CATEGORY_PASS_RATIO * error
        self.tried_codes = codes
        if not better:
            self.engine.use(material)
        self.note("whole numbers as categories" if better else "whole numbers as amounts")

    def _train_missing(self, seeds: dict[int, int]) -> bool:
        """Train the missing seeds, by head count; return whether any trial gave a result.

        A trial that was cut off or diverged does not count, and another seed takes its place.
        """
        tried = {h: sum(trial.heads == h for trial in self.found) for h in seeds}
        completed = self._completed_counts(seeds)
        wanted = [
            Wanted(h, self.seed + s, self.options, self.train)
            for h, count in seeds.items()
            for s in range(tried[h], min(tried[h] + count - completed[h], ATTEMPTS_PER_SEED * self.max_seeds))
        ]
        new = self.engine.train(wanted)
        self.found += new
        for h in sorted({trial.heads for trial in new}):
            best = min(trial.validation for trial in self.found if trial.heads == h)
            self.note(f"h = {h}: error {best:.2e}")
        return bool(new)

    def _completed_counts(self, heads: Iterable[int]) -> dict[int, int]:
        """Return how many trials of each head count were completed, and so count."""
        return {h: sum(trial.heads == h and trial.completed for trial in self.found) for h in heads}

    def _next(self, decision: HeadsNeeded) -> dict[int, int]:
        """Return what to train next, as seeds by head count; empty if the answer is settled."""
        tried = sorted(decision.rest)
        count = self._completed_counts(tried)
        if decision.estimate is None and decision.verdict != "not-reached":
            return {h: DECISIVE_SEEDS for h in tried if count[h] < DECISIVE_SEEDS}
        bigger = min(2 * tried[-1], self.heads_max)
        if decision.verdict == "not-reached":
            if tried[-1] - tried[-2] > 1:  # the fall may end before the largest count, which would then confirm it
                return {(tried[-1] + tried[-2]) // 2: MIN_SEEDS}
            return self._missing_seeds(count, tried[-2:], DECISIVE_SEEDS)
        answer = decision.estimate
        assert answer is not None
        open_end = decision.verdict in ("gentle", "failed") and decision.high is None and decision.cause != "by-heart"
        if (
            open_end
            and bigger > tried[-1]
            and min(trial.validation for trial in self.found if trial.completed) > POOR_ERROR
        ):
            return {bigger: MIN_SEEDS}  # nothing has been learned well yet, and more heads are easier to train
        index = tried.index(answer)
        below = tried[index - 1] if index else 0
        if answer - below > 1:
            return {(answer + below) // 2: MIN_SEEDS}
        if bigger > tried[-1] and (index == len(tried) - 1 or decision.rest[tried[-2]] > MIN_GAIN_DECADES):
            return {bigger: MIN_SEEDS}  # an answer needs a larger head count that confirms it
        if answer < self.heads_max and answer + 1 not in tried:
            return {answer + 1: MIN_SEEDS}  # the price of one head more, and the nearest confirmation
        decisive = [h for h in (below, answer, tried[min(index + 1, len(tried) - 1)]) if h]
        short = self._missing_seeds(count, decisive, DECISIVE_SEEDS)
        if short or decision.settled:
            return short
        return self._missing_seeds(count, decisive, min(self.max_seeds, min(count[h] for h in decisive) + 1))

    @staticmethod
    def _missing_seeds(count: dict[int, int], heads: Sequence[int], least: int) -> dict[int, int]:
        """Return the head counts that have fewer seeds than they should."""
        return {h: least for h in heads if count[h] < least}
