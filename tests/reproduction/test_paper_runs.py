"""What was trained at paper scale, from the rows that were kept: the paper's cells reached, D found, the floor."""

from __future__ import annotations

import pytest
from kept import NAMES, kept_json, kept_runs

from benchmarks import paper_runs
from headcount.analysis.of_runs import analyse, answers
from headcount.reproduction.cells import compare
from headcount.reproduction.charts import smallest_hidden
from headcount.reproduction.items import ITEMS
from headcount.reproduction.numbers import cells
from headcount.reproduction.plan import sweep_of
from headcount.reproduction.words import remarks_of
from headcount.store.records import Run

Best = dict[tuple[int, int, int], float]


def best(name: str) -> Best:
    """Return the best seed's error by draw, length and heads."""
    found: Best = {}
    for run in kept_runs(name):
        for trial in run.trials:
            place = run.values.get("target", -1), run.values["length"], trial.heads
            assert trial.nmse is not None
            found[place] = min(trial.nmse, found.get(place, 1e9))
    return found


def missed(ours: Best, table: str, draw: int, enough: int) -> list[tuple[int, int]]:
    """Return the cells (heads, T) with enough heads in which the paper's error is smaller than ours."""
    theirs = [c for c in cells(table) if c.heads >= enough]
    assert len(theirs) == 10
    return [(c.heads, c.length) for c in theirs if ours[draw, c.length, c.heads] > c.value]


@pytest.mark.parametrize("name", NAMES)
def test_what_documents_quote_is_in_the_rows(name: str) -> None:
    about, runs = kept_json(name), kept_runs(name)
    assert paper_runs.errors(runs) == about["errors"]
    assert sum(len(run.trials) for run in runs) == about["counts"]["done"]
    wrong = runs[0].model_copy(update={"trials": runs[0].trials[1:]})
    if len({t.seed for t in runs[0].trials}) > 1:
        assert paper_runs.errors([wrong, *runs[1:]]) != about["errors"]


@pytest.mark.parametrize("name", NAMES)
def test_the_kept_answers_are_those_of_the_rule(name: str) -> None:
    kept = kept_json(name)["answers"]
    found = {paper_runs.slug(d.setting) or "all": d for d in answers(kept_runs(name))}
    assert {
        key: {"estimate": d.estimate, "low": d.low, "high": d.high, "sentence": d.sentence} for key, d in found.items()
    } == kept


def test_every_sweep_at_paper_scale_is_kept_whole() -> None:
    for name, item in ITEMS.items():
        if item.spec not in NAMES:
            continue
        spec = sweep_of(name, "paper")
        assert spec.data() == kept_json(item.spec)["spec"], item.spec
        planned = sum(len(panel.heads) * spec.seeds for panel in spec.panels())
        assert sum(len(run.trials) for run in kept_runs(item.spec)) == planned, item.spec
    assert len(NAMES) == 14


@pytest.mark.parametrize("draw", [0, 4])
def test_table_3_is_reached_with_enough_heads(draw: int) -> None:
    """All ten cells with four and five heads, for both draws."""
    ours = best("table3")
    assert missed(ours, "table3", draw, 4) == []
    assert len(missed({place: 100 * error for place, error in ours.items()}, "table3", draw, 4)) > 5


def test_table_4_is_reached_with_enough_heads() -> None:
    """Draw 1: all ten cells, one of them only after twice the steps."""
    ours = best("table4")
    assert missed(ours, "table4", 1, 3) == [(3, 16)]
    longer = {(1, T, heads): error for (_, T, heads), error in best("table4-longer").items()}
    assert missed({**ours, **longer}, "table4", 1, 3) == []


def estimates(runs: list[Run]) -> list[int | None]:
    return [found.estimate for found in analyse(runs, resamples=200).dimensions]


def test_the_transition_is_at_every_D_from_2_to_8() -> None:
    runs = kept_runs("dimension")
    assert [run.intrinsic for run in runs] == [2, 3, 4, 5, 6, 7, 8]
    assert estimates(runs) == [2, 3, 4, 5, 6, 7, 8]
    moved = [
        run.model_copy(update={"trials": [t.model_copy(update={"heads": t.heads + 1}) for t in run.trials]})
        for run in runs
    ]
    assert estimates(moved) == [3, 4, 5, 6, 7, 8, 9]  # it reads the errors, not the known D


@pytest.mark.parametrize(("name", "settings"), [("fixed-size", 3), ("beta", 5)])
def test_neither_size_nor_temperature_moves_the_transition(name: str, settings: int) -> None:
    assert estimates(kept_runs(name)) == [4] * settings


def test_what_longer_training_changes() -> None:
    """With 3 of 4 heads other optimisers and fresh data change little and ten times the steps less than half."""
    errors = kept_json("floor")["errors"]

    def at(recipe: str, heads: int) -> float:
        return errors[recipe]["T16"][f"h{heads}"]["best"]

    few = [at(f"{recipe}-30000-steps", 3) for recipe in ("Adam", "AdamW", "fresh-data", "L-BFGS-polish")]
    assert max(few) / min(few) < 1.2
    assert 1.5 < at("Adam-30000-steps", 3) / at("Adam-300000-steps", 3) < 2.5
    assert at("Adam-30000-steps", 4) / at("Adam-300000-steps", 4) > 50


def test_the_smallest_hidden_size_for_an_error() -> None:
    """One wide head: by hand, from the best seeds of the kept table."""
    found = smallest_hidden(kept_runs("wide-head"))
    assert found["F of 2 layers", 0.012] == [(8, 64), (12, 32), (16, 32), (32, 16)]
    assert len({error for _, error in found}) == 3


def test_draws_are_told_apart() -> None:
    """With 3 heads the best errors of the five draws of table 2 differ most at T = 8: 2.2e-4 and 2.1e-3."""
    told = remarks_of(None, compare("table2", kept_runs("table2"), resamples=100))
    assert any("with 3 heads one differs from another by a factor of up to 9.4" in text for text in told)
