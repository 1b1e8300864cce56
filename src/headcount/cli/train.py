"""`headcount train TASK --heads 3 --out DIR`: train one model and save it as a folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from headcount.cli.common import (
    Dim,
    Intrinsic,
    Json,
    Length,
    Setting,
    TargetKind,
    TaskSeed,
    Whole,
    drop_none,
    print_json,
    print_lines,
    read_task,
)
from headcount.core import BadInput, HeadcountError

if TYPE_CHECKING:
    from headcount.sweeps import ModelOptions
    from headcount.tasks import Task
    from headcount.tasks.arrays import ArrayTask
    from headcount.training import Trained, TrainSpec

Size = Whole | None
Positions = Literal["none", "additive", "concatenated", "gates"]
FeedForward = Literal["gelu2", "relu2", "relu5"]


def train(
    task: Annotated[str, Parameter(help="A family (headcount tasks), or a file: npz, npy, parquet, csv, task JSON.")],
    /,
    *,
    heads: Annotated[Whole, Parameter(help="Number of heads h.")],
    out: Annotated[Path, Parameter(help="Folder to write the model to.")],
    intrinsic: Intrinsic = None,
    length: Length = None,
    dim: Dim = None,
    task_seed: TaskSeed = None,
    set_: Setting = None,
    kind: TargetKind = "auto",
    head_dim: Annotated[Size, Parameter(name=["--head-dim", "-n"], help="Dimension n of a head (default: 8).")] = None,
    hidden: Annotated[Size, Parameter(name=["--hidden", "-N"], help="Hidden width N (default: 32).")] = None,
    width: Annotated[Size, Parameter(help="Embedding width E (default: n·h).")] = None,
    hidden_ff: Annotated[Size, Parameter(help="Hidden width of F (default: N).")] = None,
    depth: Annotated[Size, Parameter(help="Layers L (default: 1).")] = None,
    positions: Annotated[
        Positions | None, Parameter(help="How the model sees positions (default: from the task).")
    ] = None,
    beta: Annotated[str | None, Parameter(help="scaled (1/sqrt(n)), learned, or a number (default: scaled).")] = None,
    class_key: Annotated[
        bool | None, Parameter(negative=(), help="The class token is a key too (default: it is only the query).")
    ] = None,
    feedforward: Annotated[
        FeedForward | None, Parameter(help="Kind of the feed-forward block F (default: gelu2).")
    ] = None,
    layer_norm: Annotated[bool | None, Parameter(negative=(), help="Add layer norms (default: none).")] = None,
    residual: Annotated[
        bool | None, Parameter(negative=(), help="Add residual connections around the tokens (default: none).")
    ] = None,
    steps: Annotated[Size, Parameter(help="Training steps (default: 8000).")] = None,
    batch: Annotated[Size, Parameter(help="Sequences per step (default: 256).")] = None,
    learning_rate: Annotated[
        float | None, Parameter(name=["--learning-rate", "--lr"], help="Largest learning rate (default: 0.01).")
    ] = None,
    warmup: Annotated[
        Size, Parameter(help="Steps of linear warm-up (default: 200, or a tenth of --steps if that is fewer).")
    ] = None,
    optimiser: Annotated[Literal["adam", "adamw"] | None, Parameter(help="Optimiser (default: adam).")] = None,
    weight_decay: Annotated[float | None, Parameter(help="Weight decay (default: 0).")] = None,
    train_size: Annotated[Size, Parameter(help="Training sequences (default: 8000).")] = None,
    fresh: Annotated[
        bool | None, Parameter(negative=(), help="New data for every batch (default: a fixed training set).")
    ] = None,
    seed: Annotated[Whole, Parameter(help="Seed of weights and batches.")] = 0,
    json: Json = False,
) -> int:
    """Train one model on a task or on your own arrays, and save it as a folder."""
    from headcount.sweeps import ModelOptions, default_positions
    from headcount.tasks.arrays import ArrayTask
    from headcount.training import TrainSpec

    if seed < 0:
        raise BadInput(f"--seed must be 0 or more, not {seed}")
    options = ModelOptions(
        **drop_none(
            head_dim=head_dim,
            hidden=hidden,
            width=width,
            hidden_ff=hidden_ff,
            depth=depth,
            positions=positions,
            beta=_beta(beta),
            class_key=class_key,
            feedforward=feedforward,
            layer_norm=layer_norm,
            residual=residual,
        )
    )
    recipe = drop_none(
        steps=steps,
        batch=batch,
        learning_rate=learning_rate,
        optimiser=optimiser,
        warmup=warmup,
        weight_decay=weight_decay,
        train_size=train_size,
        fresh=fresh,
    )
    if steps is not None and warmup is None:  # short runs warm up for a tenth of their length
        recipe["warmup"] = max(0, min(int(TrainSpec.model_fields["warmup"].default), steps // 10))
    problem = read_task(task, intrinsic, length, dim, task_seed, set_, kind=kind)
    if kind != "auto" and not isinstance(problem, ArrayTask):
        raise BadInput(f"--kind describes the y of arrays, and {task} is not a file of arrays: leave it out")
    if positions is None:
        options = options.model_copy(update={"positions": default_positions(problem)})
    return _train(problem, options, TrainSpec(**recipe), heads, out, seed, json)


def _beta(text: str | None) -> str | float | None:
    if text is None or text in ("scaled", "learned"):
        return text
    try:
        return float(text)
    except ValueError:
        raise BadInput(f"--beta takes scaled, learned or a number above 0, not {text!r}") from None


def _positions_note(problem: Task | ArrayTask, positions: str) -> str:
    """Return how the model sees positions, if the answer depends on them, else ""."""
    from headcount.render.words import BLIND
    from headcount.sweeps import default_positions

    if default_positions(problem) == "none":
        return ""
    return (
        BLIND if positions == "none" else f"Positions: {positions}, because the answer depends on where tokens stand."
    )


def _train(
    problem: Task | ArrayTask,
    options: ModelOptions,
    recipe: TrainSpec,
    heads: int,
    out: Path,
    seed: int,
    json: bool,
) -> int:
    from headcount.core import Progress, check_replaceable
    from headcount.training import start_kernels, train_fast

    check_replaceable(out)  # before the work, not after it
    model = options.model(heads=heads, dim=problem.dim, length=problem.length, out_dim=problem.out_dim)
    with Progress("training", recipe.steps) as progress:
        start_kernels(progress, recipe.dtype, [model])

        def on_step(step: int, error: float | None) -> None:
            note = "" if error is None else f"validation error {error:.2e}"
            progress.advance(step - progress.done, note=note)

        trained = train_fast(problem, model, recipe, seed=seed, on_step=on_step)
    trial = trained.trial
    if trial.state == "diverged":
        raise HeadcountError(f"training diverged after {trial.steps} steps, so nothing was saved: lower --lr")
    identity = trained.save(out)
    if json:
        print_json(
            {
                "out": str(out),
                "hash": identity,
                "positions": model.positions,
                "trial": trial.data(),
                **_classes(trained),
            }
        )
    else:
        from headcount.render import trial_text

        if note := _positions_note(problem, model.positions):
            print_lines([note])
        print_lines([trial_text(trial, trained.wrong), f"Saved in {out}"])
    return 0


def _classes(trained: Trained) -> dict[str, Any]:
    """Return the labels and the number that the model gets wrong, if y holds classes."""
    if trained.classes is None:
        return {}
    return {"classes": list(trained.classes), "wrong": trained.wrong}
