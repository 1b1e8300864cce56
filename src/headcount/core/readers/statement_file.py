"""Strict reader of certificate.json and witness.json: the keys of each kind, and the types of their values.

Part of the trusted base, like `model_file`. Only the form is checked here; whether the claims are true is
decided by `recheck`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

from headcount.core.errors import BadInput
from headcount.core.readers.model_file import brief, check_keys
from headcount.core.readers.reading import read_json

VERSION = 1


class Form(NamedTuple):
    """A file format: its name, its format tag, the keys that all kinds have, and those that each kind adds.

    `later` are keys that older files lack; the reader decides what their absence means.
    """

    name: str
    format: str
    keys: frozenset[str]
    kinds: Mapping[str, frozenset[str]]
    later: Mapping[str, frozenset[str]]

    def keys_of(self, kind: str) -> frozenset[str]:
        """Return the keys that every statement of this kind has."""
        return self.keys | self.kinds[kind]


CERTIFICATE = Form(
    "certificate",
    "headcount-certificate",
    frozenset({"format", "version", "kind", "model", "task", "box", "eps", "bound", "steps", "provenance"}),
    {"enough-heads": frozenset({"scale"}), "one-wide-head": frozenset()},
    {"enough-heads": frozenset({"arithmetic", "shift"}), "one-wide-head": frozenset({"arithmetic"})},
)
WITNESS = Form(
    "witness",
    "headcount-witness",
    frozenset(
        {"format", "version", "kind", "model", "task", "box", "region", "output", "X1", "X2", "claims", "provenance"}
    ),
    {"exact": frozenset({"solved", "radius"}), "near": frozenset(), "evidence": frozenset()},
    {"exact": frozenset(), "near": frozenset(), "evidence": frozenset()},
)

STEPS = {"enough-heads": ("encoder", "leakage", "feedforward"), "one-wide-head": ("encoder", "maximum", "feedforward")}
"""The steps of the error budget of a certificate, each a list of numbers; `slopes` is a list of such lists."""
SLOPES = "slopes"
ARITHMETIC = ("exact", "float64")
"""What a certificate's bound covers: the model in exact arithmetic, or as float64 computes it."""
CLAIMS = ("gap", "distance", "distance_one", "sup_error", "lipschitz")
"""The numbers that a witness claims; lipschitz may be null."""


def read_statement(path: Path, form: Form) -> dict[str, Any]:
    """Read a statement from its file or folder; raise BadInput where the format, version or kind is not known."""
    path = path / f"{form.name}.json" if path.is_dir() else path
    value = read_json(path)
    if type(value) is not dict or value.get("format") != form.format:
        raise BadInput(f"{path} is not a {form.name}: expected a JSON object with format {form.format!r}")
    found = cast("dict[str, Any]", value)
    if missing := sorted(form.keys - found.keys()):
        raise BadInput(f"{path} is not a complete {form.name}: {missing[0]} is missing")
    version, kind = found["version"], found["kind"]
    if type(version) is not int or version != VERSION or type(kind) is not str or kind not in form.kinds:
        known = f"version {VERSION} and {', '.join(form.kinds)}"
        raise BadInput(f"{path}: unknown version or kind {brief(version)}, {brief(kind)}: allowed: {known}")
    if type(found["provenance"]) is not dict:
        raise BadInput(f"{path}: provenance is not a JSON object")
    return found


def check_statement(statement: dict[str, Any], form: Form) -> None:
    """Check that a statement has the keys of its kind, and that its claims are finite numbers ≥ 0."""
    kind = statement["kind"]
    check_keys(statement, form.keys_of(kind) | (form.later[kind] & statement.keys()), f"the {form.name}")
    if form is WITNESS:
        claims = check_keys(statement["claims"], CLAIMS, "its claims")
        for name, value in claims.items():
            if value is not None or name != "lipschitz":
                check_bound(value, f"claims.{name}")
        return
    for name in ("eps", "bound", *form.kinds[kind]):
        check_bound(statement[name], name)
    if statement.get("arithmetic", "exact") not in ARITHMETIC:
        raise BadInput(f"arithmetic is {brief(statement['arithmetic'])}: allowed: {', '.join(ARITHMETIC)}")
    for value in _listed(statement.get("shift", []), "shift"):
        check_bound(value, "shift")
    steps = check_keys(statement["steps"], (*STEPS[kind], SLOPES), "its steps")
    for name, values in steps.items():
        rows = _listed(values, f"steps.{name}") if name == SLOPES else [values]
        for row in rows:
            for value in _listed(row, f"steps.{name}"):
                check_bound(value, f"steps.{name}")


def check_bound(value: Any, where: str) -> None:
    """Check that `value` is a finite number ≥ 0; text and booleans are refused."""
    if type(value) not in (int, float) or not 0 <= value <= _MAX_FLOAT:
        raise BadInput(f"{where} is {brief(value)}: it must be a finite number ≥ 0")


_MAX_FLOAT = math.nextafter(math.inf, 0.0)


def _listed(values: Any, where: str) -> list[Any]:
    if type(values) is not list:
        raise BadInput(f"{where} is {brief(values)}: it must be a list")
    return cast("list[Any]", values)
