"""Results in a notebook: sentence, table and picture, rows for pandas, and a figure without a path."""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from advisor_cases import made_up
from matplotlib.figure import Figure
from record_cases import ERRORS, made_record

import headcount as hc
from headcount.advisor.advice import Advice
from headcount.core.errors import BadInput
from headcount.render.notebook import View, filled, without_empty
from headcount.render.tables import Column, Table
from support import breakable, check_frame

EVIL = "<script>alert('x')</script>&\"q\""
FINDINGS = ("domain", "2.1", "2.2", "2.3", "2.4", "|S_i| ≥ T/4")


class Seen(HTMLParser):
    """The elements, attributes and text of a page; nothing may stay open."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[str] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]
        if tag != "img":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def check_shown(result, sentence: str, *, picture: bool = True) -> str:
    """What every result must do in a notebook."""
    text = breakable(result._repr_html_())
    seen = Seen(text)
    assert sentence in seen.text
    assert {"table", "img"} - set(seen.tags) == (set() if picture else {"img"})
    assert 'src="data:image/png;base64,iVBOR' in text or not picture
    assert "script" not in seen.tags
    assert not [name for name in seen.attributes if name.startswith("on")]
    return text


def check_rows(rows, *columns: str) -> None:
    """What pandas.DataFrame takes: a list of dicts with the same plain columns, none of them empty."""
    assert rows
    check_frame(rows)
    assert {tuple(row) for row in rows} == {tuple(rows[0])}
    assert set(columns) <= set(rows[0])
    for name in rows[0]:
        assert isinstance(name, str)
        assert any(row[name] is not None for row in rows), f"{name} is empty"
        assert all(isinstance(row[name], int | float | str | bool | None) for row in rows)


def check_plot(result, folder: Path) -> None:
    """A figure without a path, and a file with one."""
    figure = result.plot()
    assert isinstance(figure, Figure)
    assert figure._repr_png_().startswith(b"\x89PNG")
    assert result.plot(folder / "a.png").axes
    assert (folder / "a.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(BadInput, match=r"png, \.pdf or \.svg"):
        result.plot(folder / "a.gif")
    assert [p.name for p in folder.iterdir()] == ["a.png"]


@pytest.fixture(scope="module")
def task():
    return hc.make_task("quadratic-basins", intrinsic=2, dim=2, length=8)


@pytest.fixture(scope="module")
def swept(task):
    found = hc.sweep(task, heads=[1, 2], seeds=2, steps=40, warmup=4, train_size=64, batch=16, quiet=True)
    return hc.SweepResult([run.model_copy(update={"title": EVIL}) for run in found.runs])


def made_advice(**options) -> Advice:
    record = made_record(name=EVIL, **options)
    trials = made_up({h: [e, 1.4 * e] for h, e in ERRORS[record.verdict].items()})
    return Advice(record, trials[0], None, tuple(trials))  # type: ignore[arg-type]


def test_an_advice_shows_itself(tmp_path):
    found = made_advice()
    text = check_shown(found, found.record.sentence)
    assert "Recommended: 3 heads" in text
    check_plot(found, tmp_path)
    check_rows(found.table(), "heads", "validation", "parameters")
    assert "wrong" not in found.table()[0], "a regression has no wrong classes"
    assert "wrong" in made_advice(classes=True).table()[0]


def test_a_sweep_and_its_analysis_show_themselves(swept, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)  # a prompt: nothing is written without a path
    for name, result in (("sweep", swept), ("analysis", swept.analysis)):
        folder = tmp_path / name
        folder.mkdir()
        check_shown(result, repr(swept) if name == "sweep" else swept.analysis.dimensions[0].sentence)
        check_plot(result, folder)
    check_rows(swept.table(), "heads", "seed", "nmse")
    assert "accuracy" not in swept.table()[0], "the columns of error rates are empty here"
    check_rows(swept.analysis.table(), "heads", "best", "median")


def test_rows_in_pandas_answer_a_question(swept):
    frame = check_frame(swept.table())
    best = frame.groupby("heads")["nmse"].min()
    assert best.to_dict() == {cell.heads: cell.best for cell in swept.analysis.cells}
    cells = check_frame(swept.analysis.table()).set_index("heads")
    assert cells["best"].to_dict() == best.to_dict()
    with pytest.raises(AssertionError, match="a is object"):
        check_frame([{"a": 10**30}])
    with pytest.raises(AssertionError):
        check_frame([{"a": 1}, {"b": 1}])


def test_a_report_on_assumptions_shows_itself(task, tmp_path):
    report = hc.check_assumptions(task)
    check_shown(report, report.sentence)
    check_plot(report, tmp_path)
    check_rows(report.table(), "assumption", "verdict", "evidence", "sentence")
    assert tuple(row["assumption"] for row in report.table()) == FINDINGS
    line = hc.check_assumptions(hc.make_task("min-plus-max", length=4))  # tokens of one number
    assert "img" in Seen(line._repr_html_()).tags
    outside = hc.check_assumptions(hc.make_task("mean"))
    assert set(Seen(outside._repr_html_()).tags) == {"div", "style", "p", "strong"}
    assert outside.table() == []
    with pytest.raises(BadInput, match="nothing to draw"):
        outside.plot()


def test_a_trained_model_shows_itself(task, tmp_path):
    recipe = hc.TrainSpec(steps=30, warmup=3, train_size=64, validation_size=32, batch=16)
    trained = hc.train(task, hc.ModelSpec(dim=2, length=8, heads=2), recipe)
    check_shown(trained, f"2 heads: validation NMSE {trained.trial.nmse:.2e}")
    check_plot(trained, tmp_path)
    check_rows(trained.table(), "step", "nmse")
    assert trained.table()[-1] == {"step": 30, "nmse": trained.trial.nmse}


def test_a_result_is_one_line_of_text(task, swept):
    """Not a dump of fields: tensors, trials and provenance would bury the answer."""
    recipe = hc.TrainSpec(steps=30, warmup=3, train_size=64, validation_size=32, batch=16)
    trained = hc.train(task, hc.ModelSpec(dim=2, length=8, heads=2), recipe)
    several = hc.sweep(
        task, heads=[1, 2], head_dims=[2, 4], seeds=1, steps=40, warmup=4, train_size=64, batch=16, quiet=True
    ).analysis
    report = hc.check_assumptions(task)
    for result, start in (
        (trained, f"2 heads: validation NMSE {trained.trial.nmse:.2e}"),
        (swept.analysis, swept.analysis.dimensions[0].sentence),
        (several, "quadratic-basins: 2 settings (read .dimensions); 4 trials: 4 done"),
        (report, report.sentence),
    ):
        assert repr(result).startswith(start)
        assert str(result) == repr(result)
        assert "\n" not in repr(result)
        assert len(repr(result)) < 400
        assert "provenance" not in f"{result!r}"


def test_an_attack_shows_itself(tmp_path):
    task = hc.make_task("min-plus-max", length=3)
    model = hc.ModelSpec(dim=1, length=3, heads=1, head_dim=2, hidden=4)
    trained = hc.train(task, model, hc.TrainSpec(steps=30, warmup=3, train_size=64, validation_size=32, batch=16))
    trained.save(tmp_path / "model")
    found = hc.attack(tmp_path / "model", starts=2, budget=1.0)
    assert "img" in Seen(found._repr_html_()).tags
    (tmp_path / "pictures").mkdir()
    check_plot(found, tmp_path / "pictures")


def test_text_from_files_is_escaped(swept):
    for result in (made_advice(), swept, swept.analysis):
        assert EVIL not in result._repr_html_()
    column = Column(name=EVIL, meaning=EVIL)
    table = Table(caption=EVIL, columns=[column], rows=[[EVIL]], marked=0)
    text = View([EVIL, EVIL], [table]).html()
    assert Seen(text).text.count(EVIL) == 5
    assert "script" not in Seen(text).tags
    assert "script" in Seen(text.replace("&lt;", "<").replace("&gt;", ">")).tags, "the check can fail"


def test_empty_columns_are_left_out_of_rows_and_tables():
    assert filled([{"a": 1, "b": None, "c": ""}, {"a": None, "b": None, "d": 0}]) == [
        {"a": 1, "d": None},
        {"a": None, "d": 0},
    ]
    columns = [Column(name=name, meaning="") for name in "abc"]
    table = Table(caption="t", columns=columns, rows=[["1", "–", ""], ["–", "–", "2"]], marked=0)
    kept = without_empty(table)
    assert ([c.name for c in kept.columns], kept.rows, kept.marked) == (["a", "c"], [["1", ""], ["–", "2"]], 0)
    assert len(re.findall("<td>", View([""], [kept]).html())) == 2
