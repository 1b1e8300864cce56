"""What the verbs share: flags, the reading of TASK, JSON output."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter, Token

from headcount.core import BadInput
from headcount.core.readers import parse_json
from headcount.core.text import box_text as box_text
from headcount.core.text import duration as duration
from headcount.core.text import notify, write_output
from headcount.core.text import round_down as round_down
from headcount.core.text import round_up as round_up

if TYPE_CHECKING:
    from headcount.core.text import Terminal
    from headcount.tasks import Task
    from headcount.tasks.arrays import ArrayTask


NAME_MAX_CHARACTERS = 60
"""Of a page's folder: four bytes each stay within the 255 that file systems allow."""


def _whole(_: Any, tokens: Sequence[Token]) -> int:
    """Read a whole number; cyclopts itself would take 2.5 for 2."""
    try:
        return int(tokens[0].value)
    except ValueError:
        raise ValueError(f"{tokens[0].value!r} is not a whole number") from None


Whole = Annotated[int, Parameter(converter=_whole)]
Json = Annotated[bool, Parameter(name="--json", negative=(), help="Print JSON for programs.")]
Intrinsic = Annotated[
    int | None,
    Parameter(
        name=["--intrinsic", "--D", "-D"],
        converter=_whole,
        help="Intrinsic dimension D of the task (default: the family's).",
    ),
]
Length = Annotated[
    int | None, Parameter(name=["--length", "-T"], converter=_whole, help="Sequence length T (default: the family's).")
]
Dim = Annotated[
    int | None,
    Parameter(name=["--dim", "-d"], converter=_whole, help="Dimension d of a token (default: the family's)."),
]
TaskSeed = Annotated[
    int | None,
    Parameter(name="--task-seed", converter=_whole, help="Seed that draws the task itself (default: the family's)."),
]
Setting = Annotated[
    list[str] | None,
    Parameter(
        name="--set",
        negative=(),
        help="Another parameter of the task, as key=value; may be repeated (default: the family's).",
    ),
]

BoxSides = Annotated[
    str | None,
    Parameter(
        name="--box",
        allow_leading_hyphen=True,
        help="Input box LOW,HIGH for every coordinate of a token, e.g. -2.5,2.5 (default: the model's, or its task's).",
    ),
]
Time = Annotated[
    str, Parameter(allow_leading_hyphen=True)
]  # so that a negative time is refused as a time, not as an option
Device = Annotated[str, Parameter(name="--device", help="cpu (all cores), cuda (one GPU), cuda:1.")]
TargetKind = Annotated[
    Literal["auto", "regression", "classification"],
    Parameter(name="--kind", help="What y holds; auto takes text and a few different whole numbers for classes."),
]
StoreFolder = Annotated[Path, Parameter(name="--store", help="Folder of the store.")]

UNFINISHED, FAILED = 3, 4
STATUSES = (
    "Exit status: 0 when every trial has ended, 2 for bad input, 3 when trials are left (after --for, or in another "
    "process): the same command goes on; 4 when a trial failed, is damaged or none is done, 130 after Ctrl-C, SIGTERM "
    "or SIGHUP. A "
    "diverged trial has ended: that is its result."
)
"""What `headcount sweep`, `reproduce` and `irreducible` end with."""

PIPE_WIDTH = 100
"""Columns of output that goes to a pipe or a file."""
ARRAYS = (".npz", ".npy", ".parquet", ".csv")


def trials_status(*sweeps: Mapping[Any, int]) -> int:
    """Return the exit status of a command that trains sweeps, from how many trials of each are in which state."""
    if any(counts.get("pending", 0) + counts.get("running", 0) for counts in sweeps):
        return UNFINISHED
    without = ("failed", "diverged", "superseded", "damaged")  # states that have no error to show
    shown = [sum(number for state, number in counts.items() if state not in without) for counts in sweeps]
    lost = any(counts.get("failed", 0) + counts.get("damaged", 0) for counts in sweeps)
    return FAILED if lost or not all(shown) else 0


def given(**values: Any) -> dict[str, Any]:
    """Keep the flags that were given, so that the defaults stand in one place, the specs."""
    return {key: value for key, value in values.items() if value is not None}


def settings(pairs: list[str] | None) -> dict[str, Any]:
    """Read key=value pairs; values are JSON where they can be (numbers, true, lists), text otherwise."""
    found: dict[str, Any] = {}
    for pair in pairs or []:
        key, sign, text = pair.partition("=")
        if not sign or not key:
            raise BadInput(f"--set takes key=value, not {pair!r}")
        try:
            found[key] = parse_json(text, key)
        except BadInput:
            found[key] = text
    return found


def read_task(
    name: str,
    intrinsic: int | None,
    length: int | None,
    dim: int | None,
    seed: int | None,
    extra: list[str] | None,
    *,
    small_sets: bool = False,
    kind: Literal["auto", "regression", "classification"] = "auto",
) -> Task | ArrayTask:
    """Make the task that TASK names: a family, a file with a task's JSON, or a file of arrays.

    `small_sets` lets index sets below T/4 pass, where nothing needs them larger; `kind` says what the y of arrays
    holds, by the rules of `advise`.
    """
    parameters = {**given(intrinsic=intrinsic, length=length, dim=dim, seed=seed), **settings(extra)}
    path = Path(name)
    if path.suffix.lower() in (*ARRAYS, ".json"):
        if parameters:
            raise BadInput(f"{name} is a file and fixes the task: it takes no {', '.join(parameters)}")
        if path.suffix.lower() == ".json":
            from headcount.core.readers import read_json
            from headcount.tasks import parse_task

            found = parse_task(read_json(path))
            return found if small_sets else _large_sets(found)
        from headcount.tasks.arrays import ArrayTask

        return ArrayTask.load(path, kind=kind)
    from headcount.tasks import sized_family

    if name == "sparse-regression" and "intrinsic" in parameters:
        parameters["q"] = parameters.pop("intrinsic")  # its D is called q in the literature; both names work
    return sized_family(name, **parameters).task()


def _large_sets(task: Task) -> Task:
    """Refuse a stated task whose index sets are smaller than the definition allows."""
    from headcount.tasks import GeneralizedRetrieval

    if isinstance(task, GeneralizedRetrieval):
        least = min(len(s) for s in task.S)
        if 4 * least < task.length:
            raise BadInput(f"an index set S_i has {least} positions: at least a quarter of T = {task.length} is needed")
    return task


def read_box(text: str | None, dim: int) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """Read LOW,HIGH: the same two numbers for every coordinate of a token."""
    if text is None:
        return None
    try:
        low, high = (float(part) for part in text.split(","))
    except ValueError:
        raise BadInput(f"--box takes two numbers LOW,HIGH, not {text!r}") from None
    if not -1e6 <= low < high <= 1e6:
        raise BadInput(f"--box needs LOW below HIGH, both between -1e6 and 1e6, not {text!r}")
    return (low,) * dim, (high,) * dim


def print_json(value: Any) -> None:
    """Write one JSON value to standard output."""
    write_output(json.dumps(value, indent=2, allow_nan=False))


def console() -> Terminal:
    """Return the terminal for results, as wide as COLUMNS says, else as the screen, and in a pipe 100 columns."""
    from headcount.core.text import Terminal

    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns) > 0:
        return Terminal(width=int(columns))
    return Terminal(width=None if sys.stdout.isatty() else PIPE_WIDTH)


def print_files(files: Iterable[tuple[str, Path]]) -> None:
    """Say which files were written, one below the other."""
    from headcount.render import terminal_list

    console().print(terminal_list(files))


def print_lines(lines: Iterable[str]) -> None:
    """Print texts on the terminal for results, each on a line of its own."""
    terminal = console()
    for line in lines:
        terminal.print(line)


def tell_what_is_kept(stopped: KeyboardInterrupt, store: Path, kept: str = "trained") -> None:
    """Say after Ctrl-C what the store holds: all that was trained (or finished), or what the last checkpoints hold."""
    from headcount.sweeps import CutShort

    if isinstance(stopped, CutShort):
        notify(
            f"ended at once: what was trained since the last checkpoint is lost; the same command goes on in {store}"
        )
    else:
        notify(f"what was {kept} is kept in {store}; the same command goes on from there")


def page_name(source: Path, fallback: str) -> str:
    """Return the name of the page of a model or of data: its path from here, as one file name (a/last becomes a-last).

    The whole path, since the last part alone is often the same for many: checkpoint-500, model, data. `fallback` is the
    name where none of the path's characters can be part of one.
    """
    parts = [part for part in Path(os.path.relpath(source)).parts if part not in (".", "..")]
    name = re.sub(r"[^\w.-]+", "-", "-".join(parts) or source.resolve().name)
    return name[-NAME_MAX_CHARACTERS:].strip(".-") or fallback
