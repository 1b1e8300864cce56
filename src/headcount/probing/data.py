"""Data for a model of transformers: text, arrays, built-in text or noise; and the loss on them."""

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

LENGTH = 32
"""Tokens of a sample of text."""
MAX_TEXT_BYTES = 64 << 20
"""Of a file of text; a probe reads some thousand samples of it."""
MASKED = 0.15
TARGET, WEIGHT = "headcount_target", "headcount_weight"
"""Names of what a loss of ours reads from a batch, beside the model's own inputs."""


OWN_CHOICE = "cross-entropy of the model's own first choice"


class Data(NamedTuple):
    """Batches for a model, and in words what they are and what is measured on them."""

    batches: list[dict[str, Tensor]]
    words: str
    loss_name: str
    notes: list[str]
    chance: float | None
    """The loss of guessing without a look at the input; None where guessing has none."""


def read_data(loaded: Loaded, path: Path | None, *, samples: int, batch: int, seed: int) -> Data:
    """Make batches from a file, or without one from built-in text or noise."""
    draw = torch.Generator().manual_seed(seed)
    inputs, words, notes = _inputs(loaded, path, samples, draw)
    inputs = {name: array[:samples] for name, array in inputs.items()}
    count = len(next(iter(inputs.values())))
    inputs, loss_name, more = _with_target(loaded, inputs, batch, draw)
    whole = max(count // batch, 1)  # batches of equal size: the mean over batches is then that over samples
    size = batch if count >= batch else count
    batches = [{name: array[i * size : (i + 1) * size] for name, array in inputs.items()} for i in range(whole)]
    used = {name: array[: whole * size] for name, array in inputs.items()}
    words = f"{words}: {whole * size} samples in batches of {size}"
    return Data(batches, words, loss_name, [*notes, *more], _chance(loaded.model, used, loss_name))


def loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """The model's own loss where there are labels, else the distance from the target of `_with_target`."""
    if TARGET not in batch:
        return model(**batch).loss
    inputs = {name: value for name, value in batch.items() if name not in (TARGET, WEIGHT)}
    error = (_output(model(**inputs)) - batch[TARGET]).square()
    weight = batch[WEIGHT].reshape(batch[WEIGHT].shape + (1,) * (error.dim() - batch[WEIGHT].dim()))
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
        raise BadInput(f"data are lines of text (.txt) or arrays (.npz), not {path.name!r}")
    if images:
        if path is not None:
            raise BadInput(f"{path.name} holds text, and the model takes images: give an .npz with pixel_values")
        noise = torch.randn((samples, *image_shape(config)), generator=draw)
        return {"pixel_values": noise}, "random images", ["No data were given: noise says little about real images."]
    if loaded.tokenizer is None:
        if path is not None:
            raise BadInput("the model folder has no tokenizer files: give token ids as an .npz with input_ids")
        ids = torch.randint(config.vocab_size, (samples, _length(config)), generator=draw)
        note = "The folder has no tokenizer files: random tokens say little about real text."
        return {"input_ids": ids}, "random token ids", [note]
    lines: list[str] = _lines(path) if path is not None else [*TEXT.splitlines()]
    words = "built-in text" if path is None else path.name
    return _tokens(loaded, lines, samples), words, []


def _lines(path: Path) -> list[str]:
    try:
        text = read_limited(path, MAX_TEXT_BYTES).decode()
    except UnicodeDecodeError:
        raise BadInput(f"{path} is not text in UTF-8") from None
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        raise BadInput(f"{path} holds no text")
    return lines


def _length(config: Any) -> int:
    """The length of samples: short, and within what the positions allow (RoBERTa's begin after the padding's id)."""
    return max(2, min(LENGTH, int(getattr(config, "max_position_embeddings", LENGTH + 2)) - 2))


def _tokens(loaded: Loaded, lines: list[str], samples: int) -> dict[str, Tensor]:
    """A sample a line for a classifier; else all tokens in a row, cut into pieces of equal length."""
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
    most = int(loaded.model.config.vocab_size)
    if int(ids.max()) >= most:
        raise BadInput(f"the tokenizer gives the id {int(ids.max())}, and the model knows {most} tokens only")
    return {"input_ids": ids}


def _with_target(
    loaded: Loaded, inputs: dict[str, Tensor], batch: int, draw: torch.Generator
) -> tuple[dict[str, Tensor], str, list[str]]:
    """Add what the outputs are compared with: labels that the data give or imply, or the model's own outputs."""
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
        inputs = {"decoder_input_ids": ids, **inputs}  # the decoder reads the same tokens, unless the data say others
    with torch.no_grad():
        count = len(next(iter(inputs.values())))
        pieces = [{n: a[i : i + batch] for n, a in inputs.items()} for i in range(0, count, batch)]
        own = torch.cat([_output(model(**piece)) for piece in pieces])
    if kind.endswith(("ForSequenceClassification", "ForImageClassification")) and own.shape[-1] > 1:
        note = "No labels were given: the loss asks how far the model keeps to its own first choice."
        return {**inputs, "labels": own.argmax(-1)}, OWN_CHOICE, [note]
    # the distance from the own output has no slope at masks of 1; from a point beside it, in a random direction, it has
    unit = own.std().clamp_min(1e-12)
    beside = own + unit * torch.randn(own.shape, generator=draw)
    weight = inputs.get("attention_mask", torch.ones(own.shape[:1])).float()
    note = (
        "The model has no loss without labels: the loss here is the mean squared distance from its own full output "
        "plus noise of the same variance; an increase of 0.01 is one per cent of that variance."
    )
    scaled = {**inputs, TARGET: beside, WEIGHT: weight / (weight.mean() * unit.square())}
    return scaled, "change of the model's own output", [note]


def _masked(
    loaded: Loaded, inputs: dict[str, Tensor], ids: Tensor, draw: torch.Generator
) -> tuple[dict[str, Tensor], str, list[str]]:
    """Hide some tokens of every sample, for the model to name."""
    hidden = torch.rand(ids.shape, generator=draw) < MASKED
    hidden[:, ids.shape[1] // 2] = True  # at least one a sample
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
    """The loss of guessing: all tokens equally likely, classes by their share of the labels, numbers by their mean."""
    labels = inputs.get("labels")
    if labels is None:
        return None
    classes = int(model.config.num_labels) if type(model).__name__.endswith("Classification") else 0
    if labels.is_floating_point() or classes == 1:
        spread = float(labels.float().var(correction=0))
        return spread if classes == 1 and spread > 0 else None
    counts = torch.bincount(labels[labels >= 0].flatten())
    if not classes or loss_name == OWN_CHOICE or int((counts > 0).sum()) < 2:
        return math.log(max(classes or int(getattr(model.config, "vocab_size", 1)), 1)) or None
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * shares.log()).sum())
