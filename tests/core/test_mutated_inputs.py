"""Mutated inputs of every kind: each is read, or refused in one line, and none ends in a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from headcount import BadInput
from mutated import KINDS, Kind, outcome, run
from results import write_result

EACH = 20
EACH_SLOW = 1000


@pytest.mark.filterwarnings("ignore")  # NumPy's and zipfile's, of what is odd about the inputs
@pytest.mark.parametrize("name", KINDS)
def test_a_sample(name: str, tmp_path: Path) -> None:
    found = run(name, EACH, 1, tmp_path)
    assert found["odd"] == []
    assert found["refused"] > 0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_thousands(tmp_path: Path) -> None:
    kinds = {name: run(name, EACH_SLOW, 0, tmp_path / str(k)) for k, name in enumerate(KINDS)}
    assert [line for found in kinds.values() for line in found["odd"]] == []
    totals = {key: sum(found[key] for found in kinds.values()) for key in ("accepted", "refused", "traceback")}
    assert totals["accepted"] > 100  # it reaches what is read, too
    write_result(
        "mutated-inputs",
        {"kinds": {name: {key: found[key] for key in totals} for name, found in kinds.items()}},
        seeds=[0],
        counts={
            "inputs": EACH_SLOW * len(KINDS),
            "refused in one line": totals["refused"],
            "accepted": totals["accepted"],
            "tracebacks": totals["traceback"],
        },
    )


def test_a_careless_reader_is_caught(tmp_path: Path) -> None:
    """The sabotaged twin: a foreign error, an error of two lines, and a process that exits by itself."""

    def fails(error: BaseException) -> Kind:
        def read(folder: Path) -> None:
            raise error

        return Kind(lambda folder: None, read)

    for error in (
        ValueError("x"),
        BadInput("two\nlines"),
        BadInput(""),
        SystemExit(3),
        RecursionError(),
        MemoryError(),
    ):
        assert outcome(fails(error), tmp_path)[0] == "traceback"
    assert outcome(fails(BadInput("one line")), tmp_path) == ("refused", "one line")
