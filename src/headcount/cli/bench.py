"""`headcount bench`: training speed beside what people use instead, in one run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from headcount.cli.common import Json, console, print_json


def bench(
    *,
    out: Annotated[Path | None, Parameter(help="Write the result as JSON to this file too.")] = None,
    json: Json = False,
) -> int:
    """Time a training step beside nn.MultiheadAttention on this machine's CPU, on the same work in one run."""
    from rich import box
    from rich.table import Table

    from headcount.base.files import write_json
    from headcount.bench.cpu import LENGTHS, PEERS, run_bench

    result = run_bench()
    if out is not None:
        write_json(out, result)
    if json:
        print_json(result)
        return 0
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title="µs per model and training step (times the engine's)")
    table.add_column("what")
    for length in LENGTHS:
        table.add_column(f"T = {length}", justify="right")
    for name, label in PEERS.items():
        cells: list[str] = []
        for length in LENGTHS:
            row = result[f"T={length}"]
            ratio = row.get(f"{name}_over_engine")
            cells.append(f"{row[f'{name}_us']:,.0f}" + (f"  ({ratio:.1f}×)" if ratio else ""))
        table.add_row(label, *cells)
    console().print(table)
    machine = result["provenance"]["machine"]
    console().print(f"measured on {machine['cores']} cores of {machine['cpu']}; batch 256, Adam included")
    return 0
