"""Training speed beside what people use instead: torch's layers, torch.func.vmap and JAX, in one run.

    python -m benchmarks.speed [--device cuda] [--sweep [--steps N]] [--skip ROW] [--out FILE] [--json]

prints a table; with --out it also keeps the result as it grows, so that a run that is cut off leaves what it has.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from headcount import BadInput, HeadcountError
from headcount.core import check_writable, nearest, write_json
from headcount.core.text import Terminal, guarded_streams, notify, write_output

PROGRAM = "python -m benchmarks.speed"
INTERRUPTED = 130
"""Exit status after Ctrl-C."""


class _Parser(argparse.ArgumentParser):
    """Reports bad usage as one line, like every other error."""

    def error(self, message: str) -> NoReturn:
        raise BadInput(f"{message} ({PROGRAM} --help lists what is allowed)")


def whole(text: str) -> int:
    """Read a whole number."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None


def read_options(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line; BadInput where it cannot be read."""
    parser = _Parser(
        prog=PROGRAM, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--device", default="cpu", help="cpu or cuda (default: cpu)")
    parser.add_argument("--sweep", action="store_true", help="also a whole sweep, table 2 of the paper, beside JAX")
    parser.add_argument(
        "--steps", type=whole, help="steps of the sweep's trials (default: 2000, and 100 of a sample on a CPU)"
    )
    parser.add_argument(
        "--skip",
        action="append",
        default=[],
        metavar="ROW",
        help="leave a row (vmap, jax, ...) or the table (steps) out; repeat it",
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the result as JSON to this file too")
    parser.add_argument("--json", action="store_true", help="print JSON for programs")
    if "" in arguments:  # as a path it would be this folder
        raise BadInput(f"an empty text is no value: {PROGRAM} --help lists what is allowed")
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        raise BadInput(f"unknown option {unknown[0]!r}: {nearest(unknown[0], parser._option_string_actions)}")
    if options.steps is not None and not options.sweep:
        raise BadInput("--steps is the length of the sweep's trials: add --sweep")
    if options.out is not None:
        if options.out.is_dir():
            raise BadInput(f"--out {options.out} is a folder: give the name of a file")
        check_writable(options.out.absolute().parent)
    return options


def measure(options: argparse.Namespace) -> None:
    """Time everything, and print and keep the result."""
    from benchmarks.peers import run

    out: Path | None = options.out
    save = None if out is None else lambda result: write_json(out, result)
    result = run.run_bench(options.device, sweep=options.sweep, steps=options.steps, skip=options.skip, save=save)
    if out is not None:
        write_json(out, result)
    if options.json:
        write_output(json.dumps(result, indent=2, allow_nan=False))
    else:
        show(result, options.device)


def show(result: dict[str, Any], device: str) -> None:
    """Print a result as tables; in a pipe they are wide and plain."""
    from benchmarks.peers.steps import Plan
    from benchmarks.peers.tables import steps_table, sweep_lines, sweep_table

    at_terminal = sys.stdout.isatty()
    terminal = Terminal(width=None if at_terminal else 110, soft_wrap=not at_terminal)
    table = steps_table(result, Plan(device=device).rows)
    if table is not None:
        terminal.print(table)
    if "sweep" in result:
        terminal.print(sweep_table(result["sweep"]))
        for line in sweep_lines(result["sweep"]):
            terminal.print(line)
    machine = result["provenance"]["machine"]
    where = f"{machine['cores']} cores of {machine['cpu']}"
    where = where if device == "cpu" else f"{machine['device']}, host {where}"
    terminal.print(f"measured on {where}; batch 256, Adam included, batches drawn as part of the step")


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the options and measure; return the exit status, 2 after an error in one line."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # threads that spin stand still where others use the cores
    with guarded_streams():
        try:
            measure(read_options(sys.argv[1:] if arguments is None else arguments))
        except HeadcountError as error:
            notify(str(error))
            return 2
        except OSError as error:
            notify(f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}")
            return 2
        except KeyboardInterrupt:
            notify("interrupted")
            return INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(main())
