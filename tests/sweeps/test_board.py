"""The scoreboard of a sweep: what a person reads while it runs."""

from __future__ import annotations

import pytest

from headcount.core.progress import Progress
from headcount.sweeps.scoreboard import Board, Entry, Score


def end(board: Board, name: str, error: float | None) -> None:
    board.ended(name, "diverged" if error is None else "done", {"nmse": error})


ENTRIES = {
    "a": Entry("length 16, h = 1", 10, 4.0),
    "b": Entry("length 16, h = 1", 10, 4.0),
    "c": Entry("length 8, h = 1", 10, 1.0),
    "d": Entry("length 8, h = 1", 10, 1.0),
}


def test_plain_progress_lines_show_the_essentials(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress("training", Board.work(ENTRIES), every=0.0) as progress:
        board = Board(ENTRIES, progress)
        board.resumed("a", 5)
        board.steps("a", 10)
        end(board, "a", 3e-3)
        end(board, "b", 1e-3)
        end(board, "c", None)
        board.ended("d", "failed")
    lines = capsys.readouterr().err.splitlines()
    assert "training: length 16, h = 1: best 1.0e-03, median 2.0e-03" in lines
    assert "training: length 8, h = 1: none, 2 diverged or failed" in lines
    assert lines[0].startswith("training: 40 %")  # 10 of 10 steps of a, each as costly as four of c
    assert lines[-1].startswith("training: 100 % in 0 s  4 of 4 trials")
    assert progress.done == pytest.approx(progress.total)


def test_cells_are_sorted_numerically() -> None:
    with Progress("training", 1, quiet=True) as progress:
        board = Board(ENTRIES, progress)
        for name in ENTRIES:
            end(board, name, 0.5)
    assert [row[0] for row in board.rows()] == ["length 8, h = 1", "length 16, h = 1"]
    assert board.rows()[0][1:] == ("2/2", "5.0e-01", "5.0e-01")


def test_skipped_work_does_not_count_towards_the_speed(capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    now = 0.0
    monkeypatch.setattr("headcount.core.progress.time.monotonic", lambda: now)
    with Progress("training", 100, every=0.0) as progress:
        progress.skip(50)
        now = 10.0
        progress.advance(10)
    assert capsys.readouterr().err == "training: 60 %, about 40 s to go\n"


def test_progress_counts_trials_finished_earlier_and_elsewhere() -> None:
    with Progress("training", Board.work(ENTRIES), quiet=True) as progress:
        board = Board(ENTRIES, progress, {"length 16, h = 1": [1e-3, None], "length 4, h = 1": [0.5]})
        assert board.note() == "3 of 7 trials"
        board.taken_elsewhere("b")
        end(board, "a", 3e-3)
        assert board.note() == "4 of 6 trials"
        assert board.rows() == [("and 1 more cells", "", "", ""), ("length 16, h = 1", "3/3", "1.0e-03", "2.0e-03")]
        end(board, "c", 0.1)
        end(board, "d", 0.2)
    assert progress.done == pytest.approx(progress.total)


def test_a_score_may_rise_and_have_its_own_name(capsys: pytest.CaptureFixture[str]) -> None:
    gaps = Score(lambda metrics: metrics.get("gap"), "largest", "gap", ".2f", lower_is_better=False, steps=None)
    with Progress("attacking", Board.work(ENTRIES), every=0.0) as progress:
        board = Board(ENTRIES, progress, {"length 16, h = 1": [0.5]}, gaps)
        for name, gap in (("a", 2.0), ("b", 4.0), ("c", None), ("d", 3.0)):
            board.ended(name, "failed" if gap is None else "done", {"gap": gap})
    lines = capsys.readouterr().err.splitlines()
    assert "attacking: length 16, h = 1: largest 4.00, median 2.00" in lines
    assert "attacking: length 8, h = 1: largest 3.00, median 3.00, 1 diverged or failed" in lines
    assert not any("/s" in line for line in lines)
