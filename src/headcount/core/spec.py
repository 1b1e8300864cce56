"""Strict specs: typed, frozen, hashed; the error for an unknown key names the nearest known one."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Self

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from headcount.core.errors import BadInput, nearest
from headcount.core.hashing import content_hash


def _plain(value: Any) -> Any:
    """Convert NumPy numbers and arrays to JSON data."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is not JSON data")


def _as_tuple(value: Any) -> Any:
    """Convert lists and arrays to tuples, at every depth; pydantic then checks the elements strictly."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return tuple(_as_tuple(v) for v in value)
    return value


Vector = Annotated[tuple[float, ...], BeforeValidator(_as_tuple)]
Matrix = Annotated[tuple[tuple[float, ...], ...], BeforeValidator(_as_tuple)]
Integers = Annotated[tuple[int, ...], BeforeValidator(_as_tuple)]


if TYPE_CHECKING:
    _Base = BaseModel
else:

    class _Meta(type(BaseModel)):
        """Accepts NumPy numbers for Python's, and turns pydantic's errors into one line.

        This is done in the metaclass, since a custom `__init__` would make pydantic read nested JSON as Python objects.
        """

        def __call__(cls, **fields: Any) -> Any:
            fields = {k: v.item() if isinstance(v, np.generic) else v for k, v in fields.items()}
            try:
                return super().__call__(**fields)
            except ValidationError as error:
                raise BadInput(explain(error, cls)) from None

    class _Base(BaseModel, metaclass=_Meta):
        """BaseModel with one-line errors."""


class Spec(_Base):
    """Base class of all specs."""

    model_config = ConfigDict(
        strict=True, frozen=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True, validate_default=True
    )

    @classmethod
    def parse(cls, value: Mapping[str, Any], where: str = "") -> Self:
        """Read a spec from plain data (TOML, JSON), strictly."""
        try:
            return cls.model_validate_json(json.dumps(value, default=_plain))
        except (ValidationError, TypeError) as error:
            text = explain(error, cls) if isinstance(error, ValidationError) else str(error)
            raise BadInput(f"{where}: {text}" if where else text) from None

    def data(self) -> dict[str, Any]:
        """Return the spec as plain JSON data."""
        return self.model_dump(mode="json")

    def hash(self) -> str:
        """Return the identity of the spec."""
        return content_hash(self.data())


_REWORDED = (
    (r"Input tag (.*) found using '(\w+)' does not match any of the expected tags:", r"unknown \2 \1: allowed:"),
    ("greater than or equal to", "at least"),
    ("less than or equal to", "at most"),
    ("valid integer(, got .*)?", "whole number"),
    ("a valid ", "a "),
)
"""Parts of pydantic's messages, and our words for them."""


def explain(error: ValidationError, spec: type[BaseModel]) -> str:
    """Return pydantic's first error in one line; for an unknown key it names the nearest known one."""
    found = error.errors(include_url=False, include_context=True)
    # a misspelt key also makes the right one missing: name the misspelt one
    first = next((e for e in found if e["type"] == "extra_forbidden"), found[0])
    path = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        owner = _owner(spec, first["loc"][:-1])
        names = owner.model_fields if owner is not None else {}
        return f"unknown key {path!r}: {nearest(str(first['loc'][-1]), names)}"
    if first["type"] == "missing":
        return f"{path} is missing"
    message = str(first["msg"]).removeprefix("Value error, ").removeprefix(f"{path.rpartition('.')[2]}: ")
    for pattern, words in _REWORDED:
        message = re.sub(pattern, words, message)
    value = f", not {_short(first['input'])}" if isinstance(first.get("input"), int | float | str | bool | None) else ""
    if path and message.startswith("Input should be "):
        return f"{path} must be {message.removeprefix('Input should be ')}{value}"
    message = message[0].lower() + message[1:] + value.replace(", not", "; got", 1)
    return f"{path}: {message}" if path else message


def _short(value: object) -> str:
    """Return the repr of a value, truncated to 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


def _owner(spec: type[BaseModel], loc: tuple[int | str, ...]) -> type[BaseModel] | None:
    """Return the spec at the end of a path of field names: the owner of the unknown key."""
    current: type[BaseModel] | None = spec
    for part in loc:
        field = current.model_fields.get(str(part)) if current is not None else None
        if field is None:
            continue  # a union's tag or a list's index: a later part may name the spec itself
        annotation: Any = field.annotation
        current = annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None
    return current
