"""`headcount density`: rebuild a continuous function of a sequence from D minima (Theorem 1)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from headcount.cli.common import Json, Whole, console, print_files, print_json
from headcount.core import BadInput, nearest, working


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
    lipschitz: Annotated[
        float | None, Parameter(help="Lipschitz constant of your function in the max norm (default: unknown).")
    ] = None,
    out: Annotated[Path | None, Parameter(help="Picture to write: .png, .pdf or .svg (default: none).")] = None,
    json: Json = False,
) -> int:
    """Rebuild a continuous function from D minima (Theorem 1): the count D, and the error as the selector sharpens."""
    from headcount.api import density as measure
    from headcount.api import density_sentence, density_table

    numbers = _numbers(q)
    if out is not None:
        from headcount.render import check_picture

        check_picture(out)
    F = _load(function) if ".py" in function else function
    with working("measuring"):
        found = measure(F, length=length, dim=dim, q=numbers, samples=samples, seed=seed, lipschitz=lipschitz)
    if out is not None:
        from headcount.render import save_errors

        save_errors(found.figure(), out)
    if json:
        print_json({**found.data(), "picture": None if out is None else str(out)})
        return 0
    from headcount.render import as_terminal

    terminal = console()
    terminal.print(density_sentence(found))
    terminal.print(as_terminal(density_table(found)))
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
    """Return the function of FILE.py:NAME by running the file; any error in it becomes a BadInput."""
    import runpy

    file, _, name = place.rpartition(":")
    if not file.endswith(".py") or not name:
        raise BadInput(f"your own function must be given as FILE.py:NAME, such as mine.py:F, not {place!r}")
    if not Path(file).is_file():
        raise BadInput(f"no such file: {file}")
    try:
        names = runpy.run_path(file, run_name="headcount_density")
    except (Exception, SystemExit) as error:
        raise BadInput(f"{file} cannot be run: {type(error).__name__}: {error}") from error
    functions = {key: value for key, value in names.items() if callable(value) and not key.startswith("_")}
    if name not in functions:
        raise BadInput(
            f"{file} has no function {name!r}: {nearest(name, functions) if functions else 'it defines none'}"
        )
    return functions[name]
