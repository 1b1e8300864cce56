"""`headcount attack MODEL_DIR --out DIR`: find two colliding inputs; write their proof and picture."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from headcount.cli.common import (
    BoxSides,
    Device,
    Json,
    Setting,
    Time,
    Whole,
    box_text,
    console,
    duration,
    print_json,
    read_box,
    read_task,
    round_down,
    round_up,
)
from headcount.core import BadInput, working

if TYPE_CHECKING:
    from headcount.api import AttackResult
    from headcount.models import SavedModel
    from headcount.tasks import Task
    from headcount.theory.attack import Witness
    from headcount.theory.irreducible import Enclosed


def attack(
    model: Annotated[Path, Parameter(help="A model folder.")],
    /,
    *,
    out: Annotated[
        Path | None, Parameter(help="Folder to write: witness.json, the model, pair.png, pair.html (default: none).")
    ] = None,
    task: Annotated[
        str | None,
        Parameter(help="A task other than the model's: a family or a task JSON file (default: the model's)."),
    ] = None,
    set_: Setting = None,
    box: BoxSides = None,
    among: Annotated[
        Literal["all", "typical", "box"],
        Parameter(
            help="all: inputs of the task in the box; typical: only those whose every z_i is in the range that its law "
            "draws; box: any tokens of the box, inputs of the task or not."
        ),
    ] = "all",
    surrogate: Annotated[
        Path | None,
        Parameter(help="A model folder whose predictions stand in for a task known only from data (default: none)."),
    ] = None,
    adversary: Annotated[
        bool,
        Parameter(
            negative=(), help="Run the paper's own adversary instead, at several ε (for tasks of basins, any h < D)."
        ),
    ] = False,
    enclose: Annotated[
        Time | None,
        Parameter(
            help="Time to also bound the gap from above (e.g. 60s), practical for few tokens only (default: no bound)."
        ),
    ] = None,
    starts: Annotated[Whole, Parameter(help="Pairs searched at once.")] = 64,
    for_: Annotated[
        Time, Parameter(name=["--budget", "--for"], help="Stop after e.g. 50s, 5m; the best pair by then counts.")
    ] = "55s",
    seed: Annotated[Whole, Parameter(help="Seed of the starts.")] = 0,
    device: Device = "cpu",
    json: Json = False,
) -> int:
    """Find two inputs with equal attention outputs and targets far apart: proof that the heads are too few."""
    from headcount.api import attack as search
    from headcount.core import Progress, check_replaceable, check_writable
    from headcount.models import load_model

    seconds, enclose_seconds = duration(for_), None if enclose is None else duration(enclose)
    if seed < 0:
        raise BadInput(f"--seed must be 0 or more, not {seed}")
    if out is not None:
        if out.resolve() == model.resolve():
            raise BadInput(f"--out {out} is the model's own folder, which would be replaced: choose another one")
        check_replaceable(out)
        check_writable(out.parent)
    saved, stated = load_model(model), _task(task, set_)
    if adversary:
        if box or surrogate or enclose or among != "all":
            raise BadInput(
                "--adversary takes no --box, --surrogate, --enclose or --among: it works on the task's own box"
            )
        from headcount.cli.adversary import run_paper

        return run_paper(saved, stated, out, seed, json)
    if enclose_seconds is not None:
        _check_enclosable(saved, stated, surrogate is None)
    with Progress("searching", 1.0, every=5.0, closes=False) as progress:

        def on_progress(share: float, stage: str, best: float) -> None:
            note = f"{stage}, best gap {best:.2f} standard deviations"
            progress.advance(min(share, 1.0) - progress.done, note=note)

        found = search(
            saved,
            stated,
            read_box(box, saved.transformer.spec.dim),
            surrogate=surrogate,
            among=among,
            starts=starts,
            budget=seconds,
            seed=seed,
            device=device,
            on_progress=on_progress,
        )
    enclosed = None if enclose_seconds is None else _enclosed(found, enclose_seconds)
    written = out if found.witness.shows_a_gap else None
    if written is not None:
        with working("drawing and saving"):
            found.save(written, enclosed)
    if json:
        print_json(_data(found.witness, model, written, enclosed))
    else:
        _print(found.witness, written, enclosed)
        if written is None and out is not None:
            console().print(f"{out} was not written: a pair without a gap is not a witness.")
    return 0 if written == out else 1


def _check_enclosable(saved: SavedModel, stated: Task | None, own: bool) -> None:
    """Refuse --enclose before the search if it would be impossible after it."""
    from headcount.tasks import GeneralizedRetrieval, saved_task
    from headcount.theory.irreducible import check_enclosable

    task = (stated or saved_task(saved.task)) if own else None
    if not isinstance(task, GeneralizedRetrieval):
        raise BadInput("--enclose needs a retrieval task of expressions: this target is known by values only")
    check_enclosable(saved, task)


def _enclosed(found: AttackResult, seconds: float) -> Enclosed:
    from headcount.core import Progress

    with Progress("enclosing", seconds, every=5.0, closes=False) as progress:

        def on_step(bound: float, left: int, spent: float) -> None:
            progress.advance(min(spent, seconds) - progress.done, note=f"gap ≤ {round_up(bound)}, {left} boxes left")

        return found.enclose(seconds, on_step=on_step)


def _task(name: str | None, settings: list[str] | None) -> Task | None:
    """Return the task of --task, or None, which means the model's own."""
    from headcount.tasks import Task

    if name is None:
        if settings:
            raise BadInput("--set changes a family's parameters: name the family with --task")
        return None
    stated = read_task(name, None, None, None, None, settings)
    if not isinstance(stated, Task):
        raise BadInput(f"{name} holds data, not a function: attack it through --surrogate MODEL_DIR and --box")
    return stated


def _data(witness: Witness, model: Path, out: Path | None, enclosed: Enclosed | None) -> dict[str, Any]:
    found, data = witness.found, witness.data
    return {
        "model": str(model),
        "out": None if out is None else str(out),
        "kind": witness.kind,
        "claims": data["claims"],
        "in_support": witness.in_support,
        "not_inputs_because": witness.outside or None,
        "unit_measured": witness.unit,
        "gap_in_deviations": witness.gap / witness.unit,
        "output": data["output"],
        "targets": list(witness.y),
        "predictions": list(witness.predictions),
        "box": data["box"],
        "region": data["region"],
        "implied": witness.implied.data(),
        "starts": found.starts,
        "converged": found.converged,
        "cut_short": found.cut_short,
        "seconds": found.seconds,
        "distance_float64": found.distances[0],
        "gap_float64": found.gaps[0],
        "enclosed": None if enclosed is None else asdict(enclosed),
    }


def _print(witness: Witness, out: Path | None, enclosed: Enclosed | None) -> None:
    from headcount.core.text import bold
    from headcount.theory.attack import conclusions

    found, terminal = witness.found, console()
    where = box_text(witness.data["box"]) + ("" if found.region is None else ", among typical sequences")
    terminal.print(bold(_heading(witness)), f"({where})")
    for sentence in conclusions(witness):
        terminal.print(f"  {sentence}")
    verify = "" if witness.kind == "evidence" else f", headcount recheck {out} verifies it"
    a, b = witness.predictions
    predicted = f"{a:.4g} for both" if abs(a - b) <= 1e-4 * witness.unit else f"{a:.4g} and {b:.4g}"
    if witness.shows_a_gap:
        terminal.print(f"  Targets {witness.y[0]:.4g} and {witness.y[1]:.4g}; the model says {predicted}, measured.")
    if enclosed is not None:
        lower = round_down(witness.data["claims"]["sup_error"]) if witness.kind == "exact" else "0"
        where = f" in output {witness.data['output']}" if len(found.unit) > 1 else ""
        ended = "" if enclosed.finished else "; not finished, the upper bound may be far from the truth"
        terminal.print(
            f"  Proved: the best feed-forward block errs by {lower} to {round_up(enclosed.bound / 2)}{where} "
            f"({enclosed.boxes} pairs of boxes, {enclosed.seconds:.0f} s{ended})."
        )
    cut = "; the time ran out, and a longer search may find more." if found.cut_short else "."
    terminal.print(f"  Searched for {found.seconds:.0f} s{cut}")
    if out is not None:
        terminal.print(f"Saved in {out}: pair.png shows it{verify}.")


def _heading(witness: Witness) -> str:
    """Return the first line; it says so if the two are not inputs of the task."""
    from headcount.theory.attack import NOT_INPUTS

    if not witness.shows_a_gap:
        return _NO_PAIR_HEADING
    what, certainty = _HEADINGS[witness.kind]
    if witness.outside:
        return f"Two sequences {what}, but {NOT_INPUTS} ({witness.outside}): {certainty}"
    unknown = "" if witness.in_support else " (whether such inputs occur is unknown: only data are known)"
    return f"Two inputs {what}{unknown}: {certainty}"


_NO_PAIR_HEADING = "No two inputs were found that attention confuses and whose targets differ"
_HEADINGS = {
    "exact": ("that attention cannot tell apart", "proved, in exact arithmetic"),
    "near": ("that attention all but confuses", "a near pair"),
    "evidence": ("that attention seems to confuse", "evidence"),
}
