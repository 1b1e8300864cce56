"""`headcount recheck FILE`: verify a certificate or a witness from scratch; exit status 1 if it does not hold."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from headcount.cli.common import Json, console, print_json
from headcount.core import working

if TYPE_CHECKING:
    from headcount.api import CertificateVerdict, PairVerdict


def recheck(
    file: Annotated[
        Path, Parameter(help="certificate.json or witness.json, or the folder that holds it and the model.")
    ],
    /,
    *,
    json: Json = False,
) -> int:
    """Verify a certificate or a witness from the weights up in ball arithmetic; the search that made it is not used."""
    from headcount.api import verify_all

    with working("verifying"):
        found = verify_all(file)
    for verdict in found:
        if json:
            print_json({"file": str(file), **verdict.data()})
        else:
            _print(verdict)
    return 0 if all(verdict.holds and verdict.proved is not None for verdict in found) else 1


def _print(verdict: CertificateVerdict | PairVerdict) -> None:
    """Print the steps of a certificate, and the verdict."""
    from headcount.api import CertificateVerdict
    from headcount.core.text import bold
    from headcount.render import as_terminal

    terminal = console()
    if isinstance(verdict, CertificateVerdict) and (table := verdict.steps()) is not None:
        terminal.print(as_terminal(table))
        terminal.print()
    heading, text = verdict.words()
    terminal.print(bold(heading), text, sep="")
