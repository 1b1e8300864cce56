"""The adaptive sweep: what it asks for, what counts, and when it may call an answer settled. Trials are made up."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from advisor_cases import arrays, made_up

from headcount.advisor.advice import advise
from headcount.advisor.data import material
from headcount.advisor.engine import TrialEngine
from headcount.advisor.search import ATTEMPTS_PER_SEED, DECISIVE_SEEDS, MAX_SEEDS, Search
from headcount.advisor.trials import Wanted
from headcount.sweeps.spec import ModelOptions
from headcount.training.spec import TrainSpec


class Fake:
    """An engine that makes trials up: `error` says what a trial comes to; after `trials` the time is over."""

    gpu, workers, folds = False, 2, 1
    train_ratio = 0.9

    def __init__(
        self, error: Callable[[Wanted], float], trials: int = 1000, completed: Callable[[Wanted], bool] | None = None
    ):
        self.error, self.trials, self.completed = error, trials, completed or (lambda _: True)
        self.material = SimpleNamespace(
            task=SimpleNamespace(length=16, dim=3, X=np.linspace(0, 1, 300).reshape(10, 10, 3), mask=None),
            train_size=800,
            validation_size=200,
            splits=SimpleNamespace(inflation=1.0, folds=1),
            categories=None,
        )
        self.asked: list[Wanted] = []
        self.deadline = 1e9

    def left(self) -> float:
        return 1e6 if len(self.asked) < self.trials else 0.0

    def step_seconds(self, *_: object) -> float:
        return 1e-3

    def try_out(self, wanted: list[Wanted]):
        return self.outcomes(wanted)

    def train(self, wanted: list[Wanted]):
        if self.left() <= 0:
            return []
        done = wanted[: self.trials - len(self.asked)]
        self.asked += done
        return self.outcomes(done)

    def outcomes(self, wanted: list[Wanted]):
        trials = [made_up({w.heads: [self.error(w)]}, samples=300, train=self.train_ratio)[0] for w in wanted]
        models = [w.options.model(heads=w.heads, dim=2, length=8, out_dim=1) for w in wanted]
        made = zip(trials, wanted, models, strict=True)
        return [replace(one, wanted=w, model=model, completed=self.completed(w)) for one, w, model in made]


def three(wanted: Wanted) -> float:
    """Errors of a task with D = 3."""
    return {1: 0.18, 2: 0.04}.get(wanted.heads, 0.0011) * (1 + 0.02 * (wanted.seed % 3))


def searched(engine: Fake, heads_max: int = 32):
    search = Search(engine, heads_max, 0.95, 0, 60.0, 1000)
    found = search.run()
    assert found is not None
    return search, found.verdict, found.estimate, found.low, found.high


@pytest.mark.parametrize(("budget", "steps"), [(5.0, 4000), (300.0, 4000), (600.0, 8000), (1e6, 40_000)])
def test_on_a_gpu_a_larger_budget_is_longer_training(budget: float, steps: int):
    engine = Fake(three)
    engine.gpu = True
    search = Search(engine, 32, 0.95, 0, budget)
    search.run()
    assert {w.train.steps for w in engine.asked if w.seed < 100} == {steps}
    challenge = [w for w in engine.asked if w.seed >= 100]  # of one head fewer
    assert {(w.train.steps, w.options.hidden) for w in challenge} == {(2 * steps, 64)}
    assert {w.train.batch for w in engine.asked} == {256}
    assert {w.heads for w in engine.asked} == {1, 2, 3, 4, 5, 6, 7, 8, 16}


def test_between_the_last_two_head_counts_it_bisects():
    search, verdict, heads, low, _ = searched(Fake(three), heads_max=4)
    assert {one.heads for one in search.found} == {1, 2, 3, 4}
    assert (verdict, heads, low) == ("transition", 3, 3)


def test_where_nothing_larger_may_be_tried_nothing_is_settled():
    search, verdict, heads, low, high = searched(Fake(three), heads_max=3)
    assert (verdict, heads, low, high) == ("not-reached", 3, 3, None)
    assert not search.settled
    even = Fake(lambda w: 0.9 * 0.6**w.heads)
    even.train_ratio = 0.05  # no sign of a noise floor
    search, verdict, heads, low, high = searched(even, heads_max=8)
    assert (verdict, heads, high) == ("not-reached", None, None)
    assert low <= 8
    assert not search.settled


def test_only_a_challenge_that_was_trained_counts():
    settled, *_ = searched(Fake(three))
    assert settled.settled
    assert [(c.heads, c.hidden, c.passed) for c in settled.challenges.values()] == [(2, 64, False)]
    count = next(n for n, w in enumerate(settled.engine.asked) if w.seed >= 100)
    late, *answer = searched(Fake(three, trials=count))
    assert answer[:3] == ["transition", 3, 1]
    assert late.challenges == {}
    cut, *_ = searched(Fake(three, trials=count + 2, completed=lambda w: w.seed < 100))
    assert cut.challenges == {}


def limited(wanted: Wanted) -> float:
    """Errors of a task with D = 3 that 32 hidden units, and no number of heads, limit: more heads hide it."""
    usual = {1: 0.3, 2: 0.1, 3: 0.02, 4: 0.014, 5: 0.01, 6: 0.007, 7: 0.005, 8: 0.0035}.get(wanted.heads, 0.0034)
    return usual if wanted.options.hidden == 32 or wanted.heads < 3 else 0.0030


def test_a_head_count_that_hidden_units_limit_is_not_called_too_few():
    engine = Fake(limited)
    engine.train_ratio = 0.05  # no sign of a noise floor
    search, _, heads, low, high = searched(engine)
    assert (heads, low, high) == (3, 3, 3)
    assert search.settled
    assert {one.model.hidden for one in search.found} == {64}  # all head counts, once one had passed
    passed = search.passed
    assert passed is not None
    assert (passed.hidden, passed.passed) == (64, True)
    assert passed.hidden_alone < passed.steps_alone
    assert not search.challenges[2].passed
    plain = Fake(lambda w: limited(replace(w, options=w.options.model_copy(update={"hidden": 32}))))
    plain.train_ratio = 0.05
    assert searched(plain)[2] > 5  # without the challenge it is


def test_head_counts_are_never_compared_at_different_sizes():
    """Twice the size does wonders for every head count, and three are needed all the same."""
    wonders = lambda w: three(w) * (32 / w.options.hidden) ** 8  # noqa: E731
    search, _, heads, *_ = searched(Fake(wonders))
    assert heads == 3
    assert len({one.model.hidden for one in search.found}) == 1
    assert not search.settled  # twice that size would do wonders again
    assert search.limited


def test_without_time_for_a_challenge_nothing_is_called_too_few():
    settled, *_ = searched(Fake(three))
    count = next(n for n, w in enumerate(settled.engine.asked) if w.seed >= 100)
    late, _, heads, low, _ = searched(Fake(three, trials=count))
    assert (heads, low, late.settled) == (3, 1, False)


def test_trials_that_were_cut_off_count_nowhere():
    """Of the head count that confirms the answer all trials but the first are cut off."""
    search, *_ = searched(Fake(three, completed=lambda w: w.heads != 4 or w.seed == 0))
    assert sum(one.completed for one in search.found if one.heads == 4) == 1
    assert not search.settled


def test_a_trial_that_diverges_is_replaced_but_not_for_ever():
    some, verdict, heads, *_ = searched(Fake(three, completed=lambda w: w.heads != 2 or w.seed > 0))
    assert (verdict, heads, some.settled) == ("transition", 3, True)
    assert sum(one.completed for one in some.found if one.heads == 2) >= DECISIVE_SEEDS
    never, *_ = searched(Fake(three, completed=lambda w: w.heads != 3))
    assert sum(one.heads == 3 for one in never.found) <= ATTEMPTS_PER_SEED * MAX_SEEDS
    assert not never.settled


def test_settled_needs_all_the_trials_that_were_asked_for():
    for trials in range(8, 24):
        search, verdict, *_ = searched(Fake(three, trials=trials))
        counts = [sum(one.completed and one.heads == h for one in search.found) for h in (2, 3, 4)]
        assert not search.settled or min(counts) >= DECISIVE_SEEDS
        assert verdict != "transition" or min(counts[:2]) >= 2


def test_given_steps_know_no_deadline():
    X, y = arrays("sum-of-maxima", 1000, 0.0, intrinsic=1, dim=1, length=6)
    # far less than the trials take
    found = [advise(X, y, steps=400, heads_max=2, budget=budget, quiet=True) for budget in (1e-3, 600.0)]
    assert all(one.completed for one in found[0].trials)
    assert [p.validation for p in found[0].record.curve] == [p.validation for p in found[1].record.curve]
    assert found[0].record.verdict == found[1].record.verdict != "too-few"


def test_without_a_deadline_no_timer_fails(monkeypatch: pytest.MonkeyPatch):
    failed: list[object] = []
    monkeypatch.setattr(threading, "excepthook", failed.append)
    X, y = arrays("mean", 60, 0.0, dim=1, length=4)
    engine = TrialEngine(material(X, y, None, kind="auto", seed=0, name="mean"))
    train = TrainSpec(steps=20, warmup=2, evaluations=2, batch=16, train_size=48, validation_size=12)
    (one,) = engine.train([Wanted(1, 0, ModelOptions(head_dim=2, hidden=8), train)])
    assert one.completed
    assert 0 < one.fitted < 10
    assert failed == []


def test_without_a_deadline_trials_take_the_most_steps():
    search = Search(Fake(three), 4, 0.95, 0, 60.0)
    search.engine.left = lambda: float("inf")
    search._choose_sizes()
    assert search.train.steps == 10_000


def test_few_samples_are_learned_by_heart_which_is_not_failed_training():
    X = np.random.default_rng(0).normal(size=(60, 12, 3))
    y = np.random.default_rng(1).normal(size=60)
    found = advise(X, y, steps=600, heads_max=4, quiet=True)
    assert min(one.fitted for one in found.trials) < 0.1
    assert found.record.verdict == "noise"


def test_training_that_fails_is_called_so():
    """One look-up behind a function that few seeds learn in so few steps: more heads only buy more tickets."""
    X = np.random.default_rng(0).normal(size=(1500, 8, 2))
    found = advise(X, np.sin(6 * X.max(1)[:, 0]), steps=400, heads_max=4, quiet=True)
    assert found.best.validation < 0.7
    assert found.best.train > 0.5 * found.best.validation
    assert found.record.verdict == "failed"
    assert found.record.interval_open
    assert not found.record.settled


def test_what_passed_a_challenge_is_never_called_too_few():
    """Three heads failed theirs and two passed: then nothing is known against two, nor by that failure against one."""
    search, *_ = searched(Fake(three))
    assert search.conclude().low == 3
    failed, passed = search.challenges[2], search.challenges[2].model_copy(update={"passed": True})
    for made, low in (
        ({2: passed}, 1),
        ({2: failed, 3: failed}, 3),
        ({3: failed, 2: passed}, 1),
        ({3: passed, 1: failed}, 2),
    ):
        search.challenges = made
        assert search.conclude().low == low


def test_a_challenge_is_told_once():
    search, *_ = searched(Fake(three))
    once = search.challenges[2]
    search.passed = once
    assert search.challenged == [once]
    search.challenges = {}
    assert search.challenged == [once]


def test_fewer_heads_of_what_is_learned_by_heart_are_challenged_before_they_are_ruled_out():
    search, *_ = searched(Fake(three))
    search.challenges = {}
    by_heart = search.decision().model_copy(update={"cause": "by-heart"})
    assert search._next_challenge(by_heart) == 2
    assert search._next_challenge(by_heart.model_copy(update={"low": 1})) is None
    assert search._next_challenge(by_heart.model_copy(update={"low": 1, "cause": ""})) == 2


@pytest.mark.parametrize(
    ("verdict", "shares", "named"),
    [
        ("gentle", {3: 0.45, 4: 0.55}, 4),
        ("gentle", {3: 0.5, 4: 0.5}, 3),
        ("gentle", {0: 0.6, 3: 0.3, 8: 0.1}, 3),
        ("transition", {3: 0.45, 4: 0.55}, 3),
        ("failed", {3: 0.45, 4: 0.55}, 3),
    ],
)
def test_without_a_sure_step_the_head_count_of_most_draws_is_named(verdict, shares, named):
    search, *_ = searched(Fake(three))
    changed = {"verdict": verdict, "shares": shares, "estimate": 3, "low": 2, "high": 4, "sequences": 900}
    doubtful = search.decision().model_copy(update=changed)
    search.decision = lambda: doubtful
    found = search.conclude()
    assert (found.estimate, found.low, found.high) == (named, 2, 4)
    assert found.sequences == (900 if named == 3 else None)
