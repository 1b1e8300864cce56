"""Shared by the verbs: common flags, the reader of TASK, and the printing of results."""

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
"""Characters in the name of a page's folder: at four bytes each they stay within the 255 that file systems allow."""


def _whole(_: Any, tokens: Sequence[Token]) -> int:
    """Read a whole number; cyclopts itself would read 2.5 as 2."""
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
]  # a negative time is then rejected as a time, not as an unknown option
Device = Annotated[str, Parameter(name="--device", help="cpu (all cores), cuda (one GPU), cuda:1.")]
TargetKind = Annotated[
    Literal["auto", "regression", "classification"],
    Parameter(name="--kind", help="What y holds; auto treats text and a few different whole numbers as classes."),
]
StoreFolder = Annotated[Path, Parameter(name="--store", help="Folder of the store.")]

UNFINISHED, FAILED = 3, 4
STATUSES = (
    "Exit status: 0 when every trial has ended; 2 for bad input; 3 when trials remain (after --for, or because another "
    "process is training them): run the same command again to continue; 4 when a trial failed or is damaged, or none "
    "is done; 130 after Ctrl-C, SIGTERM or SIGHUP. A diverged trial has ended: divergence is its result."
)
"""The exit statuses of `headcount sweep`, `reproduce` and `irreducible`, for their help texts."""

PIPE_WIDTH = 100
"""Columns of output that goes to a pipe or a file."""
ARRAYS = (".npz", ".npy", ".parquet", ".csv")
"""Endings of the files that hold arrays."""


def trials_status(*sweeps: Mapping[Any, int]) -> int:
    """Return the exit status of a command that trains sweeps; each maps a state to the number of trials in it."""
    if any(counts.get("pending", 0) + counts.get("running", 0) for counts in sweeps):
        return UNFINISHED
    no_error = ("failed", "diverged", "superseded", "damaged")  # states of trials without an error to show
    measured = [sum(number for state, number in counts.items() if state not in no_error) for counts in sweeps]
    failed = any(counts.get("failed", 0) + counts.get("damaged", 0) for counts in sweeps)
    return FAILED if failed or not all(measured) else 0


def drop_none(**values: Any) -> dict[str, Any]:
    """Return the values of the flags that were used; the specs hold the defaults of all others."""
    return {key: value for key, value in values.items() if value is not None}


def settings(pairs: list[str] | None) -> dict[str, Any]:
    """Read key=value pairs; a value that is valid JSON (a number, true, a list) is read as JSON, others as text."""
    values: dict[str, Any] = {}
    for pair in pairs or []:
        key, sign, text = pair.partition("=")
        if not sign or not key:
            raise BadInput(f"--set takes key=value, not {pair!r}")
        try:
            values[key] = parse_json(text, key)
        except BadInput:
            values[key] = text
    return values


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
    """Return the task that TASK names: a family, a file with a task's JSON, or a file of arrays.

    small_sets: whether index sets below T/4 are allowed. kind: what the y of arrays holds, as for `advise`.
    """
    sizes = drop_none(intrinsic=intrinsic, length=length, dim=dim, seed=seed)
    parameters = {**sizes, **settings(extra)}
    if Path(name).suffix:
        if parameters:
            flags = {"seed": "--task-seed", **{key: f"--set {key}" for key in parameters if key not in sizes}}
            unused = ", ".join(flags.get(key, f"--{key}") for key in parameters)
            raise BadInput(f"{name}: a file states the whole task: leave out {unused}, or name a family instead")
        return _read_task_file(Path(name), small_sets, kind)
    from headcount.tasks import sized_family

    if name == "sparse-regression" and "intrinsic" in parameters:
        parameters["q"] = parameters.pop("intrinsic")  # its D is called q in the literature; both names work
    return sized_family(name, **parameters).task()


def _read_task_file(
    path: Path, small_sets: bool, kind: Literal["auto", "regression", "classification"]
) -> Task | ArrayTask:
    """Return the task in a file; its ending says how it is stated."""
    ending = path.suffix.lower()
    if ending == ".json":
        from headcount.tasks import read_task_file

        task = read_task_file(path)
        if not small_sets:
            _check_set_sizes(task, path)
        return task
    if ending not in ARRAYS:
        raise BadInput(
            f"{path} cannot hold a task: use a file that ends in {', '.join(('.json', *ARRAYS[:-1]))} or {ARRAYS[-1]}, "
            "or the name of a family (headcount tasks lists them)"
        )
    from headcount.tasks.arrays import ArrayTask

    return ArrayTask.load(path, kind=kind)


def _check_set_sizes(task: Task, path: Path) -> None:
    """Refuse a task with index sets that are smaller than the definition allows."""
    from headcount.tasks import GeneralizedRetrieval

    if isinstance(task, GeneralizedRetrieval):
        smallest = min(len(s) for s in task.S)
        if 4 * smallest < task.length:
            raise BadInput(
                f"{path}: an index set S_i has {smallest} positions: at least a quarter of T = {task.length} is needed"
            )


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
    """Return the terminal for results: as wide as COLUMNS states, else as the screen, or 100 columns in a pipe."""
    from headcount.core.text import Terminal

    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns) > 0:
        return Terminal(width=int(columns))
    return Terminal(width=None if sys.stdout.isatty() else PIPE_WIDTH)


def print_files(files: Iterable[tuple[str, Path]]) -> None:
    """Print the files that were written, one per line; `files` are their descriptions and paths."""
    from headcount.render import terminal_list

    console().print(terminal_list(files))


def print_lines(lines: Iterable[str]) -> None:
    """Print each text on a line of its own on the terminal for results."""
    terminal = console()
    for line in lines:
        terminal.print(line)


def print_progress_kept(stopped: KeyboardInterrupt, store: Path, work: str = "trained") -> None:
    """Say after Ctrl-C what the store holds: all that was trained (or finished), or only the last checkpoints."""
    from headcount.sweeps import CutShort

    if isinstance(stopped, CutShort):
        lost = "stopped at once: training since the last checkpoint is lost"
        notify(f"{lost} (the rest is kept in {store}: run the same command again to continue)")
    else:
        notify(f"everything {work} so far is kept in {store}: run the same command again to continue")


def page_name(source: Path, fallback: str) -> str:
    """Return a folder name for the page of a model or of data: its relative path in one word (a/last becomes a-last).

    The last part alone would not do: it is often the same for many (checkpoint-500, model, data). fallback: the name
    when no character of the path can be part of a name.
    """
    parts = [part for part in Path(os.path.relpath(source)).parts if part not in (".", "..")]
    name = re.sub(r"[^\w.-]+", "-", "-".join(parts) or source.resolve().name)
    return name[-NAME_MAX_CHARACTERS:].strip(".-") or fallback
