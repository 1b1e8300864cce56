"""Real data beside the paper: every cell in its place, statements computed from the cells, files complete."""

from __future__ import annotations

import csv
import io
import json
import math
from html import unescape
from pathlib import Path

import pytest
from real_cases import CIFAR_HEADS, SIDES, cifar_runs, law_error, marco_runs, real_runs, real_trial

from headcount.analysis.of_runs import analyse
from headcount.core.errors import BadInput
from headcount.core.text.terminal import Terminal
from headcount.render.charts.matplotlib import picture
from headcount.reproduction import cells as cells_of
from headcount.reproduction import numbers
from headcount.reproduction.cells import Comparison, compare, read_cells
from headcount.reproduction.charts import accuracy_chart, charts_of, paper_values, reversal_chart
from headcount.reproduction.findings import findings, harder, law, order, peak, rank_correlation, rise
from headcount.reproduction.items import GROUPS, ITEMS, names_of
from headcount.reproduction.law import laws_of, paper_scores, reversal_scores
from headcount.reproduction.plan import SCALES, plan_of
from headcount.reproduction.show import print_item, show_item, write_page
from headcount.reproduction.tables import accuracy_table, cells_csv, law_table, sizes_table
from headcount.reproduction.words import StatedFinding, stated, stated_findings
from headcount.store.records import Run

GOLD = {
    ("table6", 4, 32): (0.793, 0.002), ("table7", 2, 8): (0.5221, 0.0102),
    ("table8", 10, 577): (96.5, 0.32), ("table9", 24, 1025): (48.39, 0.76),
}  # fmt: skip


REAL = GROUPS["real"]


def on_marco(runs: list[Run]) -> Comparison:
    return compare("marco", runs, resamples=100)


def on_cifar(runs: list[Run]) -> Comparison:
    return compare("cifar", runs, resamples=100)


def test_numbers_of_the_paper() -> None:
    for (table, heads, length), pair in GOLD.items():
        (cell,) = [c for c in numbers.cells(table) if (c.heads, c.length) == (heads, length)]
        assert (cell.value, cell.deviation) == pair
    assert numbers.fitted_law() == {"delta": 0.25, "alpha": -1.4}
    assert [numbers.transition(name) for name in ("MS MARCO", "CIFAR-10")] == [12, 10]


def test_names_and_groups() -> None:
    assert set(GROUPS["marco"]) == {"table6", "table7", "figure2a", "figure2b", "figure5"}
    assert set(GROUPS["cifar"]) == {"table8", "table9", "figure2c", "figure2d", "figure6"}
    assert set(names_of("real")) == {*GROUPS["marco"], *GROUPS["cifar"]}
    assert names_of("table6") == ("table6",)
    assert not set(names_of("synthetic")) & set(REAL)
    assert {ITEMS[name].part for name in REAL} == {"train", "validation"}


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("kind", ["marco", "cifar"])
def test_every_scale_has_a_plan(kind: str, scale: str) -> None:
    plan = plan_of(kind, scale)  # type: ignore[arg-type]
    assert plan.name == f"{kind}-{scale}"
    assert "scales" not in plan.stated
    assert "data" not in plan.stated
    assert plan.stated["model"]["head_dim"] == (32 if kind == "marco" else 16)
    assert plan.stated["model"]["depth"] == (2 if kind == "marco" else 4)
    if scale in ("paper", "beyond"):
        assert plan.stated["heads"] == ([1, 2, 4, 6, 8, 10, 12, 14, 16] if kind == "marco" else list(CIFAR_HEADS))
        assert plan.stated["lengths"] == ([8, 16, 32, 64] if kind == "marco" else list(SIDES.values()))
        assert plan.opened_with["queries" if kind == "marco" else "train"] >= (12_000 if kind == "marco" else 25_000)
    assert plan.opened_with["validation"] > 0


@pytest.mark.parametrize("scale", SCALES)
def test_a_plan_becomes_a_spec(scale: str) -> None:
    real_spec = pytest.importorskip("headcount.sweeps.encoder_spec")
    image = real_spec.CifarData(content="0" * 64, train=100, validation=40, classes=10)
    text = real_spec.MarcoData(
        content="0" * 64, train=100, validation=40, passages=50, seed=0, embeddings="1" * 64, dim=384, most=512
    )
    for source in (image, text):
        plan = plan_of(source.kind, scale)  # type: ignore[arg-type]
        spec = plan.on_data(source)
        assert spec.name == plan.name
        assert spec.train.steps == plan.stated["train"]["steps"]
        assert spec.model.dropout == (0.1 if source.kind == "cifar" else 0.0)
        assert [panel.size for panel in spec.panels()] == plan.stated["lengths"]
        assert sum(len(panel.heads) * spec.seeds for panel in spec.panels()) == plan.trials()


def check_cells(runs: list[Run]) -> None:
    """Every cell holds its own trials' accuracies and the paper's number of its own table."""
    kind = runs[0].task["kind"]
    cells = read_cells(kind, runs)
    assert len(cells) == 2 * len(runs) * len({t.heads for t in runs[0].trials})
    tables = {"marco": ("table6", "table7"), "cifar": ("table8", "table9")}[kind]
    unit = 1 if kind == "marco" else 100
    for part, table in zip(("train", "validation"), tables, strict=True):
        theirs = {(c.heads, c.length): c.value for c in numbers.cells(table)}
        for run in runs:
            for heads in {t.heads for t in run.trials}:
                cell = cells[part, heads, run.values["length"]]  # type: ignore[index]
                own = [t for t in run.trials if t.heads == heads and t.state == "done"]
                stated = [t.train_accuracy if part == "train" else t.accuracy for t in own]
                assert list(cell.results) == stated
                expected = theirs.get((heads, run.values["length"]))
                assert cell.theirs == (None if expected is None else pytest.approx(expected / unit))


@pytest.mark.parametrize("runs", [marco_runs(), cifar_runs(diverged=2)], ids=["marco", "cifar"])
def test_cells_hold_their_own_numbers(runs: list[Run]) -> None:
    check_cells(runs)


def test_swapped_parts_fail_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin: a table that takes training for validation."""
    right, runs = cells_of.measured, marco_runs()
    other = {"train": "validation", "validation": "train"}
    monkeypatch.setattr(cells_of, "measured", lambda trial, part, measure: right(trial, other[part], measure))
    with pytest.raises(AssertionError):
        check_cells(runs)


def test_a_swapped_table_of_the_paper_fails_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin: the paper's table 9 beside training accuracy."""
    runs = cifar_runs()
    swapped = {"train": "table9", "validation": "table8"}
    monkeypatch.setattr(cells_of, "paper_tables", lambda _: swapped)
    with pytest.raises(AssertionError):
        check_cells(runs)


def test_the_table_has_theirs_and_ours_on_both_parts() -> None:
    found = on_cifar(cifar_runs(diverged=2))
    table = accuracy_table("Table 9", found, "validation")
    first = [row[:3] for row in table.rows[:5]]
    assert [row[1] for row in first] == ["paper valid.", "ours valid.", "paper train", "ours train", "seeds"]
    assert first[0][2] == "50.5±0.44"
    mean = 100 * (found.cells["validation", 1, 65].mean or 0)
    assert first[1][2] == f"{mean:.1f}"  # one seed is left: no deviation
    assert first[4][2] == "1 of 3"
    assert [row[2] for row in table.rows if row[:2] == ["10", "paper train"]] == ["98.1±0.05"]
    assert "percent" in table.caption
    marco = accuracy_table("Table 6", on_marco(marco_runs()))
    assert [row for row in marco.rows if row[:2] == ["10", "paper train"]] == [["10", "paper train", *"––––"]]
    assert ["4", "paper train", "0.956±0.002", "0.900±0.002", "0.793±0.002", "0.580±0.004"] in marco.rows


def test_sizes_stand_side_by_side() -> None:
    rows = {row[0]: row[1:] for row in sizes_table(on_marco(marco_runs())).rows}
    assert rows["training queries"] == ["28,000", "10,000"]
    assert rows["validation queries"] == ["2,000", "2,000"]
    assert rows["training queries measured"] == ["–", "8,192"]
    assert rows["passes over the data"] == ["–", "76.8"]


def test_the_law_is_found_again() -> None:
    exact = real_runs(
        "marco", lambda h, T: 1 - law_error(h, T), lambda h, T: 0.5, lengths=(8, 16, 32, 64), heads=(2, 4, 6, 8, 10),
        noise=1e-6, samples={"train": 100_000_000, "validation": 1000},
    )  # fmt: skip
    some = next(one for one in laws_of(read_cells("marco", exact)) if one.ours and one.without)
    assert some.coefficients["delta"] == pytest.approx(0.25)
    assert some.coefficients["alpha"] == pytest.approx(-1.4, abs=0.01)
    assert some.coefficients["b"] == pytest.approx(0.1, abs=0.01)
    rows = law_table(read_cells("marco", exact)).rows
    assert rows[0][:3] == ["paper, stated", "0.25", "−1.40"]
    theirs = [one for one in laws_of(read_cells("marco", exact)) if not one.ours]
    assert [one.cells for one in theirs] == [16, 25]


@pytest.mark.parametrize(("seeds", "verdict"), [(1, "not decided"), (2, "not decided"), (3, "confirmed")])
def test_a_law_needs_three_seeds_to_be_judged(seeds: int, verdict: str) -> None:
    """With noise beyond which the law is exact: from three seeds on its intervals hold the paper's numbers."""
    runs = real_runs(
        "marco",
        lambda h, T: 1 - law_error(h, T),
        lambda h, T: 0.5,
        lengths=(8, 16, 32, 64),
        heads=(2, 4, 6, 8),
        noise=1e-6,
        samples={"train": 100_000_000, "validation": 1000},
        seeds=seeds,
    )
    found = stated(law(read_cells("marco", runs)))
    assert found.verdict == verdict
    assert "δ = 0.25" in found.text
    assert ("With fewer than 3 seeds a cell there is no interval" in found.text) == (seeds < 3)
    ours = next(row for row in law_table(read_cells("marco", runs)).rows if row[0].startswith("ours"))
    assert ("(" in ours[1]) == (seeds >= 3)


def test_a_power_at_the_edge_of_its_grid_is_said_to_be_there() -> None:
    for error, edge in ((law_error, False), (lambda h, T: 0.01 * T**0.8 * math.exp(-0.5 * h), True)):
        runs = real_runs(
            "marco",
            lambda h, T, e=error: 1 - e(h, T),
            lambda h, T: 0.5,
            lengths=(8, 16, 32, 64),
            heads=(2, 4, 6, 8),
            noise=1e-6,
            samples={"train": 100_000_000, "validation": 1000},
        )
        assert ("the edge of the values tried" in stated(law(read_cells("marco", runs))).text) is edge


@pytest.fixture(scope="module")
def cifar_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = cifar_runs(lengths=(65, 257), heads=(1, 4, 10, 12, 24))
    return write_page(on_cifar(runs), tmp_path_factory.mktemp("cifar") / "page")


def test_the_page_has_one_fit_of_the_law(tmp_path: Path, cifar_page: Path) -> None:
    found = on_marco(marco_runs(lengths=(8, 16), heads=(1, 2, 4, 8)))
    page = write_page(found, tmp_path / "marco").read_text()
    assert "The law Err = c·T^b·exp(α·h/T^δ)" in page
    assert found.analyses["train"].laws
    assert "Fitted laws" not in page
    assert "Fitted laws" in cifar_page.read_text()  # the paper fits none there: the run's own stands alone


def test_reversal_of_the_papers_own_tables() -> None:
    """Computed by hand from table 8: nothing at h = 12 and 14, much at h = 20."""
    scores = paper_scores(on_cifar(cifar_runs()), "train")
    assert scores[12] == 0
    assert scores[14] == 0
    # errors in percent 0.2, 0.3, 0.3, 0.2, 0.1: six falls over a width of 0.2
    assert scores[20] == pytest.approx((0.1 + 0.1 + 0.2 + 0.1 + 0.2 + 0.1) / 0.2)
    assert set(reversal_scores(read_cells("marco", marco_runs()), "train")) == {1, 2, 4, 6, 8, 10, 12, 14, 16}


def verdicts(found: list[StatedFinding]) -> dict[str, str]:
    return {one.claim.split(" (")[0]: one.verdict for one in found}


def test_findings_follow_the_cells() -> None:
    cells = read_cells("marco", marco_runs(noise=0.001))
    assert rise(cells).verdict == "confirmed"
    assert harder(cells, "validation").verdict == "confirmed"
    assert order(cells, "train").verdict == "confirmed"
    peaked = peak(cells)
    assert "Ours is best at h = 2 at T = 8" in stated(peaked).text
    assert "the paper's among these head counts at h = 2 at every T" in stated(peaked).text
    whole = stated_findings(cells, "marco")
    assert [one.verdict for one in whole] == [one.verdict for one in findings(cells, "marco")]
    assert {"confirmed", "not confirmed", "not decided", "confirmed in part"} >= {one.verdict for one in whole}
    assert whole[-1].claim.endswith("δ = 0.25 and α = −1.40")


def test_findings_say_no_where_the_cells_do() -> None:
    backwards = real_runs(
        "marco", lambda h, T: 0.9 - 0.03 * h + 0.001 * T, lambda h, T: 0.3 + 0.01 * h + 0.001 * T,
        lengths=(8, 16, 32, 64), heads=(1, 2, 4, 6, 8), noise=0.001,
    )  # fmt: skip
    cells = read_cells("marco", backwards)
    assert rise(cells).verdict == "not confirmed"
    assert peak(cells).verdict == "not confirmed"
    assert "Ours is best at h = 8 at every T" in stated(peak(cells)).text
    assert harder(cells, "train").verdict == "not confirmed"
    assert order(cells, "train").verdict == "not confirmed"


def test_findings_leave_open_what_nothing_decides() -> None:
    one = read_cells("marco", real_runs("marco", lambda h, T: 0.5, lambda h, T: 0.5, lengths=(8,), heads=(1,)))
    found = findings(one, "marco")
    assert {f.verdict for f in found} == {"not decided"}
    cifar = read_cells("cifar", real_runs("cifar", lambda h, T: 0.5, lambda h, T: 0.5, lengths=(65,), heads=(1, 2)))
    assert findings(cifar, "cifar")[-1].verdict == "not decided"


def test_rank_correlation() -> None:
    assert rank_correlation([1, 2, 3, 4], [10, 20, 30, 40]) == pytest.approx(1)
    assert rank_correlation([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1)
    assert rank_correlation([1, 2, 2, 3], [1, 2, 3, 4]) == pytest.approx(0.9486833)
    assert rank_correlation([1, 1, 1], [1, 2, 3]) is None


def test_charts_show_the_cells_in_percent() -> None:
    found = on_cifar(cifar_runs())
    cells = found.cells
    chart = accuracy_chart(cells, "validation")
    assert chart.y.scale == "linear"
    assert "%" in chart.y.label
    lines = {s.name: s for s in chart.series if s.style == "line"}
    assert list(lines) == [f"T = {t}" for t in SIDES]
    shown = {(p.x, p.y) for p in lines["T = 65"].points}
    assert shown == {(float(h), 100 * (cells["validation", h, 65].mean or 0)) for h in CIFAR_HEADS}
    dashed = next(s for s in chart.series if s.style == "dashed" and s.name == "T = 1025")
    assert [p.y for p in dashed.points][-1] == pytest.approx(48.39)
    texts = [text for _, text in chart.x.ticks]
    assert "11" not in texts  # too close to 10 to be read
    assert {"1", "10", "12", "24"} <= set(texts)
    assert reversal_chart(found).series


@pytest.mark.parametrize("name", REAL)
def test_charts_of_one_length_name_it(name: str) -> None:
    """A line alone has no legend; with several lengths the legend has them all."""
    made = marco_runs if ITEMS[name].spec == "marco" else cifar_runs
    (first, *_) = lengths = (8, 16) if ITEMS[name].spec == "marco" else (65, 145)
    for some in (lengths[:1], lengths):
        charts = charts_of(ITEMS[name], compare(ITEMS[name].spec, made(lengths=some), resamples=100))
        assert charts or name in ("figure2b", "figure2d")
        for chart in charts:
            assert (f"T = {first}" in chart.title) == (len(some) == 1)


@pytest.mark.parametrize("name", REAL)
def test_every_name_has_pictures_with_points(name: str) -> None:
    runs = marco_runs() if ITEMS[name].spec == "marco" else cifar_runs()
    charts = charts_of(ITEMS[name], compare(ITEMS[name].spec, runs, resamples=100))
    assert charts
    assert len({chart.id for chart in charts}) == len(charts)
    for chart in charts:
        for p in (p for s in chart.series for p in s.points):
            assert chart.y.low <= p.y <= chart.y.high
            assert chart.x.low <= p.x <= chart.x.high
    part = {"train": "raining", "validation": "alidation"}[ITEMS[name].part]
    assert part in charts[0].title + charts[0].y.label + charts[0].series[0].name
    assert picture(charts[0]).startswith(b"\x89PNG")


def test_show_writes_tables_pictures_and_findings(tmp_path: Path) -> None:
    found = on_marco(marco_runs(lengths=(8, 16, 32), heads=(1, 2, 4, 8, 16)))
    shown = show_item("table7", found, tmp_path / "table7", "smoke: 20 steps.")
    assert shown.analysis.on == "validation"
    assert all(path.exists() for path in shown.files)
    text = (tmp_path / "table7" / "table7.md").read_text()
    assert text.index("On the training data: ") < text.index("On the validation data: ")
    for said in (
        "The paper does not say how candidates enter the encoder",
        "becomes one vector",
        "entry = tokens",
        "10,000 training queries against the paper's 28,000 (36 %)",
        "384 numbers here, 768 in the paper",
        "half a wrong answer",
        "Their rank correlation with the paper's",
        "The law Err",
    ):
        assert said in text, said
    rows = list(csv.DictReader(io.StringIO((tmp_path / "table7" / "table7.csv").read_text())))
    assert len(rows) == 2 * 3 * 5
    trials = list(csv.DictReader(io.StringIO((tmp_path / "table7" / "trials.csv").read_text())))
    assert {"accuracy", "train_accuracy", "mrr", "train_mrr"} <= set(trials[0])
    about = json.loads((tmp_path / "table7" / "provenance.json").read_text())
    assert {"claim", "verdict", "text", "values"} == set(about["findings"][0])
    for width in (80, 50):
        terminal = Terminal(width=width, record=True, file=io.StringIO())
        print_item(shown, terminal)
        printed = terminal.export_text()
        assert "…" not in printed
        assert "0.511±0.007" in printed


def test_the_csv_is_in_one_unit() -> None:
    found = on_cifar(cifar_runs())
    rows = list(csv.DictReader(io.StringIO(cells_csv("table8", ITEMS["table8"], found))))
    (row,) = [r for r in rows if (r["part"], r["heads"], r["length"]) == ("train", "10", "577")]
    assert row["paper_cell"] == "table 8, h = 10, T = 577"
    assert float(row["paper"]) == pytest.approx(0.965)
    assert float(row["accuracy"]) == pytest.approx(found.cells["train", 10, 577].mean, abs=1e-6)


def test_the_page_of_cifar_says_patch_and_both_parts(cifar_page: Path) -> None:
    html = unescape(cifar_page.read_text())
    for said in (
        "Patches have a side of 8 in the paper's text, of 4 by the lengths of its tables; here of 4",
        "On the validation data: ",
        "Training error (1 − accuracy)",
        "accuracy-validation",
        "paper train",
        "The size of the data, theirs and ours",
    ):
        assert said in html, said
    assert (cifar_page.parent / "accuracy-train.png").exists()


def test_papers_errors() -> None:
    found = {(v.heads, v.length): v for v in paper_values("marco", "train")}
    assert found[4, 32].value == pytest.approx(0.207)
    assert (16, 8) not in found  # accuracy 1: no place on a log scale
    assert len(paper_values("cifar", "validation")) == 60


def test_accuracies_may_be_known_by_their_errors_only() -> None:
    (run,) = marco_runs(lengths=(8,), heads=(1, 2))
    bare = [t.model_copy(update={"accuracy": None, "train_accuracy": None}) for t in run.trials]
    stated, derived = (read_cells("marco", [r]) for r in (run, run.model_copy(update={"trials": bare})))
    assert {k: c.mean for k, c in derived.items()} == pytest.approx({k: c.mean for k, c in stated.items()})
    assert real_trial(1, 0, 0.5, 0.4, state="diverged").accuracy is None


def test_other_runs_are_refused() -> None:
    one = marco_runs(lengths=(8,), heads=(1, 2))
    with pytest.raises(BadInput, match="not on MS MARCO alone, but on cifar, marco"):
        read_cells("marco", [*one, *cifar_runs(lengths=(65,), heads=(1, 2))])
    with pytest.raises(BadInput, match="not on CIFAR-10 alone, but on marco"):
        read_cells("cifar", one)
    with pytest.raises(BadInput, match="not on MS MARCO alone"):
        read_cells("marco", [one[0].model_copy(update={"measure": "nmse"})])


def test_noise_is_no_reversal() -> None:
    """From ten heads on the error does not depend on T: noise makes the score positive there, and no finding of it."""

    def rising(h: int, T: int) -> float:
        return 0.9 if h >= 10 else 0.9 - 0.02 * (10 - h) - 0.05 * math.log10(T / 65)

    runs = real_runs("cifar", rising, rising, lengths=tuple(SIDES), heads=(4, 8, 10, 11, 12), noise=0.003)
    found = analyse(runs, on="train", resamples=100)
    cells = read_cells("cifar", runs)
    scores = reversal_scores(cells, "train")
    assert [h for h, one in scores.items() if one.score > 0 and one.low > 0] == [10, 11, 12]  # would confirm it
    (said,) = [one for one in stated_findings(cells, "cifar", found) if "reversal" in one.claim]
    assert said.verdict != "confirmed"
