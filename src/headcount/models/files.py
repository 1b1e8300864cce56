"""Models as folders: model.safetensors and config.json, exact to the bit, with a content hash (docs/format.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from headcount.base.errors import BadInput
from headcount.base.files import read_json, whole_folder, write_bytes, write_json
from headcount.base.hashing import arrays_hash, content_hash
from headcount.base.provenance import provenance
from headcount.base.spec import Spec, Vector
from headcount.models.reference import Transformer
from headcount.models.spec import ModelSpec

FORMAT = "headcount-model"
VERSION = 1
_DTYPES = {"float32": torch.float32, "float64": torch.float64}


class Standardisation(Spec):
    """Targets were trained as (y − mean)/std; a prediction is mean + std · model(X)."""

    mean: Vector
    std: Vector


class Config(Spec):
    """The file config.json. `hash` covers everything here but `provenance`, and every bit of the weights."""

    format: Literal["headcount-model"]
    version: Literal[1]
    model: ModelSpec
    dtype: Literal["float32", "float64"]
    task: dict[str, Any] | None
    box: tuple[Vector, Vector] | None
    standardisation: Standardisation
    identity: str = Field(alias="hash", pattern=r"^[0-9a-f]{64}$")
    provenance: dict[str, Any]


@dataclass
class SavedModel:
    """A transformer with what it needs to be used: its task, input box and standardisation."""

    transformer: Transformer
    task: dict[str, Any] | None = None
    box: tuple[tuple[float, ...], tuple[float, ...]] | None = None
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    provenance: dict[str, Any] = field(default_factory=lambda: provenance())

    def __post_init__(self) -> None:
        out = self.transformer.spec.out_dim
        self.mean, self.std = self.mean or (0.0,) * out, self.std or (1.0,) * out
        if len(self.mean) != out or len(self.std) != out:
            raise BadInput(f"the standardisation needs {out} means and deviations, one per output")

    @torch.no_grad()
    def predict(self, X: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return predictions in the task's own units, y[batch, out_dim]."""
        y = self.transformer(X.to(self.dtype), mask)
        return y * y.new_tensor(self.std) + y.new_tensor(self.mean)

    @property
    def dtype(self) -> torch.dtype:
        """The type of the weights."""
        return self.transformer.class_token.dtype

    def hash(self) -> str:
        """Return the identity: spec, task, box, standardisation and every bit of the weights."""
        return content_hash({**self._identity(), "tensors": arrays_hash(self._arrays())})

    def _arrays(self) -> dict[str, NDArray[Any]]:
        return {name: tensor.detach().cpu().numpy() for name, tensor in self.transformer.tensors()}

    def _identity(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "version": VERSION,
            "model": self.transformer.spec.data(),
            "dtype": str(self.dtype).removeprefix("torch."),
            "task": self.task,
            "box": None if self.box is None else [list(corner) for corner in self.box],
            "standardisation": {"mean": list(self.mean), "std": list(self.std)},
        }

    def save(self, folder: Path | str, extra: Mapping[str, Any] | None = None) -> str:
        """Write the folder whole or not at all; return the hash. `extra` names further files: JSON data, or bytes."""
        from safetensors.numpy import save

        identity = self.hash()
        with whole_folder(Path(folder)) as temporary:
            write_bytes(temporary / "model.safetensors", save(self._arrays()))
            config = {**self._identity(), "hash": identity, "provenance": self.provenance}
            write_json(temporary / "config.json", config)
            for name, value in (extra or {}).items():
                (write_bytes if isinstance(value, bytes) else write_json)(temporary / name, value)
        return identity


def load_model(folder: Path | str) -> SavedModel:
    """Read a model folder; anything missing, truncated, altered or unknown is answered with one line."""
    folder = Path(folder)
    if not folder.is_dir():
        raise BadInput(f"{folder} is no model folder: expected a folder with config.json and model.safetensors")
    config = Config.parse(read_json(folder / "config.json"), where=str(folder / "config.json"))
    arrays = _read_tensors(folder / "model.safetensors")
    transformer = Transformer(config.model, dtype=_DTYPES[config.dtype])
    _fill(transformer, arrays, folder)
    saved = SavedModel(
        transformer, config.task, config.box, config.standardisation.mean, config.standardisation.std,
        config.provenance,
    )  # fmt: skip
    if saved.hash() != config.identity:
        raise BadInput(f"{folder} does not match its content hash: a weight or a setting was changed")
    return saved


def _read_tensors(path: Path) -> dict[str, NDArray[Any]]:
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        return load(path.read_bytes())
    except FileNotFoundError:
        raise BadInput(f"there is no file {path}") from None
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}") from None
    except (SafetensorError, ValueError, KeyError) as error:
        raise BadInput(f"{path} is truncated or no safetensors file ({error})") from None


def _fill(transformer: Transformer, arrays: dict[str, NDArray[Any]], folder: Path) -> None:
    """Copy the weights into the model; names, shapes and types must be exactly those of the spec."""
    wanted = dict(transformer.named_parameters())
    if set(wanted) != set(arrays):
        odd = sorted(set(wanted) ^ set(arrays))
        raise BadInput(f"{folder}: the tensors are not those of its spec ({odd[0]} is missing or not known)")
    with torch.no_grad():
        for name, parameter in wanted.items():
            tensor = torch.from_numpy(arrays[name].copy())
            if tensor.shape != parameter.shape or tensor.dtype != parameter.dtype:
                raise BadInput(
                    f"{folder}: {name} is {tensor.dtype}{list(tensor.shape)}, "
                    f"the spec wants {parameter.dtype}{list(parameter.shape)}"
                )
            parameter.copy_(tensor)
