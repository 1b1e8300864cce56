"""Model folders: model.safetensors and config.json, exact to the bit, with a content hash (docs/format.md)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from headcount.core import BadInput, Displayable, atomic_folder, provenance, write_bytes, write_json
from headcount.core.readers import FORMAT, check_config, identity, read_model_file
from headcount.core.readers import MODEL_VERSION as VERSION
from headcount.models.transformer.reference import Transformer
from headcount.models.transformer.spec import ModelSpec

_DTYPES = {"float32": torch.float32, "float64": torch.float64}


@dataclass(repr=False)
class SavedModel(Displayable):
    """A transformer with everything needed to use it.

    transformer: the model. task: the JSON data of its task, or None. box: the two corners of the box of tokens that it
    is meant for. mean, std: the mean and deviation of the targets that it was trained on, one number per output
    (default 0 and 1); outputs are multiplied by std and shifted by mean. provenance: where the model comes from.
    """

    transformer: Transformer
    task: dict[str, Any] | None = None
    box: tuple[tuple[float, ...], tuple[float, ...]] | None = None
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    provenance: dict[str, Any] = field(default_factory=lambda: provenance())

    def __post_init__(self) -> None:
        out = self.transformer.spec.out_dim
        self.mean, self.std = tuple(map(float, self.mean or (0.0,) * out)), tuple(map(float, self.std or (1.0,) * out))
        if self.box is not None:
            self.box = tuple(map(float, self.box[0])), tuple(map(float, self.box[1]))
        if len(self.mean) != out or len(self.std) != out:
            raise BadInput(f"the standardisation needs {out} means and deviations, one per output")

    @torch.no_grad()
    def predict(self, X: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return predictions in the task's units, y[batch, out_dim].

        X: [batch, length, dim]. mask: [batch, length], True at real tokens; None if all tokens are real.
        """
        y = self.transformer(X.to(self.dtype), mask)
        return y * y.new_tensor(self.std) + y.new_tensor(self.mean)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the weights."""
        return self.transformer.class_token.dtype

    def hash(self) -> str:
        """Return the model's identity: a hash of spec, task, box, standardisation and every bit of the weights."""
        return identity(self._identity_config(), self._arrays())

    def _arrays(self) -> dict[str, NDArray[Any]]:
        return {name: tensor.detach().cpu().numpy() for name, tensor in self.transformer.tensors()}

    def _identity_config(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "version": VERSION,
            "model": self.transformer.spec.data(),
            "dtype": str(self.dtype).removeprefix("torch."),
            "task": self.task,
            "box": None if self.box is None else [list(corner) for corner in self.box],
            "standardisation": {"mean": list(self.mean), "std": list(self.std)},
        }

    def save(
        self, folder: Path | str, extra: Mapping[str, Any] | None = None, check: Callable[[Path], None] | None = None
    ) -> str:
        """Write the folder, completely or not at all, and return the model's hash.

        extra: further files by name, with JSON data or bytes. check: called with the path of the complete temporary
        folder before it is renamed; if it raises, nothing is left behind.
        """
        from safetensors.numpy import save

        config = {**self._identity_config(), "hash": "0" * 64, "provenance": self.provenance}
        check_config(config, f"the new {Path(folder) / 'config.json'}")
        config["hash"] = model_hash = self.hash()
        with atomic_folder(Path(folder)) as temporary:
            write_bytes(temporary / "model.safetensors", save(self._arrays()))
            write_json(temporary / "config.json", config)
            for name, value in (extra or {}).items():
                (write_bytes if isinstance(value, bytes) else write_json)(temporary / name, value)
            if check is not None:
                check(temporary)
        return model_hash


def load_model(folder: Path | str) -> SavedModel:
    """Read a model folder; raise BadInput, in one line, if anything is missing, truncated, altered or unknown."""
    stored = read_model_file(Path(folder))
    spec, dtype, box = stored.config["model"], _DTYPES[stored.config["dtype"]], stored.config["box"]
    transformer = Transformer(ModelSpec.parse(spec, where=str(folder)), dtype=dtype)
    with torch.no_grad():
        for name, parameter in transformer.named_parameters():
            parameter.copy_(torch.from_numpy(stored.tensors[name].copy()))
    scaling = stored.config["standardisation"]
    return SavedModel(
        transformer,
        stored.config["task"],
        None if box is None else (tuple(box[0]), tuple(box[1])),
        tuple(scaling["mean"]),
        tuple(scaling["std"]),
        stored.provenance,
    )
