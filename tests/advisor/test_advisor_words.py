"""The advisor's sentences about noise, single models and weak bounds; the lines about length and width."""

from __future__ import annotations

import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from advisor_cases import arrays, made_up
from record_cases import made_record

from headcount.advisor import shorter_sequences as advisor_shorter
from headcount.advisor.data import material
from headcount.advisor.decide import decide
from headcount.advisor.engine import TrialEngine
from headcount.advisor.predict import predict
from headcount.advisor.prices import _complete_rounds, curve_points, other_curves
from headcount.advisor.record import Challenge, ShorterPoint
from headcount.advisor.search import Search
from headcount.advisor.shorter_sequences import in_words, on_halves, relabelled
from headcount.advisor.words.answer import LONGER_BUDGET, challenge_text, curve_text, reasons, sentence, settles
from headcount.core.errors import BadInput
from headcount.core.progress import Progress
from headcount.render.words.numbers import percent

STEP = {1: [0.4, 0.42, 0.5], 2: [0.001, 0.0012, 0.002], 4: [0.001, 0.0011, 0.002]}


def reason_texts(
    errors: dict[int, list[float]],
    length: int = 32,
    challenge: Challenge | None = None,
    apart: bool = True,
    train: float = 0.9,
    **changed,
) -> list[str]:
    """Return the reasons that trials with these errors give."""
    found = made_up(errors, train=train, samples=8000)
    decision = decide(found, heads_max=8)
    points = [point.model_copy(update=changed) for point in curve_points(found, decision.noise_floor, {})]
    sizes = {"length": length, "head_dim": 4, "hidden": 32}
    return [r.text for r in reasons(decision, points, sizes, [challenge] if challenge else [], apart)]


@pytest.mark.parametrize(("models", "text"), [(1, "in the only model."), (3, "in the best of 3 models.")])
def test_the_number_of_models_reads_well(models, text):
    texts = reason_texts(STEP, seeds=models)
    assert any(t.endswith(text) for t in texts if t.startswith("1 head: error"))


def test_errors_that_cannot_be_told_apart_are_called_so():
    for apart in (True, False):
        (text,) = [t for t in reason_texts(STEP, apart=apart) if t.startswith("1 head: error")]
        assert text.endswith("so few validation sequences do not tell the two apart.") is not apart


def test_one_head_needs_and_two_heads_need():
    assert any("1 head with bounded weights needs a feed-forward block" in t for t in reason_texts(STEP))
    three = {1: [0.4] * 3, 2: [0.2] * 3, 3: [0.001] * 3, 4: [0.001] * 3}
    assert any("2 heads with bounded weights need a feed-forward block" in t for t in reason_texts(three, 128))


def test_a_lower_bound_that_rules_out_little_is_called_weak_or_silent():
    three = {1: [0.4] * 3, 2: [0.2] * 3, 3: [0.001] * 3, 4: [0.001] * 3}
    weak, silent = reason_texts(three, 16), reason_texts(three, 8)
    assert any("is weak at length 16 and rules out little" in t and "error^(−0.09)" in t for t in weak)
    assert not any("bounded weights need" in t for t in weak)
    assert any("says nothing at length 8: it bites from 16 on" in t for t in silent)


def test_noise_is_not_claimed_and_the_recommended_head_is_explained():
    found = made_up({h: [1.0, 1.01] for h in (1, 2, 4)}, train=0.99)
    decision = decide(found, heads_max=4)
    assert decision.verdict == "noise"
    assert sentence(decision, 4).startswith("Noise alone, or a function that these models did not learn: ")
    settle = settles(decision)
    assert "cannot be told from a function that these models did not learn" in settle
    assert "minimum, maximum and mean" in settle
    assert "will not help" not in settle
    texts = reason_texts({h: [1.0, 1.01] for h in (1, 2, 4)})
    assert any("One head is recommended" in t and "interval leaves every number open" in t for t in texts)
    record = made_record("noise")
    assert (record.recommended_heads, record.interval_open) == (1, True)


def test_a_longer_budget_reads_as_flag_and_as_keyword():
    assert "--" not in LONGER_BUDGET
    assert "A longer budget" in settles(decide(made_up({1: [0.1], 2: [0.1]}), heads_max=8))


def challenge(after: float, passed: bool = False, **alone: float) -> Challenge:
    return Challenge(heads=1, hidden=64, steps=2000, before=0.4, after=after, passed=passed, **alone)


def test_the_effect_of_a_challenge_is_reported():
    """If twice the size and training helped fewer heads much, or the steps were given, something is left open."""
    enough = {1: [0.4, 0.4, 0.4], 2: [0.001, 0.001, 0.0011], 3: [0.001, 0.0011, 0.0011], 4: [0.001, 0.001, 0.0011]}
    decision = decide(made_up(enough, samples=8000), heads_max=8)
    assert (decision.verdict, decision.low, decision.high) == ("transition", 2, 2)
    usual, end = "1 head with 64 hidden units and 2,000 steps, twice the usual", "so this does not replace heads."
    assert f"{usual}: the error is still 0.36, {end}" in reason_texts(enough, challenge=challenge(0.36))
    slow = f"{usual}, which divided the error by 3.0: the error is still 0.13, {end}"
    assert slow in reason_texts(enough, challenge=challenge(0.4 / 3))
    assert not any("twice the usual" in t for t in reason_texts(enough))
    assert settles(decision, challenge(0.36)) == "Nothing is left open."
    assert "gained much from larger models and longer training" in settles(decision, challenge(0.13))
    assert settles(decision, challenge(0.36), 200).startswith("Nothing else is left open: every model took 200 steps")
    assert "longer training. Every model took 200 steps" in settles(decision, challenge(0.13), 200)


@pytest.mark.parametrize(
    ("hidden", "steps", "text"),
    [(0.001, 0.39, "hidden units helped"), (0.39, 0.001, "training helped"), (0.2, 0.3, "both together helped")],
)
def test_the_change_that_helped_is_named(hidden, steps, text):
    said = challenge_text(challenge(0.001, True, hidden_alone=hidden, steps_alone=steps))
    assert said.startswith("1 head became enough with 64 hidden units and 2,000 steps, twice the usual")
    assert text in said
    assert said.endswith("These limited it, not the number of heads.")


def test_only_a_whole_share_is_100_percent():
    shares = (1.0, 0.9975, 0.9999999, 0.5, 0.004, 0.0)
    assert [percent(s) for s in shares] == ["100 %", "99.75 %", "99.99999 %", "50 %", "0.4 %", "0 %"]


def test_an_interval_that_reaches_further_than_the_draws_is_explained():
    few = {1: [0.4, 0.41], 2: [0.1, 0.12], 3: [0.0010, 0.0011, 0.0011], 4: [0.001, 0.001, 0.001]}
    decision = decide(made_up(few), heads_max=8)
    assert decision.low < min(h for h in decision.shares if h)
    assert any(f"The interval goes down to {decision.low}" in t for t in reason_texts(few))
    assert not any("The interval goes down" in t for t in reason_texts({h: row * 3 for h, row in STEP.items()}))


def test_a_small_gain_is_named_where_one_head_is_the_answer():
    assert any(
        t.endswith("against 0.20: within the margin, so not counted as a gain.")
        for t in reason_texts({1: [0.2] * 3, 2: [0.18] * 3, 4: [0.17] * 3}, train=0.05)
    )


def test_lengths_are_compared_in_the_same_kind_of_targets():
    measured = {(8, 2): 0.05, (8, 3): 1e-3, (16, 3): 2e-3, (16, 2): 0.1}
    points = [ShorterPoint(length=length, heads=heads, error=e) for (length, heads), e in measured.items()]
    two, three = (reason.text for reason in in_words(points))
    assert two.startswith("With 2 heads the error is 0.050 at length 8 and 0.10 at 16: one model each")
    assert three.startswith("With 3 heads the error is 0.0010 at length 8 and 0.0020 at 16")
    assert "both have the best model's predictions, which are free of noise, as y" in two
    assert in_words(points[:2]) == []  # nothing to compare with
    assert in_words([]) == []


@pytest.fixture(scope="module")
def searched():
    """A search on noisy maxima, as it stands when prices are asked for."""
    X, y = arrays("sum-of-maxima", 1000, 0.1, intrinsic=2, dim=2, length=8)
    engine = TrialEngine(material(X, y), "cpu", time.monotonic() + 300.0)
    search = Search(engine, 4, 0.95, 0, 300.0, 400)
    assert search.run() is not None
    return search


def test_noise_is_not_what_length_costs(searched):
    best = min(searched.found, key=lambda one: one.validation)
    learned = replace(best, validation=0.01)
    points = on_halves(searched, learned, 2)
    assert [(p.length, p.heads) for p in points] == [(4, 2), (4, 1), (8, 2), (8, 1)]
    assert len(in_words(points)) == 2
    stuff = searched.engine.material
    whole = relabelled(stuff, learned, 0, 8)
    assert np.allclose(
        whole.task.y[:, 0] * stuff.data.std.item() + stuff.data.mean.item(), predict(best, stuff, stuff.task.X)
    )
    assert 0.99 < np.corrcoef(whole.task.y[:, 0], stuff.task.y[:, 0])[0, 1] < 0.999  # y has a hundredth of noise
    searched.engine.deadline, kept = time.monotonic() + 0.01, searched.engine.deadline
    assert on_halves(searched, learned, 2) == []
    searched.engine.deadline = kept


def test_on_a_gpu_rounds_that_the_time_cut_off_do_not_count(searched):
    """They end at the same time there: the first counts if anything of it is whole, a later one if all of it is."""
    one = searched.found[0]
    rounds = [[replace(one.wanted, seed=s, heads=h) for h in (3, 1)] for s in range(3)]

    def counted(*cut):
        found = [replace(one, wanted=w, completed=(w.seed, w.heads) not in cut) for wanted in rounds for w in wanted]
        new, count = _complete_rounds(rounds, found)
        return [(o.wanted.seed, o.heads) for o in new], count

    first, second, third = [(0, 3), (0, 1)], [(1, 3), (1, 1)], [(2, 3), (2, 1)]
    assert counted() == ([*first, *second, *third], 3)
    assert counted((1, 1)) == (first, 1)
    assert counted((2, 3)) == ([*first, *second], 2)
    assert counted((0, 3)) == ([(0, 1), *second, *third], 3)  # it diverged: the time was not over
    assert counted(*first, *second, *third) == ([], 0)
    assert _complete_rounds(rounds, []) == ([], 0)


def test_halves_end_with_the_search(searched, monkeypatch):
    best = replace(min(searched.found, key=lambda one: one.validation), validation=0.01)
    given = []
    monkeypatch.setattr(
        advisor_shorter, "TrialEngine", lambda *_, halt: given.append(halt) or SimpleNamespace(try_out=lambda _: [])
    )
    assert on_halves(searched, best, 2) == []
    assert given == [searched.engine.halt] * 2


@pytest.mark.parametrize(("case", "seeds"), [("time for all", 2), ("time for one", 1), ("the second is cut off", 1)])
def test_other_curves_take_rounds_of_one_seed_and_one_recipe(searched, case, seeds):
    """A round that the deadline cut off would compare short training with long."""
    asked = []

    class Recording:
        gpu = False

        def left(self):
            return 0.0 if case == "time for one" else 10.0

        def sized(self, wanted):
            if (wanted.tag, wanted.heads) == ("parameters", 4):
                raise BadInput("parameters are too few")

        def try_out(self, wanted):
            cut = case == "the second is cut off" and len(asked) > 0
            asked.append(wanted)
            return [replace(searched.found[0], wanted=w, completed=not (cut and w is wanted[-1])) for w in wanted]

    own = [one for one in searched.found if one.heads == 2]
    cut, short = replace(own[0], completed=False), own[1].wanted.train.model_copy(update={"steps": 7})
    old = replace(own[0], wanted=replace(own[0].wanted, train=short))
    seventh = replace(own[0], wanted=replace(own[0].wanted, seed=7), validation=0.123)
    eighth = replace(own[0], wanted=replace(own[0].wanted, seed=8), validation=0.122)
    found = [cut, old, eighth, seventh, *(one for one in searched.found if one.heads != 2)]
    search = SimpleNamespace(
        found=found, heads_max=4, seed=0, options=searched.options, train=searched.train, engine=searched.engine
    )
    curves = other_curves(search, searched.decision(), 2, Recording())  # pyright: ignore[reportArgumentType]
    assert [curve.kind for curve in curves] == ["width", "parameters"]
    for seed, wanted in zip((7, 8), asked, strict=False):
        assert {(w.seed, w.train.steps) for w in wanted} == {(seed, searched.train.steps)}
        assert [(w.tag, w.heads) for w in wanted] == [
            ("width", 4),
            ("width", 3),
            ("width", 1),
            ("parameters", 3),
            ("parameters", 1),
        ]
    assert len(asked) == (1 if case == "time for one" else 2)
    for curve in curves:
        assert {p.seeds for p in curve.points} == {seeds}
        two = next(p for p in curve.points if p.heads == 2)
        assert (two.validation, two.worst) == ((0.122, 0.123) if seeds == 2 else (0.123, 0.123))
        text = curve_text(curve)
        assert ("best of 2 models (median)" in text) is ("one model each" not in text) is (seeds == 2)
        assert ("2: 0.12 (0.12)" in text) is (seeds == 2)


def test_the_remaining_time_is_never_negative(capsys):
    with Progress("work", 10.0, every=0.0, closes=False) as progress:
        progress.advance(10.4, note="late")
    assert "about 0 s to go" in capsys.readouterr().err
    with Progress("advising", 10.0, every=0.0, closes=False, bound=True) as progress:
        progress.advance(4.0, note="h = 2")  # a budget: nobody knows how much of it is needed
    assert "at most 0 s to go" in capsys.readouterr().err
