"""Training speed beside what people use instead: torch's layers, torch.func.vmap and JAX, in one run.

    python -m benchmarks.speed [--device cuda] [--sweep [--steps N]] [--skip ROW] [--out FILE] [--json]

prints a table. With --out it also writes the result after every part, so that an interrupted run keeps what it has.
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
    """A parser that reports bad usage in one line, like every other error."""

    def error(self, message: str) -> NoReturn:
        raise BadInput(f"{message} ({PROGRAM} --help lists what is allowed)")


def whole_number(text: str) -> int:
    """Parse a whole number."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None


def read_options(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the command line; raise BadInput if it is wrong."""
    parser = _Parser(
        prog=PROGRAM, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--device", default="cpu", help="cpu or cuda (default: cpu)")
    parser.add_argument(
        "--sweep", action="store_true", help="also time a whole sweep, table 2 of the paper, beside JAX"
    )
    parser.add_argument(
        "--steps", type=whole_number, help="steps of the sweep's trials (default: 2000; on a CPU 100 for a sample)"
    )
    parser.add_argument(
        "--skip",
        action="append",
        default=[],
        metavar="ROW",
        help="leave out a row (vmap, jax, ...) or the whole table (steps); may be repeated",
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="also write the result as JSON to this file")
    parser.add_argument("--json", action="store_true", help="print JSON for programs")
    if "" in arguments:  # as a path it would mean the current folder
        raise BadInput(f"an empty argument is not allowed: {PROGRAM} --help lists what is")
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        raise BadInput(f"unknown option {unknown[0]!r}: {nearest(unknown[0], parser._option_string_actions)}")
    if options.steps is not None and not options.sweep:
        raise BadInput("--steps sets the length of the sweep's trials: add --sweep")
    if options.out is not None:
        if options.out.is_dir():
            raise BadInput(f"--out {options.out} is a folder: give a file name")
        check_writable(options.out.absolute().parent)
    return options


def measure(options: argparse.Namespace) -> None:
    """Time everything, print the result and write it to --out."""
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
    """Print a result as tables; in a pipe they have a fixed width."""
    from benchmarks.peers.steps import BenchPlan
    from benchmarks.peers.tables import steps_table, sweep_lines, sweep_table

    at_terminal = sys.stdout.isatty()
    terminal = Terminal(width=None if at_terminal else 110, soft_wrap=not at_terminal)
    table = steps_table(result, BenchPlan(device=device).rows)
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
    """Measure; return the exit status, which is 2 after an error in one line."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # spinning threads would take cores from the others
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
