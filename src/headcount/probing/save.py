"""Save a pruned model as a folder that loads again, with the other files of its source, and check that it does.

Three formats are tried, and the first that gives the pruned model's outputs is used: config.json with a head count for
each layer (`per_layer_config`, if the model reads it), config.json with one count for all layers (layers with fewer
heads get heads of zeros), and our own file beside a config.json that cannot state the heads.
"""

from __future__ import annotations

import copy
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from headcount.core import BadInput, atomic_folder, write_json
from headcount.core.readers import read_json
from headcount.probing.architectures import Family, FamilyLayer, family, find_layers
from headcount.probing.load import (
    KEPT_HEADS_FILE,
    OWN_LOADER,
    WEIGHT_FILES,
    Kept,
    load_folder,
    load_whole,
    model_class,
    read_kept,
)
from headcount.probing.measure import Loss
from headcount.probing.of_model import Probe
from headcount.probing.prune import Slots, arrange_equal, equal_slots, outputs, relative_difference
from headcount.probing.record import Loading

LOADED_TOLERANCE = 1e-6
"""Largest accepted difference of the loaded model's outputs: weights are equal bit by bit, sums may differ in order."""
WEIGHT_ENDINGS = (".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack", ".onnx", ".gguf", ".ot", ".tflite")
"""Files with these endings beside config.json contain the whole model's weights and are not copied."""
OTHER_FORMATS = ("onnx", "openvino", "coreml")
"""Folders with these names contain the whole model in another format."""


def check_target(target: Path, source: Path) -> None:
    """Refuse a target that exists or belongs to the source, before the work begins."""
    if target.resolve() == source.resolve():
        raise BadInput(f"--save {target} is the model's own folder: choose another folder")
    if target.resolve().is_relative_to(source.resolve()):
        raise BadInput(f"--save {target} is inside the model's own folder: choose a folder outside it")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise BadInput(f"{target} already exists: choose a new folder for --save")


def save_pruned(
    found: Probe, source: Path, target: Path, dtype: torch.dtype, batches: Sequence[Any], loss: Loss
) -> Loading:
    """Write the pruned model and all other files of its source, or nothing if it does not load with equal outputs.

    Return how to load the folder: with `from_pretrained` if config.json can state the heads, otherwise with
    `headcount.load_pruned`.
    """
    model: Any = found.pruned
    if model is None or found.record.pruned is None:
        raise BadInput(f"nothing to save: {found.record.not_pruned}")
    if not found.record.pruned.equal:
        raise BadInput("the pruned model's outputs differ from those of the masked model, so it was not saved")
    config: dict[str, Any] = read_json(source / "config.json")
    known = family(str(config.get("model_type")))
    stored = copy.deepcopy(model).to(dtype)
    kept = kept_heads_of(found, source, find_layers(stored, known.layouts))

    def difference(loaded: Any) -> float:
        """Return how far the outputs of a loaded model differ from those of the pruned one."""
        loaded = loaded.float().eval().to(next(model.parameters()).device)
        with torch.no_grad():
            return max(
                relative_difference(outputs(model, batch, loss), outputs(loaded, batch, loss)) for batch in batches
            )

    with atomic_folder(target) as folder:
        saved = _write_plain(stored, config, known, kept, folder, difference) or _write_own(stored, kept, folder)
        _copy_other_files(source, folder)
        _apply_umask(folder)
        found_difference = difference(load_folder(folder).model)
        if not found_difference <= LOADED_TOLERANCE:
            raise BadInput(
                f"{target} does not give the pruned model's outputs when loaded (they differ by {found_difference:.2g})"
            )
    name = type(model).__name__
    line = (
        f"from transformers import {name}; model = {name}.from_pretrained({str(target)!r})"
        if saved.plain
        else f"import headcount as hc; model = hc.load_pruned({str(target)!r})"
    )
    return Loading(
        loader="from_pretrained" if saved.plain else OWN_LOADER,
        line=line,
        heads=[len(slots) for slots in saved.slots.values()],
        zeros=sum(slot is None for slots in saved.slots.values() for slot in slots),
    )


def kept_heads_of(found: Probe, source: Path, layers: Sequence[FamilyLayer]) -> Kept:
    """Return the heads of every layer of the pruned model, numbered as in the whole model before any removal."""
    before, now = read_kept(source).slots, found.kept()
    stay = {layer.name: now.get(layer.name, list(range(layer.heads))) for layer in layers}
    shared = any(layer.layout.bias for layer in layers)
    local: Slots = equal_slots(layers, stay)[0] if shared else {name: [*heads] for name, heads in stay.items()}
    slots: Slots = {
        name: [None if slot is None else before[name][slot] if name in before else slot for slot in found_slots]
        for name, found_slots in local.items()
    }
    return Kept({name: [s for s in placed if s is not None] for name, placed in slots.items()}, slots, plain=False)


class _Saved(NamedTuple):
    """How a folder was written, and the slots of its heads."""

    plain: bool
    """Whether `from_pretrained` loads it."""
    slots: Slots


def _write_plain(
    stored: Any, config: dict[str, Any], known: Family, kept: Kept, folder: Path, difference: Callable[[Any], float]
) -> _Saved | None:
    """Write a folder that `from_pretrained` loads; return None if config.json cannot state the heads."""
    if known.config is None:
        return None
    made = model_class(config)
    for settings, slots, model in _plain_candidates(stored, config, known, kept):
        if not _fits(made, stored.config, settings, model):
            continue
        try:
            model.save_pretrained(folder)
            write_json(folder / "config.json", settings)
            if difference(load_whole(folder, made)) <= LOADED_TOLERANCE:
                _write_kept(folder, kept.heads, slots, plain=True)
                return _Saved(True, slots)
        except Exception:  # transformers raises errors of many kinds, and the next format may work
            pass
        for file in [*folder.iterdir()]:
            file.unlink()
    return None


def _plain_candidates(
    stored: Any, config: dict[str, Any], known: Family, kept: Kept
) -> Iterator[tuple[dict[str, Any], Slots, Any]]:
    """Yield configurations that could state the heads, each with its slots and its model."""
    names = known.config
    layers = find_layers(stored, known.layouts)
    if names is None or not layers:
        return
    config = {key: value for key, value in config.items() if key != "per_layer_config"}  # of an earlier removal
    sizes = {names.size: layers[0].head_dim}

    def counts(heads: int) -> dict[str, int]:
        return {names.heads: heads} | ({names.pairs: heads // layers[0].group} if names.pairs else {})

    heads = [layer.heads for layer in layers]
    shared = any(layer.layout.bias for layer in layers)  # layers that share a bias have equal counts already
    if len(set(heads)) > 1 and not shared:
        per_layer = {str(i): counts(count) for i, count in enumerate(heads)}
        yield {**config, **sizes, "per_layer_config": per_layer}, kept.slots, stored
    before = int(config.get(names.heads) or max(heads))
    for count in range(max(heads), max(before, *heads) + 1, layers[0].group):
        settings = {**config, **sizes, **counts(count)}
        if not _is_accepted(stored.config, settings):
            continue  # some releases require the width to be a multiple of the heads
        model = copy.deepcopy(stored)
        own = find_layers(model, known.layouts)
        arrange_equal(own, {layer.name: range(layer.heads) for layer in own}, count)
        yield settings, {name: [*slots, *[None] * (count - len(slots))] for name, slots in kept.slots.items()}, model
        return


def _is_accepted(settings: Any, config: dict[str, Any]) -> bool:
    """Whether the architecture accepts these numbers."""
    try:
        type(settings).from_dict(config)
    except Exception:  # each release has its own validation errors
        return False
    return True


def _fits(made: Any, settings: Any, config: dict[str, Any], model: Any) -> bool:
    """Whether a configuration gives a model with these shapes; no memory is allocated for it."""
    try:
        with torch.device("meta"):
            wanted = type(settings).from_dict(config)
            empty = made(wanted) if hasattr(made, "config_class") else made.from_config(wanted)
    except Exception:  # the architecture cannot read the config
        return False
    return {n: v.shape for n, v in empty.state_dict().items()} == {n: v.shape for n, v in model.state_dict().items()}


def _write_own(stored: Any, kept: Kept, folder: Path) -> _Saved:
    """Write weights in our own format, which only `load_pruned` reads."""
    from safetensors import SafetensorError
    from safetensors.torch import save_model

    try:
        save_model(stored, str(folder / "model.safetensors"), {"format": "pt"})
    except SafetensorError as error:
        raise BadInput(f"cannot write {folder}: {error}") from None
    _write_kept(folder, kept.heads, kept.slots, plain=False)
    return _Saved(False, kept.slots)


def _write_kept(folder: Path, kept: dict[str, list[int]], slots: Slots, *, plain: bool) -> None:
    loader = "from_pretrained" if plain else OWN_LOADER
    data = {"format": "headcount-pruned", "version": 2, "loader": loader, "kept": kept, "slots": slots}
    write_json(folder / KEPT_HEADS_FILE, data)


def _copy_other_files(source: Path, folder: Path) -> None:
    """Copy everything but the whole model's weights: tokenizer, pooling and whatever else the folder contains."""
    for place, folders, files in os.walk(source):
        inside = Path(place).relative_to(source)
        at_top = not inside.parts
        folders[:] = [name for name in folders if not name.startswith(".") and not (at_top and name in OTHER_FORMATS)]
        for name in files:
            if name.startswith(".") or (at_top and _belongs_to_model(name)) or not (source / inside / name).is_file():
                continue
            (folder / inside).mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source / inside / name, folder / inside / name)
    if not (source / "generation_config.json").is_file():  # transformers adds one
        (folder / "generation_config.json").unlink(missing_ok=True)
    if not (folder / "config.json").is_file():
        shutil.copyfile(source / "config.json", folder / "config.json")


def _belongs_to_model(name: str) -> bool:
    """Whether a file beside config.json is part of the whole model, which the pruned one replaces."""
    replaced = (*WEIGHT_FILES, KEPT_HEADS_FILE, "config.json")
    return name in replaced or name.endswith((*WEIGHT_ENDINGS, ".index.json"))


def _apply_umask(folder: Path) -> None:
    """Set the modes that the user's umask requires; safetensors writes files that only the owner can read."""
    mask = os.umask(0o022)
    os.umask(mask)
    for path in (folder, *folder.rglob("*")):
        path.chmod((0o777 if path.is_dir() else 0o666) & ~mask)
