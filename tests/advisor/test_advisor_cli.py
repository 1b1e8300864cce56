"""`headcount advise`: the answer on the terminal, the files, and one line for what cannot be answered."""

from __future__ import annotations

import errno
import json
import os

import numpy as np
import pytest
from advisor_cases import arrays


def saved(folder, **changed):
    X, y = arrays("mean", 400, 0.1, dim=2, length=6)
    np.savez(folder / "data.npz", **{"X": X, "y": y, **changed})
    return folder / "data.npz"


def test_the_answer_comes_first_and_the_files_hold_it(headcount_here, tmp_path):
    options = ("--steps", 300, "--budget", "10s", "--heads-max", 2, "--embed-dim", 6, "--out", "advice")
    done = headcount_here("advise", saved(tmp_path), *options)
    assert done.returncode == 0
    record = json.loads((tmp_path / "advice" / "advice.json").read_text())
    assert done.stdout.splitlines()[0] == record["sentence"]
    assert {"recommended_heads", "interval", "no_transition", "curve", "reasons"} <= set(record)
    assert len(record["interval"]) == 2
    assert all(reason["tag"] in ("proved", "measured", "extrapolated") for reason in record["reasons"])
    assert (tmp_path / "advice" / "advice.png").stat().st_size > 1000
    assert "Heads" in done.stdout
    assert record["configuration"]["torch"]["embed_dim"] == 6
    assert f"nn.MultiheadAttention(6, {record['configuration']['torch']['num_heads']})" in done.stdout
    assert record["witness"]["why"] or record["witness"]["sentences"]
    assert record["sentence"].split(":")[0] in (tmp_path / "advice" / "index.html").read_text()


def test_json_goes_where_it_is_told(headcount_here, tmp_path):
    path = saved(tmp_path)
    done = headcount_here("advise", path, "--budget", "20s", "--heads-max", 2, "--json")
    assert json.loads(done.stdout)["samples"] == 400
    done = headcount_here("advise", "--json", "a.json", path, "--budget", "5s", "--heads-max", 2)
    assert json.loads((tmp_path / "a.json").read_text())["samples"] == 400
    assert "interval" in done.stdout
    done = headcount_here("advise", path, "a.json", "--budget", "5s")
    assert (done.returncode, "--json" in done.stderr) == (2, True)


def test_data_of_one_name_in_two_folders_have_a_page_each(headcount_here, tmp_path):
    for place in ("a", "b"):
        (tmp_path / place).mkdir()
        path = saved(tmp_path / place)
        done = headcount_here("advise", path.relative_to(tmp_path), "--steps", 20, "--heads-max", 2, "--budget", 10)
        assert done.returncode == 0, done.stderr
        assert f"Page     headcount-advice/{place}-data/index.html" in done.stdout
    assert sorted(p.name for p in (tmp_path / "headcount-advice").iterdir()) == ["a-data", "b-data"]


def test_the_page_is_written_and_named_unless_told_otherwise(headcount_here, tmp_path):
    path, quick = saved(tmp_path), ("--steps", 20, "--heads-max", 2, "--budget", 10)
    done = headcount_here("advise", path, *quick)
    own = tmp_path / "headcount-advice" / "data"
    assert done.returncode == 0
    assert {p.name for p in own.iterdir()} == {"advice.json", "advice.png", "index.html"}
    assert "Page     headcount-advice/data/index.html" in done.stdout
    record = (own / "advice.json").read_bytes()
    assert headcount_here("advise", path, *quick, "--json").returncode == 0
    assert (own / "advice.json").read_bytes() == record, "--json alone writes nothing"
    assert headcount_here("advise", path, *quick, "--seed", 1).returncode == 0
    assert (own / "advice.json").read_bytes() != record, "an earlier page of ours is replaced"
    (own / "mine.txt").write_text("mine")
    done = headcount_here("advise", path, *quick)
    assert (done.returncode, done.stdout) == (2, "")
    assert "headcount-advice/data holds other files (mine.txt)" in done.stderr
    assert (own / "mine.txt").read_text() == "mine"


@pytest.mark.parametrize("budget", ["120", "2m", "120s"])
def test_a_budget_with_and_without_a_unit(headcount_here, tmp_path, budget):
    done = headcount_here("advise", saved(tmp_path), "--steps", 5, "--heads-max", 2, "--budget", budget, "--json")
    assert json.loads(done.stdout)["budget"] == 120


BAD = {
    "constant y": ({"y": np.ones(400)}, [], "constant"),
    "nan": ({"X": np.full((400, 6, 2), np.nan)}, [], "nan"),
    "strings": ({"y": np.array(["a", "b"] * 200)}, ["--kind", "regression"], "y holds text: give numbers"),
    "mask": ({"mask": np.zeros((400, 6), bool)}, [], "no real token"),
    "length 1": ({"X": np.random.default_rng(0).standard_normal((400, 1, 2))}, [], "length 1"),
    "one sample": ({"X": np.zeros((1, 6, 2)), "y": np.zeros(1)}, [], "1 sample"),
    "all classes distinct": ({"y": np.arange(400)}, ["--kind", "classification"], "400 classes"),
    "budget": ({}, ["--budget", "soon"], "--budget: invalid duration 'soon'"),
    "budget below nothing": ({}, ["--budget", "-5s"], "--budget: invalid duration '-5s'"),
    "seed": ({}, ["--seed", "-1"], "--seed"),
    "width": ({}, ["--embed-dim", "0"], "--embed-dim"),
    "huge width": ({}, ["--embed-dim", "2000000"], "--embed-dim must be a whole number from 1 to 1000000"),
    "endless budget": ({}, ["--budget", "999999999h"], "below 10,000,000 seconds"),
    "this folder": ({}, ["--out", "."], "the current folder"),
    "no folder": ({}, ["--out", ""], "missing value after --out"),
    "the record over data": ({}, ["--json", "other.csv"], "is data, which --json would overwrite"),
    "steps": ({}, ["--steps", "0"], "headcount: --steps must be 1 or more, not 0"),
    "heads": ({}, ["--heads-max", "1"], "headcount: --heads-max must lie between 2 and 256, not 1"),
    "confidence": ({}, ["--confidence", "nan"], "headcount: --confidence must lie between 0.5 and 1, not nan"),
    "a folder for the record": ({}, ["--json", "."], "--json takes a file"),
}


@pytest.mark.parametrize("name", list(BAD))
def test_bad_input_is_one_line_and_status_2(headcount_here, tmp_path, name):
    changed, options, text = BAD[name]
    done = headcount_here("advise", saved(tmp_path, **changed), *options)
    assert done.returncode == 2
    assert text in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_what_is_the_users_stays_the_users(headcount_here, tmp_path):
    """Refused before the search: a record over the data, also through a link, and a page over a page."""
    path = saved(tmp_path)
    before = path.read_bytes()
    (tmp_path / "link.json").symlink_to(path)
    site = tmp_path / "site"
    site.mkdir()
    (site / "index.html").write_text("mine")
    for options, text in (
        (["--json", path], "is data, which --json would overwrite"),
        (["--json", "link.json"], "is data, which --json would overwrite"),
        (["--out", "site"], "site holds other files (index.html)"),
    ):
        done = headcount_here("advise", path, "--steps", 5, "--heads-max", 2, *options)
        assert (done.returncode, done.stdout, len(done.stderr.strip().splitlines())) == (2, "", 1)
        assert text in done.stderr
    assert path.read_bytes() == before
    assert (site / "index.html").read_text() == "mine"


def test_the_answer_survives_what_comes_after_it(headcount_here, tmp_path, monkeypatch):
    """A width into which no heads fit, an earlier folder, and a full disk: the answer is printed all the same."""
    path, quick = saved(tmp_path), ("--steps", 20, "--heads-max", 2, "--budget", "10s")
    X, y = arrays("sum-of-maxima", 1000, 0.0, intrinsic=2, dim=2, length=12)
    np.savez(tmp_path / "two.npz", X=X, y=y)
    done = headcount_here("advise", "two.npz", "--steps", 800, "--heads-max", 8, "--embed-dim", 3, "--json")
    record = json.loads(done.stdout)
    assert record["recommended_heads"] == 2
    assert "embed_dim 3 is not divided by 2 heads" in record["configuration"]["note"]
    for _ in range(2):  # the second replaces the first
        assert headcount_here("advise", path, *quick, "--out", "found").returncode == 0
    kept = {p.name: p.read_bytes() for p in (tmp_path / "found").iterdir()}
    assert set(kept) == {"advice.json", "advice.png", "index.html"}
    real = os.fsync
    written = []

    def full(descriptor):
        written.append(descriptor)
        if len(written) > 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    for folder in ("found", "new/folder"):
        written.clear()
        done = headcount_here("advise", path, *quick, "--out", folder)
        assert (done.returncode, "Recommended heads" in done.stdout) == (2, True)
        assert f"No space left on device: {folder}" in done.stderr
    assert {p.name: p.read_bytes() for p in (tmp_path / "found").iterdir()} == kept
    assert not (tmp_path / "new").exists()


def test_other_files_are_refused(headcount_here, tmp_path):
    (tmp_path / "data.txt").write_text("1,2,3\n")
    done = headcount_here("advise", "data.txt")
    assert (done.returncode, len(done.stderr.strip().splitlines())) == (2, 1)
    assert ".npz" in done.stderr
