"""The adaptive sweep: doubling heads, bisection, and more seeds where the answer hangs on them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from headcount.advice.advisor_decide import POOR, Decision, decide
from headcount.advice.advisor_engine import BATCH, EVALUATIONS, Engine, Outcome, Wanted
from headcount.experiments.spec import ModelOptions, TrainSpec
from headcount.models.spec import Positions

RATE = 1e-2
HIDDEN = 32
FIRST = (1, 2, 4, 8)
GPU_FIRST = (1, 2, 3, 4, 5, 6, 7, 8, 16)
"""A GPU trains all of these in the time of one."""
GPU_BATCH = 256
SEEDS = 2
MORE = 3
"""Seeds of the head counts on which the answer hangs …"""
MOST = 6
"""… and how many they may get while it is uncertain."""
ATTEMPTS = 3 * MOST
"""Trials that a head count may get in all, those that diverge among them."""
OPEN = ("more", "failed", "budget")
"""Verdicts that settle nothing."""
TRIALS = 30
"""About as many trials as a search takes: what the budget is divided by."""
RISING = 0.3
"""Decades that the largest head count gains: then a larger one is tried as well."""
FEWEST_TRIALS, ENOUGH_STEPS = 14, 4000
FEWEST_STEPS, MOST_STEPS = 400, 10_000
LONGER = 2
USUAL = 5
"""The head count of an average trial."""
PILOT_STEPS = 2000
USUAL_BUDGET, MOST_PATIENCE = 300.0, 10.0
"""Seconds; and how many times longer the trials of a GPU become at most with a larger budget, in proportion."""
SHARE = 0.8
"""Of the budget that the search itself may use; the rest is for prices."""


@dataclass
class Search:
    """One search: its engine, its recipe, and all trials so far."""

    engine: Engine
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
    challenged: set[int] = field(default_factory=set[int])
    """Head counts of which a trial with twice the training was taken to its end."""
    settled: bool = False

    def run(self) -> Decision | None:
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
            if not wanted:
                if self._challenge(decision) or self._longer(decision):
                    continue
                # an end that is open, or failed training, leaves something to settle
                self.settled = decision.settled >= self.confidence and decision.verdict not in OPEN
                return decision
            if self.engine.left() <= 0 or not self._ask(wanted):
                return decision
        return None

    def decision(self) -> Decision:
        """What the trials so far say."""
        return decide(self.found, heads_max=self.heads_max, confidence=self.confidence, seed=self.seed)

    def _challenge(self, decision: Decision) -> bool:
        """Give one head fewer twice the training, once: does it fail, or was it only slower? True where that is new."""
        below = (decision.heads or 0) - 1
        if below < 1 or below in self.challenged or decision.verdict not in ("transition", "gentle", "more"):
            return False
        longer = self._recipe(2 * self.train.steps, self.train.batch)
        new = self.engine.train([Wanted(below, self.seed + 100 + s, self.options, longer) for s in range(SEEDS)])
        self.found += new
        if any(one.whole for one in new):
            self.challenged.add(below)
        return bool(new)

    def patience(self, heads: int) -> float | None:
        """By what twice the training divided the error of a head count; None where that was not tried."""
        own = [one for one in self.found if one.heads == heads and one.whole]
        most = max((one.steps for one in own), default=0)
        sooner, later = ([one.validation for one in own if (one.steps == most) is last] for last in (False, True))
        if heads not in self.challenged or not sooner:
            return None
        return min(sooner) / max(min(later), 1e-300)

    def _longer(self, decision: Decision) -> bool:
        """Train all head counts twice as long where no step was seen; True where there was time for it."""
        if decision.verdict not in ("gentle", "more", "failed") or self.steps is not None or self.lengthened >= LONGER:
            return False
        if decision.cause == "by-heart":  # more of the same
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
        self.challenged = set()
        return bool(new)

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
        self.train = self._recipe(MOST_STEPS, batch)
        if self.steps is not None or self.engine.gpu:
            # a GPU is quick enough for the usual budget, whatever it is; who gives more time wants longer training
            patience = min(max(self.budget / USUAL_BUDGET, 1.0), MOST_PATIENCE)
            self.train = self._recipe(self.steps or int(patience * ENOUGH_STEPS), batch)
            return
        self._spread_out(self.engine.step_seconds(self.options, USUAL, self.train))

    def _spread_out(self, each: float) -> None:
        """Divide the time that is left among trials, given the seconds of a step."""
        total = max(self.engine.left(), 0.0) * self.engine.workers
        # trained too little, enough heads look like too few: rather fewer trials than short ones
        steps = max(total / (TRIALS * each), min(ENOUGH_STEPS, total / (FEWEST_TRIALS * each)))
        self.train = self._recipe(int(max(FEWEST_STEPS, min(MOST_STEPS, steps))), self.train.batch)

    def _recipe(self, steps: int, batch: int) -> TrainSpec:
        return TrainSpec(
            steps=steps, warmup=min(200, steps // 10), learning_rate=RATE, evaluations=min(EVALUATIONS, steps),
            batch=batch, train_size=max(self.engine.material.train_size, 2),
            validation_size=max(self.engine.material.validation_size, 2),
        )  # fmt: skip

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
        if chosen == "concatenated" and score(chosen) > POOR:
            # positions in the encoder can learn more, but also learn by heart: where they fail, positions in the scores
            run(["gates"])
            chosen = "gates" if score("gates") < 0.85 * score(chosen) else chosen
        self.options = self.options.model_copy(update={"positions": chosen})
        if self.pilots and self.steps is None and not self.engine.gpu:
            # others may use the cores: what did a step really take?
            slow = max(one.seconds / max(one.steps, 1) for one in self.pilots)
            self._spread_out(slow * (1 + USUAL) / (1 + heads))
        self.note(f"positions: {chosen}")

    def _ask(self, seeds: dict[int, int]) -> bool:
        """Train the seeds that are missing; False where nothing came of it.

        A trial that was cut off, or diverged, does not count, and another seed takes its place.
        """
        tried = {h: sum(one.heads == h for one in self.found) for h in seeds}
        whole = self._whole(seeds)
        wanted = [
            Wanted(h, self.seed + s, self.options, self.train)
            for h, count in seeds.items()
            for s in range(tried[h], min(tried[h] + count - whole[h], ATTEMPTS))
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

    def _next(self, decision: Decision) -> dict[int, int]:
        """What to train next, as seeds by head count; nothing when the answer is settled."""
        tried = sorted(decision.rest)
        count = self._whole(tried)
        if decision.heads is None and decision.verdict != "more":
            return {h: MORE for h in tried if count[h] < MORE}
        bigger = min(2 * tried[-1], self.heads_max)
        if decision.verdict == "more":
            if tried[-1] - tried[-2] > 1:  # the fall may end before the largest, which would then confirm it
                return {(tried[-1] + tried[-2]) // 2: SEEDS}
            return self._short(count, tried[-2:], MORE)
        answer = decision.heads
        assert answer is not None
        open_end = decision.verdict in ("gentle", "failed") and decision.high is None and decision.cause != "by-heart"
        if open_end and bigger > tried[-1] and min(one.validation for one in self.found if one.whole) > POOR:
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
        if short or (decision.settled >= self.confidence and decision.low == answer == decision.high):
            return short
        return self._short(count, decisive, min(MOST, min(count[h] for h in decisive) + 1))

    @staticmethod
    def _short(count: dict[int, int], heads: Sequence[int], least: int) -> dict[int, int]:
        """Those of the head counts that have fewer seeds than they should."""
        return {h: least for h in heads if count[h] < least}
