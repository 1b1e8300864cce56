"""Data written as TOML: what `tomllib` reads back is what was written."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from headcount.core.readers.toml import toml_text

DATA: dict[str, dict[str, Any]] = {
    "plain": {"a": 1, "b": -0.5, "c": True, "d": "", "e": [1, 2], "f": []},
    "numbers": {"a": [1e-9, 1e22, 0.1, 2**70, -0.0], "b": [False, True]},
    "texts": {"a": 'quote " backslash \\ tab \t newline \n', "b": "\x00\x01\x1f\x7f", "c": "Σ é 漢 🙂", "d": "'''"},
    "keys": {"a b": 1, "": 2, "ä": 3, 'say "x"': {"x.y": 4}, "true": 5},
    "tables": {"last": 1, "task": {"family": "mean", "law": {"law": "uniform", "low": [0.0]}}, "model": {}},
    "nested": {"f": [[{"a": [[1.0], [2.0]]}], []], "g": {"h": {"i": {"j": [{"k": {}}]}}}},
    "lists of tables": {"settings": [{"name": "a", "train": {"steps": 3}}, {"name": "b"}], "x": {"y": 1}},
    "long": {"targets": list(range(100)), "f": [{"op": "affine", "weight": [[0.123456789] * 20]}] * 3},
    "nothing": {},
}


@pytest.mark.parametrize("what", DATA)
def test_what_is_written_is_read_back(what: str) -> None:
    text = toml_text(DATA[what], comment="two lines\nof comment")
    assert tomllib.loads(text) == DATA[what]
    assert text.startswith("# two lines\n# of comment\n")


def test_null_is_left_out_and_never_inside_a_list() -> None:
    assert tomllib.loads(toml_text({"a": None, "b": {"c": None, "d": {"e": None}}})) == {"b": {"d": {}}}
    with pytest.raises(ValueError, match="NoneType"):
        toml_text({"a": [1, None]})


def test_a_long_list_has_a_line_for_each_value() -> None:
    assert max(map(len, toml_text({"targets": list(range(100))}).splitlines())) < 20
