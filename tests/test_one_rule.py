"""One run, one answer: whatever shows a run (repr, picture, page, terminal, JSON) gives the same sentence."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Sequence
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headcount as hc
from headcount.analysis.of_runs import analyse, answers
from headcount.analysis.record import Dimension
from headcount.cli.analyse import analyse as analyse_verb
from headcount.cli.analyse import show
from headcount.cli.report import report as report_verb
from headcount.cli.sweep import sweep as sweep_verb
from headcount.core import display
from headcount.core.files import write_text
from headcount.core.text.terminal import Terminal
from headcount.render.charts.terminal import print_run
from headcount.render.panel_page import page_html
from headcount.render.run_page import run_page
from headcount.render.tables import transition_table
from headcount.store.records import Run, Trial

EXAMPLE = (0.030, 0.026, 0.022, 0.018, 0.0042, 0.0040)
"""A step of a factor of four: one rule called it gradual, the other a transition at 5."""


def made(errors: Sequence[Sequence[float]], name: str = "made", **values: Any) -> Run:
    """A panel with these errors: a row for every head count from 1 on, a column for every seed."""
    trials = [
        Trial(
            heads=h,
            seed=s,
            state="done",
            nmse=float(e),
            train_nmse=float(e),
            steps=100,
            seconds=1.0,
            parameters=100 * h,
            parameters_total=150 * h,
        )
        for h, row in enumerate(errors, 1)
        for s, e in enumerate(row)
    ]
    heads, model = list(range(1, len(errors) + 1)), {"head_dim": 8, "hidden": 32}
    return Run(
        name=name,
        task={"name": "made", "length": 8},
        intrinsic=None,
        values=values,
        trials=trials,
        provenance={},
        spec={"heads": heads, "seeds": len(errors[0]), "model": model},
        seconds=1.0,
    )


def drawn(seed: int) -> Run:
    """Draw a run: a sharp step, a gentle fall or none, with seeds that differ a little or a lot."""
    rng = np.random.default_rng(seed)
    most, seeds = int(rng.integers(3, 9)), int(rng.integers(1, 5))
    h, start = np.arange(1, most + 1), rng.uniform(-2.5, 0.0)
    slope = rng.uniform(0.0, 0.25)
    levels = start - slope * h
    if seed % 3 == 0:
        levels = levels - np.where(h >= rng.integers(1, most + 2), rng.uniform(0.4, 3.0), 0.0)
    elif seed % 3 == 1:
        levels = start - rng.uniform(0.2, 0.6) * h
    scatter = rng.choice([0.01, 0.1, 0.5]) * np.abs(rng.standard_normal((most, seeds)))
    return made(10 ** (levels[:, None] + scatter))


def flat_text(text: str) -> str:
    """Text without tags and line breaks."""
    shown = re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", "", text)))
    return shown.replace(" :", ":").replace(" ;", ";")


def screen(printed: Any, *arguments: Any) -> str:
    stream = io.StringIO()
    printed(*arguments, Terminal(file=stream, width=1000))
    return flat_text(stream.getvalue())


def disagreements(runs: list[Run], *, pages: bool = False) -> list[str]:
    """Return the surfaces that do not give the answer of `analyse`."""
    result, analysis = hc.SweepResult(runs), analyse(runs)
    (expected,) = analysis.dimensions
    picture = result._view().figures[0]
    (run,) = runs
    with pytest.warns(DeprecationWarning, match="find_transition"):
        old = hc.find_transition(run)
    records: dict[str, Dimension] = {
        "transition": result.transition,
        "analysis": result.analysis.dimensions[0],
        "find_transition": old,
    }
    texts = {
        "repr": repr(result),
        "title": picture.title,
        "notebook": flat_text(result._repr_html_()),
        "analyse": screen(show, analysis),
        "report --terminal": screen(print_run, analysis),
    }
    if pages:
        texts["demo page"] = flat_text(page_html(run, result.transition))
        texts["report page"] = flat_text(run_page(runs, analysis))
    others = [text for text in HEADLINES if text not in expected.sentence]
    wrong = [name for name, record in records.items() if record != expected]
    wrong += [name for name, text in texts.items() if expected.sentence not in text]
    wrong += [f"{name} says {other}" for name, text in texts.items() for other in others if other in text]
    marked = transition_table(result.transition).marked
    needed = None if marked is None else result.transition.rows[marked].heads
    return wrong if needed == expected.heads_needed else [*wrong, "table"]


HEADLINES = (
    "are needed (",
    "No number of heads stands out:",
    "suffices (",
    "Unclear:",
    "Too few trials to tell:",
)
"""How sentences begin; two of them about one run contradict each other."""


def test_a_step_of_four_is_five_heads_everywhere() -> None:
    run = made([[e * (1 + 0.02 * s) for s in range(3)] for e in EXAMPLE])
    found = hc.SweepResult([run]).transition
    assert (found.verdict, found.heads_needed) == ("transition", 5)
    assert found.sentence == (
        "5 heads are needed (90 % interval 5): with 4 the error is 4.3 times larger, "
        "and up to 6 heads do not improve it."
    )
    assert disagreements([run], pages=True) == []


def test_the_rule_is_numbers_and_its_words_are_made_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """A front door without words: the same numbers and verdict, and nothing is said."""
    run = made([[e * (1 + 0.02 * s) for s in range(3)] for e in EXAMPLE])
    (told,) = answers([run])
    assert told.sentence
    assert told.reasons
    assert told.comparison
    monkeypatch.setitem(display._registered, "words", lambda record, _: record)
    (bare,) = answers([run])
    assert bare == told.model_copy(update={"sentence": "", "reasons": [], "comparison": ""})


def test_the_analysis_of_a_run_is_codes_and_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A front door without words: the same records, and no sentence in any of them."""
    runs = [
        made([[e * 8 / N * (1 + 0.02 * s) for s in range(2)] for e in EXAMPLE], length=T, hidden=N).model_copy(
            update={"blind": True}
        )
        for T in (8, 16)
        for N in (8, 16)
    ]
    said = analyse(runs, resamples=100, without=(1,))
    assert said.notes
    assert all(line.theory_note for line in said.scaling)
    assert all(law.note for law in said.laws)
    monkeypatch.setitem(display._registered, "words", lambda record, _: record)
    bare = analyse(runs, resamples=100, without=(1,))
    assert [line.theory_note for line in bare.scaling] == [""] * len(said.scaling) != []
    assert [law.note for law in bare.laws] == [""] * len(said.laws) != []
    assert (bare.notes, bare.notices) == ([], said.notices)
    wordless = {
        "dimensions": {"__all__": {"sentence", "reasons", "comparison"}},
        "notes": True,
        "scaling": {"__all__": {"theory_note"}},
        "laws": {"__all__": {"note"}},
    }
    assert bare.model_dump(exclude=wordless) == said.model_dump(exclude=wordless)


def test_150_drawn_runs_have_one_answer_each() -> None:
    verdicts: dict[str, int] = {}
    for seed in range(150):
        run = drawn(seed)
        assert disagreements([run], pages=seed % 30 == 0) == [], seed
        (found,) = analyse([run]).dimensions
        verdicts[found.verdict] = verdicts.get(found.verdict, 0) + 1
    assert set(verdicts) == {"transition", "one-head", "not-reached", "no-fall", "unclear", "too-few"}, verdicts
    assert min(verdicts.values()) >= 3, verdicts


def test_several_lengths_have_one_answer_too() -> None:
    runs = [made([[e * (1 + 0.02 * s) for s in range(3)] for e in EXAMPLE], length=T) for T in (8, 16)]
    assert hc.SweepResult(runs).transition.heads_needed == 5
    assert hc.SweepResult(runs).transitions == analyse(runs).dimensions


def test_settings_have_an_answer_each() -> None:
    runs = [made([[e, e * 1.02] for e in EXAMPLE[: 5 + i]], depth=i) for i in (0, 1)]
    result = hc.SweepResult(runs)
    assert [line.split(": ")[0] for line in str(result).splitlines()] == ["depth 0", "depth 1"]
    with pytest.raises(hc.BadInput, match="2 settings: read .transitions"):
        _ = result.transition


def test_no_page_claims_one_number_for_settings_that_leave_it_open() -> None:
    clear, lucky = [[0.03] * 3, [0.012] * 3, [6e-5] * 3, [4e-5] * 3], [[0.03] * 3, [0.012] * 3, [6e-5, 0.012, 0.012]]
    runs = [made(clear, depth=0), made(clear, depth=1)]
    assert "3 heads in all 2 settings" in flat_text(run_page(runs, analyse(runs)))
    runs[1] = made([*lucky, [4e-5] * 3], depth=1)
    (_, found) = (analysis := analyse(runs)).dimensions
    assert (found.estimate, found.hedged) == (3, True)
    assert "2 settings, each with its own answer" in flat_text(run_page(runs, analysis))


def test_a_surface_with_a_rule_of_its_own_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin: a second opinion behind repr and picture must not pass the check."""
    run = made([[e * (1 + 0.02 * s) for s in range(3)] for e in EXAMPLE])

    def second(runs: list[Run]) -> list[Dimension]:
        (found,) = analyse(runs).dimensions
        other = "No number of heads stands out: from 1 to 6 heads the best error goes from 0.030 to 0.0040."
        return [found.model_copy(update={"sentence": other, "heads_needed": None})]

    monkeypatch.setattr("headcount.api.sweep_result.answers", second)
    wrong = disagreements([run])
    assert {"repr", "title", "transition", "table"} <= set(wrong)
    assert "analysis" not in wrong


SPEC = """
name = "small"
heads = [1, 2, 3]
seeds = 2
lengths = [4, 6]
[task]
family = "min-plus-max"
[model]
head_dim = 2
hidden = 8
[train]
steps = 60
warmup = 5
batch = 16
train_size = 100
validation_size = 50
evaluations = 4
"""


def test_a_sweep_and_its_analysis_say_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    spec, store = tmp_path / "small.toml", tmp_path / "store"
    write_text(spec, SPEC)

    def told(verb: Any, *arguments: Any, **options: Any) -> str:
        capsys.readouterr()
        verb(*arguments, store=store, **options)
        return capsys.readouterr().out

    swept = told(sweep_verb, spec)
    (record,) = json.loads(told(sweep_verb, spec, json=True))["answers"]
    (again,) = json.loads(told(analyse_verb, "small", json=True))["dimensions"]
    assert record == again
    said = record["sentence"]
    page = json.loads(told(report_verb, "small", out=tmp_path / "page", json=True))
    assert [answer["sentence"] for answer in page["answers"]] == [said]
    for text in (swept, told(analyse_verb, "small"), told(report_verb, "small", terminal=True)):
        assert said in flat_text(text)
    assert said in flat_text((tmp_path / "page" / "index.html").read_text(encoding="utf-8"))
