"""Progress in a notebook goes to standard output: a notebook paints standard error red, as an error."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

import headcount as hc
from headcount.core.progress import Progress, in_notebook


def fake_kernel(monkeypatch, *, kernel: object = "a kernel", running: bool = True) -> None:
    """Make the process look like a kernel of IPython, or like IPython at a terminal."""
    shell = ModuleType("IPython")
    shell.get_ipython = lambda: SimpleNamespace(kernel=kernel) if running else None  # type: ignore[attr-defined]
    shell.version_info = (9, 0)  # matplotlib asks  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", shell)
    monkeypatch.setitem(sys.modules, "ipykernel", ModuleType("ipykernel"))


def work() -> None:
    with Progress("working", 2, every=0.0) as progress:
        progress.start("starting")
        progress.advance(note="half")
        progress.print_line("a result")
        progress.advance(note="done")


def test_lines_go_to_standard_output_in_a_notebook(monkeypatch, capsys):
    fake_kernel(monkeypatch)
    work()
    out, err = capsys.readouterr()
    assert err == ""
    assert out.splitlines()[0] == "working: starting"
    assert "working: 100 %" in out


@pytest.mark.parametrize("options", [None, {"kernel": None}, {"running": False}])
def test_elsewhere_they_go_to_standard_error(monkeypatch, capsys, options):
    if options is not None:  # IPython at a terminal, or modules imported by a script
        fake_kernel(monkeypatch, **options)
    assert not in_notebook()
    work()
    out, err = capsys.readouterr()
    assert (out, err.splitlines()[0]) == ("", "working: starting")


def test_a_sweep_in_a_notebook_writes_nothing_to_standard_error(monkeypatch, capsys):
    fake_kernel(monkeypatch)
    task = hc.make_task("min-plus-max", length=4)
    found = hc.sweep(task, heads=[1], seeds=1, steps=20, warmup=2, train_size=32, validation_size=32, batch=8)
    found.plot()
    assert capsys.readouterr().err == ""
