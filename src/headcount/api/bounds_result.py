"""`hc.bounds`: the bounds of the theorems for given sizes, a task or a model."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from headcount.core import BadInput, Displayable
from headcount.core.text import exponent_text, round_down
from headcount.models import SavedModel, load_model
from headcount.render import NONE, Column, Table, View
from headcount.tasks import GeneralizedRetrieval, Task, check_task, read_task_file, saved_task, sized_family
from headcount.theory.bounds import (
    Facts,
    Known,
    Row,
    Transition,
    Upper,
    check_rows,
    every_encoder,
    family_rule,
    of_share,
    of_tasks,
    related,
    rounded_down,
    rows,
    uppers,
)


@dataclass(frozen=True, repr=False)
class BoundsResult(Displayable):
    """The theorems' bounds: what too few heads cost, proved; what enough heads cost; and what others have shown."""

    rows: list[Row]
    """Theorem 2 (2): a row for every combination of a length, a head dimension and a head count."""
    facts: list[Facts]
    """What is known about the task, at every length."""
    upper: list[Upper]
    """The constructions of Theorem 2 (1) and (3) at the first length; needs a task and eps."""
    upper_missing: list[str]
    """Why a construction is missing."""
    every_encoder: list[Transition]
    """The bound over all encoders and attentions, at every length of a task."""
    related: list[Known]
    """The results of other theorems, for the last row's sizes."""
    tasks: list[GeneralizedRetrieval]
    eps: float | None = None

    @property
    def failing(self) -> list[str]:
        """The assumptions of the theorem that fail at some length, each once."""
        return list(dict.fromkeys(name for facts in self.facts for name in facts.failing))

    def data(self) -> dict[str, Any]:
        """Return everything as JSON data; bounds are rounded to the side on which they still hold."""
        first = self.facts[0]
        variations = None if first.variations is None else [rounded_down(v) for v in first.variations]
        return {
            "variation": min(variations) if variations else None,
            "variations": variations,
            "failing": self.failing,
            "why": first.why,
            "rows": [row.data() for row in self.rows],
            "upper": [asdict(u) for u in self.upper],
            "upper_missing": self.upper_missing,
            "every_encoder": [asdict(transition) for transition in self.every_encoder],
            "related": [asdict(known) for known in self.related],
        }

    def _view(self) -> View:
        sentences = [f"h = {row.heads}, n = {row.head_dim}, T = {row.length}: {row.verdict}." for row in self.rows]
        rows = [row.data() for row in self.rows]
        return View(sentences, tables=[bounds_table(self.rows, self.eps)], rows=rows, headline=sentences[-1])


def bounds(
    task: Task | str | None = None,
    *,
    heads: Iterable[int] | int = range(1, 6),
    head_dim: Iterable[int] | int = 2,
    length: Iterable[int] | int | None = None,
    intrinsic: int | None = None,
    eps: float | None = None,
    share: float | str | Fraction | None = None,
    variation: float | None = None,
    dim: int | None = None,
    depth: int = 1,
    model: SavedModel | str | Path | None = None,
    **options: Any,
) -> BoundsResult:
    """Compute the theorems' bounds: the exponent k, whether it is vacuous here, and at which sizes it bites.

    task: a task, a file with its JSON, or the name of a family, whose parameters go into `options`; or none, with
    `intrinsic`, or a `model`.
    heads, head_dim, length: head counts h, head dimensions n and sequence lengths T, one or several of each (length:
    the task's, or 128). intrinsic: the intrinsic dimension D. eps: the accuracy, from which widths are computed.
    share: the share of positions in the smallest S_i, 0.25 to 1, rounded up; a text such as "7/25" is exact; without a
    task only. variation: how much the target varies on the adversary's segment, where no task says so. dim: the
    dimension d of a token. depth: layers, for the conjecture on depth. model: a saved model or its folder, which brings
    its own task and heads, and the reach of its own block.
    """
    sizes = {"heads": whole_numbers(heads, "heads"), "head_dims": whole_numbers(head_dim, "head_dim")}
    lengths = [] if length is None else whole_numbers(length, "length")
    check_rows(**sizes, lengths=lengths or [1], eps=eps)
    stated = _variation(variation)
    made, saved = list[GeneralizedRetrieval](), None
    if model is not None:
        if task is not None or lengths or intrinsic is not None or share is not None:
            raise BadInput("a model brings its own task, length, heads and head size: state it alone, or with eps")
        saved = model if isinstance(model, SavedModel) else load_model(model)
        made = [_own_task(saved, model)]
        spec = saved.transformer.spec
        sizes = {"heads": [spec.heads], "head_dims": [spec.head_dim]}
        facts = of_tasks(made, None, stated)
    elif task is None:
        if intrinsic is None:
            raise BadInput("bounds needs a task, a model or intrinsic, the task's intrinsic dimension D")
        facts = of_share(lengths or [128], intrinsic, Fraction(1) if share is None else Fraction(share), stated)
    else:
        if share is not None:
            raise BadInput("share is for sizes without a task: a task has its own S_i (a family: its option share)")
        made = _tasks(task, lengths, {"intrinsic": intrinsic, "dim": dim, **options})
        facts = of_tasks(made, family_rule(task, options) if isinstance(task, str) else None, stated)
    return bounds_of(facts, made, **sizes, intrinsic=intrinsic, dim=dim, eps=eps, depth=depth, model=saved)


def bounds_of(
    facts: list[Facts],
    made: list[GeneralizedRetrieval],
    *,
    heads: list[int],
    head_dims: list[int],
    intrinsic: int | None,
    dim: int | None,
    eps: float | None,
    depth: int,
    model: SavedModel | None,
) -> BoundsResult:
    """Return the bounds for facts at several lengths; `made` is the task at each of them, where there is one."""
    if made:
        intrinsic, dim = made[0].intrinsic, made[0].dim
    assert intrinsic is not None
    found = rows(facts, intrinsic=intrinsic, heads=heads, head_dims=head_dims, eps=eps)
    built, missing = uppers(made[0], eps) if made and eps is not None else ([], [])
    last = found[-1]
    proved = [every_encoder(task, heads, head_dim=head_dims[0], eps=eps, model=model) for task in made]
    others = related(
        intrinsic=intrinsic, heads=last.heads, head_dim=last.head_dim, length=last.length, dim=dim, depth=depth
    )
    return BoundsResult(found, facts, built, missing, proved, others, made, eps)


def bounds_table(found: Sequence[Row], eps: float | None, notes: Sequence[str] = ()) -> Table:
    """Return Theorem 2 (2) for every size, with what its columns mean below."""
    known = any(row.bites_below_eps is not None or row.width is not None for row in found)
    at_eps = ["bites below ε", *([] if eps is None else [f"width at ε = {eps:g}"])] if known else []
    columns = [
        *(Column(name=name, key=True) for name in ("h", "n", "T")),
        *(Column(name=name) for name in ("k printed", "k sharp", "k/4", "bites from T", "below n", *at_eps)),
        Column(name="what it says", kind="text"),
    ]
    rows: list[list[str]] = []
    for row in found:
        exponents = (row.printed.k, row.sharp.k, row.sharp.k_five_layers)
        cells = [str(row.heads), str(row.head_dim), str(row.length)]
        cells += [exponent_text(k) if row.heads < row.intrinsic else NONE for k in exponents]
        cells += [_or(row.sharp.bites_from_length), _or(row.sharp.bites_below_head_dim)]
        if known:
            # rounded down: both still hold
            cells.append(NONE if row.bites_below_eps is None else f"{float(round_down(row.bites_below_eps, 2)):.1e}")
            if eps is not None:
                width = None if row.width is None else "1" if row.width <= 1 else round_down(row.width, 3)
                cells.append(NONE if width is None else f"≥ {width}")
        rows.append([*cells, row.verdict])
    return Table(caption="", columns=columns, rows=rows, notes=list(notes))


def _or(value: int | None) -> str:
    return NONE if value is None else str(value)


def whole_numbers(values: Iterable[int] | int, name: str) -> list[int]:
    """Read one whole number from 1 on, or several."""
    try:
        given: list[Any] = list(values) if isinstance(values, Iterable) else [values]
        if any(isinstance(value, bool | str) for value in given):
            raise TypeError
        found = [operator.index(value) for value in given]
    except TypeError:
        raise BadInput(f"{name} must be whole numbers, not {values!r}") from None
    if not found or min(found) < 1:
        raise BadInput(f"{name} must be whole numbers from 1 on, not {values!r}")
    return found


def _variation(stated: float | None) -> Fraction | None:
    if stated is None:
        return None
    if not 0 < stated < float("inf"):
        raise BadInput(f"variation must be above 0, not {stated}")
    return Fraction(stated)


def _own_task(saved: SavedModel, model: SavedModel | str | Path) -> GeneralizedRetrieval:
    """Return the task of a model, whose reach and heads the bound then speaks of."""
    own = None if saved.task is None else saved_task(saved.task)
    if not isinstance(own, GeneralizedRetrieval):
        where = "" if isinstance(model, SavedModel) else f" in {model}"
        raise BadInput(f"the model{where} has no task that is given by f, S and F0: the bounds do not apply to it")
    return own


def _tasks(task: Task | str, lengths: Sequence[int], options: dict[str, Any]) -> list[GeneralizedRetrieval]:
    """Return the task at every length."""
    if isinstance(task, str) and not task.endswith(".json"):
        given = {key: value for key, value in options.items() if value is not None}
        if task == "sparse-regression" and "intrinsic" in given:
            given["q"] = given.pop("intrinsic")  # its D is called q in the literature; both names work
        at_lengths: list[Task] = [
            sized_family(task, **given, **({} if T is None else {"length": T})).task() for T in lengths or [None]
        ]
    else:
        stated = [name for name, value in {**options, "length": lengths or None}.items() if value is not None]
        if stated:
            raise BadInput(f"{stated[0]}: this task has its own: to choose another, name a family instead")
        at_lengths = [read_task_file(Path(task)) if isinstance(task, str) else task]
    for of_length in at_lengths:
        check_task(of_length)
        if not isinstance(of_length, GeneralizedRetrieval):
            raise BadInput(f"{of_length.name} is not given by f, S and F0: the theorems do not apply to it")
    return [of_length for of_length in at_lengths if isinstance(of_length, GeneralizedRetrieval)]
