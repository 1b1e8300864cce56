"""Verify a file certificate.json against the model folder that it belongs to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flint import arb, ctx

from headcount.core import BadInput
from headcount.core.readers import CERTIFICATE, SLOPES, STEPS, check_statement, read_statement
from headcount.recheck.enough import Checked, check_enough_heads, up
from headcount.recheck.trees import PRECISION
from headcount.recheck.weights import Rejected, read_weights
from headcount.recheck.wide import CheckedWide, check_wide_head

SLOPE_ROUNDING = 1 + 2.0**-24
"""A ball's radius has 30 bits, so the enclosure of a slope that is at most 1 may end 1e-9 above 1. The bound is proved
from the slopes computed here; claimed slopes are compared with these to within this factor."""


@dataclass(frozen=True)
class Verdict:
    """Whether a certificate holds, the reason if it does not, and what was proved."""

    holds: bool
    reason: str
    certificate: dict[str, Any]
    proved: Checked | CheckedWide | None


def verify(path: Path | str) -> Verdict:
    """Verify a certificate from the weights beside it, without relying on anything that it claims."""
    path = Path(path)
    certificate = read_statement(path, CERTIFICATE)
    folder = path if path.is_dir() else path.parent
    for name in ("config.json", "model.safetensors"):
        if not (folder / name).is_file():
            raise BadInput(
                f"no such file: {folder / name} (a certificate can only be verified inside its model folder)"
            )
    before, ctx.prec = ctx.prec, PRECISION
    try:
        proved = _check(certificate, folder)
        return Verdict(True, "", certificate, proved)
    except Rejected as error:
        return Verdict(False, str(error), certificate, None)
    except BadInput as error:
        return Verdict(False, f"the certificate is malformed: {error}", certificate, None)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, ArithmeticError) as error:
        return Verdict(False, f"the certificate is inconsistent: {type(error).__name__} {error}", certificate, None)
    finally:
        ctx.prec = before


def _check(certificate: dict[str, Any], folder: Path) -> Checked | CheckedWide:
    check_statement(certificate, CERTIFICATE)
    model = read_weights(folder)
    config = model.config
    if model.hash != certificate["model"]:
        raise Rejected("the model is not the certified one: a weight or setting has changed (its hash differs)")
    if config["task"] != certificate["task"] or config["task"] is None:
        raise Rejected("the certificate is for another task, not the model's")
    if config["box"] != certificate["box"] or config["box"] is None:
        raise Rejected("the certificate is for another input box, not the model's")
    scaling = config["standardisation"]
    outputs = config["model"]["out_dim"]
    if scaling["mean"] != [0.0] * outputs or scaling["std"] != [1.0] * outputs:
        raise Rejected("the model rescales its output, which the proof does not cover")
    eps, claimed = float(certificate["eps"]), float(certificate["bound"])
    if not (eps > 0 and claimed > 0):
        raise Rejected("eps and bound must be numbers above 0")
    steps = {name: [float(v) for v in certificate["steps"][name]] for name in STEPS[certificate["kind"]]}
    subject = model, certificate["task"], certificate["box"]
    if certificate["kind"] == "enough-heads":
        shift = certificate.get("shift", [0.0] * len(certificate["task"]["f"]))
        proved = check_enough_heads(*subject, float(certificate["scale"]), [float(v) for v in shift], steps)
    else:
        proved = check_wide_head(*subject, steps)
    bound = proved.computed if certificate.get("arithmetic") == "float64" else proved.bound
    if not bound <= claimed:
        raise Rejected(f"an error of at most {bound!r} is proved, not {claimed!r} as it claims")
    if not claimed <= eps:
        raise Rejected(f"the bound it claims, {claimed!r}, exceeds its own eps = {eps!r}")
    for step, claims in steps.items():
        found = getattr(proved, step)
        if len(claims) != len(found) or not all(b <= a for a, b in zip(claims, found, strict=True)):
            raise Rejected(f"a step of the error budget does not hold: {step}")
    slopes = [[float(v) for v in row] for row in certificate["steps"][SLOPES]]
    if [len(row) for row in slopes] != [len(row) for row in proved.slopes] or not all(
        b <= a * SLOPE_ROUNDING for rows in zip(slopes, proved.slopes, strict=True) for a, b in zip(*rows, strict=True)
    ):
        raise Rejected(f"a step of the error budget does not hold: {SLOPES}")
    if not budget_total(slopes, *steps.values()) <= claimed:
        raise Rejected(f"the steps of the error budget add up to more than the bound it claims, {claimed!r}")
    return proved


def budget_total(slopes: list[list[float]], inner: list[float], blend: list[float], outer: list[float]) -> float:
    """Return the total of the claimed steps, max over outputs k of φ_k + Σ_i slope_ki·(δ_i + e_i), rounded up."""
    errors = [arb(a) + arb(b) for a, b in zip(inner, blend, strict=True)]
    rows = zip(outer, slopes, strict=True)
    return max(up(sum((arb(s) * e for s, e in zip(row, errors, strict=True)), arb(phi))) for phi, row in rows)
