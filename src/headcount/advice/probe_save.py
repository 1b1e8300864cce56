"""Save a pruned model as a folder, and read it again to see that it is the same."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from headcount.advice.probe import Probe
from headcount.advice.probe_load import HEADS, WEIGHTS, load_folder
from headcount.advice.probe_measure import Loss
from headcount.advice.probe_remove import apart, outputs
from headcount.base.errors import BadInput
from headcount.base.files import read_json, whole_folder, write_json

EXACT = 1e-6
"""Weights come back bit by bit; sums may run in another order."""


def check_target(target: Path, source: Path) -> None:
    """Refuse a target that exists, before the work."""
    if target.resolve() == source.resolve():
        raise BadInput(f"--save {target} is the model's own folder: choose another")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise BadInput(f"{target} exists already: choose a new folder for --save")


def save_pruned(
    found: Probe, source: Path, target: Path, dtype: torch.dtype, batches: Sequence[Any], loss: Loss
) -> None:
    """Write the pruned model with the config and tokenizer of its source, then read it and compare the outputs."""
    model: Any = found.pruned
    if model is None or found.record.pruned is None:
        raise BadInput(f"nothing to save: {found.record.not_pruned}")
    if not found.record.pruned.equal:
        raise BadInput("the pruned model's outputs differ from the masked model's: it is not saved")
    from safetensors import SafetensorError
    from safetensors.torch import save_model

    with whole_folder(target) as folder:
        for file in source.iterdir():
            if file.is_file() and file.name not in (*WEIGHTS, HEADS) and file.suffix in (".json", ".txt", ".model"):
                shutil.copyfile(file, folder / file.name)
        stored = model if next(model.parameters()).dtype == dtype else copy.deepcopy(model).to(dtype)
        try:
            save_model(stored, str(folder / "model.safetensors"), {"format": "pt"})
        except SafetensorError as error:
            raise BadInput(f"{target} cannot be written: {error}") from None
        write_json(folder / HEADS, {"format": "headcount-pruned", "version": 1, "kept": kept_of(found, source)})
    again = load_folder(target).model.to(next(model.parameters()).device)
    with torch.no_grad():
        gap = max(apart(outputs(model, batch, loss), outputs(again, batch, loss)) for batch in batches)
    if not gap <= EXACT:
        raise BadInput(f"{target} does not give the pruned model's outputs when it is read again ({gap:.2g} apart)")


def kept_of(found: Probe, source: Path) -> dict[str, list[int]]:
    """The heads kept, numbered as in the whole model: what was pruned before is counted in."""
    before: dict[str, list[int]] = read_json(source / HEADS)["kept"] if (source / HEADS).is_file() else {}
    now = {name: [before[name][h] if name in before else h for h in heads] for name, heads in found.kept().items()}
    return {**before, **now}
