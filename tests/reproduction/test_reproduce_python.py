"""`hc.reproduce`: the same files as the command's, a view for notebooks, and bad input in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import headcount as hc
from headcount.core.progress import Progress
from headcount.reproduction import show
from headcount.reproduction.catalogue import Catalogue
from headcount.reproduction.items import ITEMS
from headcount.reproduction.run import Reproduction
from headcount.sweeps.spec import SweepSpec
from support import check_frame

EVIL = "<script>alert(1)</script>\x1b[31m"


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Reproduction:
    """A table and a figure of one short run."""
    folder = tmp_path_factory.mktemp("reproduced")
    made = hc.reproduce("table4", scale="smoke", out=folder / "python", store=folder / "store", quiet=True)
    assert isinstance(made, Reproduction)
    return made


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_function_and_command_write_the_same_files(found: Reproduction, tmp_path: Path, headcount_here: Any) -> None:
    store = found.folder.parent / "store"
    told = headcount_here("reproduce", "table4", "--scale", "smoke", "--store", store, "--out", "shell", "--json")
    assert told.returncode == 0, told.stderr
    data = json.loads(told.stdout)
    assert data["shown"]["table4"]["cells"] == found.data()["shown"]["table4"]["cells"]
    by_function, by_command = contents(found.folder), contents(tmp_path / "shell")
    assert "table4/table4.md" in by_function
    assert by_function == by_command


def test_the_result_shows_itself(found: Reproduction) -> None:
    line, html = repr(found), found._repr_html_()
    assert "\n" not in line
    assert "Table 4" in line
    assert "16 done" in line
    assert html.count("<table") == 1
    assert html.count("<img") == len(found.shown[0].charts) == 1
    assert found.shown[0].size in html
    check_frame(found.table())
    assert {row["heads"] for row in found.table()} == {1, 2, 3, 4}
    assert any(row["paper"] is not None for row in found.table())


def test_what_several_names_share_is_shown_once(found: Reproduction) -> None:
    twice = Reproduction(found.folder, "smoke", shown=[*found.shown, *found.shown], counts=found.counts)
    assert twice._repr_html_().count("<img") == 1
    assert repr(twice).startswith("2 tables and figures")


def test_what_is_left_is_shown() -> None:
    counts = {"a": {"done": 1, "pending": 2}}
    assert "make the same call again to continue" in Reproduction(Path("out"), "smoke", counts=counts)._repr_html_()
    waiting = Reproduction(Path(EVIL), "smoke", counts={EVIL: {"pending": 2}}, needs_data=True)
    assert "the same call with data" in waiting._repr_html_()
    assert "<script" not in waiting._repr_html_()
    assert "\x1b" not in waiting._repr_html_() + repr(waiting)


def test_without_a_name_it_lists_what_there_is(headcount_here: Any) -> None:
    names = hc.reproduce()
    assert isinstance(names, Catalogue)
    assert names.data() == json.loads(headcount_here("reproduce", "--json").stdout)
    assert list(names.lines()) == headcount_here("reproduce").stdout.splitlines()
    assert {row["name"] for row in names.table()} == set(ITEMS)
    html = names._repr_html_()
    assert all(name in html for name in ITEMS)
    assert "--data" not in html
    evil = Catalogue(dict.fromkeys(names.titles, EVIL), names.groups)._repr_html_()
    assert "<script" not in evil


def test_a_sweep_is_written_and_returned(tmp_path: Path, headcount_here: Any) -> None:
    sweep = hc.reproduce("floor", scale="smoke", spec=tmp_path / "python.toml")
    assert isinstance(sweep, SweepSpec)
    assert sweep.name == "floor-smoke"
    assert headcount_here("reproduce", "floor", "--scale", "smoke", "--spec", "shell.toml").returncode == 0
    assert (tmp_path / "python.toml").read_text() == (tmp_path / "shell.toml").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "tabel2"}, "unknown table or figure 'tabel2': did you mean 'table2'?"),
        ({"name": 2}, "unknown table or figure 2: allowed: "),
        ({"name": ["table2"]}, "unknown table or figure ['table2']: did you mean 'table2'?"),
        ({"name": "table2", "scale": "smal"}, "unknown scale 'smal': did you mean 'small'?"),
        ({"name": "table2", "workers": 0}, "workers must be at least 1, not 0"),
        ({"name": "table2", "workers": 1.5}, "workers must be a whole number, not 1.5"),
        ({"name": "table2", "budget": "soon"}, "budget: invalid duration 'soon'"),
        ({"name": "table2", "device": "tpu"}, "unknown device 'tpu'"),
        ({"name": "table2", "device": None}, "unknown device None: use cpu"),
        ({"name": "table2", "store": "taken"}, "taken is a file, not a folder: choose another store"),
        ({"name": "table2", "out": "taken"}, "taken is a file, not a folder: choose another folder"),
        ({"name": "table2", "data": "x"}, "data is for the tables and figures on real data, not for table2"),
        ({"name": "table6"}, "table6 needs data: give data, a folder with collection.tsv"),
        ({"name": "table6", "data": "x", "entry": "mean"}, "unknown entry 'mean': did you mean 'means'?"),
        ({"name": "table8", "data": "x", "patch": "4"}, "patch must be a whole number, not '4'"),
        ({"name": "table8", "data": "nowhere"}, "nowhere"),
        ({"name": "table2", "spec": "taken"}, "taken exists already"),
        ({"spec": "x.toml"}, "spec needs the name of a table or figure"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(
    arguments: dict[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").write_text("the user's")
    with pytest.raises(hc.BadInput) as refused:
        hc.reproduce(**arguments)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
    assert "--" not in str(refused.value)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["taken"]


class Interrupted(Exception):
    """Raised where a user presses Ctrl-C."""


@pytest.mark.parametrize("call", range(1, 7))
def test_an_interrupted_drawing_can_be_repeated(
    call: int, found: Reproduction, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: dict[str, Any] = {"scale": "smoke", "store": found.folder.parent / "store", "quiet": True}
    calls = iter(range(1, call))

    def interrupt(write: Any) -> Any:
        def written(*arguments: Any) -> None:
            if next(calls, None) is None:
                raise Interrupted
            write(*arguments)

        return written

    with monkeypatch.context() as patched:
        for name in ("write_bytes", "write_text", "write_json"):
            patched.setattr(show, name, interrupt(getattr(show, name)))
        with pytest.raises(Interrupted):
            hc.reproduce("table4", out=tmp_path / "out", **kept)
    hc.reproduce("table4", out=tmp_path / "out", **kept)
    assert contents(tmp_path / "out") == contents(found.folder)


def test_a_killed_writer_leaves_nothing_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "table4").mkdir()
    (tmp_path / "table4" / ".provenance.json.0123.part").write_text("half")
    show.check_folders(tmp_path, {"table4": "table4"})
    (tmp_path / "table4" / "mine.png").write_text("the user's")
    with pytest.raises(hc.BadInput, match=r"holds other files \(mine.png\)"):
        show.check_folders(tmp_path, {"table4": "table4"})


def test_progress_is_counted_and_can_be_silenced(
    found: Reproduction, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done: dict[str, float] = {}
    advance = Progress.advance

    def counted(self: Progress, units: float = 1, note: str = "", *, last: bool = False) -> None:
        advance(self, units, note, last=last)
        done[self.title] = self.done / self.total

    monkeypatch.setattr(Progress, "advance", counted)
    hc.reproduce("table4", scale="smoke", out=tmp_path, store=found.folder.parent / "store", quiet=True)
    assert done["drawing"] == 1
    assert capsys.readouterr() == ("", "")
