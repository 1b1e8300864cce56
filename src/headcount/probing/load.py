"""Read a Hugging Face model folder from local files only; anything that cannot be read raises a one-line BadInput."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast

from headcount.core import BadInput, HeadcountError, MissingExtra
from headcount.core.readers import read_json
from headcount.probing.architectures import Family, family, find_layers

WEIGHT_FILES = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
TOKENIZER_FILES = (
    "tokenizer.json",
    "vocab.txt",
    "vocab.json",
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
)
KEPT_HEADS_FILE = "headcount-pruned.json"
"""The file beside the weights of a pruned model that lists the heads that were kept, which config.json cannot do."""
OWN_LOADER = "headcount"
"""The loader of a folder that `from_pretrained` cannot load: this package."""
MAX_LAYERS = 1000
"""Layers of a model; the largest published models have some hundred."""
MAX_LABELS = 100_000
"""Labels of a classifier; transformers keeps a name for each."""
MAX_NUMBERS_PER_BYTE = 2
"""Numbers of a model per byte of its weight files: a number takes one or two bytes, and some are used in two places."""
MAX_UNSTORED_NUMBERS = 10_000_000
"""Numbers that a model may have in addition to those in its files: tables of positions and masks."""
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


class Loaded(NamedTuple):
    """A model in float32, ready to be measured."""

    model: Any
    tokenizer: Any | None
    family: Family
    dtype: Any
    """The type of the weights in the folder."""


class Kept(NamedTuple):
    """The remaining heads of each layer, by the layer's name and numbered as in the whole model."""

    heads: dict[str, list[int]]
    slots: dict[str, list[int | None]]
    """The heads in the order of the weights; None for a head of zeros that config.json requires."""
    plain: bool
    """Whether `from_pretrained` loads the folder."""


def load_pruned(folder: str | Path) -> Any:
    """Load a model that `headcount probe --save` wrote, without the heads that were removed.

    `folder` is the folder that was written (the folder of a whole model works too). Returns the model in evaluation
    mode, with its weights in the type in which they are stored. This works for every architecture that probe supports.
    If the folder also loads with `from_pretrained`, removed heads that are stored as zeros are left out here.
    """
    loaded = load_folder(folder)
    return loaded.model.to(loaded.dtype)


def read_kept(folder: Path) -> Kept:
    """Return which heads of a folder's model were kept; empty for a whole model."""
    if not (folder / KEPT_HEADS_FILE).is_file():
        return Kept({}, {}, plain=True)
    data = read_json(folder / KEPT_HEADS_FILE)
    try:
        slots = data.get("slots", data["kept"])  # version 1 had no slots
        return Kept(data["kept"], slots, plain=data.get("loader", OWN_LOADER) != OWN_LOADER)
    except (KeyError, AttributeError):
        raise BadInput(
            f"{folder / KEPT_HEADS_FILE} does not list the heads that were kept: it may be damaged"
        ) from None


def load_folder(folder: str | Path) -> Loaded:
    """Read config, weights and, if there is one, the tokenizer."""
    folder = Path(folder)
    config = _config_data(folder)
    known = family(str(config.get("model_type")))
    if not any((folder / name).is_file() for name in WEIGHT_FILES):
        raise BadInput(f"{folder} has no weights: expected one of {', '.join(WEIGHT_FILES)}")
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
            raise BadInput(f"cannot read {folder} as a model, it may be damaged: {_first_line(error)}") from None
        tokenizer = _tokenizer(folder, transformers)
    dtype = next(model.parameters()).dtype
    return Loaded(model.float().eval(), tokenizer, known, dtype)


def _check_counts(path: Path, config: dict[str, Any]) -> None:
    """Refuse counts for which transformers would create as many objects, before it does."""
    for key, value in config.items():
        limit = MAX_LAYERS if "layer" in key else MAX_LABELS if "label" in key else None
        if limit is not None and type(value) is int and value > limit:
            raise BadInput(f"{path}: {key} is {value:,}: at most {limit:,} are supported")
        if isinstance(value, dict):  # a model inside the model
            _check_counts(path, cast("dict[str, Any]", value))


def _check_numbers(folder: Path, made: Any, settings: Any) -> None:
    """Refuse a config that describes many more numbers than the weight files hold; no memory is allocated for it."""
    import torch

    with torch.device("meta"):
        empty = _without_weights(made, settings)
    numbers = sum(t.numel() for t in (*empty.parameters(), *empty.buffers()))
    stored = sum(path.stat().st_size for path in folder.iterdir() if path.suffix in (".safetensors", ".bin"))
    if numbers > MAX_UNSTORED_NUMBERS + MAX_NUMBERS_PER_BYTE * stored:
        raise BadInput(
            f"{folder / 'config.json'} describes a model of {numbers:,} numbers, but its weights have {stored:,} "
            "bytes: it belongs to another model, or is damaged"
        )


def _without_weights(made: Any, settings: Any) -> Any:
    """Return a model of a class for a config, without loading weights."""
    return made(settings) if hasattr(made, "config_class") else made.from_config(settings)


def _config_data(folder: Path) -> dict[str, Any]:
    local = folder.parent != Path() and folder.parent.exists()  # then it is a mistyped path, not a hub id
    if not folder.exists() and not local and HUB_ID.fullmatch(str(folder)):
        command = f"hf download {folder} --local-dir {folder.name}"
        raise BadInput(
            f"no such folder: {folder}; to use a model of the Hugging Face hub, download it first: {command}"
        )
    if not folder.exists():
        raise BadInput(f"no such folder: {folder}")
    if not folder.is_dir():
        raise BadInput(f"{folder} is a file: probe takes the folder of a Hugging Face model")
    if not (folder / "config.json").is_file():
        raise BadInput(f"{folder} has no config.json: probe takes the folder of a Hugging Face model")
    config = read_json(folder / "config.json")
    if isinstance(config, dict) and "headcount-model" in config.values():
        raise BadInput(f"{folder} is a headcount model: probe takes a Hugging Face model (see attack, show)")
    if not isinstance(config, dict) or not isinstance(config.get("model_type"), str):
        raise BadInput(f"{folder / 'config.json'} has no model_type: it is not the config of a Hugging Face model")
    _check_counts(folder / "config.json", config)
    return config


def _transformers() -> Any:
    try:
        import transformers
    except ImportError:
        raise MissingExtra("transformers", "probe", "headcount probe") from None
    return transformers


def model_class(config: dict[str, Any]) -> Any:
    """Return the class that a folder was saved from; if it names none, the model without a head for any task."""
    transformers = _transformers()
    named = config.get("architectures")
    name = str(named[0]) if isinstance(named, list) and named else ""
    name = name.replace("ForPreTraining", "ForMaskedLM")  # the same weights, with a loss that needs text alone
    if name and not hasattr(transformers, name):
        version = transformers.__version__
        raise BadInput(f"config.json names the class {name}, which transformers {version} does not have")
    return getattr(transformers, name) if name else transformers.AutoModel


def load_whole(folder: Path, made: Any, **options: Any) -> Any:
    """Load a folder with `from_pretrained` of a class, and refuse it if weights are missing."""
    model, found = made.from_pretrained(
        folder, local_files_only=True, trust_remote_code=False, dtype="auto", output_loading_info=True, **options
    )
    missing = sorted(found["missing_keys"])
    if missing:
        raise BadInput(f"{folder} is missing {len(missing)} weights of {type(model).__name__} (first {missing[0]})")
    return model


def _pruned(folder: Path, made: Any, settings: Any, known: Family) -> Any:
    """Load a model; if it was pruned, remove the same heads, including those that are stored as zeros."""
    kept = read_kept(folder)
    if kept.plain:
        model = load_whole(folder, made, config=settings)
        for layer in find_layers(model, known.layouts):
            slots = kept.slots.get(layer.name, [])
            if None in slots and not layer.layout.bias:  # layers that share a bias need the same slots
                layer.keep_only([i for i, slot in enumerate(slots) if slot is not None])
        return model
    from safetensors.torch import load_file, load_model

    model = _without_weights(made, settings)
    for layer in find_layers(model, known.layouts):
        if layer.name in kept.heads:
            layer.keep_only(kept.heads[layer.name])
    weights = folder / "model.safetensors"
    model.to(next(iter(load_file(weights).values())).dtype)
    load_model(model, weights)
    return model


def _tokenizer(folder: Path, transformers: Any) -> Any | None:
    if not any((folder / name).is_file() for name in TOKENIZER_FILES):
        return None
    try:
        return transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # each kind of tokenizer raises its own errors
        raise BadInput(f"cannot read the tokenizer of {folder}: {_first_line(error)}") from None


@contextmanager
def quiet() -> Generator[None]:
    """Silence transformers' progress bars and advice, and restore them afterwards."""
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
