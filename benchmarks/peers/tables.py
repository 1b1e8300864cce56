"""Show a benchmark result as tables in a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

MAX_BAR_CELLS = 16


def bar(ratio: float, longest: float) -> str:
    """Return a bar for a ratio on a logarithmic scale: one block for ours, MAX_BAR_CELLS for the slowest."""
    from math import log

    share = log(max(ratio, 1.0)) / log(longest) if longest > 1 else 0.0
    return "█" * (1 + round(share * (MAX_BAR_CELLS - 1)))


def steps_table(result: Mapping[str, Any], rows: Mapping[str, str]) -> Table | None:
    """Return µs per model-step of every row and length, with its ratio to ours, or why it is missing; None if empty."""
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
        if len(reasons) == 1 and None not in reasons:  # state a reason for the whole row only once
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
    """Return a number with about three digits: 0.071, 2.3, 50, 4,346."""
    digits = 0 if value >= 20 else 1 if value >= 1 else 3
    return f"{value:,.{digits}f}"


def sweep_table(sweep: Mapping[str, Any]) -> Table:
    """Return a table with the best error of every shape, ours and JAX's."""
    ours, theirs = sweep["ours"]["best"], sweep.get("jax", {}).get("best")
    title = "best NMSE over the seeds: ours" + (" / JAX's" if theirs else "")
    table = _table(title)
    table.add_column("heads", justify="right")
    lengths = list(next(iter(ours.values())))
    for key in lengths:
        table.add_column(key.replace("=", " = "), justify="right")
    for heads, row in ours.items():
        cells = [_error(row[key]) + (f" / {_error(theirs[heads][key])}" if theirs else "") for key in lengths]
        table.add_row(heads.removeprefix("h="), *cells)
    return table


def _error(value: float | None) -> str:
    return "diverged" if value is None else f"{value:.1e}"


def sweep_lines(sweep: Mapping[str, Any]) -> list[str]:
    """Return the times of the sweep in sentences."""
    ours = sweep["ours"]
    lines = [
        f"{sweep['trials']} trials of {sweep['shapes']} shapes: {sweep['what']}",
        f"ours: {ours['seconds']:.1f} s ({ours['us_per_model_step']:.2f} µs per model-step)",
        f"  plus {ours['first_call_seconds']:.1f} s for a first call that compiles",
    ]
    if "jax" in sweep:
        theirs = sweep["jax"]
        lines.append(f"JAX jit + vmap: {theirs['seconds']:.1f} s ({theirs['us_per_model_step']:.2f} µs per model-step)")
        lines.append(f"  plus {theirs['compile_seconds']:.1f} s to compile, one program per shape")
        lines.append(
            f"JAX takes {_number(sweep['jax_over_ours'])} times as long as we do, "
            f"{_number(sweep['jax_over_ours_with_compiling'])} times with compiling on both sides"
        )
        if "best_error_ours_over_jax" in sweep:
            ratios = sweep["best_error_ours_over_jax"]
            lines.append(
                f"best errors, ours over JAX's: {ratios['median']:.2f} (median over shapes), "
                f"{ratios['least']:.2f} to {ratios['greatest']:.2f}"
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
