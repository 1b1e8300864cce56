"""Models as folders: model.safetensors and config.json, exact to the bit, with a content hash (docs/format.md)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from headcount.core import BadInput, atomic_folder, provenance, write_bytes, write_json
from headcount.core.readers import FORMAT, check_config, identity, read_model_file
from headcount.core.readers import MODEL_VERSION as VERSION
from headcount.models.transformer.reference import Transformer
from headcount.models.transformer.spec import ModelSpec

_DTYPES = {"float32": torch.float32, "float64": torch.float64}


@dataclass
class SavedModel:
    """A transformer with what it needs to be used.

    transformer: the model. task: the JSON data of its task, None where there is none. box: the two corners of the box
    of tokens that it is meant for. mean, std: of the targets that it was trained on, one number an output (default 0
    and 1); its outputs are multiplied by std and shifted by mean. provenance: where it comes from.
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
        """Return predictions in the task's own units, y[batch, out_dim].

        X: [batch, length, dim]. mask: True at real tokens, [batch, length]; None where all are real.
        """
        y = self.transformer(X.to(self.dtype), mask)
        return y * y.new_tensor(self.std) + y.new_tensor(self.mean)

    @property
    def dtype(self) -> torch.dtype:
        """The type of the weights."""
        return self.transformer.class_token.dtype

    def hash(self) -> str:
        """Return the identity: spec, task, box, standardisation and every bit of the weights."""
        return identity(self._hashed(), self._arrays())

    def _arrays(self) -> dict[str, NDArray[Any]]:
        return {name: tensor.detach().cpu().numpy() for name, tensor in self.transformer.tensors()}

    def _hashed(self) -> dict[str, Any]:
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
        """Write the folder whole or not at all; return the hash. `extra` names further files: JSON data, or bytes.

        `check` is called with the folder as written, before it gets its name: where it raises, nothing is left behind.
        """
        from safetensors.numpy import save

        config = {**self._hashed(), "hash": "0" * 64, "provenance": self.provenance}
        check_config(config, f"what would be {Path(folder) / 'config.json'}")
        config["hash"] = found = self.hash()
        with atomic_folder(Path(folder)) as temporary:
            write_bytes(temporary / "model.safetensors", save(self._arrays()))
            write_json(temporary / "config.json", config)
            for name, value in (extra or {}).items():
                (write_bytes if isinstance(value, bytes) else write_json)(temporary / name, value)
            if check is not None:
                check(temporary)
        return found


def load_model(folder: Path | str) -> SavedModel:
    """Read a model folder; anything missing, truncated, altered or unknown is answered with one line."""
    found = read_model_file(Path(folder))
    spec, dtype, box = found.config["model"], _DTYPES[found.config["dtype"]], found.config["box"]
    transformer = Transformer(ModelSpec.parse(spec, where=str(folder)), dtype=dtype)
    with torch.no_grad():
        for name, parameter in transformer.named_parameters():
            parameter.copy_(torch.from_numpy(found.tensors[name].copy()))
    scaling = found.config["standardisation"]
    return SavedModel(
        transformer,
        found.config["task"],
        None if box is None else (tuple(box[0]), tuple(box[1])),
        tuple(scaling["mean"]),
        tuple(scaling["std"]),
        found.provenance,
    )
