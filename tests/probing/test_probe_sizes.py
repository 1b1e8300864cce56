"""Configs with a million layers, giant tables or things that are not numbers are each refused in one line."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from probe_models import make

from headcount import BadInput
from headcount.probing.load import load_folder

pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("models")
    for kind in ("bert", "gpt2"):
        make(kind).save_pretrained(root / kind)
    return {kind: root / kind for kind in ("bert", "gpt2")}


CASES: list[tuple[str, dict[str, Any], str]] = [
    ("bert", {"num_hidden_layers": 1_000_000}, "num_hidden_layers is 1,000,000: at most 1,000"),
    ("gpt2", {"n_layer": 10**30}, "at most 1,000 are supported"),
    ("bert", {"text_config": {"num_hidden_layers": 5000}}, "num_hidden_layers is 5,000"),
    ("bert", {"num_labels": 10**9}, "num_labels is 1,000,000,000: at most 100,000"),
    ("bert", {"vocab_size": 10**9}, "describes a model of 33,000,"),
    ("bert", {"hidden_size": 10**6, "num_attention_heads": 4}, "it belongs to another model, or is damaged"),
    ("bert", {"max_position_embeddings": 10**9}, "it belongs to another model, or is damaged"),
    ("gpt2", {"n_embd": 40_000, "n_head": 4}, "it belongs to another model, or is damaged"),
    ("bert", {"num_hidden_layers": float("nan")}, "NaN is not a JSON number"),
    ("bert", {"hidden_size": 10**400}, ""),
    ("bert", {"hidden_size": "wide"}, ""),
    ("bert", {"num_attention_heads": 0}, ""),
    ("bert", {"model_type": ["bert"]}, "has no model_type"),
]


@pytest.mark.parametrize(("kind", "changes", "message"), CASES, ids=str)
def test_sizes_are_checked_before_memory_is_allocated(
    folders: dict[str, Path], tmp_path: Path, kind: str, changes: dict[str, Any], message: str
) -> None:
    folder = Path(shutil.copytree(folders[kind], tmp_path / "m"))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))
    start = time.perf_counter()
    with pytest.raises(BadInput) as caught:
        load_folder(folder)
    assert time.perf_counter() - start < 10
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_unchanged_models_are_read(folders: dict[str, Path]) -> None:
    for folder in folders.values():
        assert load_folder(folder).model.num_parameters() > 0
