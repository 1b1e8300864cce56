"""Save a pruned model as a folder that loads again, with the other files of its source, and check that it does.

Three ways are tried, the first that gives the pruned model's outputs is kept: config.json with a head count for each
layer (`per_layer_config`, where the model reads it), config.json with one count for all layers (layers that need
fewer get heads of zeros), and a file of ours beside a config.json that cannot say it.
"""

from __future__ import annotations

import copy
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from headcount.core import BadInput, whole_folder, write_json
from headcount.core.readers import read_json
from headcount.probing.architectures import Family, FamilyLayer, family, find_layers
from headcount.probing.load import HEADS, OURS, WEIGHTS, Kept, load_folder, load_whole, model_class, read_kept
from headcount.probing.measure import Loss
from headcount.probing.of_model import Probe
from headcount.probing.prune import Slots, apart, arrange_even, even_slots, outputs
from headcount.probing.record import Loading

EXACT = 1e-6
"""Weights come back bit by bit; sums may run in another order."""
WEIGHT_ENDINGS = (".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack", ".onnx", ".gguf", ".ot", ".tflite")
"""Files of these kinds beside config.json hold the whole model's weights, and are not copied."""
OTHER_FORMATS = ("onnx", "openvino", "coreml")
"""Folders of these names hold the whole model in another format."""


def check_target(target: Path, source: Path) -> None:
    """Refuse a target that exists, before the work."""
    if target.resolve() == source.resolve():
        raise BadInput(f"--save {target} is the model's own folder: choose another")
    if target.resolve().is_relative_to(source.resolve()):
        raise BadInput(f"--save {target} lies in the model's own folder: choose a folder outside of it")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise BadInput(f"{target} exists already: choose a new folder for --save")


def save_pruned(
    found: Probe, source: Path, target: Path, dtype: torch.dtype, batches: Sequence[Any], loss: Loss
) -> Loading:
    """Write the pruned model and all other files of its source, load it again and compare the outputs; all or nothing.

    Return how the folder is loaded: by `from_pretrained` where config.json can state the heads, else by
    `headcount.load_pruned`.
    """
    model: Any = found.pruned
    if model is None or found.record.pruned is None:
        raise BadInput(f"nothing to save: {found.record.not_pruned}")
    if not found.record.pruned.equal:
        raise BadInput("the pruned model's outputs differ from the masked model's: it is not saved")
    config: dict[str, Any] = read_json(source / "config.json")
    known = family(str(config.get("model_type")))
    stored = copy.deepcopy(model).to(dtype)
    kept = kept_of(found, source, find_layers(stored, known.layouts))

    def gap(again: Any) -> float:
        again = again.float().eval().to(next(model.parameters()).device)
        with torch.no_grad():
            return max(apart(outputs(model, batch, loss), outputs(again, batch, loss)) for batch in batches)

    with whole_folder(target) as folder:
        way = _write_plain(stored, config, known, kept, folder, gap) or _write_ours(stored, kept, folder)
        _copy_others(source, folder)
        _usual_modes(folder)
        apart_by = gap(load_folder(folder).model)
        if not apart_by <= EXACT:
            raise BadInput(f"{target} does not give the pruned model's outputs when loaded ({apart_by:.2g} apart)")
    name = type(model).__name__
    line = (
        f"from transformers import {name}; model = {name}.from_pretrained({str(target)!r})"
        if way.plain
        else f"import headcount as hc; model = hc.load_pruned({str(target)!r})"
    )
    return Loading(
        loader="from_pretrained" if way.plain else OURS,
        line=line,
        heads=[len(slots) for slots in way.slots.values()],
        zeros=sum(slot is None for slots in way.slots.values() for slot in slots),
    )


def kept_of(found: Probe, source: Path, layers: Sequence[FamilyLayer]) -> Kept:
    """The heads of every layer of the pruned model, numbered as in the whole one: earlier removals are counted in."""
    before, now = read_kept(source).slots, found.kept()
    stay = {layer.name: now.get(layer.name, list(range(layer.heads))) for layer in layers}
    shared = any(layer.layout.bias for layer in layers)
    local: Slots = even_slots(layers, stay)[0] if shared else {name: [*heads] for name, heads in stay.items()}
    slots: Slots = {
        name: [None if slot is None else before[name][slot] if name in before else slot for slot in found_slots]
        for name, found_slots in local.items()
    }
    return Kept({name: [s for s in placed if s is not None] for name, placed in slots.items()}, slots, plain=False)


class _Way(NamedTuple):
    """How a folder was written."""

    plain: bool
    """Whether `from_pretrained` loads it."""
    slots: Slots


def _write_plain(
    stored: Any, config: dict[str, Any], known: Family, kept: Kept, folder: Path, gap: Callable[[Any], float]
) -> _Way | None:
    """Write a folder that `from_pretrained` loads; None where config.json has no words for the heads."""
    if known.config is None:
        return None
    made = model_class(config)
    for settings, slots, model in _plain_ways(stored, config, known, kept):
        if not _fits(made, stored.config, settings, model):
            continue
        try:
            model.save_pretrained(folder)
            write_json(folder / "config.json", settings)
            if gap(load_whole(folder, made)) <= EXACT:
                _write_kept(folder, kept.heads, slots, plain=True)
                return _Way(True, slots)
        except Exception:  # of every kind: transformers refuses in its own ways, and another way is left
            pass
        for file in [*folder.iterdir()]:
            file.unlink()
    return None


def _plain_ways(
    stored: Any, config: dict[str, Any], known: Family, kept: Kept
) -> Iterator[tuple[dict[str, Any], Slots, Any]]:
    """Configurations that could state the heads, with the slots and the model that belong to each."""
    names = known.config
    layers = find_layers(stored, known.layouts)
    if names is None or not layers:
        return
    config = {key: value for key, value in config.items() if key != "per_layer_config"}  # of an earlier removal
    sizes = {names.size: layers[0].head_dim}

    def counts(heads: int) -> dict[str, int]:
        return {names.heads: heads} | ({names.pairs: heads // layers[0].group} if names.pairs else {})

    now = [layer.heads for layer in layers]
    shared = any(layer.layout.bias for layer in layers)  # such layers have equal counts already
    if len(set(now)) > 1 and not shared:
        each = {str(i): counts(heads) for i, heads in enumerate(now)}
        yield {**config, **sizes, "per_layer_config": each}, kept.slots, stored
    most = int(config.get(names.heads) or max(now))
    for count in range(max(now), max(most, *now) + 1, layers[0].group):
        settings = {**config, **sizes, **counts(count)}
        if not _accepted(stored.config, settings):
            continue  # some releases want the width to be a multiple of the heads
        model = copy.deepcopy(stored)
        own = find_layers(model, known.layouts)
        arrange_even(own, {layer.name: range(layer.heads) for layer in own}, count)
        yield settings, {name: [*slots, *[None] * (count - len(slots))] for name, slots in kept.slots.items()}, model
        return


def _accepted(settings: Any, config: dict[str, Any]) -> bool:
    """Whether the architecture takes these numbers."""
    try:
        type(settings).from_dict(config)
    except Exception:  # validation errors of every release
        return False
    return True


def _fits(made: Any, settings: Any, config: dict[str, Any], model: Any) -> bool:
    """Whether a configuration makes a model of these shapes; nothing is allocated for it."""
    try:
        with torch.device("meta"):
            wanted = type(settings).from_dict(config)
            empty = made(wanted) if hasattr(made, "config_class") else made.from_config(wanted)
    except Exception:  # a config that the architecture cannot read
        return False
    return {n: v.shape for n, v in empty.state_dict().items()} == {n: v.shape for n, v in model.state_dict().items()}


def _write_ours(stored: Any, kept: Kept, folder: Path) -> _Way:
    """Write weights that only `load_pruned` reads, since config.json cannot state them."""
    from safetensors import SafetensorError
    from safetensors.torch import save_model

    try:
        save_model(stored, str(folder / "model.safetensors"), {"format": "pt"})
    except SafetensorError as error:
        raise BadInput(f"{folder} cannot be written: {error}") from None
    _write_kept(folder, kept.heads, kept.slots, plain=False)
    return _Way(False, kept.slots)


def _write_kept(folder: Path, kept: dict[str, list[int]], slots: Slots, *, plain: bool) -> None:
    loader = "from_pretrained" if plain else OURS
    write_json(
        folder / HEADS, {"format": "headcount-pruned", "version": 2, "loader": loader, "kept": kept, "slots": slots}
    )


def _copy_others(source: Path, folder: Path) -> None:
    """Copy all that is not weights of the whole model: tokenizer, pooling and whatever else the folder holds."""
    for place, folders, files in os.walk(source):
        here = Path(place).relative_to(source)
        folders[:] = [
            name for name in folders if not name.startswith(".") and (here.parts or name not in OTHER_FORMATS)
        ]
        for name in files:
            ours = not here.parts and (name in (*WEIGHTS, HEADS, "config.json") or name.endswith(WEIGHT_ENDINGS))
            index = not here.parts and name.endswith(".index.json")
            if ours or index or name.startswith(".") or not (source / here / name).is_file():
                continue
            (folder / here).mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source / here / name, folder / here / name)
    if not (source / "generation_config.json").is_file():  # transformers adds one
        (folder / "generation_config.json").unlink(missing_ok=True)
    if not (folder / "config.json").is_file():
        shutil.copyfile(source / "config.json", folder / "config.json")


def _usual_modes(folder: Path) -> None:
    """Give files and folders the modes that the user's umask asks for; safetensors writes for the owner alone."""
    mask = os.umask(0o022)
    os.umask(mask)
    for path in (folder, *folder.rglob("*")):
        path.chmod((0o777 if path.is_dir() else 0o666) & ~mask)
