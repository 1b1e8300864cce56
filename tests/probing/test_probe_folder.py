"""The probe of a Hugging Face folder: reading offline, data, saving, the files it writes, and every error line."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from probe_models import PLANTED, make, planted, tokenizer

from headcount.core.errors import BadInput
from headcount.probing import prune as probe_remove
from headcount.probing.load import KEPT_HEADS_FILE, load_folder
from headcount.probing.of_folder import probe_folder
from headcount.probing.record import ProbeRecord
from headcount.probing.text import TEXT
from headcount.render.charts.html import script, script_hash
from support import Cli

FEW_SAMPLES = ["--samples", "8"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tiny models, saved; and some bad folders and files."""
    root = tmp_path_factory.mktemp("models")
    for kind in ("bert", "bert-plain", "bert-classes", "vit", "gpt2", "llama"):
        changed = {"num_key_value_heads": 2} if kind == "llama" else {}
        (planted(make(kind, **changed)) if kind == "gpt2" else make(kind, **changed)).save_pretrained(root / kind)
    for kind in ("bert", "bert-classes", "gpt2"):
        tokenizer(root / kind)
    rng = np.random.default_rng(0)
    np.savez(root / "images.npz", images=rng.integers(0, 255, (6, 8, 8, 3), dtype=np.uint8), y=rng.integers(0, 5, 6))
    np.savez(root / "classes.npz", images=np.zeros((6, 8, 8, 3), np.uint8), y=np.array([0, 8, 1, 2, 3, 4]))
    said = np.array([[-1, 3, *[-100] * 10]] * 6)
    np.savez(root / "said.npz", input_ids=rng.integers(0, 120, (6, 12)), labels=said)
    np.savez(root / "ids.npz", input_ids=rng.integers(0, 120, (6, 12)))
    np.savez(root / "large.npz", input_ids=rng.integers(0, 500, (6, 12)))
    np.savez(root / "long.npz", input_ids=rng.integers(0, 120, (6, 90)))
    np.savez(root / "small.npz", X=rng.random((6, 3, 4, 4)))
    np.savez(root / "nan.npz", X=np.full((6, 3, 8, 8), np.nan))
    np.savez(root / "uneven.npz", input_ids=rng.integers(0, 120, (6, 12)), labels=np.zeros((5, 12), int))
    np.savez(root / "odd.npz", input_ids=rng.integers(0, 120, (6, 12)), colour=np.zeros(6))
    np.savez(root / "words.npz", input_ids=np.array([["a", "b"]]))
    np.savez(root / "nothing.npz", z=np.zeros(3))
    np.savez(root / "no-samples.npz", input_ids=np.zeros((0, 12), int))
    np.savez(root / "no-tokens.npz", input_ids=np.zeros((6, 0), int))
    np.savez(root / "number.npz", input_ids=np.array(3))
    (root / "cut.npz").write_bytes((root / "images.npz").read_bytes()[:200])
    (root / "lines.txt").write_text("\n".join(TEXT.splitlines()[:20]))
    (root / "empty.txt").write_text("\n \n")
    (root / "bytes.txt").write_bytes(b"\xff\xfe\x00\x81")
    (root / "lines.csv").write_text("a,b")
    shutil.copytree(root / "bert", root / "no-config").joinpath("config.json").unlink()
    shutil.copytree(root / "bert", root / "no-weights").joinpath("model.safetensors").unlink()
    (shutil.copytree(root / "bert", root / "cut-config") / "config.json").write_text('{"model_type": "be')
    weights = shutil.copytree(root / "bert", root / "cut-weights") / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-500])
    shutil.copyfile(root / "bert-plain/model.safetensors", shutil.copytree(root / "bert", root / "half") / weights.name)
    for name, key, value in (
        ("unknown", "model_type", "bloom"),
        ("no-type", "model_type", None),
        ("no-class", "architectures", ["BertForTea"]),
        ("headcount", "format", "headcount-model"),
        ("other-sizes", "hidden_size", 64),
    ):
        file = shutil.copytree(root / "bert", root / name) / "config.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), key: value}))
    (shutil.copytree(root / "bert", root / "cut-words") / "tokenizer.json").write_text("{")
    (root / "taken").mkdir()
    (root / "taken" / "thesis.tex").write_text("mine")
    return root


@pytest.fixture(autouse=True)
def _quick_and_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr(probe_remove, "MIN_TIMING_SECONDS", 0.0)
    monkeypatch.setattr(socket.socket, "connect", refuse)


def test_the_command_writes_everything(folders: Path, headcount_here: Cli, tmp_path: Path) -> None:
    done = headcount_here(
        "probe",
        folders / "gpt2",
        folders / "lines.txt",
        "--out",
        "o",
        "--save",
        "s",
        "--prune",
        "0.02",
        "--save-at-chance",
    )
    assert done.returncode == 0, done.stderr
    assert "(measured)" in done.stdout
    assert "Saved in s, and loaded again: the same outputs." in done.stdout
    assert "Load it: import headcount as hc; model = hc.load_pruned('s')" in done.stdout
    assert "Loss against heads removed" in done.stdout
    names = ["curve.png", "heads.md", "heads.png", "index.html", "probe.json"]
    assert sorted(p.name for p in (tmp_path / "o").iterdir()) == names
    assert all(f"o/{name}" in done.stdout for name in names if name != "heads.md")
    record = ProbeRecord.parse(json.loads((tmp_path / "o/probe.json").read_text()))
    best = max(record.heads, key=lambda head: head.gradient)
    assert (best.layer, best.head) == PLANTED
    assert record.carry_gradient == 1
    assert record.saved == "s"
    assert record.samples.startswith("lines.txt")
    page = (tmp_path / "o/index.html").read_text()
    code = script()
    assert f"script-src '{script_hash(code)}'" in page
    kinds = re.findall(r"<script([^>]*)>", page)
    assert kinds == [' type="application/json"', ""], "data, and the package's own script"
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org", "")
    assert ">measured<" in page
    assert "| Layer |" in (tmp_path / "o/heads.md").read_text()
    assert (tmp_path / "o/heads.png").read_bytes()[:4] == b"\x89PNG"
    again = headcount_here("probe", "s", "--json", "--prune", "0", *FEW_SAMPLES, "--out", "o")
    data = json.loads(again.stdout)
    assert len(data["heads"]) == 8 - len(record.plan.gone())
    assert data["evidence"] == "measured"


def test_a_pruned_folder_can_be_probed_and_pruned_again(folders: Path, tmp_path: Path) -> None:
    found = probe_folder(folders / "llama", budget=0.2, samples=8, save=tmp_path / "s", save_at_chance=True)
    assert found.record.saved
    assert "random token ids" in found.record.samples
    assert any("no tokenizer" in note for note in found.record.notes)
    assert any("only be removed together" in note for note in found.record.notes)
    kept = json.loads((tmp_path / "s" / KEPT_HEADS_FILE).read_text())["kept"]
    assert sum(map(len, kept.values())) == 8 - len(found.record.plan.gone())
    model = load_folder(tmp_path / "s").model
    ids = torch.arange(9)[None]
    assert found.pruned is not None
    torch.testing.assert_close(model(input_ids=ids).logits, found.pruned(input_ids=ids).logits)
    more = probe_folder(tmp_path / "s", budget=50.0, samples=8, save=tmp_path / "t", save_at_chance=True)
    assert len(more.record.heads) == sum(map(len, kept.values()))
    last = json.loads((tmp_path / "t" / KEPT_HEADS_FILE).read_text())["kept"] if more.record.saved else kept
    assert all(set(last[name]) <= set(kept[name]) for name in last)


def test_numbers_keep_their_type_in_a_pruned_folder(tmp_path: Path) -> None:
    make("bert").to(torch.bfloat16).save_pretrained(tmp_path / "half")
    found = probe_folder(tmp_path / "half", budget=1.0, samples=8, save=tmp_path / "s", save_at_chance=True)
    assert found.record.saved
    assert load_folder(tmp_path / "s").dtype == torch.bfloat16


def test_wrong_weights_are_not_saved(folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from headcount.probing.architectures import FamilyLayer

    right = FamilyLayer.keep_only
    monkeypatch.setattr(
        FamilyLayer, "keep_only", lambda self, heads: right(self, [(h + 1) % self.heads for h in heads])
    )
    with pytest.raises(BadInput, match="not saved"):
        probe_folder(folders / "bert", budget=1.0, samples=8, save=tmp_path / "s", save_at_chance=True)
    assert not (tmp_path / "s").exists()


DATA_KINDS = {
    "masked words": ("bert", None, "masked tokens", "built-in text"),
    "ids": ("bert", "ids.npz", "masked tokens", "ids.npz"),
    "no head": ("bert-plain", None, "own output", "random token ids"),
    "lines with classes": ("bert-classes", "lines.txt", "own first choice", "lines.txt"),
    "images": ("vit", "images.npz", "labels of the data", "images.npz"),
    "no images": ("vit", None, "own first choice", "random images"),
    "next word": ("gpt2", None, "next token", "built-in text"),
}


@pytest.mark.parametrize("kind", DATA_KINDS)
def test_every_kind_of_data_is_measured(kind: str, folders: Path) -> None:
    model, data, loss_name, samples = DATA_KINDS[kind]
    found = probe_folder(folders / model, None if data is None else folders / data, samples=8).record
    assert loss_name in found.loss_name
    assert samples in found.samples
    assert found.loss > 0
    assert max(head.gradient for head in found.heads) > 0
    assert max(abs(head.ablation) for head in found.heads) > 0
    again = probe_folder(folders / model, None if data is None else folders / data, samples=8).record
    assert again.heads == found.heads, "the same seed gives the same numbers"


BAD = {
    "no folder": (["none"], "no such folder: "),
    "a hub id": (
        ["bert-base-uncased"],
        "download it first: hf download bert-base-uncased --local-dir bert-base-uncased$",
    ),
    "a hub id with its owner": (
        ["org/name-v1.5"],
        "download it first: hf download org/name-v1.5 --local-dir name-v1.5$",
    ),
    "a mistyped folder": (["./bret"], "no such folder: .*bret"),
    "a file": (["ids.npz"], "is a file"),
    "no config": (["no-config"], "no config.json"),
    "damaged config": (["cut-config"], "not valid JSON"),
    "no type": (["no-type"], "model_type"),
    "unknown": (["unknown"], "unknown architecture 'bloom': probe supports BERT .*ViT .*GPT-2 .*Llama .*T5"),
    "ours": (["headcount"], "is a headcount model: probe takes a Hugging Face model"),
    "unknown class": (["no-class"], "BertForTea"),
    "unknown labels": (["vit", "classes.npz"], "labels must be from 0 to 4, found 0 to 8"),
    "unknown tokens to say": (["gpt2", "said.npz"], "labels must be from 0 to .*, found -1 to 3"),
    "no weights": (["no-weights"], "no weights"),
    "damaged weights": (["cut-weights"], "damaged"),
    "other sizes": (["other-sizes"], "damaged|size"),
    "weights missing": (["half"], "is missing .* weights"),
    "damaged tokenizer": (["cut-words"], "cannot read the tokenizer of .*"),
    "no data": (["bert", "none.txt"], "no such file:"),
    "no arrays": (["bert", "none.npz"], "no such file:"),
    "damaged data": (["vit", "cut.npz"], "damaged"),
    "empty text": (["bert", "empty.txt"], "contains no text"),
    "bytes": (["bert", "bytes.txt"], "UTF-8"),
    "another kind": (["bert", "lines.csv"], ".txt.*.npz"),
    "text for images": (["vit", "lines.txt"], "takes images"),
    "text without tokenizer": (["llama", "lines.txt"], "no tokenizer"),
    "ids too large": (["bert", "large.npz"], "from 0 to 119"),
    "ids too long": (["bert", "long.npz"], "2 to 66"),
    "ids as words": (["bert", "words.npz"], "numbers are needed"),
    "small images": (["vit", "small.npz"], r"\[3, 4, 4\].*\[3, 8, 8\]"),
    "nan": (["vit", "nan.npz"], "not finite"),
    "uneven": (["bert", "uneven.npz"], "labels has 5 samples, but input_ids has 6"),
    "no samples": (["bert", "no-samples.npz"], "input_ids has no samples"),
    "a number for samples": (["bert", "number.npz"], "input_ids has no samples"),
    "no tokens": (["bert", "no-tokens.npz"], "input_ids have 0 tokens per sample"),
    "unknown array": (["bert", "odd.npz"], "no input named 'colour'"),
    "no main array": (["bert", "nothing.npz"], "input_ids"),
    "samples": (["bert", "--samples", "0"], "--samples"),
    "batch": (["bert", "--batch", "0"], "--batch"),
    "seed": (["bert", "--seed", "-1"], "--seed"),
    "budget": (["bert", "--prune", "-0.5"], "--prune"),
    "nan budget": (["bert", "--prune", "nan"], "--prune"),
    "device": (["bert", "--device", "abacus"], "abacus"),
    "out is taken": (["bert", "--out", "taken"], "thesis.tex"),
    "out is a file": (["bert", "--out", "ids.npz"], "is a file"),
    "save is taken": (["bert", "--save", "taken"], "already exists"),
    "flag without save": (["bert", "--save-at-chance"], "--save-at-chance needs --save"),
    "save is the model": (["bert", "--save", "bert"], "own folder"),
}


@pytest.mark.parametrize("case", BAD)
def test_every_mistake_gets_one_line(case: str, folders: Path, headcount_here: Cli) -> None:
    words, wanted = BAD[case]
    done = headcount_here(
        "probe", *(folders / w if (folders / w).exists() or w.startswith("none") else w for w in words)
    )
    assert done.returncode == 2, done.stderr
    line = done.stderr.strip()
    assert line.startswith("headcount: ")
    assert "\n" not in line
    assert re.search(wanted, line), line
    assert done.stdout == ""
    assert list(Path().iterdir()) == []


def test_without_transformers_the_line_says_how_to_install(folders: Path, headcount_here: Cli, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    done = headcount_here("probe", folders / "bert")
    assert done.returncode == 2
    assert "pip install '.[probe]'" in done.stderr


def test_the_verb_imports_nothing_heavy_before_it_is_used() -> None:
    heavy = ("torch", "transformers", "matplotlib")
    code = f"import sys, headcount.cli.probe; print(*[m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
