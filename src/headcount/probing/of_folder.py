"""Probe the folder of a Hugging Face model: read it, make data, measure, and save the smaller model."""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from headcount.core import BadInput, option, renamed_argument
from headcount.probing.data import loss, read_data
from headcount.probing.load import load_folder, quiet
from headcount.probing.measure import OnProgress
from headcount.probing.of_model import DEFAULT_BUDGET, AtChance, Probe, probe
from headcount.probing.save import check_target, save_pruned

AT_CHANCE_REMEDY = (
    "use data of the kind that the model was made for, or save it anyway with --save-at-chance or save_at_chance=True"
)
SAVED_AT_CHANCE_NOTE = (
    "Warning: the model is at chance level on these data, so removing heads proves nothing. "
    "It was saved at your request."
)


def probe_folder(
    folder: str | Path,
    data: str | Path | None = None,
    *,
    budget: float = DEFAULT_BUDGET,
    samples: int = 32,
    batch: int = 4,
    seed: int = 0,
    device: str = "cpu",
    save: str | Path | None = None,
    save_at_chance: bool = False,
    on_progress: OnProgress | None = None,
    told: OnProgress | None = None,
) -> Probe:
    """Probe a model folder on a data file, or on built-in text or noise without one; see `headcount probe`.

    `save` is the folder for the model without the heads that can go. If it is given, a model at chance level is
    refused (BadInput) unless `save_at_chance` is true. budget: the fraction by which the loss may grow when heads are
    removed. samples, batch: the number of sequences in total and per batch. seed: draws generated data. device: "cpu"
    or "cuda". on_progress: called with the fraction of the work that is done and a text. told: the old name of
    on_progress.
    """
    on_progress = renamed_argument("told", told, "on_progress", on_progress, removed="0.3")
    source, target = Path(folder), None if save is None else Path(save)
    if target is not None:
        check_target(target, source)
    where = _device(device)
    if on_progress is not None:
        on_progress(0.0, "reading the model")
    loaded = load_folder(source)
    with quiet():
        made = read_data(loaded, None if data is None else Path(data), samples=samples, batch=batch, seed=seed)
        batches = [{name: value.to(where) for name, value in piece.items()} for piece in made.batches]
        try:
            found = probe(
                loaded.model.to(where),
                batches,
                loss,
                budget=budget,
                name=source.resolve().name,
                data=made.description,
                loss_name=made.loss_name,
                notes=made.notes,
                chance=made.chance,
                on_progress=on_progress,
                must_beat_chance=target is not None and not save_at_chance,
            )
        except AtChance as error:
            raise BadInput(f"{error}; {target} was not written ({AT_CHANCE_REMEDY})") from None
        if target is None or found.pruned is None:
            return _with(found)
        loading = save_pruned(found, source, target, loaded.dtype, batches, loss)
    notes = [*found.record.notes, *([SAVED_AT_CHANCE_NOTE] if found.record.at_chance else [])]
    return _with(found, saved=str(target), loading=loading, notes=notes)


def _with(found: Probe, **known: Any) -> Probe:
    """Add the facts known only here: the release of transformers, and where the smaller model was saved."""
    made = found.record.provenance
    versions = {**made["versions"], "transformers": version("transformers")}
    update = {**known, "provenance": {**made, "versions": versions}}
    return replace(found, record=found.record.model_copy(update=update))


def _device(name: str) -> torch.device:
    try:
        found = torch.device(name)
    except RuntimeError:
        raise BadInput(f"unknown device {name!r}: allowed are cpu, cuda, cuda:1 and so on") from None
    if found.type == "cuda" and not torch.cuda.is_available():
        raise BadInput(f"torch finds no GPU on this machine: use {option('device')} cpu")
    if found.type not in ("cpu", "cuda"):
        raise BadInput(f"unknown device {name!r}: allowed are cpu, cuda, cuda:1 and so on")
    return found
