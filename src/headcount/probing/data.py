"""Data for a model of transformers (text, arrays, built-in text or noise), and the loss on them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from headcount.core import BadInput
from headcount.core.readers import read_limited
from headcount.probing.arrays import image_shape, read_arrays
from headcount.probing.load import Loaded, quiet
from headcount.probing.text import TEXT

MAX_TEXT_TOKENS = 32
"""Most tokens in a sample of text."""
MAX_TEXT_BYTES = 64 << 20
"""Largest text file; a probe reads some thousand samples from it."""
MASKED_FRACTION = 0.15
"""Fraction of the tokens that a masked language model must predict."""
TARGET_KEY, WEIGHT_KEY = "headcount_target", "headcount_weight"
"""Keys of a batch that our own loss reads, beside the model's inputs."""
OWN_CHOICE_LOSS = "cross-entropy of the model's own first choice"


class Data(NamedTuple):
    """Batches for a model, with a description of the data and of the loss."""

    batches: list[dict[str, Tensor]]
    description: str
    loss_name: str
    notes: list[str]
    chance: float | None
    """The loss of guessing without looking at the input; None if it is not known."""


def read_data(loaded: Loaded, path: Path | None, *, samples: int, batch: int, seed: int) -> Data:
    """Return batches from a file, or from built-in text or noise if there is no file."""
    draw = torch.Generator().manual_seed(seed)
    inputs, description, notes = _inputs(loaded, path, samples, draw)
    inputs = {name: array[:samples] for name, array in inputs.items()}
    count = len(next(iter(inputs.values())))
    inputs, loss_name, loss_notes = _with_target(loaded, inputs, batch, draw)
    full_batches = max(count // batch, 1)  # of equal size, so that the mean over batches is the mean over samples
    size = batch if count >= batch else count
    batches = [{name: array[i * size : (i + 1) * size] for name, array in inputs.items()} for i in range(full_batches)]
    used = {name: array[: full_batches * size] for name, array in inputs.items()}
    description = f"{description}: {full_batches * size} samples in batches of {size}"
    return Data(batches, description, loss_name, [*notes, *loss_notes], _chance(loaded.model, used, loss_name))


def loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """Return the model's own loss if there are labels, otherwise the distance from the target of `_with_target`."""
    if TARGET_KEY not in batch:
        return model(**batch).loss
    inputs = {name: value for name, value in batch.items() if name not in (TARGET_KEY, WEIGHT_KEY)}
    error = (_output(model(**inputs)) - batch[TARGET_KEY]).square()
    weight = batch[WEIGHT_KEY].reshape(batch[WEIGHT_KEY].shape + (1,) * (error.dim() - batch[WEIGHT_KEY].dim()))
    return (error * weight).mean()


def _output(result: Any) -> Tensor:
    return result.logits if "logits" in result else result.last_hidden_state


def _inputs(
    loaded: Loaded, path: Path | None, samples: int, draw: torch.Generator
) -> tuple[dict[str, Tensor], str, list[str]]:
    config, images = loaded.model.config, loaded.model.main_input_name == "pixel_values"
    if path is not None and path.suffix.lower() == ".npz":
        return read_arrays(path, loaded.model), path.name, []
    if path is not None and path.suffix.lower() != ".txt":
        raise BadInput(f"unsupported data file {path.name!r}: use lines of text (.txt) or arrays (.npz)")
    if images:
        if path is not None:
            raise BadInput(f"{path.name} is text, but the model takes images: use an .npz file with pixel_values")
        noise = torch.randn((samples, *image_shape(config)), generator=draw)
        return {"pixel_values": noise}, "random images", ["No data were given: noise says little about real images."]
    if loaded.tokenizer is None:
        if path is not None:
            raise BadInput("the model folder has no tokenizer files: use an .npz file with token ids (input_ids)")
        ids = torch.randint(config.vocab_size, (samples, _length(config)), generator=draw)
        note = "The folder has no tokenizer files: random tokens say little about real text."
        return {"input_ids": ids}, "random token ids", [note]
    lines: list[str] = _lines(path) if path is not None else [*TEXT.splitlines()]
    return _tokens(loaded, lines, samples), "built-in text" if path is None else path.name, []


def _lines(path: Path) -> list[str]:
    try:
        text = read_limited(path, MAX_TEXT_BYTES).decode()
    except UnicodeDecodeError:
        raise BadInput(f"{path} is not UTF-8 text") from None
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        raise BadInput(f"{path} contains no text")
    return lines


def _length(config: Any) -> int:
    """Return the length of samples: short, and within the model's positions (RoBERTa's begin after the padding id)."""
    return max(2, min(MAX_TEXT_TOKENS, int(getattr(config, "max_position_embeddings", MAX_TEXT_TOKENS + 2)) - 2))


def _tokens(loaded: Loaded, lines: list[str], samples: int) -> dict[str, Tensor]:
    """Return one sample per line for a classifier; otherwise cut all tokens in a row into pieces of equal length."""
    tokenizer: Any = loaded.tokenizer
    length = _length(loaded.model.config)
    if "ForSequenceClassification" in type(loaded.model).__name__:
        padded = tokenizer.pad_token is not None and loaded.model.config.pad_token_id is not None
        chosen = lines[:samples] if padded else lines[:1]
        found = tokenizer(chosen, padding=padded, truncation=True, max_length=length, return_tensors="pt")
        return {name: found[name] for name in ("input_ids", "attention_mask") if name in found}
    with quiet():
        row = [token for line in lines for token in tokenizer(line)["input_ids"]]
    length = min(length, len(row))
    if length < 2:
        raise BadInput("the text is too short: at least two tokens are needed")
    pieces = min(len(row) // length, samples)
    ids = torch.tensor(row[: pieces * length]).reshape(pieces, length)
    known = int(loaded.model.config.vocab_size)
    if int(ids.max()) >= known:
        raise BadInput(f"the tokenizer returns the id {int(ids.max())}, but the model has only {known} tokens")
    return {"input_ids": ids}


def _with_target(
    loaded: Loaded, inputs: dict[str, Tensor], batch: int, draw: torch.Generator
) -> tuple[dict[str, Tensor], str, list[str]]:
    """Add the target of the loss: labels that the data give or imply, or the model's own outputs."""
    model, kind = loaded.model, type(loaded.model).__name__
    if "labels" in inputs:
        return inputs, "the model's own, on the labels of the data", []
    ids = inputs.get("input_ids")
    if ids is not None and kind.endswith(("ForCausalLM", "LMHeadModel")):
        hidden = inputs.get("attention_mask", torch.ones_like(ids)) == 0
        return {**inputs, "labels": ids.masked_fill(hidden, -100)}, "cross-entropy of the next token", []
    if ids is not None and kind.endswith("ForMaskedLM"):
        return _masked(loaded, inputs, ids, draw)
    if ids is not None and getattr(model.config, "is_encoder_decoder", False) and not kind.endswith("Classification"):
        inputs = {"decoder_input_ids": ids, **inputs}  # the decoder reads the same tokens unless the data give others
    with torch.no_grad():
        count = len(next(iter(inputs.values())))
        pieces = [{n: a[i : i + batch] for n, a in inputs.items()} for i in range(0, count, batch)]
        own = torch.cat([_output(model(**piece)) for piece in pieces])
    if kind.endswith(("ForSequenceClassification", "ForImageClassification")) and own.shape[-1] > 1:
        note = "No labels were given: the loss measures how closely the model keeps to its own first choice."
        return {**inputs, "labels": own.argmax(-1)}, OWN_CHOICE_LOSS, [note]
    # at masks of 1 the distance from the model's own output has no slope; the distance from a nearby point does
    unit = own.std().clamp_min(1e-12)
    target = own + unit * torch.randn(own.shape, generator=draw)
    weight = inputs.get("attention_mask", torch.ones(own.shape[:1])).float()
    note = (
        "The model has no loss without labels. The loss here is the mean squared distance from its own full output "
        "plus noise of the same variance; an increase of 0.01 is one per cent of that variance."
    )
    scaled = {**inputs, TARGET_KEY: target, WEIGHT_KEY: weight / (weight.mean() * unit.square())}
    return scaled, "change of the model's own output", [note]


def _masked(
    loaded: Loaded, inputs: dict[str, Tensor], ids: Tensor, draw: torch.Generator
) -> tuple[dict[str, Tensor], str, list[str]]:
    """Mask some tokens of every sample, which the model has to predict."""
    hidden = torch.rand(ids.shape, generator=draw) < MASKED_FRACTION
    hidden[:, ids.shape[1] // 2] = True  # at least one per sample
    if "attention_mask" in inputs:
        hidden &= inputs["attention_mask"] > 0
    token = getattr(loaded.tokenizer, "mask_token_id", None)
    note: list[str] = []
    if token is None:
        note = ["No token for masking is known: hidden tokens are replaced by random ones."]
        covered = torch.randint(int(loaded.model.config.vocab_size), ids.shape, generator=draw)
    else:
        covered = torch.full_like(ids, token)
    changed = torch.where(hidden, covered, ids)
    return (
        {**inputs, "input_ids": changed, "labels": ids.masked_fill(~hidden, -100)},
        "cross-entropy of masked tokens",
        note,
    )


def _chance(model: Any, inputs: dict[str, Tensor], loss_name: str) -> float | None:
    """Return the loss of guessing: all tokens equally likely, classes by their frequency, numbers by their mean."""
    labels = inputs.get("labels")
    if labels is None:
        return None
    classes = int(model.config.num_labels) if type(model).__name__.endswith("Classification") else 0
    if labels.is_floating_point() or classes == 1:
        spread = float(labels.float().var(correction=0))
        return spread if classes == 1 and spread > 0 else None
    counts = torch.bincount(labels[labels >= 0].flatten())
    if not classes or loss_name == OWN_CHOICE_LOSS or int((counts > 0).sum()) < 2:
        return math.log(max(classes or int(getattr(model.config, "vocab_size", 1)), 1)) or None
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * shares.log()).sum())
