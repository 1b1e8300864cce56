"""A pruned folder loads again: with from_pretrained where config.json can state the heads, else with our loader."""

from __future__ import annotations

import copy
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from probe_models import make
from safetensors.torch import load_file, save_file

import headcount as hc
from headcount.core.errors import BadInput
from headcount.probing import of_folder as folders
from headcount.probing import prune as probe_remove
from headcount.probing import save as probe_save
from headcount.probing.architectures import FamilyLayer, family, find_layers
from headcount.probing.load import KEPT_HEADS_FILE, load_folder
from headcount.probing.of_model import Probe
from headcount.probing.record import PrunePlan, Step

PLAIN_KINDS = (
    "vit",
    "deit",
    "llama",
    "mistral",
    "qwen2",
    "qwen3",
    "gemma",
    "gemma2",
    "gemma3_text",
    "t5",
    "t5-encoder",
)
OWN_LOADER_KINDS = ("bert", "roberta", "distilbert", "albert", "gpt2")
FOUR_PAIRS = {"hidden_size": 64, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 8}
"""Grouped heads of which layers can lose different numbers."""


@pytest.fixture(autouse=True)
def _short_timings_and_a_fixed_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short timings, and a plan that takes one unit of every even layer and two of every odd one."""

    def uneven(meter: Any, full: float, _costs: Any, budget: float, _on_progress: Any) -> PrunePlan:
        steps: list[Step] = []
        for i, layer in enumerate(meter.layers):
            units = layer.units()
            lost = min(1 + i % 2, len(units) - 1)
            start = i % 2 if len(units) > 2 else 0
            steps += [Step(layer=i, heads=list(unit), loss=full) for unit in units[start : start + lost]]
        return PrunePlan(budget=budget, allowed=full, loss=full, steps=steps, remeasured="all")

    monkeypatch.setattr(probe_remove, "MIN_TIMING_SECONDS", 0.0)
    monkeypatch.setattr("headcount.probing.of_model.plan_removals", uneven)
    monkeypatch.setattr("headcount.probing.of_model.loss_curve", lambda *_: [])


def save(kind: str, root: Path, **changed: Any) -> Probe:
    """Save a tiny model of a kind in place/whole, and the pruned one in place/small."""
    make(kind, **changed).save_pretrained(root / "whole")
    return folders.probe_folder(root / "whole", samples=4, save=root / "small", save_at_chance=True)


def inputs(model: Any) -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(11)
    if model.main_input_name == "pixel_values":
        return {"pixel_values": torch.randn(3, 3, 8, 8, generator=draw)}
    ids = torch.randint(3, 120, (3, 9), generator=draw)
    both = getattr(model.config, "is_encoder_decoder", False) and hasattr(model, "decoder")
    return {"input_ids": ids, **({"decoder_input_ids": ids} if both else {})}


def output(model: Any) -> torch.Tensor:
    with torch.no_grad():
        result = model.eval()(**inputs(model))
    return result.logits if "logits" in result else result.last_hidden_state


def masked_output(root: Path, found: Probe) -> torch.Tensor:
    """The whole model with the plan's heads silenced by hand: columns of the output weights set to zero."""
    model = load_folder(root / "whole").model
    for layer in find_layers(model, family(model.config.model_type).layouts):
        names = [known.name for known in found.layers]
        gone = [h for i, h in found.record.plan.gone() if layer.name == names[i]]
        weight = layer.projection.weight
        transposed = type(layer.projection).__name__ == "Conv1D"
        with torch.no_grad():
            for head in gone:
                (weight if transposed else weight.T)[head * layer.head_dim : (head + 1) * layer.head_dim] = 0.0
    return output(model)


def pasted(line: str) -> Any:
    """The model that the printed line makes."""
    names: dict[str, Any] = {}
    exec(line, names)
    return names["model"]


@pytest.mark.parametrize("kind", [*PLAIN_KINDS, *OWN_LOADER_KINDS])
def test_the_printed_line_loads_the_same_model(kind: str, tmp_path: Path) -> None:
    found = save(kind, tmp_path, **(FOUR_PAIRS if kind in ("qwen3", "gemma") else {}))
    loading = found.record.loading
    assert loading is not None
    assert found.pruned is not None
    assert loading.loader == ("from_pretrained" if kind in PLAIN_KINDS else "headcount")
    wanted = output(copy.deepcopy(found.pruned))
    unit = float(wanted.abs().max())
    assert float((output(pasted(loading.line)) - wanted).abs().max()) <= 1e-6 * unit
    assert float((output(hc.load_pruned(tmp_path / "small")) - wanted).abs().max()) <= 1e-6 * unit
    assert float((masked_output(tmp_path, found) - wanted).abs().max()) <= 1e-5 * unit  # and it is the right model
    assert float((output(load_folder(tmp_path / "whole").model) - wanted).abs().max()) > 1e-3 * unit


@pytest.mark.parametrize("kind", OWN_LOADER_KINDS)
def test_from_pretrained_refuses_what_config_json_cannot_state(kind: str, tmp_path: Path) -> None:
    save(kind, tmp_path)
    with pytest.raises(RuntimeError, match="mismatch"):
        getattr(transformers, type(make(kind)).__name__).from_pretrained(tmp_path / "small")


def test_layers_with_fewer_heads_get_zeros_which_our_loader_leaves_out(tmp_path: Path) -> None:
    found = save("qwen3", tmp_path, **FOUR_PAIRS)
    loading = found.record.loading
    assert loading is not None
    config = json.loads((tmp_path / "small/config.json").read_text())
    assert (config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]) == (6, 3, 8)
    assert "per_layer_config" not in config
    assert (loading.heads, loading.zeros) == ([6, 6], 2)
    slots = json.loads((tmp_path / "small" / KEPT_HEADS_FILE).read_text())["slots"]
    assert list(slots.values()) == [[2, 3, 4, 5, 6, 7], [0, 1, 6, 7, None, None]]
    small = hc.load_pruned(tmp_path / "small")
    assert [layer.self_attn.q_proj.out_features for layer in small.model.layers] == [48, 32]
    again = folders.probe_folder(tmp_path / "small", samples=4, save=tmp_path / "smaller", save_at_chance=True)
    kept = json.loads((tmp_path / "smaller" / KEPT_HEADS_FILE).read_text())["kept"]
    assert len(again.record.heads) == 10
    assert list(kept.values()) == [[4, 5, 6, 7], [6, 7]]


def test_heads_are_padded_where_they_must_divide_the_width(tmp_path: Path) -> None:
    loading = save("llama", tmp_path).record.loading  # three heads do not divide 32
    assert loading is not None
    assert (loading.loader, loading.heads, loading.zeros) == ("from_pretrained", [4, 4], 3)


def test_counts_per_layer_are_written_if_the_model_reads_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers.models.qwen3.modeling_qwen3 import Qwen3Attention

    plain = Qwen3Attention.__init__

    def reading(self: Any, config: Any, layer_idx: int) -> None:
        plain(self, config.per_layer_config[layer_idx], layer_idx)

    monkeypatch.setattr(Qwen3Attention, "__init__", reading)
    found = save("qwen3", tmp_path, **FOUR_PAIRS)
    config = json.loads((tmp_path / "small/config.json").read_text())
    assert found.record.loading is not None
    assert (found.record.loading.loader, found.record.loading.zeros) == ("from_pretrained", 0)
    assert [layer["num_attention_heads"] for layer in config["per_layer_config"].values()] == [6, 4]
    model = transformers.Qwen3ForCausalLM.from_pretrained(tmp_path / "small")
    assert [layer.self_attn.q_proj.out_features for layer in model.model.layers] == [48, 32]
    assert found.pruned is not None
    torch.testing.assert_close(output(model), output(found.pruned), rtol=1e-6, atol=1e-6)


def test_heads_in_the_wrong_place_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make("vit").save_pretrained(tmp_path / "whole")
    found = folders.probe_folder(tmp_path / "whole", samples=4)
    monkeypatch.setattr(probe_save, "arrange_equal", lambda own, kept, count: _shifted(own, count))
    loaded = load_folder(tmp_path / "whole")
    made = folders.read_data(loaded, None, samples=4, batch=4, seed=0)
    loading = probe_save.save_pruned(
        found, tmp_path / "whole", tmp_path / "small", torch.float32, made.batches, folders.loss
    )
    assert loading.loader == "headcount", "zeros in place of heads were taken for the model"


def _shifted(layers: list[FamilyLayer], count: int) -> None:
    for layer in layers:
        layer.arrange([None, *range(layer.heads), *[None] * count][:count])


def test_a_position_bias_of_other_heads_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = probe_remove.equal_slots

    def unshared(*given: Any) -> Any:
        slots, biases = right(*given)
        return slots, {name: [] for name in biases}

    monkeypatch.setattr(probe_remove, "equal_slots", unshared)
    with pytest.raises(BadInput, match="not saved"):
        save("t5", tmp_path)
    assert not (tmp_path / "small").exists()


def test_weights_that_changed_on_the_way_are_refused_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = probe_save._write_kept

    def damage(folder: Path, *rest: Any, **options: Any) -> None:
        weights = load_file(folder / "model.safetensors")
        name = next(n for n in weights if n.endswith("value.weight"))
        save_file({**weights, name: -weights[name]}, folder / "model.safetensors", {"format": "pt"})
        right(folder, *rest, **options)

    monkeypatch.setattr(probe_save, "_write_kept", damage)
    with pytest.raises(BadInput, match="outputs when loaded"):
        save("bert", tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["whole"]


def test_the_other_files_of_the_folder_are_copied(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    others = ("1_Pooling/config.json", "2_Dense/model.safetensors", "modules.json", "README.md", "vocab.txt")
    left = ("pytorch_model.bin.index.json", "tf_model.h5", "onnx/model.onnx", ".git/config", "model.onnx")
    for name in (*others, *left):
        (whole / name).parent.mkdir(parents=True, exist_ok=True)
        (whole / name).write_text(f"this is {name}" if name != "vocab.txt" else "[PAD]\n[UNK]\n[MASK]\nthe\n")
    make("bert").save_pretrained(whole)
    before = {name: (whole / name).read_bytes() for name in (*others, "config.json")}
    (whole / "README.md").chmod(0o400)
    folders.probe_folder(whole, _ids(tmp_path), samples=4, save=tmp_path / "small", save_at_chance=True)
    assert {name: (tmp_path / "small" / name).read_bytes() for name in before} == before
    assert [name for name in left if (tmp_path / "small" / name).exists()] == []


def _ids(root: Path) -> Path:
    np.savez(root / "ids.npz", input_ids=np.random.default_rng(0).integers(3, 120, (4, 9)))
    return root / "ids.npz"


@pytest.mark.parametrize("mask", [0o022, 0o027])
@pytest.mark.parametrize("kind", ["gpt2", "vit"])
def test_files_have_the_modes_of_the_users_umask(kind: str, mask: int, tmp_path: Path) -> None:
    before = os.umask(mask)
    try:
        save(kind, tmp_path)
    finally:
        os.umask(before)
    paths = [tmp_path / "small", *(tmp_path / "small").rglob("*")]
    wanted = [(0o777 if path.is_dir() else 0o666) & ~mask for path in paths]
    assert [path.stat().st_mode & 0o777 for path in paths] == wanted


def test_settings_of_the_config_are_kept(tmp_path: Path) -> None:
    save("llama", tmp_path)
    before, after = (json.loads((tmp_path / name / "config.json").read_text()) for name in ("whole", "small"))
    changed = {key for key in {*before, *after} if before.get(key) != after.get(key)}
    assert changed <= {"num_attention_heads", "num_key_value_heads", "head_dim"}
    names = {p.name for p in (tmp_path / "whole").iterdir()}
    assert {p.name for p in (tmp_path / "small").iterdir()} == {*names, KEPT_HEADS_FILE}


def test_a_folder_of_the_first_version_is_still_read(tmp_path: Path) -> None:
    found = save("bert", tmp_path)
    file = tmp_path / "small" / KEPT_HEADS_FILE
    kept = json.loads(file.read_text())["kept"]
    file.write_text(json.dumps({"format": "headcount-pruned", "version": 1, "kept": kept}))
    assert found.pruned is not None
    torch.testing.assert_close(output(hc.load_pruned(tmp_path / "small")), output(found.pruned))
    file.write_text("[]")
    with pytest.raises(BadInput, match="damaged"):
        hc.load_pruned(tmp_path / "small")


def test_a_pruned_model_is_not_saved_inside_its_source(tmp_path: Path) -> None:
    make("bert").save_pretrained(tmp_path / "whole")
    with pytest.raises(BadInput, match="own folder"):
        folders.probe_folder(tmp_path / "whole", save=tmp_path / "whole/small")
