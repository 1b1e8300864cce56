"""`headcount analyse RUN`: the analysis of a run in a store, finished or not, in sentences and tables."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from headcount.analysis import Part
from headcount.cli.common import Json, StoreFolder, Whole, console, print_json
from headcount.core import BadInput, working
from headcount.render.words import error_text, terms_of, times_text

if TYPE_CHECKING:
    from headcount.analysis import Analysis
    from headcount.core.text import Terminal
    from headcount.render import Table


def analyse(
    run: Annotated[str, Parameter(help="A run of the store (headcount runs lists them).")],
    /,
    *,
    store: StoreFolder = Path("headcount-runs"),
    resamples: Annotated[Whole, Parameter(help="Draws of the bootstrap over seeds and targets.")] = 1000,
    seed: Annotated[Whole, Parameter(help="Seed of the bootstrap.")] = 0,
    on: Annotated[
        Part, Parameter(help="Which errors to read: those on validation or on training data.")
    ] = "validation",
    out: Annotated[Path | None, Parameter(help="JSON file to write the analysis to (default: none).")] = None,
    json: Json = False,
) -> int:
    """Analyse a run: intrinsic dimension, drops, slopes, reversal score, scaling and law, with intervals."""
    if resamples > 100_000 or seed < 0:  # the analysis itself refuses too few draws
        raise BadInput("--resamples must be at most 100,000 and --seed at least 0")
    if out is not None and out.suffix != ".json":
        raise BadInput(f"--out takes a file that ends in .json, not {out}")
    from headcount.api import analyse as read
    from headcount.core import check_writable, write_json

    if out is not None:  # before the work, not after it
        if out.is_dir():
            raise BadInput(f"{out} is a folder, but --out takes a file: choose another name")
        check_writable(out.parent)
    with working("analysing"):
        found = read(run, store=store, resamples=resamples, seed=seed, on=on)
    if out is not None:
        write_json(out, found.data())
    if json:
        print_json(found.data())
        return 0
    show(found, console())
    if out is not None:
        console().print(f"Analysis {out}")
    return 0


def show(found: Analysis, terminal: Terminal) -> None:
    """Print the sentences with their reasons, and a small table for every kind of number."""
    counts = ", ".join(f"{number} {state}" for state, number in found.counts.items() if number) or "no trials"
    terminal.print(f"{found.run}: {counts}")
    errors = [] if found.plain else [f"Errors: {terms_of(found).kind} {terms_of(found).data}."]
    for text in [*errors, *found.notes]:
        terminal.print(text)
    for answer in found.dimensions:
        terminal.print()
        terminal.print(answer.labelled)
        for reason in answer.reasons:
            terminal.print(f"  - {reason.text} ({reason.tag})")
    from headcount.render import as_terminal

    for table in tables(found):
        terminal.print(as_terminal(table))


def tables(found: Analysis) -> list[Table]:
    """Return a table for every kind of number: head counts across, everything else that the run varies down."""
    T, N = ("T", lambda r: str(r.length)), ("N", lambda r: str(r.hidden))
    sizes = [N] if any(c.hidden for c in found.cells) else []  # on real data there is no N
    at, noun = [T, *sizes], terms_of(found).noun
    kinds: list[tuple[str, Sequence[Any], Sequence[Label], Label, dict[str, Callable[[Sequence[Any]], str]]]] = [
        (
            f"Best {terms_of(found).short} by length T{', hidden size N' if sizes else ''} and heads h",
            found.cells,
            at,
            ("h", lambda r: _error(r.best)),
            {
                "targets": lambda rows: str(max(r.targets for r in rows)),
                "trials": lambda rows: str(sum(r.trials for r in rows)),
                "diverged": lambda rows: str(sum(r.diverged for r in rows)),
                "no result": lambda rows: str(sum(r.missing for r in rows)),
            },
        ),
        (
            f"Median {terms_of(found).short}, and the typical spread (a factor) over seeds and over targets",
            found.cells,
            at,
            ("h", lambda r: _error(r.median)),
            {
                "over seeds": lambda rows: _spread([r.seed_spread for r in rows]),
                "over targets": lambda rows: _spread([r.target_spread for r in rows]),
            },
        ),
        (f"How many times smaller the {noun} is with the next head count (90 %)", found.drops, at, ("h", _drop), {}),
        (f"Slope of log {noun} in log T (90 %); above 0, longer is harder", found.slopes, sizes, ("h", _slope), {}),
        (
            "Reversal score R(h), and p, the chance of one as large if T had no effect",
            found.reversals,
            sizes,
            ("h", lambda r: f"{r.score:.2f}\np = {r.p:.3f}"),
            {},
        ),
        ("Slope of log error in log N (90 %)", found.scaling, [T], ("h", _slope), {}),
    ]
    several = [("setting", lambda r: r.setting)] if len(found.settings) > 1 else []
    made = [_pivot(title, rows, [*several, *down], cell, ends) for title, rows, down, cell, ends in kinds if rows]
    return [*made, *_lists(found, several)]


Label = tuple[str, "Callable[[Any], str]"]
"""The name of a column, and the function that writes its cell for a record."""


def _error(value: float | None) -> str:
    return "–" if value is None else error_text(value)


def _spread(values: Sequence[float | None]) -> str:
    known = [v for v in values if v is not None]
    return f"×{times_text(statistics.median(known))}" if known else "–"


def _slope(row: Any) -> str:
    return f"{row.slope:.2f}\n{row.low:.2f} to {row.high:.2f}"


def _drop(row: Any) -> str:
    return f"{times_text(row.factor)}\n{times_text(row.low)} to {times_text(row.high)}"


def _pivot(
    title: str,
    rows: Sequence[Any],
    down: Sequence[Label],
    cell: Label,
    ends: dict[str, Callable[[Sequence[Any]], str]],
) -> Table:
    """Return a table with head counts across and a line for every combination of the columns in `down`."""
    from headcount.render import NONE, Column, Table

    across = sorted({row.heads for row in rows})
    columns = [
        *(Column(name=name, kind="text" if name == "setting" else "number", key=True) for name, _ in down),
        *(Column(name=f"{cell[0]}\u00a0=\u00a0{h}", key=False, lines=True) for h in across),
        *(Column(name=name) for name in ends),
    ]
    lines: dict[tuple[str, ...], list[Any]] = {}
    for row in rows:
        lines.setdefault(tuple(write(row) for _, write in down), []).append(row)
    cells: list[list[str]] = []
    for place, records in lines.items():
        by_heads = {row.heads: cell[1](row) for row in records}
        cells.append([*place, *(by_heads.get(h, NONE) for h in across), *(end(records) for end in ends.values())])
    return Table(caption=title, columns=columns, rows=cells)


def _lists(found: Analysis, several: Sequence[Label]) -> Iterator[Table]:
    """Yield the tables that have a line for every record."""
    from headcount.render import Column, Table

    sizes: list[Label] = [("N", lambda r: str(r.hidden))] if any(law.hidden for law in found.laws) else []
    notes = [r for r in found.scaling if r.theory_verdict not in ("", "enough-heads")]
    # the last number: how many of the columns identify a row
    kinds: list[tuple[str, Sequence[Any], Sequence[Label], int]] = [
        (
            "Beside the slope in log N, for orientation only: −2/k and, turned round, k/2 of Theorem 2 (2)",
            notes,
            [
                ("T", lambda r: str(r.length)),
                ("h", lambda r: str(r.heads)),
                ("−2/k", lambda r: "–" if r.theory is None else f"{r.theory:.2f}"),
                ("k/2", lambda r: "–" if r.half_k is None else f"{r.half_k:.2f}"),
                ("what it says here", lambda r: r.theory_note),
            ],
            2,
        ),
        (
            "Parameters M for equal error",
            found.equal_errors,
            [("h", lambda r: str(r.heads)), ("error", lambda r: _error(r.error)), ("T: M", _parameters)],
            2,
        ),
        (
            f"Laws of the {terms_of(found).noun}, by mean absolute log10 error on cells left out; * chosen",
            found.laws,
            [
                *sizes,
                ("law", lambda r: r.formula + (" *" if r.chosen else "")),
                ("score", lambda r: f"{r.score:.3f}"),
                ("cells", lambda r: str(r.points)),
                ("coefficients (90 %)", _fitted),
            ],
            1 + len(sizes),
        ),
    ]
    for title, rows, columns, keys in kinds:
        if rows:
            shown = [*several, *columns]
            cells = [[write(row) for _, write in shown] for row in rows]
            heads = [
                Column(name=name, kind="text" if name in TEXT_COLUMNS else "number", key=i < len(several) + keys)
                for i, (name, _) in enumerate(shown)
            ]
            yield Table(caption=title, columns=heads, rows=cells)


TEXT_COLUMNS = ("setting", "law", "coefficients (90 %)", "T: M", "what it says here")
"""Columns of text, whose lines may be broken between words."""


def _parameters(line: Any) -> str:
    """Return the parameters at every length, or why they are unknown."""
    reasons: Sequence[str] = getattr(line, "reasons", ())
    why = [reasons[i] if i < len(reasons) else "" for i in range(len(line.points))]
    unknown = "not reached, or a smaller N suffices"
    return ", ".join(
        f"{T}: {f'– ({reason or unknown})' if M is None else f'{M:,.0f}'}"
        for (T, M), reason in zip(line.points, why, strict=True)
    )


def _fitted(law: Any) -> str:
    """Return the coefficients of a law with their intervals."""
    ends = law.intervals
    return ", ".join(
        f"{k}\u00a0{v:.3g} ({ends[k][0]:.3g}\u00a0to\u00a0{ends[k][1]:.3g})" for k, v in law.coefficients.items()
    )
