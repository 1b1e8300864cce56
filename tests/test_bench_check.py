"""The check for slower code: a lost lead is named, a kept one passes, results that share nothing are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import check
from benchmarks.peers import run
from headcount import BadInput

RECORDED: dict[str, Any] = {
    "T=8": {"nn_mha_us": 40.0, "engine_us": 1.0, "nn_mha_over_engine": 40.0, "jax_over_engine": 7.0},
    "T=32": {"nn_mha_over_engine": 50.0},
}


def today(at_32: float) -> dict[str, Any]:
    return {"name": "bench-cpu", "T=8": {"nn_mha_over_engine": 41.0}, "T=32": {"nn_mha_over_engine": at_32}}


def run_with(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, result: dict[str, Any]) -> int:
    monkeypatch.setattr(run, "run_bench", lambda device, skip: result)
    file = tmp_path / "recorded.json"
    file.write_text(json.dumps(RECORDED))
    return check.main(["--recorded", str(file)])


def test_a_lost_lead_fails_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_with(monkeypatch, tmp_path, today(at_32=41.0)) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if "slower" in line] == [
        "T=32     nn_mha           50.0×     41.0×     -18%  slower than recorded"
    ]


def test_a_lead_within_the_tolerance_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_with(monkeypatch, tmp_path, today(at_32=43.0)) == 0
    assert "slower" not in capsys.readouterr().out


def test_results_that_share_no_ratio_are_refused() -> None:
    with pytest.raises(BadInput, match="no ratio in common"):
        check.compare({"T=64": {"nn_mha_over_engine": 1.0}}, today(1.0))


@pytest.mark.parametrize(("text", "message"), [(None, "No such file"), ("{", "not JSON"), ("[]", "not a result")])
def test_a_bad_file_is_one_line(
    text: str | None, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "bad.json"
    if text is not None:
        file.write_text(text)
    assert check.main(["--recorded", str(file)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert message in error
