"""The result of a bench as tables for a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

BAR = 16  # characters of the longest bar


def bar(ratio: float, longest: float) -> str:
    """Draw a ratio to ours on a logarithmic scale: ours is one block, the slowest is BAR of them."""
    from math import log

    share = log(max(ratio, 1.0)) / log(longest) if longest > 1 else 0.0
    return "█" * (1 + round(share * (BAR - 1)))


def steps_table(result: Mapping[str, Any], rows: Mapping[str, str]) -> Table | None:
    """µs per model-step of every row and length, its ratio to ours, or why there is none; None without times."""
    lengths = [key for key in result if key.startswith("T=")]
    if not lengths:
        return None
    table = _table("µs per model and training step (times our engine's)")
    table.add_column("what")
    for key in lengths:
        table.add_column(key.replace("=", " = "), justify="right")
    table.add_column(f"{lengths[-1].replace('=', ' = ')}, logarithmic")
    last = {row: result[lengths[-1]].get(f"{row}_us", 0.0) / result[lengths[-1]]["engine_us"] for row in rows}
    for row, label in rows.items():
        cells = [_cell(result[key], row) for key in lengths]
        reasons = {result[key].get("absent", {}).get(row) for key in lengths}
        if len(reasons) == 1 and None not in reasons:  # one reason for the whole row is said once
            table.add_row(f"{label}: {reasons.pop()}", *("–" for _ in lengths), "")
        else:
            table.add_row(label, *cells, bar(last[row], max(last.values())) if last[row] else "")
    if "floor_us" in result[lengths[0]]:
        shares = [result[key]["share_of_floor"] for key in lengths]
        floors = [
            f"{_number(result[key]['floor_us'])}  ({share:.0%})" for key, share in zip(lengths, shares, strict=True)
        ]
        table.add_row("arithmetic floor (its share of ours)", *floors, "")
    return table


def _cell(times: Mapping[str, Any], row: str) -> str:
    if row in times.get("absent", {}):
        return str(times["absent"][row])
    ratio = times.get(f"{row}_over_engine")
    return _number(times[f"{row}_us"]) + (f"  ({_number(ratio)}×)" if ratio else "")


def _number(value: float) -> str:
    """Three digits or so: 0.071, 2.3, 50, 4,346."""
    digits = 0 if value >= 20 else 1 if value >= 1 else 3
    return f"{value:,.{digits}f}"


def sweep_table(sweep: Mapping[str, Any]) -> Table:
    """The best error of every shape, ours and JAX's."""
    mine, theirs = sweep["ours"]["best"], sweep.get("jax", {}).get("best")
    title = "best NMSE over the seeds: ours" + (" / JAX's" if theirs else "")
    table = _table(title)
    table.add_column("heads", justify="right")
    lengths = list(next(iter(mine.values())))
    for key in lengths:
        table.add_column(key.replace("=", " = "), justify="right")
    for heads, row in mine.items():
        cells = [_error(row[key]) + (f" / {_error(theirs[heads][key])}" if theirs else "") for key in lengths]
        table.add_row(heads.removeprefix("h="), *cells)
    return table


def _error(value: float | None) -> str:
    return "diverged" if value is None else f"{value:.1e}"


def sweep_lines(sweep: Mapping[str, Any]) -> list[str]:
    """What the sweep took, in sentences."""
    mine = sweep["ours"]
    lines = [
        f"{sweep['trials']} trials of {sweep['shapes']} shapes: {sweep['what']}",
        f"ours: {mine['seconds']:.1f} s ({mine['us_per_model_step']:.2f} µs per model-step)",
        f"  and {mine['first_call_seconds']:.1f} s for a first call that compiles",
    ]
    if "jax" in sweep:
        theirs = sweep["jax"]
        lines.append(f"JAX jit + vmap: {theirs['seconds']:.1f} s ({theirs['us_per_model_step']:.2f} µs per model-step)")
        lines.append(f"  and {theirs['compile_seconds']:.1f} s to compile, one program a shape")
        lines.append(
            f"JAX takes {_number(sweep['jax_over_ours'])} times as long as we do, "
            f"{_number(sweep['jax_over_ours_with_compiling'])} times with what both compile"
        )
        if "best_error_ours_over_jax" in sweep:
            apart = sweep["best_error_ours_over_jax"]
            lines.append(
                f"best errors, ours over JAX's: {apart['median']:.2f} in the median of the shapes, "
                f"{apart['least']:.2f} to {apart['greatest']:.2f}"
            )
    else:
        lines.append(f"JAX jit + vmap: {sweep['absent']['jax']}")
    if "floor_seconds" in sweep:
        lines.append(
            f"arithmetic floor: {sweep['flop']:.3g} flop on {sweep['tokens']:.3g} tokens at {sweep['peak']}: "
            f"{sweep['floor_seconds']:.2f} s, {sweep['share_of_floor']:.0%} of our time"
        )
    else:
        lines.append(f"arithmetic floor: {sweep['flop']:.3g} flop; {sweep['peak']}")
    return lines


def _table(title: str) -> Table:
    from rich import box
    from rich.table import Table

    return Table(box=box.SIMPLE_HEAD, pad_edge=False, title=title)
