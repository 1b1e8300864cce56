"""Read a model folder of Hugging Face from local files only; what cannot be read gives one line."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from headcount.advice.probe_families import Family, family, find_layers
from headcount.base.errors import BadInput, HeadcountError, MissingExtra
from headcount.base.files import read_json

WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
TOKENIZER = ("tokenizer.json", "vocab.txt", "vocab.json", "tokenizer.model", "spiece.model", "sentencepiece.bpe.model")
HEADS = "headcount-pruned.json"
"""Beside the weights of a pruned model: the heads that were kept, which config.json cannot say."""


class Loaded(NamedTuple):
    """A model in float32, ready to be measured."""

    model: Any
    tokenizer: Any | None
    family: Family
    dtype: Any
    """The type of the numbers in the folder."""


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
            settings.output_attentions = settings.output_hidden_states = settings.use_cache = False
            made = _class(transformers, config)
            model = _pruned(folder, made, settings, known) or _whole(folder, made, settings)
        except HeadcountError:
            raise
        except Exception as error:  # transformers, safetensors and pickle have no common error
            raise BadInput(f"{folder} cannot be read as a model, it may be damaged: {_first_line(error)}") from None
        tokenizer = _tokenizer(folder, transformers)
    dtype = next(model.parameters()).dtype
    return Loaded(model.float().eval(), tokenizer, known, dtype)


def _config_data(folder: Path) -> dict[str, Any]:
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
    return config


def _transformers() -> Any:
    try:
        import transformers
    except ImportError:
        raise MissingExtra("transformers", "probe", "headcount probe") from None
    return transformers


def _class(transformers: Any, config: dict[str, Any]) -> Any:
    """The class that the folder was saved from; without one, the model without a head for any task."""
    named = config.get("architectures")
    name = str(named[0]) if isinstance(named, list) and named else ""
    name = name.replace("ForPreTraining", "ForMaskedLM")  # the same weights, and a loss that text alone gives
    if name and not hasattr(transformers, name):
        raise BadInput(f"config.json names the class {name}, which transformers {transformers.__version__} has not")
    return getattr(transformers, name) if name else transformers.AutoModel


def _whole(folder: Path, made: Any, settings: Any) -> Any:
    model, found = made.from_pretrained(
        folder, config=settings, local_files_only=True, trust_remote_code=False, dtype="auto", output_loading_info=True
    )
    missing = sorted(found["missing_keys"])
    if missing:
        raise BadInput(f"{folder} lacks {len(missing)} weights of {type(model).__name__} (first {missing[0]})")
    return model


def _pruned(folder: Path, made: Any, settings: Any, known: Family) -> Any | None:
    """Rebuild a model from which heads were removed: the whole one, cut as it was cut, with the weights kept."""
    if not (folder / HEADS).is_file():
        return None
    from safetensors.torch import load_file, load_model

    kept = read_json(folder / HEADS)["kept"]
    model = made(settings) if hasattr(made, "config_class") else made.from_config(settings)
    for layer in find_layers(model, known.layouts):
        if layer.name in kept:
            layer.keep(kept[layer.name])
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
