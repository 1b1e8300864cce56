"""Read a model folder of Hugging Face from local files only; what cannot be read gives one line."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast

from headcount.core import BadInput, HeadcountError, MissingExtra
from headcount.core.readers import read_json
from headcount.probing.architectures import Family, family, find_layers

WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
TOKENIZER = ("tokenizer.json", "vocab.txt", "vocab.json", "tokenizer.model", "spiece.model", "sentencepiece.bpe.model")
HEADS = "headcount-pruned.json"
"""Beside the weights of a pruned model: the heads that were kept, which config.json cannot say."""
OURS = "headcount"
"""Names this package as the loader of a folder that `from_pretrained` cannot load."""
MAX_LAYERS = 1000
"""Of a model; the largest that are published have some hundred."""
MAX_LABELS = 100_000
"""Of a classifier; transformers keeps a name for each."""
NUMBERS_PER_BYTE = 2
"""Of a model to its weights' files: one or two bytes a number, and some numbers are stored once for two places."""
MAX_UNSTORED = 10_000_000
"""Numbers that a model may have beside those of its files: tables of positions and masks."""
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


class Loaded(NamedTuple):
    """A model in float32, ready to be measured."""

    model: Any
    tokenizer: Any | None
    family: Family
    dtype: Any
    """The type of the numbers in the folder."""


class Kept(NamedTuple):
    """What is left of the heads of a whole model, by the names of the layers; numbers are those of the whole model."""

    heads: dict[str, list[int]]
    slots: dict[str, list[int | None]]
    """The heads in the order of the weights; None where config.json needs a head and the weights are zero."""
    plain: bool
    """Whether `from_pretrained` loads the folder."""


def load_pruned(folder: str | Path) -> Any:
    """Load a model that `headcount probe --save` wrote, without the heads that were removed.

    `folder` is the folder that was written (that of a whole model works too). Returns the model in evaluation mode,
    its numbers in the type they are stored in. It works for every architecture that probe knows; where the folder
    also loads with `from_pretrained`, removed heads that are stored as zeros are left out here.
    """
    loaded = load_folder(folder)
    return loaded.model.to(loaded.dtype)


def read_kept(folder: Path) -> Kept:
    """Read which heads of a folder's model were kept; empty for a whole model."""
    if not (folder / HEADS).is_file():
        return Kept({}, {}, plain=True)
    data = read_json(folder / HEADS)
    try:
        slots = data.get("slots", data["kept"])  # version 1 had no slots
        return Kept(data["kept"], slots, plain=data.get("loader", OURS) != OURS)
    except (KeyError, AttributeError):
        raise BadInput(f"{folder / HEADS} does not list the heads that were kept: it may be damaged") from None


def load_folder(folder: str | Path) -> Loaded:
    """Read config, weights and, where there is one, the tokenizer."""
    folder = Path(folder)
    config = _config_data(folder)
    known = family(str(config.get("model_type")))
    if not any((folder / name).is_file() for name in WEIGHTS):
        raise BadInput(f"{folder} has no weights: one of {', '.join(WEIGHTS)} is needed")
    transformers = _transformers()
    with quiet():
        try:
            settings = transformers.AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
            _check_numbers(folder, model_class(config), settings)
            settings.output_attentions = settings.output_hidden_states = settings.use_cache = False
            model = _pruned(folder, model_class(config), settings, known)
        except HeadcountError:
            raise
        except Exception as error:  # transformers, safetensors and pickle have no common error
            raise BadInput(f"{folder} cannot be read as a model, it may be damaged: {_first_line(error)}") from None
        tokenizer = _tokenizer(folder, transformers)
    dtype = next(model.parameters()).dtype
    return Loaded(model.float().eval(), tokenizer, known, dtype)


def _check_counts(path: Path, config: dict[str, Any]) -> None:
    """Refuse counts for which transformers would make as many objects, before it does."""
    for key, value in config.items():
        most = MAX_LAYERS if "layer" in key else MAX_LABELS if "label" in key else None
        if most is not None and type(value) is int and value > most:
            raise BadInput(f"{path}: {key} is {value:,}: at most {most:,} are read")
        if isinstance(value, dict):  # a model inside the model
            _check_counts(path, cast("dict[str, Any]", value))


def _check_numbers(folder: Path, made: Any, settings: Any) -> None:
    """Refuse a config of many more numbers than the weights' files hold; it is made without them first."""
    import torch

    with torch.device("meta"):
        empty = _made(made, settings)
    numbers = sum(t.numel() for t in (*empty.parameters(), *empty.buffers()))
    stored = sum(path.stat().st_size for path in folder.iterdir() if path.suffix in (".safetensors", ".bin"))
    if numbers > MAX_UNSTORED + NUMBERS_PER_BYTE * stored:
        raise BadInput(
            f"{folder / 'config.json'} describes a model of {numbers:,} numbers, its weights have {stored:,} bytes: "
            "it belongs to another model, or is damaged"
        )


def _made(made: Any, settings: Any) -> Any:
    """Make a model of a class from its config, without its weights."""
    return made(settings) if hasattr(made, "config_class") else made.from_config(settings)


def _config_data(folder: Path) -> dict[str, Any]:
    local = folder.parent != Path() and folder.parent.exists()  # then it is a folder's name that was mistyped
    if not folder.exists() and not local and HUB_ID.fullmatch(str(folder)):
        command = f"hf download {folder} --local-dir {folder.name}"
        raise BadInput(
            f"there is no folder {folder}: if it is a model of the Hugging Face hub, download it first: {command}"
        )
    if not folder.exists():
        raise BadInput(f"there is no folder {folder}")
    if not folder.is_dir():
        raise BadInput(f"{folder} is a file: probe takes the folder of a Hugging Face model")
    if not (folder / "config.json").is_file():
        raise BadInput(f"{folder} has no config.json: it is no folder of a Hugging Face model")
    config = read_json(folder / "config.json")
    if isinstance(config, dict) and "headcount-model" in config.values():
        raise BadInput(f"{folder} is a model of headcount itself: probe takes a Hugging Face model (see attack, show)")
    if not isinstance(config, dict) or not isinstance(config.get("model_type"), str):
        raise BadInput(f"{folder / 'config.json'} names no model_type: it is no config of a Hugging Face model")
    _check_counts(folder / "config.json", config)
    return config


def _transformers() -> Any:
    try:
        import transformers
    except ImportError:
        raise MissingExtra("transformers", "probe", "headcount probe") from None
    return transformers


def model_class(config: dict[str, Any]) -> Any:
    """The class that a folder was saved from; without one, the model without a head for any task."""
    transformers = _transformers()
    named = config.get("architectures")
    name = str(named[0]) if isinstance(named, list) and named else ""
    name = name.replace("ForPreTraining", "ForMaskedLM")  # the same weights, and a loss that text alone gives
    if name and not hasattr(transformers, name):
        raise BadInput(f"config.json names the class {name}, which transformers {transformers.__version__} has not")
    return getattr(transformers, name) if name else transformers.AutoModel


def load_whole(folder: Path, made: Any, **options: Any) -> Any:
    """Load a folder with `from_pretrained` of a class; no weight may be missing."""
    model, found = made.from_pretrained(
        folder, local_files_only=True, trust_remote_code=False, dtype="auto", output_loading_info=True, **options
    )
    missing = sorted(found["missing_keys"])
    if missing:
        raise BadInput(f"{folder} lacks {len(missing)} weights of {type(model).__name__} (first {missing[0]})")
    return model


def _pruned(folder: Path, made: Any, settings: Any, known: Family) -> Any:
    """Load a model; one that heads were removed from is cut as it was cut, and has none that are only zeros."""
    kept = read_kept(folder)
    if kept.plain:
        model = load_whole(folder, made, config=settings)
        for layer in find_layers(model, known.layouts):
            slots = kept.slots.get(layer.name, [])
            if None in slots and not layer.layout.bias:  # with a shared bias all layers need the same slots
                layer.keep([i for i, slot in enumerate(slots) if slot is not None])
        return model
    from safetensors.torch import load_file, load_model

    model = _made(made, settings)
    for layer in find_layers(model, known.layouts):
        if layer.name in kept.heads:
            layer.keep(kept.heads[layer.name])
    weights = folder / "model.safetensors"
    model.to(next(iter(load_file(weights).values())).dtype)
    load_model(model, weights)
    return model


def _tokenizer(folder: Path, transformers: Any) -> Any | None:
    if not any((folder / name).is_file() for name in TOKENIZER):
        return None
    try:
        return transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # of every kind: each tokenizer reads its files in its own way
        raise BadInput(f"the tokenizer of {folder} cannot be read: {_first_line(error)}") from None


@contextmanager
def quiet() -> Generator[None]:
    """Keep transformers' bars and advice from the terminal; afterwards they are as before."""
    from transformers.utils import logging

    level = logging.get_verbosity()
    shown = logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if shown:
            logging.enable_progress_bar()


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__
