"""`headcount recheck FILE`: a certificate or a witness, verified from scratch; exit status 1 where it does not hold."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from headcount.cli.common import NAME_MAX_CHARACTERS, Json, box_text, console, print_json, round_down, round_up
from headcount.core import BadInput

if TYPE_CHECKING:
    from headcount.render import Table


def recheck(
    file: Annotated[
        Path, Parameter(help="certificate.json or witness.json, or the folder that holds it and the model.")
    ],
    /,
    *,
    json: Json = False,
) -> int:
    """Verify a certificate or a witness from the weights up in ball arithmetic; the search that made it is not used."""
    if file.is_dir():
        found = [check for name, check in _CHECKS.items() if (file / name).is_file()]
        if not found:
            raise BadInput(f"{file} holds neither certificate.json nor witness.json: there is nothing to verify")
        return max(check(file, json) for check in found)
    return _witness(file, json) if _is_witness(file) else _certificate(file, json)


def _is_witness(file: Path) -> bool:
    """Say what a file is by its format; a certificate is what anything else is not."""
    from headcount.core.readers import WITNESS, read_json

    value = read_json(file)
    return isinstance(value, dict) and value.get("format") == WITNESS.format


def _witness(file: Path, json: bool) -> int:
    """Verify two colliding inputs."""
    from dataclasses import asdict

    from headcount.core.text import bold
    from headcount.recheck import verify_witness

    verdict = verify_witness(file)
    witness, proved = verdict.witness, verdict.proved
    if json:
        print_json(
            {
                "file": str(file),
                "kind": witness["kind"],
                "holds": verdict.holds,
                "reason": verdict.reason,
                "box": witness["box"],
                "region": witness["region"],
                "output": witness["output"],
                "task": witness["task"],
                "in_support": None if proved is None else proved.in_support,
                "claimed": witness["claims"],
                "proved": None if proved is None else asdict(proved),
            }
        )
        return 0 if verdict.holds else 1
    if proved is None:
        console().print(bold("It does not hold"), f": {verdict.reason}.", sep="")
        return 1
    where = f"{_about(witness, file)}{_INPUTS[proved.in_support]}"
    but = f", but the two are not inputs of this task ({proved.outside})" if proved.outside else ""
    if proved.radius is not None:
        text = (
            f"two sequences within {round_up(proved.radius, 2)} of the stated ones have exactly equal attention "
            f"outputs and targets at least {round_down(proved.gap)} apart. So every feed-forward block on top of this "
            f"encoder and attention errs by at least {round_down(proved.sup_error)} ({where}; proved, in exact "
            f"arithmetic)."
        )
    else:
        text = (
            f"the targets are at least {round_down(proved.gap)} apart, F's inputs at most {round_up(proved.distance)}; "
            f"this model's own F errs by at least {round_down(proved.sup_error)} on one of the two ({where}; proved, "
            f"in exact arithmetic)."
        )
    console().print(bold("It holds"), f"{but}: {text}", sep="")
    return 0


_INPUTS = {
    True: "; both are inputs of this task",
    False: "; not inputs of this task",
    None: "; whether they are inputs of this task was not checked: its law is not known here",
}


def _about(witness: dict[str, Any], file: Path) -> str:
    """Say which task, output, box and region a witness speaks of, and whether the task is the model's own."""
    from headcount.core.readers import read_json

    own = read_json((file if file.is_dir() else file.parent) / "config.json")["task"] == witness["task"]
    name = str(witness["task"]["name"])
    brief = name if len(name) <= NAME_MAX_CHARACTERS else f"{name[:NAME_MAX_CHARACTERS]}…"  # no name fills a screen
    task = f"task {brief}, the model's own" if own else f"a task that is NOT the model's own, called '{brief}'"
    output = f", output {witness['output']}" if witness["output"] else ""
    region = witness["region"]
    bounds = "" if region is None else f", every z_i from {region['low']} to {region['high']}"
    return f"{task}{output}, {box_text(witness['box'])}{bounds}"


def _certificate(file: Path, json: bool) -> int:
    from dataclasses import asdict

    from headcount.core.text import bold
    from headcount.recheck import verify
    from headcount.render import as_terminal

    verdict = verify(file)
    certificate, proved = verdict.certificate, verdict.proved
    if json:
        print_json(
            {
                "file": str(file),
                "kind": certificate["kind"],
                "holds": verdict.holds,
                "reason": verdict.reason,
                "eps": certificate["eps"],
                "box": certificate["box"],
                "task": certificate["task"],
                "claimed": certificate["bound"],
                "arithmetic": certificate.get("arithmetic", "exact"),
                "proved": None if proved is None else {**asdict(proved), "bound_float64": proved.computed},
            }
        )
        return 0 if verdict.holds else 1
    terminal = console()
    if proved is None:
        terminal.print(bold("It does not hold"), f": {verdict.reason}.", sep="")
        return 1
    terminal.print(as_terminal(_table(certificate, asdict(proved))))
    terminal.print()
    stated = "as computed in float64" if certificate.get("arithmetic") == "float64" else "in exact arithmetic"
    terminal.print(
        bold("It holds"),
        f": the error is at most {round_up(proved.computed, 6)} for all {box_text(certificate['box'])} as computed in "
        f"float64 ({round_up(proved.bound, 6)} in exact arithmetic; proved; it claims {certificate['bound']:.6g} "
        f"{stated} for eps = {certificate['eps']:g}).",
        sep="",
    )
    return 0


def _table(certificate: dict[str, Any], proved: dict[str, Any]) -> Table:
    """Return the proof's steps: what the certificate claims of each beside what was proved here."""
    from headcount.render import Column, Table

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


_CHECKS = {"certificate.json": _certificate, "witness.json": _witness}
