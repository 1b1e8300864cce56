"""Error rates in the analysis: which part is read, zeros floored and counted, no claim beyond the numbers."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headcount.analysis import measures
from headcount.analysis.blocks import Block, blocks
from headcount.analysis.bootstrap import draw_setting
from headcount.analysis.heads_needed import SOLVED_NMSE, faint_error
from headcount.analysis.measures import (
    NO_TRAINING_ERROR,
    NO_WRONG_ANSWER,
    error_for_zero,
    guess_error_rate,
    notices,
    with_errors_on,
)
from headcount.analysis.of_runs import analyse
from headcount.analysis.record import Analysis
from headcount.cli.main import main
from headcount.core.errors import BadInput
from headcount.render.words.errors import error_terms, terms_of
from headcount.store.records import Run, Trial

SAMPLES = {"train": 4000, "validation": 1000}
FALL = {1: 0.4, 2: 0.3, 4: 0.2, 6: 0.004, 8: 0.0038, 10: 0.0036}
"""Training errors with a clear step at six heads."""
HUMP = {1: 0.60, 2: 0.50, 4: 0.40, 6: 0.36, 8: 0.38, 10: 0.40}
"""Validation errors that are smallest at six heads, and large everywhere."""


def rate_run(
    train: dict[int, float], validation: dict[int, float], *, length: int = 8, seeds: int = 3, **changes: Any
) -> Run:
    trials = [
        Trial(
            heads=h,
            seed=s,
            state="done",
            nmse=validation[h] * (1 + 0.02 * s),
            train_nmse=train[h] * (1 + 0.02 * s),
            accuracy=1 - validation[h] * (1 + 0.02 * s),
            train_accuracy=1 - train[h] * (1 + 0.02 * s),
            steps=10,
            seconds=1.0,
            parameters=10 * h,
            parameters_total=20 * h,
        )
        for h in train
        for s in range(seeds)
    ]
    fields: dict[str, Any] = {
        "name": "rates",
        "task": {"kind": "marco", "name": "made", "length": length},
        "intrinsic": None,
        "spec": {"heads": list(train), "seeds": seeds, "model": {"head_dim": 32}},
        "values": {"length": length},
        "measure": "error rate",
        "samples": SAMPLES,
        "trials": trials,
        "provenance": {},
        "seconds": 1.0,
    }
    return Run(**{**fields, **changes})


def rate_runs(train: dict[int, float] = FALL, validation: dict[int, float] = HUMP, **changes: Any) -> list[Run]:
    return [rate_run(train, validation, length=T, **changes) for T in (8, 16)]


def both(runs: list[Run]) -> tuple[Analysis, Analysis]:
    return analyse(runs, resamples=200, on="train"), analyse(runs, resamples=200)


def check_parts(training: Analysis, validation: Analysis) -> None:
    """Every cell holds the best error of its own part, and counts with the mean over its seeds."""
    for found, errors in ((training, FALL), (validation, HUMP)):
        assert found.measure == "error rate"
        for cell in found.cells:
            assert cell.best == pytest.approx(errors[cell.heads or 0])
            assert cell.averaged
            assert cell.by_target == [pytest.approx(1.02 * errors[cell.heads or 0])]


def test_training_and_validation_are_read_apart() -> None:
    training, validation = both(rate_runs())
    check_parts(training, validation)
    (train,), (unseen,) = training.dimensions, validation.dimensions
    assert train.estimate == 6
    assert train.sentence.startswith("5 to 6 heads are needed to fit the training data (")
    assert unseen.estimate is None
    assert unseen.sentence.startswith("No transition was seen: the validation error is smallest with 6 heads (0.37)")
    assert any("above 6 % wrong answers no number of heads is claimed" in r.text for r in unseen.reasons)


def test_a_reading_that_swaps_the_parts_fails_the_check() -> None:
    """The twin: train and validation exchanged on the way in."""
    runs = [
        run.model_copy(
            update={"trials": [t.model_copy(update={"nmse": t.train_nmse, "train_nmse": t.nmse}) for t in run.trials]}
        )
        for run in rate_runs()
    ]
    with pytest.raises(AssertionError):
        check_parts(*both(runs))


def zero_runs(samples: dict[str, int] = SAMPLES) -> list[Run]:
    return rate_runs({**FALL, 8: 0.0, 10: 0.0}, samples=samples)


def check_zeros(found: Analysis, count: int) -> None:
    """Zeros stand at half a wrong answer, and the count is told."""
    assert sum(cell.floored for cell in found.cells) == count
    assert [cell.best for cell in found.cells if cell.floored] == [0.5 / 4000] * sum(c.floored > 0 for c in found.cells)
    (notice,), (note,) = found.notices, found.notes
    assert (notice.code, notice.count, notice.samples) == ("zero", count, [4000])
    assert note.startswith(f"{count} trials have no wrong answer on 4,000 training samples")
    assert "0.5/4000" in note


def test_an_error_of_zero_counts_as_half_a_wrong_answer_and_is_counted() -> None:
    training, validation = both(zero_runs())
    check_zeros(training, 12)
    assert validation.notes == []
    assert all(cell.floored == 0 for cell in validation.cells)
    assert error_for_zero(zero_runs()[0], "train") == 0.5 / 4000


def test_a_floor_that_hides_zeros_fails_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin: floored, but not counted; and counted, but not floored."""
    with monkeypatch.context() as patch:
        patch.setattr("headcount.analysis.of_runs.notices", lambda *_: [])
        with pytest.raises((AssertionError, ValueError)):
            check_zeros(analyse(zero_runs(), resamples=100, on="train"), 12)
    with monkeypatch.context() as patch:
        patch.setattr(measures, "WRONG_ANSWERS_FOR_ZERO", 1e-9)
        with pytest.raises(AssertionError):
            check_zeros(analyse(zero_runs(), resamples=100, on="train"), 12)


def test_zeros_on_an_unknown_number_of_samples_are_left_out_and_counted() -> None:
    runs = zero_runs({})
    found = analyse(runs, resamples=100, on="train")
    assert found.counts[NO_WRONG_ANSWER] == 12
    assert {c.heads for c in found.cells if c.best is None} == {8, 10}
    (note,) = found.notes
    assert note.startswith("12 trials have no wrong answer on an unknown number of training samples")
    assert all(math.isfinite(law.score) for law in found.laws)


def test_reading_twice_changes_nothing_more() -> None:
    for on in ("train", "validation"):
        once = with_errors_on(zero_runs(), on)
        assert with_errors_on(once, on) == once
    plain = [run.model_copy(update={"measure": "nmse"}) for run in rate_runs()]
    assert with_errors_on(plain, "validation") == plain


def test_training_errors_of_nmse_runs() -> None:
    runs = [run.model_copy(update={"measure": "nmse"}) for run in rate_runs()]
    training, validation = (analyse(runs, resamples=100, on=on) for on in ("train", "validation"))
    assert validation.plain
    assert not training.plain
    assert [c.best for c in training.cells][:3] == [0.4, 0.3, 0.2]
    assert terms_of(training).axis == "Training error (NMSE)"
    assert terms_of(validation) == error_terms()


def test_runs_without_training_errors() -> None:
    def without(trial: Trial) -> Trial:
        return trial.model_copy(update={"train_nmse": None})

    runs = [run.model_copy(update={"trials": [without(t) for t in run.trials]}) for run in rate_runs()]
    with pytest.raises(BadInput, match="no trial of this run has a training error"):
        analyse(runs, resamples=100, on="train")
    first = runs[0].model_copy(update={"trials": [*rate_runs()[0].trials[:9], *runs[0].trials[9:]]})
    found = analyse([first], resamples=100, on="train")
    assert found.counts[NO_TRAINING_ERROR] == 9
    assert [(notice.code, notice.count) for notice in found.notices] == [("no-training-error", 9)]
    assert found.notes == ["9 finished trials have no training error on record and are left out."]


def test_measures_are_not_mixed() -> None:
    one, other = rate_runs()
    with pytest.raises(BadInput, match="different measures"):
        analyse([one, other.model_copy(update={"measure": "nmse"})], resamples=100)


def test_marks_of_nmse_are_not_used_on_error_rates() -> None:
    rates, squares = rate_runs(), [run.model_copy(update={"measure": "nmse"}) for run in rate_runs()]
    assert faint_error(draw_setting(blocks(rates), 100, 0)) == pytest.approx(10 / 1000)
    assert faint_error(draw_setting(blocks(rates, "train"), 100, 0)) == pytest.approx(10 / 4000)
    assert faint_error(draw_setting(blocks(squares), 100, 0)) == SOLVED_NMSE


def test_large_errors_are_no_failure_to_learn() -> None:
    """An NMSE of 0.8 is hardly better than a guess; of 64 candidates one in five is much better."""
    flat = dict.fromkeys(HUMP, 0.8)
    found = analyse([rate_run(FALL, flat, length=64)], resamples=200).dimensions[0]
    assert found.estimate is None
    assert "did not learn" not in found.sentence
    assert "does not show whether heads, data or training limit it" in found.sentence
    guess = analyse([rate_run(FALL, dict.fromkeys(HUMP, 0.95), length=64)], resamples=200).dimensions[0]
    assert "did not learn the task" in guess.sentence


def test_guesses() -> None:
    assert guess_error_rate(rate_run(FALL, HUMP, length=8)) == pytest.approx(7 / 8)
    assert guess_error_rate(rate_run(FALL, HUMP, task={"kind": "cifar", "classes": 10, "length": 65})) == pytest.approx(
        0.9
    )
    assert guess_error_rate(rate_run(FALL, HUMP, task={"kind": "other"})) is None


def test_few_seeds_claim_nothing() -> None:
    found = analyse([rate_run(FALL, HUMP, seeds=1)], resamples=200, on="train").dimensions[0]
    assert found.estimate is None
    assert found.sentence.startswith("Too few trials to tell: 6 heads have a training error 50 times smaller")


def test_seeds_are_averaged() -> None:
    """One lucky seed decides nothing; of an NMSE the best seed counts, as before."""
    lucky = [
        run.model_copy(
            update={
                "trials": [
                    t.model_copy(update={"train_nmse": 0.001, "nmse": 0.001}) if (t.heads, t.seed) == (2, 0) else t
                    for t in run.trials
                ]
            }
        )
        for run in rate_runs(seeds=5)
    ]
    assert analyse(lucky, resamples=200, on="train").dimensions[0].estimate == 6
    drawn = draw_setting(blocks(with_errors_on(lucky, "train"), "train"), 300, 0)[0]
    errors = 10 ** drawn.level[:, 0, 1]
    assert errors[0] == pytest.approx((0.001 + 0.3 * (1.02 + 1.04 + 1.06 + 1.08)) / 5)
    assert errors.min() > 0.05
    squares = [run.model_copy(update={"measure": "nmse"}) for run in with_errors_on(lucky, "train")]
    assert 10 ** draw_setting(blocks(squares), 300, 0)[0].level[0, 0, 1] == pytest.approx(0.001)
    reasons = [r.text for r in analyse(lucky, resamples=200, on="train").dimensions[0].reasons]
    assert reasons[0].startswith("The training error, as mean over seeds, is 0.4")


def test_laws_may_leave_head_counts_out() -> None:
    runs = rate_runs()
    all_, some = (analyse(runs, resamples=100, on="train", without=left) for left in ((), (1, 10)))
    assert {law.points for law in all_.laws} == {12}
    assert {law.points for law in some.laws} == {8}
    assert all("fitted without h = 1, 10" in law.note for law in some.laws)
    assert notices(runs, "train") == []


@pytest.fixture
def stored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A store whose run is made by hand."""
    from headcount.api import stored as room
    from headcount.store.store import Store

    Store.open(tmp_path / "store").close()
    monkeypatch.setattr(room, "stored_runs", lambda store, run: zero_runs())
    return tmp_path / "store"


def ran(*arguments: str) -> Any:
    """The exit status of a command."""
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return ended.value.code


def test_the_command_line_takes_the_part(stored: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ran("analyse", "rates", "--store", str(stored), "--resamples", "100", "--on", "train") == 0
    out = capsys.readouterr().out
    assert "Errors: error rate on the training data." in out
    assert "12 trials have no wrong answer on 4,000 training samples" in out
    assert ran("analyse", "rates", "--store", str(stored), "--resamples", "100", "--json") == 0
    assert json.loads(capsys.readouterr().out)["on"] == "validation"
    page = tmp_path / "page"
    assert ran("report", "rates", "--store", str(stored), "--out", str(page), "--on", "train", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["measure"], told["on"]) == ("error rate", "train")
    assert len(told["notes"]) == 1
    assert "Training error (1 − accuracy)" in (page / "index.html").read_text()
    assert ran("report", "rates", "--store", str(stored), "--terminal", "--on", "train") == 0
    assert "Errors: error rate on the training data." in capsys.readouterr().out
    assert ran("analyse", "rates", "--store", str(stored), "--on", "test") != 0


HEADS = (1, 2, 4, 6, 8, 10, 12, 14, 16)


def noisy_runs(error: Callable[[int, int], float], draw: int, samples: int = 8192) -> list[Run]:
    """Error rates around a law: every seed has its own luck, and answers are counted."""
    rng = np.random.default_rng(draw)
    runs: list[Run] = []
    for run in rate_runs(dict.fromkeys(HEADS, 0.5), dict.fromkeys(HEADS, 0.5)):
        length = run.values["length"]
        lucks = np.exp(0.1 * rng.normal(size=len(run.trials)))
        trials = [
            t.model_copy(
                update={"train_nmse": rng.binomial(samples, min(luck * error(t.heads, length), 0.9)) / samples}
            )
            for t, luck in zip(run.trials, lucks, strict=True)
        ]
        runs.append(run.model_copy(update={"trials": trials, "samples": {"train": samples, "validation": 1000}}))
    return runs


def law(rate: float) -> Callable[[int, int], float]:
    return lambda h, T: 0.9 * math.exp(-rate * h * (8 / T) ** 0.25)


def verdicts(error: Callable[[int, int], float], draws: int) -> list[tuple[str, int | None]]:
    found = [analyse(noisy_runs(error, i), resamples=100, on="train").dimensions[0] for i in range(draws)]
    return [(d.verdict, d.estimate) for d in found]


@pytest.mark.parametrize("draws", [8, pytest.param(20, marks=pytest.mark.slow)])
@pytest.mark.parametrize("rate", [0.3, 0.83])
def test_one_law_from_the_first_head_to_the_last_is_no_transition(rate: float, draws: int) -> None:
    """It ends among the head counts tried, or where no wrong answer is left (the paper's rate)."""
    assert all(estimate is None and verdict != "transition" for verdict, estimate in verdicts(law(rate), draws))


def test_a_planted_step_is_a_transition() -> None:
    even = law(0.05)
    assert verdicts(lambda h, T: even(h, T) if h < 8 else 0.01, 5) == [("transition", 8)] * 5


def test_a_rule_that_takes_any_end_for_a_step_fails_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin: the best seed counts, and nobody asks how few answers are wrong or how even the fall is."""
    monkeypatch.setattr("headcount.analysis.heads_needed._no_step", lambda *_: False)
    monkeypatch.setattr(Block, "rate", property(lambda self: False))
    found = [*verdicts(law(0.3), 4), *verdicts(law(0.83), 4)]
    assert any(verdict == "transition" for verdict, _ in found)


def test_an_even_fall_is_called_even() -> None:
    """The paper's own training errors on MS MARCO at T = 32 fall by one law up to where nearly nothing is left."""
    even = {1: 0.697, 2: 0.514, 4: 0.207, 6: 0.063, 8: 0.017, 12: 0.002, 16: 0.0019}
    found = analyse(rate_runs(even, dict.fromkeys(even, 0.5)), resamples=200, on="train").dimensions[0]
    assert (found.estimate, found.verdict, found.high) == (None, "unclear", None)
    assert found.sentence.startswith("Unclear: the training error falls up to 12 heads (0.002")
    assert found.sentence.endswith("No transition is claimed.")
    assert "the fall is even, and no number of heads stands out" in found.sentence
    few = {1: 0.4, 2: 0.3, 4: 0.2, 6: 0.001, 8: 0.001, 10: 0.001}
    scarce = analyse(rate_runs(few, dict.fromkeys(few, 0.5)), resamples=200, on="train").dimensions[0]
    assert scarce.estimate is None
    assert "where fewer than 10 answers are wrong" in scarce.sentence
    step = analyse(rate_runs(), resamples=200, on="train").dimensions[0]
    assert step.estimate == 6
    assert not any("no end of the fall" in reason.text for reason in scarce.reasons)
