"""`hc.verify` and `hc.verify_witness`: the verdicts of the trusted verifier, as results for notebooks.

The verifier itself imports no code for display, so its verdicts get their words and tables here.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headcount.core import BadInput, Displayable
from headcount.core.readers import WITNESS, read_json
from headcount.core.text import box_text, round_down, round_up
from headcount.recheck import Verdict, WitnessVerdict
from headcount.recheck import verify as verify_certificate_file
from headcount.recheck import verify_witness as verify_witness_file
from headcount.render import Column, Table, View

FAILS = "It does not hold"
HOLDS = "It holds"
MAX_NAME_CHARACTERS = 60
"""Characters of a task's name in a verdict; longer names are cut."""
_INPUTS = {
    True: "; both are inputs of this task",
    False: "; not inputs of this task",
    None: "; whether they are inputs of this task was not checked: its law is not known here",
}


@dataclass(frozen=True, repr=False)
class CertificateVerdict(Displayable, Verdict):
    """Whether a certificate holds, why not, and what was proved on the way."""

    def words(self) -> tuple[str, str]:
        """Return the verdict in a few words, and the sentence that continues it."""
        certificate, proved = self.certificate, self.proved
        if proved is None:
            return FAILS, f": {self.reason}."
        stated = "as computed in float64" if certificate.get("arithmetic") == "float64" else "in exact arithmetic"
        return HOLDS, (
            f": the error is at most {round_up(proved.computed, 6)} for all {box_text(certificate['box'])} as computed "
            f"in float64 ({round_up(proved.bound, 6)} in exact arithmetic; proved; it claims "
            f"{round_up(certificate['bound'], 6)} {stated} for eps = {certificate['eps']:g})."
        )

    def steps(self) -> Table | None:
        """Return a table of the proof's steps, claimed and proved; None if the certificate does not hold."""
        return None if self.proved is None else _steps_table(self.certificate, asdict(self.proved))

    def data(self) -> dict[str, Any]:
        """Return the verdict as JSON data."""
        certificate, proved = self.certificate, self.proved
        return {
            "kind": certificate["kind"],
            "holds": self.holds,
            "reason": self.reason,
            "eps": certificate["eps"],
            "box": certificate["box"],
            "task": certificate["task"],
            "claimed": certificate["bound"],
            "arithmetic": certificate.get("arithmetic", "exact"),
            "proved": None if proved is None else {**asdict(proved), "bound_float64": proved.computed},
        }

    def _view(self) -> View:
        table = self.steps()
        names = ["step", "bounded", "claimed", "proved"]
        rows = [] if table is None else [dict(zip(names, row, strict=True)) for row in table.rows]
        return View(["".join(self.words())], tables=[] if table is None else [table], rows=rows)


def _steps_table(certificate: dict[str, Any], proved: dict[str, Any]) -> Table:
    names = {
        "encoder": "|Ψ_{} − f_{}| on the box",
        "leakage": "softmax of head {} against its minimum",
        "maximum": "Lemma 9's maximum against z_{}",
        "feedforward": "|F_{} − F0_{}| on the box of z",
    }
    rows: list[list[str]] = []
    for step, claims in certificate["steps"].items():
        if step in names:
            for i, (claim, found) in enumerate(zip(claims, proved[step], strict=True), 1):
                rows.append([step, names[step].format(i, i), round_up(claim), round_up(found)])
    rows.append(["rounding", "float64 against exact arithmetic", "", round_up(proved["rounding"])])
    columns = [
        Column(name="step", kind="text", key=True),
        Column(name="what is bounded", kind="text", key=True),
        Column(name="claimed"),
        Column(name="proved here"),
    ]
    return Table(caption="", columns=columns, rows=rows)


@dataclass(frozen=True, repr=False)
class PairVerdict(Displayable, WitnessVerdict):
    """Whether a witness holds, why not, and what was proved on the way."""

    of_own_task: bool = False
    """Whether the task of the witness is that of the model beside it."""

    def words(self) -> tuple[str, str]:
        """Return the verdict in a few words, and the sentence that continues it."""
        proved = self.proved
        if proved is None:
            return FAILS, f": {self.reason}."
        where = f"{self._about()}{_INPUTS[proved.in_support]}"
        but = f", but the two are not inputs of this task ({proved.outside})" if proved.outside else ""
        if proved.radius is not None:
            text = (
                f"two sequences within {round_up(proved.radius, 2)} of the stated ones have exactly equal attention "
                f"outputs and targets at least {round_down(proved.gap)} apart. So every feed-forward block on top of "
                f"this encoder and attention errs by at least {round_down(proved.sup_error)} ({where}; "
                f"proved, in exact arithmetic)."
            )
        else:
            text = (
                f"the targets are at least {round_down(proved.gap)} apart, F's inputs at most "
                f"{round_up(proved.distance)}; this model's own F errs by at least {round_down(proved.sup_error)} on "
                f"one of the two ({where}; proved, in exact arithmetic)."
            )
        return HOLDS, f"{but}: {text}"

    def _about(self) -> str:
        """Return the task, output, box and region of the witness, and whether the task is the model's own."""
        witness = self.witness
        name = str(witness["task"]["name"])
        short_name = name if len(name) <= MAX_NAME_CHARACTERS else f"{name[:MAX_NAME_CHARACTERS]}…"
        own = f"task {short_name}, the model's own"
        task = own if self.of_own_task else f"a task that is NOT the model's own, called '{short_name}'"
        output = f", output {witness['output']}" if witness["output"] else ""
        region = witness["region"]
        bounds = "" if region is None else f", every z_i from {region['low']} to {region['high']}"
        return f"{task}{output}, {box_text(witness['box'])}{bounds}"

    def data(self) -> dict[str, Any]:
        """Return the verdict as JSON data."""
        witness, proved = self.witness, self.proved
        return {
            "kind": witness["kind"],
            "holds": self.holds,
            "reason": self.reason,
            "box": witness["box"],
            "region": witness["region"],
            "output": witness["output"],
            "task": witness["task"],
            "in_support": None if proved is None else proved.in_support,
            "claimed": witness["claims"],
            "proved": None if proved is None else asdict(proved),
        }

    def _view(self) -> View:
        proved = self.proved
        if proved is None:
            return View(["".join(self.words())])
        numbers: dict[str, float | None] = {
            "Gap of the targets, at least": proved.gap,
            "Distance of F's inputs, at most": proved.distance,
            "Error of F, at least": proved.sup_error,
            "Distance from the stated sequences, at most": proved.radius,
        }
        rounded = {name: round_down if name.endswith("at least") else round_up for name in numbers}
        columns = [Column(name="What is bounded", kind="text", key=True), Column(name="Proved here")]
        rows = [[name, rounded[name](value)] for name, value in numbers.items() if value is not None]
        table = Table(caption="What was proved", columns=columns, rows=rows)
        return View(["".join(self.words())], tables=[table], rows=[asdict(proved)])


def verify_certificate(path: str | Path) -> CertificateVerdict:
    """Verify a certificate from the weights beside it."""
    return CertificateVerdict(**vars(verify_certificate_file(path)))


def verify_witness(path: str | Path) -> PairVerdict:
    """Verify a witness from the weights beside it, without relying on any of its claims.

    path: witness.json, or the folder that holds it.
    """
    verdict = verify_witness_file(path)
    folder = Path(path) if Path(path).is_dir() else Path(path).parent
    own = verdict.proved is not None and read_json(folder / "config.json")["task"] == verdict.witness["task"]
    return PairVerdict(**vars(verdict), of_own_task=own)


_CHECKS = {"certificate.json": verify_certificate, "witness.json": verify_witness}
"""Files that can be verified, and their verifiers."""


def verify_all(path: str | Path) -> list[CertificateVerdict | PairVerdict]:
    """Verify a certificate or a witness, or both if a folder holds both.

    path: certificate.json or witness.json, or the folder that holds one of them and the model.
    """
    path = Path(path)
    if not path.is_dir():
        value = read_json(path)
        is_witness = isinstance(value, dict) and value.get("format") == WITNESS.format
        return [verify_witness(path) if is_witness else verify_certificate(path)]
    found = [check(path) for name, check in _CHECKS.items() if os.path.lexists(path / name)]  # a broken link is no pass
    if not found:
        raise BadInput(f"nothing to verify in {path}: it has neither certificate.json nor witness.json")
    return found


def verify(path: str | Path) -> CertificateVerdict | PairVerdict:
    """Verify a certificate or a witness from the weights up; the search that made it is not used.

    path: certificate.json or witness.json, or the folder that holds one of them and the model. If a folder holds
    both, the result is the first verdict that fails, else the one on the certificate.
    """
    found = verify_all(path)
    return next((verdict for verdict in found if not verdict.holds), found[0])
