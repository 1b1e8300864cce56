"""The paper's numbers as data, the plan of every name and scale, and theirs beside ours."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pytest

from headcount.analysis.slopes import reversal_score
from headcount.core.errors import BadInput
from headcount.core.text.terminal import Terminal
from headcount.reproduction import numbers
from headcount.reproduction.cells import Comparison, compare
from headcount.reproduction.charts import charts_of, paper_values
from headcount.reproduction.draws import nearest_draw
from headcount.reproduction.items import GROUPS, ITEMS, names_of
from headcount.reproduction.law import paper_scores
from headcount.reproduction.plan import SCALES, sweep_of
from headcount.reproduction.show import print_item, show_item
from headcount.reproduction.tables import cells_csv, error_table, reversal_table, trials_csv
from headcount.reproduction.words import remarks_of
from headcount.store.records import Run, Trial

COUNTS = {
    "table2": 25,
    "table3": 25,
    "table4": 20,
    "table5": 25,
    "table6": 28,
    "table7": 28,
    "table8": 60,
    "table9": 60,
}


@pytest.mark.parametrize(("table", "count"), COUNTS.items())
def test_every_table_is_there_cell_by_cell(table: str, count: int) -> None:
    found = numbers.cells(table)
    assert len(found) == count
    assert len({(c.heads, c.length) for c in found}) == count
    assert all(c.table == table and c.cell == f"table {table[5:]}, h = {c.heads}, T = {c.length}" for c in found)
    assert all(c.value > 0 for c in found)
    assert numbers.about(table)
    assert "ICLR 2026" in numbers.source()


def test_cells_of_the_paper() -> None:
    """Read off the paper's pages, not from the file."""
    known = {
        ("table2", 3, 8): 6.94e-4,
        ("table3", 4, 32): 3.4e-7,
        ("table4", 4, 32): 6.89e-8,
        ("table5", 2, 8): 7.22e-6,
    }
    for (table, heads, length), value in known.items():
        (cell,) = [c for c in numbers.cells(table) if (c.heads, c.length) == (heads, length)]
        assert cell.value == value
    assert numbers.statistic("table2") == "mean over seeds"
    with pytest.raises(BadInput, match="no numbers for 'table1'"):
        numbers.cells("table1")


TASKS = [name for name, item in ITEMS.items() if item.data is None]
PAPER = GROUPS["synthetic"]


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("scale", SCALES)
def test_every_name_has_a_sweep_at_every_scale(name: str, scale: str) -> None:
    spec = sweep_of(name, scale)  # type: ignore[arg-type]
    assert spec.name == f"{ITEMS[name].spec}-{scale}"
    assert spec.title
    assert all(panel.heads for panel in spec.panels())


def test_scales_grow() -> None:
    for name in TASKS:
        work = [
            sum(len(p.heads) * spec.seeds * p.train.steps for p in spec.panels())
            for spec in (sweep_of(name, scale) for scale in SCALES)
        ]
        assert work == sorted(work), name
    beyond = sweep_of("table2", "beyond")
    assert (beyond.seeds, len(beyond.targets or []), max(beyond.lengths or [])) == (50, 32, 512)
    assert max(p.task.intrinsic or 0 for p in sweep_of("dimension", "beyond").panels()) == 8


def test_the_papers_sizes_are_the_papers() -> None:
    table2, table3, table4, table5 = (sweep_of(f"table{k}", "paper") for k in (2, 3, 4, 5))
    for spec in (table2, table3, table4, table5):
        assert spec.lengths == [8, 16, 32, 64, 128]
    assert {p.sized(h).head_dim for p in table2.panels() for h in p.heads} == {8}
    assert [table3.panels()[0].sized(h).E for h in range(1, 6)] == [32, 32, 33, 32, 35]
    assert {p.task.intrinsic for p in table4.panels()} == {3}
    assert {p.model.depth for p in table5.panels()} == {2}


def test_names() -> None:
    assert names_of("synthetic") == PAPER
    assert sorted([*PAPER, *GROUPS["real"], *GROUPS["beyond-the-paper"]]) == sorted(ITEMS)
    assert set(GROUPS["synthetic"]) == {
        "table2",
        "table3",
        "table4",
        "table5",
        "figure1a",
        "figure1b",
        "figure2e",
        "figure3",
        "figure4",
    }
    with pytest.raises(BadInput, match=r"^unknown table or figure 'tabel2': did you mean 'table2'\? allowed: beta, "):
        names_of("tabel2")


def run(target: int, length: int, errors: dict[int, list[float]]) -> Run:
    trials = [
        Trial(heads=h, seed=s, state="done", nmse=e, train_nmse=e, steps=1, seconds=0, parameters=1, parameters_total=2)
        for h, row in errors.items()
        for s, e in enumerate(row)
    ]
    return Run(
        name="t",
        title="title",
        task={"length": length},
        intrinsic=4,
        spec={"model": {"head_dim": 8, "hidden": 32}},
        values={"length": length, "target": target},
        trials=trials,
        provenance={},
        seconds=0.0,
    )


def like(factor: float, target: int) -> list[Run]:
    """Our errors as a multiple of the paper's table 3."""
    rows: dict[int, dict[int, list[float]]] = {}
    for c in numbers.cells("table3"):
        rows.setdefault(c.length, {})[c.heads] = [factor * c.value, 2 * factor * c.value]
    return [run(target, T, rows[T]) for T in sorted(rows)]


def table3(*runs: Run) -> Comparison:
    return compare("table3", runs, resamples=100)


def test_theirs_and_ours_stand_in_every_cell() -> None:
    table = error_table("title", table3(*like(3.0, 0), *like(1.1, 1)))
    assert table.caption == "title (NMSE)"
    assert [c.name.replace("\N{NO-BREAK SPACE}", " ") for c in table.columns[2:]] == [
        f"T = {T}" for T in (8, 16, 32, 64, 128)
    ]
    lines = {(row[0], row[1]): row[2:] for row in table.rows}
    assert lines["4", "paper"] == ["1.32e-6", "5.59e-7", "3.4e-7", "3.46e-7", "5.7e-7"]
    assert lines["4", "best seed, best draw"] == ["1.5e-6", "6.1e-7", "3.7e-7", "3.8e-7", "6.3e-7"]
    assert lines["4", "best seed, median draw"][0] == "2.7e-6"  # between 1.1 and 3 times the paper's
    assert lines["4", "median seed, median draw"][0] == "4.1e-6"  # seeds are 1 and 2 times that
    assert lines["4", "draw 1, best seed"] == lines["4", "best seed, best draw"]
    assert all(lines[str(h), "spread over draws"][0] == "× 2.0" for h in range(1, 6))
    assert {name for _, name in lines} == {
        "paper",
        "best seed, best draw",
        "best seed, median draw",
        "median seed, median draw",
        "spread over seeds",
        "spread over draws",
        "draw 1, best seed",
    }
    few = error_table("title", table3(*like(3.0, 0)), heads=(4, 5))
    assert {row[0] for row in few.rows} == {"4", "5"}
    assert {row[1] for row in few.rows} == {"paper", "best seed", "median seed", "spread over seeds"}


def test_tables_go_into_any_terminal_uncut(tmp_path: Path) -> None:
    shown = show_item("table3", table3(*like(3.0, 0), *like(1.1, 1)), tmp_path / "table3", "smoke: 20 steps.")
    for width in (110, 80, 40):
        terminal = Terminal(width=width, record=True, file=io.StringIO())
        print_item(shown, terminal)
        printed = terminal.export_text()
        assert "…" not in printed
        assert all(text in printed for row in shown.tables[0].rows for text in row)
        assert max(len(line) for line in printed.splitlines() if "best seed, best draw" in line) <= max(width, 40)


def test_the_nearest_draw_is_found_by_its_few_heads_alone() -> None:
    far, near = like(3.0, 0), like(1.1, 1)
    # with enough heads the near draw is ten thousand times off: that must not count
    near = [
        r.model_copy(
            update={
                "trials": [
                    t.model_copy(update={"nmse": (t.nmse or 0.0) * 1e4}) if t.heads >= 4 else t for t in r.trials
                ]
            }
        )
        for r in near
    ]
    draw = nearest_draw(table3(*far, *near))
    assert draw is not None
    assert draw.target == 1
    assert draw.distance == pytest.approx(0.0414, abs=1e-3)
    assert nearest_draw(table3(*near)) is None  # one draw is not compared with itself


def test_failed_and_diverged_trials_are_counted() -> None:
    runs = like(1.0, 0)
    lost = runs[0].trials[0].model_copy(update={"state": "diverged", "nmse": None, "train_nmse": None})
    runs[0] = runs[0].model_copy(update={"trials": [lost, *runs[0].trials[1:]], "left_out": {"failed": 2}})
    found = table3(*runs)
    assert "1 diverged, 2 failed" in remarks_of(None, found)[-1]
    table = error_table("title", found)
    assert ["1", "diverged", "1 of 2", "0 of 2", "0 of 2", "0 of 2", "0 of 2"] in table.rows
    assert "none failed or diverged" in remarks_of(None, table3(*like(1.0, 0)))[-1]


def test_the_csv_files_hold_every_cell_and_trial() -> None:
    runs = like(2.0, 0)
    rows = list(csv.DictReader(io.StringIO(cells_csv("table3", ITEMS["table3"], table3(*runs)))))
    assert len(rows) == 25
    assert all(float(r["best"]) == pytest.approx(2 * float(r["paper"]), rel=1e-4) for r in rows)
    assert rows[0]["paper_cell"] == "table 3, h = 1, T = 8"
    assert len(list(csv.DictReader(io.StringIO(trials_csv(runs))))) == 50


def paper_reversal(table: str, lengths: tuple[int, ...] = (8, 16, 32, 64, 128)) -> dict[int, float]:
    """The scores of a table of the paper, beside runs at some lengths."""
    runs = [one for one in like(1.0, 0) if one.values["length"] in lengths]
    return paper_scores(compare(table, runs, resamples=100), "validation")


def test_the_papers_own_reversal_scores_mislead() -> None:
    """From its tables: positive below D in tables 2, 4 and 5."""
    assert paper_reversal("table4")[2] == pytest.approx(2.64, abs=0.01)
    assert paper_reversal("table2")[3] == pytest.approx(0.06, abs=0.005)
    assert paper_reversal("table5")[1] == pytest.approx(0.11, abs=0.01)


@pytest.mark.parametrize("name", PAPER)
def test_every_name_of_the_paper_has_a_picture(name: str) -> None:
    runs, item = [*like(1.0, 0), *like(2.0, 1)], ITEMS[name]
    if item.spec == "figure1b":
        runs = [
            r.model_copy(update={"values": {**r.values, "hidden": n}, "spec": {"model": {"head_dim": 8, "hidden": n}}})
            for r in runs
            for n in (8, 32)
        ]
    charts = charts_of(item, compare(item.spec, runs, resamples=100))
    assert charts
    assert all(chart.series and chart.alt for chart in charts)
    assert len({chart.id for chart in charts}) == len(charts)
    shown = {p.y for chart in charts for s in chart.series if s.style == "rings" for p in s.points}
    if item.picture in ("heads", "lengths"):
        theirs = numbers.cells(item.table or "")
        assert {c.value for c in theirs if item.heads is None or c.heads in item.heads} == shown


def test_scores_are_compared_over_the_same_lengths() -> None:
    found = compare("table2", [r for r in like(1.0, 0) if r.values["length"] in (8, 16)], resamples=100)
    short = paper_scores(found, "validation")
    theirs = {(c.heads, c.length): c.value for c in numbers.cells("table2")}
    assert short == {h: reversal_score(np.array([theirs[h, 8], theirs[h, 16]])) for h in range(1, 6)}
    assert short != paper_reversal("table2")
    assert [row[1] for row in reversal_table(found).rows] == [f"{short[h]:.2f}" for h in range(1, 6)]
    (chart,) = charts_of(ITEMS["figure2e"], found)
    assert {p.y for s in chart.series if s.style == "rings" for p in s.points} == set(short.values())
    longer = [one.model_copy(update={"values": {**one.values, "length": 256}}) for one in like(1.0, 0)[-1:]]
    assert paper_scores(compare("table2", [*found.runs, *longer], resamples=100), "validation") == {}  # it has no 256


def test_a_range_below_zero_has_no_ends() -> None:
    values = {(v.heads, v.length): v for v in paper_values("table2", "validation")}
    assert values[4, 8].low is None  # 6.1e-5 ± 1.5e-4
    assert values[3, 8].low == pytest.approx(4.04e-4)
