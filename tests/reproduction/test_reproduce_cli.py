"""`headcount reproduce`: real training at the smallest scale, stopped and taken up again, and every file it writes."""

from __future__ import annotations

import json
import tomllib
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from headcount.analysis.of_runs import analyse
from headcount.render.run_page import write_run_report
from headcount.render.words.task import experiment, experiment_title
from headcount.reproduction.items import ITEMS
from headcount.reproduction.plan import Scale, plan_of, sweep_of
from headcount.reproduction.words import size_text
from headcount.store.store import Store
from headcount.sweeps.file import choose_positions, sweep_toml
from headcount.sweeps.results import stored_runs
from headcount.sweeps.run import run_on_store, run_sweep
from headcount.sweeps.spec import SweepSpec

SMOKE = ("--scale", "smoke")
SHOWN = {"files", "scale", "remarks", "counts", "dimensions", "cells", "paper"}
"""The keys of a name in the JSON, the same on real data."""


def test_a_table_is_trained_stopped_taken_up_and_shown(tmp_path: Path, headcount_here: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    cut = headcount_here("reproduce", "table4", *SMOKE, "--for", "0.5s", "--json")
    assert cut.returncode == 3
    assert json.loads(cut.stdout)["unfinished"] > 0
    whole = headcount_here("reproduce", "table4", *SMOKE)
    assert whole.returncode == 0
    assert "paper" in whole.stdout
    assert "Not finished" not in whole.stdout
    size = "smoke: 1,500 steps on 4,000 sequences; the paper scale takes 60,000 on 65,536: expect larger errors."
    assert whole.stdout.count(size) == 1
    again = headcount_here("reproduce", "table4", *SMOKE, "--json")  # nothing is left to train: it only shows
    told = json.loads(again.stdout)
    assert told["unfinished"] == 0
    assert told["trials"] == {"table4-smoke": {"done": 16}}
    assert set(told) == {"out", "scale", "unfinished", "trials", "pages", "shown"}
    assert set(told["shown"]["table4"]) == SHOWN
    assert len(told["shown"]["table4"]["cells"]) == 8
    assert len(told["shown"]["table4"]["paper"]) == 20
    assert told["shown"]["table4"]["counts"]["done"] == 16
    folder = tmp_path / "reproduce-table4"
    files = {p.name for p in (folder / "table4").iterdir()}
    assert files == {
        "table4.md",
        "table4.csv",
        "trials.csv",
        "provenance.json",
        "error-by-heads.png",
        "error-by-heads.pdf",
    }
    text = (folder / "table4" / "table4.md").read_text()
    assert "0.00109" in text  # the paper's h = 2, T = 8
    assert "most like" not in text  # one draw is not compared with itself
    page = (folder / "table4-page" / "index.html").read_text()
    assert "paper, table 4" in page
    assert text.count(size) == 1
    assert page.count(size) == 2  # in the header and beside the paper's numbers
    assert told["shown"]["table4"]["scale"] == size
    shown = SweepSpec.parse(tomllib.loads(unescape(page.split('<pre tabindex="0">')[1].split("</pre>")[0])))
    assert shown == sweep_of("table4", "smoke")
    assert len((folder / "table4" / "trials.csv").read_text().splitlines()) == 17
    origin = json.loads((folder / "table4" / "provenance.json").read_text())
    assert origin["counts"]["done"] == 16
    assert origin["provenance"]["machine"]["device"] == "cpu"


def test_files_of_the_user_are_refused_before_anything_is_trained(
    tmp_path: Path, headcount_here: Any, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    for taken in ("a/table4/table4.md", "b/table4-page/notes.txt", "c/table4"):
        path = tmp_path / taken
        path.parent.mkdir(parents=True)
        path.write_text("mine")
        result = headcount_here("reproduce", "table4", *SMOKE, "--out", taken[0])
        assert result.returncode == 2
        assert "choose" in result.stderr
        assert path.read_text() == "mine"
        assert not (tmp_path / "headcount-runs").exists()


def test_the_file_of_a_table_is_its_sweep(tmp_path: Path, headcount_here: Any) -> None:
    """Every sweep of the paper is the same again from its file; one of them through both commands."""
    for file in {item.spec for item in ITEMS.values() if item.data is None}:
        spec = plan_of(file, "small").sweep()
        again = SweepSpec.parse(tomllib.loads(sweep_toml(spec)))
        assert again == choose_positions(again) == choose_positions(spec) == spec
    wrote = headcount_here("reproduce", "floor", *SMOKE, "--spec", "floor.toml")
    assert wrote.returncode == 0
    assert "headcount sweep floor.toml" in wrote.stdout
    assert sorted(p.name for p in tmp_path.iterdir()) == ["floor.toml"]  # nothing is trained
    assert headcount_here("sweep", "floor.toml", "--for", "0.001s").returncode == 3
    with Store.open(tmp_path / "headcount-runs") as store:
        wanted = sweep_of("floor", "smoke")
        names = {p.trial(h, s).hash() for p in wanted.panels() for h in p.heads for s in range(wanted.seeds)}
        assert {trial.hash for trial in store.trials(run="floor-smoke")} == names


def test_the_page_of_settings_shows_the_whole_sweep(tmp_path: Path) -> None:
    """Each panel has a model of its own; the file on the page has the sweep's, and gives the same trials."""
    plan = SweepSpec.parse(
        {
            "name": "settings",
            "heads": [1, 2],
            "seeds": 1,
            "task": {"family": "min-plus-max", "length": 4},
            "model": {"head_dim": 2, "hidden": 4},
            "train": {"steps": 20, "warmup": 2, "batch": 16, "train_size": 64},
            "settings": [{"name": '<b>"deep"</b>', "model": {"depth": 2}}, {"name": "plain"}],
        }
    )
    runs = run_sweep(plan, quiet=True, workers=1)
    page = write_run_report(runs, analyse(runs, resamples=100), tmp_path / "page").page.read_text()
    assert SweepSpec.parse(tomllib.loads(unescape(page.split('<pre tabindex="0">')[1].split("</pre>")[0]))) == plan
    assert "headcount sweep FILE runs it again" in page
    odd = runs[0].model_copy(update={"sweep": {}, "spec": {"a": [None, "</pre>"]}})  # no TOML: shown as JSON
    assert '[\n    null,\n    "</pre>"\n  ]' in experiment(odd)
    assert "runs it again" not in experiment_title(odd)


@pytest.mark.parametrize(
    ("name", "scale", "text"),
    [
        ("table2", "small", "small: 6,000 steps on 8,000 sequences; the paper scale takes 30,000 on 65,536{}."),
        ("table2", "paper", "paper: 30,000 steps on 65,536 sequences."),
        ("table2", "beyond", "beyond: 40,000 steps on 65,536 sequences; the paper scale takes 30,000 on 65,536."),
        ("figure1b", "smoke", "smoke: 1,000 steps on 4,000 sequences; the paper scale takes 10,000 on 32,768{}."),
        ("floor", "beyond", "beyond: 3,000 to 300,000 steps on 8,000 to 65,536 sequences, as at the paper scale."),
    ],
)
def test_a_scale_in_words(name: str, scale: Scale, text: str) -> None:
    assert size_text(plan_of(ITEMS[name].spec, scale)) == text.format(": expect larger errors")


def test_trials_of_an_earlier_spec_are_counted(tmp_path: Path) -> None:
    plan = {
        "name": "twice",
        "heads": [1, 2],
        "seeds": 1,
        "task": {"family": "min-plus-max", "length": 4},
        "model": {"head_dim": 2, "hidden": 4},
        "train": {"steps": 20, "warmup": 2, "batch": 16, "train_size": 64},
    }
    with Store.open(tmp_path) as store:
        run_on_store(SweepSpec.parse(plan), store, quiet=True, workers=1)
        changed = SweepSpec.parse({**plan, "train": {**plan["train"], "steps": 30}})
        run_on_store(changed, store, quiet=True, workers=1)
        runs = stored_runs(store, "twice", changed)
    assert analyse(runs).counts == {"done": 2, "diverged": 0, "failed": 0, "pending": 0, "running": 0, "superseded": 2}


def test_the_list(headcount_here: Any) -> None:
    found = json.loads(headcount_here("reproduce", "--json").stdout)
    assert {"table2", "figure2e", "wide-head"} <= set(found["names"])
    assert "synthetic" in headcount_here("reproduce").stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("tabel2",), "unknown table or figure 'tabel2': did you mean 'table2'?"),
        (("table2", "--scale", "huge"), "huge"),
        (("table2", "--workers", "0"), "--workers"),
        (("table2", "--for", "soon"), "soon"),
        (("table2", "--out", "taken"), "is a file"),
        (("table2", "--device", "tpu"), "tpu"),
        (("table2", "--spec", "taken"), "exists already"),
        (("tabel2", "--spec", "x.toml"), "table2"),
        (("synthetic", "--spec", "x.toml"), "name one of table2"),
        (("table6", "--spec", "x.toml"), "real data"),
    ],
)
def test_bad_input_is_one_line(
    arguments: tuple[str, ...], message: str, tmp_path: Path, headcount_here: Any, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").write_text("mine")
    result = headcount_here("reproduce", *arguments)
    assert result.returncode == 2
    assert message in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["taken"]
