"""`headcount demo`: runs, analyses and reports an experiment that comes with the package."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from headcount.cli.common import Json, console, print_files, print_json
from headcount.core import working

NEXT_COMMANDS = (
    ("headcount advise data.npz", "how many heads your own sequences need"),
    ("headcount tasks", "other tasks whose answer is known"),
    ("headcount --help", "all verbs, grouped by purpose"),
)
"""Suggested commands, and what each answers."""


def demo(
    *,
    out: Annotated[Path, Parameter(help="Folder for the page, the picture and the record.")] = Path("headcount-demo"),
    json: Json = False,
) -> int:
    """The two-minute tour on a CPU: train, see the transition, open a page."""
    from headcount.analysis import answers
    from headcount.core.readers import read_toml
    from headcount.core.text import bold
    from headcount.render import as_terminal, check_report_folder, terminal_list, transition_table, write_report
    from headcount.sweeps import SweepSpec, run_sweep

    with resources.as_file(resources.files("headcount.specs") / "demo.toml") as path:
        spec = SweepSpec.parse(read_toml(path), where="demo.toml")
    check_report_folder(out)  # before the work, not after it
    terminal = console()
    if not json:
        terminal.print(spec.title, style="bold")
        terminal.print(
            "The task: 8 random points in space; find how far they reach in each of 3 directions, and add it up."
        )
        terminal.print(
            f"{len(spec.heads) * spec.seeds} small transformers with {spec.heads[0]} to {spec.heads[-1]} "
            f"attention heads now learn it, {spec.seeds} from different random starts each."
        )
    (run,) = run_sweep(spec)
    (transition,) = answers([run])
    with working("drawing"):
        paths = write_report(run, transition, out)
    if json:
        print_json(
            {
                "transition": transition.data(),
                "page": str(paths.page),
                "picture": str(paths.picture),
                "run": str(paths.run),
                "seconds": run.seconds,
            }
        )
        return 0
    terminal.print(as_terminal(transition_table(transition)))
    terminal.print()
    terminal.print(bold(transition.sentence), transition.comparison)
    terminal.print()
    print_files([("Page", paths.page), ("Picture", paths.picture), ("Record", paths.run)])
    terminal.print()
    terminal.print("What to type next:")
    terminal.print(terminal_list(NEXT_COMMANDS))
    return 0
