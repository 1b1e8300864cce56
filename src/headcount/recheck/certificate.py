"""The file certificate.json: what it says, and the verdict on it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flint import ctx

from headcount.base.errors import BadInput, HeadcountError
from headcount.base.files import read_json
from headcount.recheck.enough import Checked, check_enough_heads
from headcount.recheck.statement import real
from headcount.recheck.trees import PRECISION
from headcount.recheck.weights import Rejected, Weights, read_weights
from headcount.recheck.wide import CheckedWide, check_wide_head

FORMAT = "headcount-certificate"
KEYS = {"format", "version", "kind", "model", "task", "box", "eps", "bound", "steps", "provenance"}
ARITHMETIC = ("exact", "float64")  # what the bound is about; a certificate that does not say speaks of exact numbers
STEPS = {
    "enough-heads": ("encoder", "leakage", "feedforward"),
    "one-wide-head": ("encoder", "maximum", "feedforward"),
}


@dataclass(frozen=True)
class Verdict:
    """Whether a certificate holds, why not, and what was proved on the way."""

    holds: bool
    reason: str
    certificate: dict[str, Any]
    proved: Checked | CheckedWide | None


def read_certificate(path: Path) -> dict[str, Any]:
    """Read the file, or a folder's certificate.json."""
    path = path / "certificate.json" if path.is_dir() else path
    value = read_json(path)
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise BadInput(f"{path} is no certificate: expected a JSON object with format {FORMAT!r}")
    if missing := KEYS - set(value):
        raise BadInput(f"{path} is no whole certificate: {min(missing)} is missing")
    if type(value["version"]) is not int or value["version"] != 1 or str(value["kind"]) not in STEPS:
        raise BadInput(f"{path}: unknown version or kind {value['version']!r}, {value['kind']!r}")
    return value


def verify(path: Path | str) -> Verdict:
    """Verify a certificate from the weights beside it; nothing that it claims is taken for granted."""
    path = Path(path)
    certificate = read_certificate(path)
    folder = path if path.is_dir() else path.parent
    for name in ("config.json", "model.safetensors"):
        if not (folder / name).is_file():
            raise BadInput(f"there is no {name} beside the certificate in {folder}: it certifies a model folder")
    before, ctx.prec = ctx.prec, PRECISION
    try:
        proved = check_claims(certificate, read_weights(folder))
        return Verdict(True, "", certificate, proved)
    except Rejected as error:
        return Verdict(False, str(error), certificate, None)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, ArithmeticError, HeadcountError) as error:
        return Verdict(False, f"it does not fit together: {type(error).__name__} {error}", certificate, None)
    finally:
        ctx.prec = before


def check_claims(certificate: dict[str, Any], model: Weights) -> Checked | CheckedWide:
    """Prove what a certificate claims of a model, at the precision of the moment, or raise Rejected with the reason."""
    config = model.config
    if model.hash != certificate["model"]:
        raise Rejected("the model is not the certified one: a weight or a setting was changed (its hash differs)")
    if config["task"] != certificate["task"] or config["task"] is None:
        raise Rejected("the certificate is for another task than the model's")
    if config["box"] != certificate["box"] or config["box"] is None:
        raise Rejected("the certificate is for another input box than the model's")
    one = config["standardisation"]
    out = config["model"]["out_dim"]
    if [str(v) for v in one["mean"]] != ["0.0"] * out or [str(v) for v in one["std"]] != ["1.0"] * out:
        raise Rejected("the model rescales its output: the proof is for one that does not")
    eps, claimed = real(certificate["eps"]), real(certificate["bound"])
    if not (eps > 0 and claimed > 0):
        raise Rejected("eps and bound must be numbers above 0")
    steps = {name: [real(v) for v in certificate["steps"][name]] for name in STEPS[certificate["kind"]]}
    about = model, certificate["task"], certificate["box"]
    if certificate["kind"] == "enough-heads":
        shift = certificate.get("shift", [0.0] * len(certificate["task"]["f"]))
        proved = check_enough_heads(*about, real(certificate["scale"]), [real(v) for v in shift], steps)
    else:
        proved = check_wide_head(*about, steps)
    arithmetic = certificate.get("arithmetic", "exact")
    if arithmetic not in ARITHMETIC:
        raise Rejected(f"its arithmetic is not one of {' and '.join(ARITHMETIC)}")
    found = proved.computed if arithmetic == "float64" else proved.bound
    if not found <= claimed:
        raise Rejected(f"an error of at most {found:.6g} is proved, not {claimed:.6g} as it claims")
    if not claimed <= eps:
        raise Rejected(f"the bound it claims, {claimed:.6g}, exceeds its own eps = {eps:g}")
    for step, claims in steps.items():
        found = getattr(proved, step)
        if len(claims) != len(found) or not all(b <= a for a, b in zip(claims, found, strict=True)):
            raise Rejected(f"a step of the error budget does not hold: {step}")
    return proved
