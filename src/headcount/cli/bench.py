"""`headcount bench`: training speed beside what people use instead, in one run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from headcount.cli.common import Json, Whole, console, print_json


def bench(
    *,
    device: Annotated[str, Parameter(help="cpu or cuda.")] = "cpu",
    sweep: Annotated[
        bool, Parameter(negative=(), help="Also a whole sweep, table 2 of the paper, beside JAX.")
    ] = False,
    steps: Annotated[
        Whole | None, Parameter(help="Steps of the sweep's trials (default: 2000, and 100 of a sample on a CPU).")
    ] = None,
    skip: Annotated[
        list[str] | None, Parameter(negative=(), help="Leave a row (vmap, jax, …) or the table (steps) out; repeat it.")
    ] = None,
    out: Annotated[Path | None, Parameter(help="Write the result as JSON to this file too.")] = None,
    json: Json = False,
) -> int:
    """Time a training step beside what people use instead: torch's layers, torch.func.vmap and JAX, in one run."""
    from headcount.bench import Plan, run_bench, steps_table, sweep_lines, sweep_table
    from headcount.core import BadInput, check_writable, write_json

    if steps is not None and not sweep:
        raise BadInput("--steps is the length of the sweep's trials: add --sweep")
    if out is not None:
        check_writable(out.absolute().parent)
    save = None if out is None else lambda result: write_json(out, result)
    result = run_bench(device, sweep=sweep, steps=steps, skip=skip or [], save=save)
    if out is not None:
        write_json(out, result)
    if json:
        print_json(result)
        return 0
    terminal = console()
    table = steps_table(result, Plan(device=device).rows)
    if table is not None:
        terminal.print(table)
    if sweep:
        terminal.print(sweep_table(result["sweep"]))
        for line in sweep_lines(result["sweep"]):
            terminal.print(line)
    machine = result["provenance"]["machine"]
    where = f"{machine['cores']} cores of {machine['cpu']}"
    where = where if device == "cpu" else f"{machine['device']}, host {where}"
    terminal.print(f"measured on {where}; batch 256, Adam included, batches drawn as part of the step")
    return 0
