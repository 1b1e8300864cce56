"""The estimate of D on twice 60 trained tasks that nobody picked: nine of ten right and covered, controls one head."""

from __future__ import annotations

import random

import pytest
from analyse_cases import covers
from study import STUDIES, figures, studied

from headcount.analysis.of_runs import answers
from headcount.analysis.record import Dimension
from headcount.core.readers.reading import read_json
from headcount.store.records import Run
from results import RESULTS, write_result


def found_in(runs: list[Run]) -> Dimension:
    (found,) = answers(runs, resamples=100)
    return found


@pytest.mark.parametrize("study", STUDIES)
def test_the_study_is_whole(study: str) -> None:
    tasks = studied(study)
    assert len([n for n in tasks if n.startswith("study")]) == 50
    assert len([n for n in tasks if n.startswith("control")]) == 10
    assert {runs[0].intrinsic for n, runs in tasks.items() if n.startswith("study")} == {2, 3, 4, 5, 6}
    assert all(len(runs) == 2 and all(len(run.trials) == 24 for run in runs) for runs in tasks.values())


def test_the_studies_share_no_task() -> None:
    """By their errors, which two runs of one task would share; a mean has nothing to draw but its dimension."""
    errors = [
        {tuple(t.nmse for run in runs for t in run.trials) for name, runs in studied(study).items() if "study" in name}
        for study in STUDIES
    ]
    assert len(errors[0] | errors[1]) == 100


@pytest.mark.parametrize("study", STUDIES)
def test_nine_of_ten_are_right_and_covered(study: str) -> None:
    answers = {name: (runs[0].intrinsic, found_in(runs)) for name, runs in studied(study).items()}
    tasks = {n: a for n, a in answers.items() if n.startswith("study")}
    controls = {n: a for n, a in answers.items() if n.startswith("control")}
    right = sum(found.estimate == D for D, found in tasks.values())
    covered = sum(covers(found, D or 0) for D, found in tasks.values())
    assert right >= 47  # as measured: 47 and 47
    assert covered >= 45
    assert [n for n, (_, found) in controls.items() if found.verdict != "one-head"] == []
    assert all(found.sentence.startswith("One head suffices") for _, found in controls.values())


def test_shuffled_heads_are_not_answered() -> None:
    """The same errors under wrong head counts: a rule that is right here too reads something else."""
    right = 0
    for name, runs in [(n, r) for n, r in studied(STUDIES[0]).items() if n.startswith("study")][::3]:
        order = list(range(1, 9))
        random.Random(name).shuffle(order)
        mixed = [
            run.model_copy(update={"trials": [t.model_copy(update={"heads": order[t.heads - 1]}) for t in run.trials]})
            for run in runs
        ]
        right += found_in(mixed).estimate == runs[0].intrinsic
    assert right < 6  # of 17


@pytest.mark.slow
@pytest.mark.parametrize("study", STUDIES)
def test_the_study_in_figures(study: str) -> None:
    """The full bootstrap, and where it is wrong."""
    found = figures(study)
    trained = read_json(RESULTS / f"{study}.json")["source"]["measured"]["commit"]
    write_result(
        study,
        found,
        seeds=[0, 1, 2],
        counts={"tasks": 50, "controls": 10, "trials": 2880},
        device="NVIDIA H200 (training)",
        trained=trained,
    )
    assert min(found["right"], found["covered"]) >= 45
    assert found["controls_one_head"] == 10
