"""The irreducible-error curve: a small run, resuming, failing layers, and the shipped spec's full counts."""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import headcount.sweeps.attack_trials as curve
from headcount.core.errors import BadInput
from headcount.core.readers.reading import read_toml
from headcount.recheck.witness import verify_witness
from headcount.render.irreducible import curve_png, curve_rows, curve_table, equal_effort
from headcount.render.tables import as_markdown
from headcount.store import Store
from headcount.sweeps.attack_trials import IrreducibleSpec, attack_rows
from headcount.sweeps.run import run_on_store
from results import write_result

SPEC = Path(curve.__file__).parent.parent / "specs" / "irreducible.toml"
SMALL: dict[str, Any] = {
    "name": "small",
    "title": "Small",
    "train": {"steps": 200, "warmup": 20, "batch": 64, "train_size": 500, "validation_size": 200},
    "model": {"hidden": 8},
    "attack": {"starts": 6, "converged": 3, "most_starts": 60, "seconds": 60.0},
    "cells": [
        {
            "task": {"family": "sum-of-maxima", "intrinsic": 2, "dim": 2, "length": 4, "limit": 2.5},
            "heads": [1, 2],
            "head_dim": 2,
            "seeds": 1,
        }
    ],
}


def run(spec: dict[str, Any] | IrreducibleSpec, folder: Path, workers: int | None = None) -> list[dict[str, Any]]:
    """Return the rows of a run in a store of its own, which goes on where it stopped."""
    plan = spec if isinstance(spec, IrreducibleSpec) else IrreducibleSpec.parse(spec)
    with Store.open(folder) as store:
        run_on_store(plan, store, workers=workers)
        return attack_rows(store, plan)


@pytest.mark.slow
def test_a_small_curve_resumes_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, headcount_here: Any
) -> None:
    """Rows for trained and random layers, proved gaps, a table and a picture; a second run computes nothing."""
    out = tmp_path / "out"
    (tmp_path / "small.toml").write_text(_toml(SMALL))
    command = ["irreducible", str(tmp_path / "small.toml"), "--out", str(out), "--store", str(tmp_path / "store")]
    done = headcount_here(*command, "--json")
    assert done.returncode == 0
    assert {p.name for p in out.iterdir()} == {"witnesses", "irreducible.json", "irreducible.md", "irreducible.png"}
    rows = json.loads((out / "irreducible.json").read_text())["rows"]
    assert [(r["heads"], r["layer"]) for r in rows] == [(1, "trained"), (1, "random"), (2, "trained"), (2, "random")]
    assert all(r["all"]["deviations"] >= r.get("typical", r["all"])["deviations"] for r in rows)
    assert 0 < rows[0]["all"]["deviations_proved"] <= rows[0]["all"]["deviations"] * (1 + 1e-12)
    summary = curve_rows(rows)
    assert summary == json.loads(done.stdout)["summary"]
    assert [s["heads"] for s in summary] == [1, 2]
    assert summary[0]["random"] == [rows[1]["all"]["deviations"]]
    assert all(row["typical"]["converged"] == 3 for row in rows if "typical" in row)
    assert as_markdown(curve_table(summary)).count("\n") == 6
    assert json.loads(done.stdout)["equal_effort"] is True
    assert curve_png(summary, "Small") == curve_png(summary, "Small")
    for row in rows:  # every witness holds, on the layer that the store has kept
        name = row["all"]["witness"]
        assert verify_witness(out / "witnesses" / name).holds
    monkeypatch.setattr(curve, "Worker", None)  # all was done before
    assert run(SMALL, tmp_path / "store") == rows


def test_a_layer_that_fails_ends_nothing_else(tmp_path: Path) -> None:
    """A training that diverges leaves a row with its error, and the rest is done."""
    bad = {**SMALL, "attack": {"starts": 2, "converged": 1, "seconds": 2.0, "among": ["all"]}}
    bad["cells"] = [{**SMALL["cells"][0], "heads": [1], "seeds": 1}]
    bad["train"] = {**SMALL["train"], "learning_rate": 10.0, "diverged_above": 1.01, "warmup": 0}
    rows = run(bad, tmp_path, workers=1)
    assert "diverged" in rows[0]["error"]
    assert "error" not in rows[1]
    assert [s["random"] for s in curve_rows(rows)] == [[rows[1]["all"]["deviations"]]]


def test_head_counts_are_compared_at_equal_effort(tmp_path: Path) -> None:
    """As many converged starts at every head count, however many starts that takes; a search with fewer says so."""
    cell = {**SMALL["cells"][0], "seeds": 1, "random_seeds": 1}
    options = {**SMALL["attack"], "among": ["all"]}
    spec = {**SMALL, "cells": [cell], "attack": options}
    rows = run(spec, tmp_path / "equal", workers=1)
    assert [row["all"]["converged"] for row in rows] == [3] * 4
    assert len({row["all"]["starts"] for row in rows}) > 1
    assert all(row["all"]["equal_effort"] and row["all"]["in_support"] for row in rows)
    assert equal_effort(curve_rows(rows))
    table = as_markdown(curve_table(curve_rows(rows)))
    for row in rows:
        assert f"[3 of {row['all']['starts']}]" in table
    assert "unequal" not in table
    # the twin: seven converged starts of six at most cannot be had
    spec["attack"] = {**options, "converged": 7, "most_starts": 6}
    spec["cells"] = [{**cell, "heads": [1], "random_seeds": 0}]
    rows = run(spec, tmp_path / "unequal", workers=1)
    assert rows[0]["all"]["starts"] == 6
    assert rows[0]["all"]["equal_effort"] is False
    assert not equal_effort(curve_rows(rows))
    assert "at unequal effort" in as_markdown(curve_table(curve_rows(rows)))


def test_a_layer_that_is_cut_short_is_not_compared() -> None:
    """Enough converged starts are not enough where the clock ended a search."""
    found = {"deviations": 1.0, "deviations_proved": 0.5, "converged": 3, "starts": 9, "equal_effort": True}
    row = {"intrinsic": 2, "length": 4, "head_dim": 2, "heads": 1, "layer": "trained", "nmse_measured": 0.1}
    fair = [{**row, "all": found, "typical": found}, {**row, "heads": 2, "all": found, "typical": found}]
    assert equal_effort(curve_rows(fair))
    assert as_markdown(curve_table(curve_rows(fair))).count("1.00 [3 of 9]") == 4
    fair[1]["typical"] = {**found, "equal_effort": False}
    assert not equal_effort(curve_rows(fair))
    assert as_markdown(curve_table(curve_rows(fair))).count("1.00\\* [3 of 9]") == 1
    both = curve.merge_searches({**found, "cut_short": False}, {**found, "cut_short": True})
    assert (both["starts"], both["converged"], both["cut_short"]) == (18, 6, True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cells": []}, "cells"),
        ({"attack": {"converged": 0}}, "converged"),
        ({"cells": [{**SMALL["cells"][0], "heds": [1]}]}, "heds"),
        ({"cells": [{**SMALL["cells"][0], "task": {"family": "sum-of-maxima"}}]}, "unbounded"),
        ({"attack": {"among": ["some"]}}, "among"),
    ],
)
def test_a_bad_spec_gives_a_one_line_error(change: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        IrreducibleSpec.parse({**SMALL, **change})


def test_bad_commands_give_a_one_line_error(tmp_path: Path, headcount_here: Any) -> None:
    assert headcount_here("irreducible", "nowhere.toml", "--out", str(tmp_path / "o")).returncode == 2
    assert headcount_here("irreducible", "--out", str(tmp_path / "o"), "--workers", "0").returncode == 2
    assert not (tmp_path / "o").exists()


def _toml(spec: dict[str, Any]) -> str:
    cell = spec["cells"][0]
    task = ", ".join(f"{k} = {json.dumps(v)}" for k, v in cell["task"].items())
    parts = [f'name = "{spec["name"]}"', "[train]", *(f"{k} = {v}" for k, v in spec["train"].items())]
    parts += [
        "[model]",
        "hidden = 8",
        "[attack]",
        *(f"{k} = {v}" for k, v in spec["attack"].items()),
        "[[cells]]",
        f"task = {{ {task} }}",
    ]
    return "\n".join([*parts, "heads = [1, 2]", "head_dim = 2", "seeds = 1"]) + "\n"


def spec_of(name: str) -> IrreducibleSpec:
    """Return the spec behind a result file."""
    if name != "irreducible-typical":
        return IrreducibleSpec.parse(read_toml(SPEC.with_name(f"{name}.toml")))
    plan = read_toml(SPEC)
    cell = next(c for c in plan["cells"] if c["task"]["intrinsic"] == 4)
    plan["cells"] = [{**cell, "heads": [3, 4, 5], "random_seeds": 0}]
    plan["attack"] = {"starts": 96, "converged": 32, "most_starts": 1024, "seconds": 120.0, "among": ["typical"]}
    return IrreducibleSpec.parse(plan)


def attacked_again(result: dict[str, Any], layers: Sequence[int]) -> list[dict[str, Any]]:
    """Return the rows of a result with some layers trained and attacked anew; their times are the old ones."""
    rows, units = list(result["rows"]), list(spec_of(result["name"]).units())
    for number in layers:
        again = curve.attack_unit(units[number])
        rows[number] = {**rows[number], "nmse_measured": again.trial.nmse, **again.found}
    return rows


@pytest.mark.slow
def test_the_shipped_curve(tmp_path: Path) -> None:
    """The full counts of specs/irreducible.toml; HEADCOUNT_IRREDUCIBLE names a store to go on with."""
    spec = spec_of("irreducible")
    rows = run(spec, Path(os.environ.get("HEADCOUNT_IRREDUCIBLE", tmp_path)))
    assert not [row for row in rows if "error" in row]
    summary = curve_rows(rows)
    table: dict[str, dict[str, Any]] = {}
    for s in summary:
        entry: dict[str, Any] = {k: statistics.median(s[k]) for k in ("typical", "all", "proved", "random") if s[k]}
        entry["effort"] = s["effort"]
        sizes = f"D={s['intrinsic']},T={s['length']},n={s['head_dim']}"
        table.setdefault(sizes, {})[f"h={s['heads']}"] = {**entry, "nmse": s["nmse_measured"]}
    main = [s for s in summary if (s["intrinsic"], s["length"], s["head_dim"]) == (4, 16, 8)]
    few, enough = [s for s in main if s["heads"] < 4], [s for s in main if s["heads"] >= 4]
    write_result(
        "irreducible",
        {
            "table": table,
            "summary": summary,
            "rows": rows,
            "four": {
                "above_4_of_5": {f"h={s['heads']}": sum(v > 4 for v in s["all"]) for s in few},
                "ratio_typical": min(statistics.median(s["typical"]) for s in few)
                / max(statistics.median(s["typical"]) for s in enough),
                "ratio_all": min(statistics.median(s["all"]) for s in few)
                / max(statistics.median(s["all"]) for s in enough),
                "largest_distance_float64": max(r["all"]["distance_float64"] for r in rows if r["layer"] == "trained"),
            },
        },
        seeds=list(range(5)),
        counts={"layers": len(rows), "cells": len(spec.cells)},
    )
    assert all(sum(v > 4 for v in s["all"]) >= 4 for s in few)
    for s in summary:  # the control: random layers show no drop
        if s["random"] and s["heads"] >= s["intrinsic"]:
            assert min(s["random"]) > 4 * statistics.median(s["typical"])


@pytest.mark.slow
def test_typical_sequences_at_full_effort(tmp_path: Path) -> None:
    """D = 4, T = 16, n = 8, a minute a layer: what three heads confuse among typical sequences, and four do not."""
    folder = Path(os.environ.get("HEADCOUNT_TYPICAL", tmp_path))
    rows = run(spec_of("irreducible-typical"), folder)
    gaps = {h: [r["typical"]["deviations"] for r in rows if r["heads"] == h] for h in (3, 4, 5)}
    medians = {f"h={h}": statistics.median(values) for h, values in gaps.items()}
    ratio = medians["h=3"] / max(medians["h=4"], medians["h=5"])
    write_result(
        "irreducible-typical",
        {"gaps": {f"h={h}": v for h, v in gaps.items()}, "median": medians, "ratio": ratio, "rows": rows},
        seeds=list(range(5)),
        counts={"layers": len(rows)},
    )
    assert ratio > 3


@pytest.mark.slow
def test_the_curve_after_long_training(tmp_path: Path) -> None:
    """D = 4 with five times the training: proved far pairs at h < D, and at h ≥ D gaps at least eight times smaller."""
    spec = spec_of("irreducible-long")
    rows = run(spec, Path(os.environ.get("HEADCOUNT_LONG", tmp_path)))
    assert not [row for row in rows if "error" in row]
    gaps = {
        among: {h: [row[among]["deviations"] for row in rows if row["heads"] == h] for h in range(1, 6)}
        for among in ("all", "typical")
    }
    medians = {among: {f"h={h}": statistics.median(v) for h, v in gaps[among].items()} for among in gaps}
    proved = {h: [row["all"]["deviations_proved"] or 0.0 for row in rows if row["heads"] == h] for h in (1, 2, 3)}
    above = {f"h={h}": sum(v > 4 for v in values) for h, values in proved.items()}
    ratios = {among: min(m["h=1"], m["h=2"], m["h=3"]) / max(m["h=4"], m["h=5"]) for among, m in medians.items()}
    distance = max(row["all"]["distance_float64"] for row in rows)
    write_result(
        "irreducible-long",
        {
            "gaps": {among: {f"h={h}": v for h, v in gaps[among].items()} for among in gaps},
            "median": medians,
            "proved_above_4_of_5": above,
            "ratio": ratios,
            "largest_distance_float64": distance,
            "rows": rows,
            "largest": {f"h={h}": max(gaps["all"][h]) for h in (4, 5)},
        },
        seeds=list(range(5)),
        counts={"layers": len(rows)},
    )
    assert all(count >= 4 for count in above.values())
    assert min(ratios.values()) > 8
