"""Every verb with a table at 40, 60, 80 and 120 columns: lines fit, and the key numbers of --json are all there."""

from __future__ import annotations

import importlib
import io
import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from fcntl import ioctl
from pathlib import Path
from struct import pack
from termios import TIOCSWINSZ
from typing import Any

import pytest
import torch

import headcount as hc
from advisor.record_cases import made_record
from headcount.advisor.advice import Advice
from headcount.analysis.of_runs import answers
from headcount.cli.common import console
from headcount.core.text.terminal import Terminal
from headcount.models.files import SavedModel
from headcount.models.transformer.reference import Transformer
from headcount.models.transformer.spec import ModelSpec
from headcount.render import layout
from headcount.render.tables import as_terminal, transition_table
from headcount.theory.construct import save_verified
from render.run_cases import made_runs
from store.store_help import SWEEP
from support import Cli
from test_report import make_run
from widths import WIDTHS, line_problems, missing, numbers_under

Capture = pytest.CaptureFixture[str]


@dataclass(frozen=True)
class Case:
    """A command, and the names under which its JSON has the numbers that its text must show."""

    command: str
    names: str
    but: str = ""


CASES = {
    "tasks": Case("tasks", "intrinsic dim length"),
    "a task": Case("tasks quadratic-basins --intrinsic 2 --length 8", "intrinsic dim length distance"),
    "bounds of sizes": Case("bounds --D 4 --heads 1:4 --head-dim 8 --length 64", "heads bites_from_length", "printed"),
    "bounds of a task": Case(
        "bounds quadratic-basins --intrinsic 2 --dim 1 --length 8,16 --heads 1:2 --eps 0.05",
        "heads length bites_from_length bites_below_head_dim bites_below_eps gap reach needed built hidden",
        "printed",
    ),
    "density": Case(
        "density median --length 4 --q 10,100,1000 --samples 50",
        "q rate proved uniform hardest F_uniform F_hardest F_proved intrinsic",
    ),
    "recheck": Case("recheck built", "encoder leakage feedforward rounding claimed bound_float64"),
    "show": Case("show built --samples 100", "dim length heads hidden parameters fresh_sequences nmse_measured"),
    "adversary": Case("attack one --adversary", "eps gap line k"),
    "runs": Case("runs --store store", "done diverged failed running pending"),
    "a run": Case("runs small --store store", "spec.model.heads spec.seed step metrics.nmse spec.model.length"),
    "analyse": Case(
        "analyse grid --store store --resamples 100", "heads length hidden best median score", "dimensions"
    ),
}


SLOW = (
    "headcount.theory.adversary.figure.run_adversary",
    "headcount.theory.bounds.enough_heads.uppers",
    "headcount.theory.bounds.over_encoders.every_encoder",
    "headcount.tasks.assumptions.check.check_assumptions",
    "headcount.analysis.of_runs.analyse",
)


def done_once(place: str) -> Callable[..., Any]:
    """Return a function that repeats its answers where it is asked the same again."""
    module, _, name = place.rpartition(".")
    work, answers = getattr(importlib.import_module(module), name), dict[str, Any]()

    def answer(*arguments: Any, **options: Any) -> Any:
        key = repr((arguments, options))
        if key not in answers:
            answers[key] = work(*arguments, **options)
        return answers[key]

    return answer


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A built model, a model with one head, and a store with a finished run."""
    from headcount.cli.sweep import sweep

    place = tmp_path_factory.mktemp("widths")
    built = hc.build(hc.make_task("quadratic-basins", intrinsic=2, dim=1, length=8), 0.1)
    save_verified(built.model, built.certificate(), place / "built", {})
    one = hc.make_task("quadratic-basins", intrinsic=2, dim=2, length=12)
    model = Transformer(ModelSpec(dim=2, length=12, heads=1, head_dim=2, hidden=8), seed=0, dtype=torch.float64)
    SavedModel(model, task=one.data()).save(place / "one")
    (place / "small.toml").write_text(SWEEP)
    assert sweep(place / "small.toml", store=place / "store") == 0
    return place


@pytest.mark.parametrize("name", CASES)
def test_every_verb_fits_and_shows_its_numbers(
    name: str, folder: Path, headcount_here: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES[name]
    for place in SLOW:
        monkeypatch.setattr(place, done_once(place))
    if name == "analyse":
        runs = made_runs(targets=1, hidden=(16, 32), settings=({"kind": "a rather long name"}, {"kind": "[b]"}))
        monkeypatch.setattr("headcount.api.stored.stored_runs", lambda *_: runs)
        monkeypatch.setattr("headcount.api.stored.quick_check", lambda *_: [])
    words = [str(folder / word) if (folder / word).exists() else word for word in case.command.split()]
    found = json.loads(headcount_here(*words, "--json").stdout)
    key = list(numbers_under(found, case.names.split(), case.but.split()))
    assert key
    for width in WIDTHS:
        monkeypatch.setenv("COLUMNS", str(width))
        ran = headcount_here(*words)
        assert ran.returncode == 0, ran.stderr
        assert line_problems(ran.stdout, width) == []
        assert missing(key, ran.stdout) == []


# -- verbs that train first: what they print, from records ---------------------------------------------------


def printed(show: Callable[[], object], width: int, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> str:
    """Return what is shown at a width; its lines must fit."""
    monkeypatch.setenv("COLUMNS", str(width))
    capsys.readouterr()
    show()
    shown = capsys.readouterr().out
    assert line_problems(shown, width) == []
    return shown


@pytest.mark.parametrize("width", WIDTHS)
def test_demo(width: int, monkeypatch: pytest.MonkeyPatch, capsys: Capture, tmp_path: Path) -> None:
    from headcount.cli.demo import demo

    run = make_run()
    monkeypatch.setattr("headcount.sweeps.run.run_sweep", lambda *_: [run])
    monkeypatch.chdir(tmp_path)
    shown = printed(lambda: demo(out=Path("tour")), width, monkeypatch, capsys)
    best = [min(t.nmse for t in run.trials if t.heads == h and t.nmse is not None) for h in (1, 2, 3, 4)]
    assert missing([*best, *(t.parameters for t in run.trials)], shown) == []
    assert "tour/index.html" in shown


@pytest.mark.parametrize("width", WIDTHS)
def test_advise(width: int, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    from headcount.cli.advise import _show

    record = made_record(classes=True)
    found = Advice(record, None, None, ())  # type: ignore[arg-type]
    shown = printed(lambda: _show(found, None, None), width, monkeypatch, capsys)
    key = [n for p in record.curve for n in (p.heads, p.seeds, p.validation, p.median, p.train, p.parameters)]
    assert missing(key, shown) == []


@pytest.mark.parametrize("width", WIDTHS)
def test_build(width: int, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    from headcount.cli.build import build

    monkeypatch.chdir(folder)
    task = ("quadratic-basins", 0.1, Path(str(width)))
    monkeypatch.setattr("headcount.render.error_budget.budget_png", lambda _: b"")
    shown = printed(
        lambda: build(task[0], eps=task[1], out=task[2], intrinsic=2, dim=1, length=8), width, monkeypatch, capsys
    )
    shares = hc.build(hc.make_task("quadratic-basins", intrinsic=2, dim=1, length=8), 0.1).budget.shares
    assert missing(shares.values(), shown) == []
    assert ("█" in shown) == (width >= 60)


@pytest.mark.parametrize("width", WIDTHS)
def test_irreducible(width: int, monkeypatch: pytest.MonkeyPatch, capsys: Capture, tmp_path: Path) -> None:
    from headcount.cli.irreducible import irreducible

    found = {"deviations": 1.25, "deviations_proved": 0.5, "converged": 3, "starts": 9, "equal_effort": False}
    row = {"intrinsic": 2, "length": 4, "head_dim": 2, "heads": 1, "layer": "trained", "nmse_measured": 0.0123}
    rows = [{**row, "heads": h, "all": {**found, "deviations": 1.75 / h}, "typical": found} for h in (1, 2)]
    counts = {"done": 2, "failed": 0, "pending": 0, "running": 0}
    monkeypatch.setattr("headcount.api.irreducible_result.run_on_store", lambda *_, **__: counts)
    monkeypatch.setattr("headcount.api.irreducible_result.attack_rows", lambda *_: rows)
    monkeypatch.setattr("headcount.api.irreducible_result.save_witnesses", lambda *_: 0)
    monkeypatch.chdir(tmp_path)
    shown = printed(lambda: irreducible(out=Path("out")), width, monkeypatch, capsys)
    assert missing([1.25, 1.75, 0.875, 0.5, 0.0123], shown) == []
    assert "1.25*" in shown
    assert "[3 of 9]" in shown
    assert "|" not in shown.replace("|S", ""), "Markdown is for files"
    assert "| 1.25\\* [3 of 9] |" in (tmp_path / "out" / "irreducible.md").read_text("utf-8")


@pytest.mark.parametrize("width", WIDTHS)
def test_report_in_the_terminal(width: int, monkeypatch: pytest.MonkeyPatch, capsys: Capture, folder: Path) -> None:
    from headcount.cli.report import report

    runs = made_runs(lengths=(8, 16, 24, 32, 48, 64))
    monkeypatch.setattr("headcount.api.stored.stored_runs", lambda *_: runs)
    monkeypatch.setattr("headcount.api.stored.quick_check", lambda *_: [])
    shown = printed(lambda: report("grid", store=folder / "store", terminal=True), width, monkeypatch, capsys)
    assert missing([t.parameters for run in runs for t in run.trials], shown) == []
    assert ("this chart needs" in shown) == (width == 40)


# -- the printer itself -------------------------------------------------------------------------------------


def test_a_printer_that_cuts_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    """The twins: one shortens numbers to the width, one leaves the last column out, one never folds."""
    table = transition_table(answers([make_run()])[0])
    key = [float(row[2]) for row in table.rows] + [int(row[7].replace(",", "")) for row in table.rows]

    def problems() -> list[object]:
        screen = io.StringIO()
        Terminal(file=screen, width=40).print(as_terminal(table))
        return [*line_problems(screen.getvalue(), 40), *missing(key, screen.getvalue())]

    assert problems() == []
    whole, real = layout.LaidColumn.line, layout.lay_out
    monkeypatch.setattr(layout.LaidColumn, "line", lambda self, text, width: whole(self, text[:2] + "…", width))
    assert problems()
    monkeypatch.setattr(layout.LaidColumn, "line", whole)
    monkeypatch.setattr(layout, "lay_out", lambda strips, width: real(strips[:-2], width))
    assert problems()
    monkeypatch.setattr(layout, "lay_out", lambda strips, width: real(strips, 100))
    assert problems()


def test_how_wide_the_terminal_for_results_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """COLUMNS counts before all else, then the screen's own width; a pipe has 100 columns."""
    for columns, width in (("57", 57), ("", 100), ("0", 100), ("wide", 100)):
        monkeypatch.setenv("COLUMNS", columns)
        assert console().width == width
    master, slave = pty.openpty()
    ioctl(slave, TIOCSWINSZ, pack("HHHH", 50, 43, 0, 0))
    environment = {**{k: v for k, v in os.environ.items() if k != "COLUMNS"}, "TERM": "xterm", "NO_COLOR": "1"}
    program = "from headcount.cli.common import console; console().print(30 * 'word ')"
    streams: dict[str, Any] = {"stdin": slave, "stdout": slave, "stderr": subprocess.PIPE}
    running = subprocess.Popen([sys.executable, "-c", program], env=environment, **streams)
    os.close(slave)
    screen = b""
    try:
        while piece := os.read(master, 65536):
            screen += piece
    except OSError:  # the other end has closed
        pass
    finally:
        os.close(master)
    assert running.wait(60) == 0
    assert screen.decode().split("\r\n")[0] == " ".join(8 * ["word"])
