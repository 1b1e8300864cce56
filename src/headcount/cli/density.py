"""`headcount density`: Theorem 1 at work: a continuous function of a sequence, rebuilt from D minima."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from headcount.cli.common import Json, Whole, console, print_files, print_json
from headcount.core import BadInput, nearest

if TYPE_CHECKING:
    from headcount.render import Table
    from headcount.theory.density import Density


def density(
    function: Annotated[
        str, Parameter(help="max-minus-min, mean, median, wave; or FILE.py:NAME, X[count, length, dim] → [count].")
    ] = "max-minus-min",
    /,
    *,
    length: Annotated[Whole, Parameter(name=["--length", "-T"], help="Sequence length T: 4, 8 or 12.")] = 8,
    dim: Annotated[Whole, Parameter(name=["--dim", "-d"], help="Dimension d of a token.")] = 1,
    q: Annotated[str, Parameter(name=["--q", "-q"], help="Sharpness of the selector: 100 or 10,100,1000.")] = (
        "10,100,1000,10000"
    ),
    samples: Annotated[Whole, Parameter(help="Random sequences, and as many hard ones.")] = 2000,
    seed: Annotated[Whole, Parameter(help="Seed of the sequences.")] = 0,
    lipschitz: Annotated[float | None, Parameter(help="Lipschitz constant of your function in the max norm.")] = None,
    out: Annotated[Path | None, Parameter(help="Picture to write: .png, .pdf or .svg.")] = None,
    json: Json = False,
) -> int:
    """Rebuild a continuous function from D minima (Theorem 1): the count D, and the error as the selector sharpens."""
    from headcount.theory.density import measure

    numbers = _numbers(q)
    if out is not None:
        from headcount.render import check_picture

        check_picture(out)
    F = _load(function) if ".py" in function else function
    found = measure(F, length=length, dim=dim, q=numbers, samples=samples, seed=seed, lipschitz=lipschitz)
    if out is not None:
        from headcount.render import save_errors

        save_errors(found.figure(), out)
    if json:
        print_json({**found.data(), "picture": None if out is None else str(out)})
        return 0
    from headcount.render import as_terminal

    terminal = console()
    terminal.print(_head(found))
    terminal.print(as_terminal(_table(found)))
    if out is not None:
        terminal.print()
        print_files([("Picture", out)])
    return 0


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise BadInput(f"--q takes numbers above 0, such as 10,100,1000, not {text!r}") from None


def _load(place: str) -> Callable[..., Any]:
    """Read FILE.py:NAME by running the file; whatever goes wrong is one line."""
    import runpy

    file, _, name = place.rpartition(":")
    if not file.endswith(".py") or not name:
        raise BadInput(f"a function of your own is FILE.py:NAME, such as mine.py:F, not {place!r}")
    if not Path(file).is_file():
        raise BadInput(f"no such file: {file}")
    try:
        names = runpy.run_path(file, run_name="headcount_density")
    except (Exception, SystemExit) as error:
        raise BadInput(f"{file} cannot be run: {type(error).__name__}: {error}") from error
    functions = {key: value for key, value in names.items() if callable(value) and not key.startswith("_")}
    if name not in functions:
        raise BadInput(f"{file} has no function {name!r}: {nearest(name, functions) if functions else 'it has none'}")
    return functions[name]


def _head(found: Density) -> str:
    m = found.length // 4
    sets = math.comb(found.length, m)
    where = f"F = {found.name}, T = {found.length}, d = {found.dim}"
    size = f"D = 2d·C(T, T/4) = 2·{found.dim}·{sets} = {found.intrinsic:,} primitives"
    return f"{where}: {size}, minima of x_j and of 1 − x_j over the sets of {m} position{'s' * (m > 1)}."


def _table(found: Density) -> Table:
    """Return the errors at every sharpness, what is measured beside what is proved."""
    from headcount.render import Column, Table

    columns = {
        "random X": "uniform",
        "hardest X": "hardest",
        "0.2779/√q": "rate",
        "proved ≤": "proved",
        "F: random X": "F_uniform",
        "F: hardest X": "F_hardest",
        "F: proved ≤": "F_proved",
    }
    rows = [
        [f"{row.q:g}", *(_error(getattr(row, key), up="proved" in key) for key in columns.values())]
        for row in found.rows
    ]
    heads = [Column(name="q", key=True), *(Column(name=name) for name in columns)]
    return Table(caption="", columns=heads, rows=rows, notes=_notes(found))


def _error(error: float | None, *, up: bool) -> str:
    """Write an error in few digits; a bound is rounded upward."""
    if error is None or error == 0:
        return "–" if error is None else "0"
    digits = 5 if error >= 1e-3 else 2 - math.floor(math.log10(error))
    shown = math.ceil(error * 10.0**digits) / 10.0**digits if up else error
    return f"{shown:.5f}" if error >= 1e-3 else f"{shown:.2e}"


def _notes(found: Density) -> list[str]:
    from headcount.theory.density import selector_constant

    token = "largest error of a recovered token, measured on"
    lines = [f"random X, hardest X: {token} {found.samples:,} sequences each; F: that of F."]
    if found.length == 4:
        lines.append("Proved: no error at all. For T = 4 the sets are single positions, and the minima are the tokens.")
    else:
        best = max(row.hardest * math.sqrt(row.q) for row in found.rows)
        lines.append(
            f"Proved: at most {selector_constant():.6f}/√q for every X, attained from q = 0.739 on. "
            f"Measured: {best:.6f}/√q."
        )
    if found.lipschitz is None:
        lines.append("The error of F is measured only: with --lipschitz it is bounded too.")
    else:
        given = ", as you state it" if found.stated else ""
        lines.append(
            f"Proved of F: the bound times its Lipschitz constant in the max norm, {found.lipschitz:.4g}{given}."
        )
    lines.append(
        f"No selector is needed: x = min(x, v) + max(0, max(x, w) − v) exactly (proved; measured: {found.exact:.1g})."
    )
    return lines
