"""`headcount reproduce` on real data made on the spot: both experiments end to end, stopped, resumed, shown again."""

from __future__ import annotations

import csv
import io
import json
import tomllib
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from test_reproduce_cli import SHOWN

from headcount.core.text.terminal import Terminal
from headcount.reproduction.run import Reproduction
from real_tiny import write_bert, write_corpus, write_pictures

SMOKE = ("--scale", "smoke")
TINY = {"marco": ("--train", "20", "--validation", "8"), "cifar": ("--train", "60", "--validation", "30")}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    base = tmp_path_factory.mktemp("real")
    return {
        "base": base,
        "marco": write_corpus(base / "msmarco"),
        "cifar": write_pictures(base / "cifar10"),
        "bert": write_bert(base / "bert"),
    }


def options(kind: str, folders: dict[str, Path]) -> tuple[str, ...]:
    extra = ("--embeddings", str(folders["bert"])) if kind == "marco" else ()
    return (*SMOKE, "--data", str(folders[kind]), *extra, *TINY[kind])


@pytest.mark.parametrize(
    ("kind", "tables"),
    [
        ("marco", ("table6", "table7", "figure2a", "figure2b", "figure5")),
        ("cifar", ("table8", "table9", "figure2c", "figure2d", "figure6")),
    ],
)
def test_both_experiments_from_the_folder_to_the_page(
    kind: str, tables: tuple[str, ...], folders: dict[str, Path], tmp_path: Path, headcount_here: Any
) -> None:
    cut = headcount_here("reproduce", kind, *options(kind, folders), "--for", "0.01s", "--json")
    assert cut.returncode == 3, cut.stderr
    assert json.loads(cut.stdout)["unfinished"] == 4
    whole = headcount_here("reproduce", kind, *options(kind, folders))
    assert whole.returncode == 0, whole.stderr
    assert "Not finished" not in whole.stdout
    assert whole.stdout.count("The size of the data, theirs and ours") == 1  # what names share is said once
    assert f"Our data: {TINY[kind][1]} training" in whole.stdout
    out = tmp_path / f"reproduce-{kind}"
    assert {p.name for p in out.iterdir()} == {*tables, f"{kind}-page"}
    for name in tables:
        inside = {p.name for p in (out / name).iterdir()}
        assert {f"{name}.md", f"{name}.csv", "trials.csv", "provenance.json"} < inside
        assert any(file.endswith(".png") for file in inside)
    with (out / tables[0] / "trials.csv").open(newline="") as file:
        trials = list(csv.DictReader(file))
    assert len(trials) == 4
    assert all(0 <= float(t["train_accuracy"]) <= 1 and 0 < float(t["train_mrr"]) <= 1 for t in trials)
    assert all(float(t["nmse"]) == pytest.approx(1 - float(t["accuracy"]), abs=1e-5) for t in trials)
    page = (out / f"{kind}-page" / "index.html").read_text()
    size = {
        "marco": "smoke: 20 steps on 20 queries; the paper scale takes 800 on 10,000: expect larger errors.",
        "cifar": "smoke: 20 steps on 60 images; the paper scale takes 1,500 on 25,000: expect larger errors.",
    }[kind]
    assert all(size in text for text in (whole.stdout, page, (out / tables[0] / f"{tables[0]}.md").read_text()))
    assert tomllib.loads(unescape(page.split('<pre tabindex="0">')[1].split("</pre>")[0]))["kind"] == kind
    assert "http://" not in page.replace("http://www.w3.org", "")
    # without the data what is trained is shown again, and the other verbs read the run
    again = headcount_here("reproduce", tables[0], *SMOKE, *TINY[kind], "--out", "again", "--json")
    told = json.loads(again.stdout)
    (run,) = told["trials"]
    assert told["unfinished"] == 0
    assert set(told) == {"out", "scale", "unfinished", "trials", "pages", "shown"}
    assert set(told["shown"][tables[0]]) == SHOWN
    assert {cell["table"] for cell in told["shown"][tables[0]]["paper"]} == {tables[0]}
    assert (tmp_path / "again" / tables[0] / f"{tables[0]}.md").read_text().startswith("# Table")
    for verb in (("analyse", run), ("analyse", run, "--on", "train"), ("report", run, "--out", "page")):
        shown = headcount_here(*verb)
        assert shown.returncode == 0, shown.stderr
    assert run in headcount_here("runs").stdout


def test_another_entry_and_another_patch_are_other_runs(folders: dict[str, Path], headcount_here: Any) -> None:
    for kind, table, option in (("marco", "table6", "--entry=tokens"), ("cifar", "table8", "--patch=8")):
        made = headcount_here("reproduce", table, *options(kind, folders), option, "--json")
        assert made.returncode == 0, made.stderr
        (run,) = json.loads(made.stdout)["trials"]
        assert option.split("=")[1] in run


def test_both_data_sets_lie_in_one_folder(folders: dict[str, Path], tmp_path: Path, headcount_here: Any) -> None:
    sizes = ("--train", "20", "--validation", "8", "--embeddings", folders["bert"])
    made = headcount_here("reproduce", "real", *SMOKE, "--data", folders["base"], *sizes)
    assert made.returncode == 0, made.stderr
    assert made.stdout.count("4 trials: none failed or diverged.") == 2  # once a run, not once a name
    assert {p.name for p in (tmp_path / "reproduce-real").glob("*-page")} == {"marco-page", "cifar-page"}


@pytest.mark.parametrize(
    ("needs_data", "command"), [(False, "the same command again"), (True, "this command with --data")]
)
def test_what_is_left_is_told(needs_data: bool, command: str) -> None:
    terminal = Terminal(width=100, record=True, file=io.StringIO())
    counts = {"a": {"done": 1, "pending": 2}, "b": {"done": 3}, "c": {"running": 1, "failed": 2}}
    Reproduction(Path("out"), "smoke", counts=counts, needs_data=needs_data).print(terminal)
    assert terminal.export_text().splitlines() == [
        "No trial has finished yet: nothing was written.",
        "a: 1 done, 2 pending",
        "c: 1 running, 2 failed",
        f"Not finished (3 trials left): run {command} to continue.",
    ]


BAD = {
    "no data": (["reproduce", "table6", *SMOKE], "table6 needs data: give --data, a folder with collection.tsv"),
    "no folder": (["reproduce", "table8", *SMOKE, "--data", "nowhere"], "no CIFAR-10 found in nowhere"),
    "other data's option": (
        ["reproduce", "table8", "--data", "x", "--entry", "tokens"],
        "--entry is for msmarco alone",
    ),
    "no patch": (["reproduce", "table8", "--data", "x", "--patch", "0"], "--patch must be at least 1, not 0"),
    "odd patch": (["reproduce", "table8", "--data", "x", "--patch", "5"], "--patch 5 does not divide all sides"),
    "workers": (["reproduce", "table8", "--data", "x", "--workers", "2"], "--workers is for the synthetic tables"),
    "synthetic entry": (["reproduce", "table2", "--entry", "tokens"], "--entry is for the tables and figures on real"),
    "synthetic": (["reproduce", "table2", "--data", "x"], "--data is for the tables and figures on real data"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input_gives_one_line_and_writes_nothing(what: str, tmp_path: Path, headcount_here: Any) -> None:
    arguments, line = BAD[what]
    answer = headcount_here(*arguments)
    assert answer.returncode == 2
    assert line in answer.stderr
    assert answer.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_more_than_the_folder_has(folders: dict[str, Path], tmp_path: Path, headcount_here: Any) -> None:
    arguments = ("--data", str(folders["cifar"]), "--train", "61")
    answer = headcount_here("reproduce", "table8", *SMOKE, *arguments)
    assert answer.returncode == 2
    assert "61 were requested, and there are 60" in answer.stderr
    assert list(tmp_path.iterdir()) == []
