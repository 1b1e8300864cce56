"""`hc.attack`: search for two inputs that a model's attention confuses, and the result with its proof."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headcount.core import BadInput, Displayable, renamed_argument
from headcount.core.text import duration, plain
from headcount.models import SavedModel, load_model
from headcount.render import Column, Table, View
from headcount.render.pair import picture as pair
from headcount.tasks import Box, GeneralizedRetrieval, Task, check_task, saved_task
from headcount.theory.attack import Witness, conclusions, make_witness, pair_figure, search
from headcount.theory.irreducible import Enclosed, irreducible_bound
from headcount.training import find_device

DEFAULT_BUDGET = "55s"
"""Time for a search, unless stated."""


@dataclass(frozen=True, repr=False)
class AttackResult(Displayable):
    """Two inputs with (nearly) equal attention outputs and different targets, and what is proved about them."""

    witness: Witness
    model: SavedModel
    task: Task | None
    learned: bool = False
    """Whether a surrogate stood in for the task."""

    @property
    def kind(self) -> str:
        """The strength of the result: "exact" (proved), "near" or "evidence"."""
        return self.witness.kind

    @property
    def gap(self) -> float:
        """The gap between the two targets; for an exact pair, half of it is a lower bound of the sup error."""
        return self.witness.gap

    @property
    def deviations(self) -> float:
        """The gap in standard deviations of the target over the inputs of the task."""
        return self.witness.gap / self.witness.unit

    @property
    def in_support(self) -> bool | None:
        """Whether the law of the task can draw both inputs; None if only data are known."""
        return self.witness.in_support

    def figure(self) -> dict[str, Any]:
        """Return the data of the picture."""
        return pair_figure(self.model, self.task, self.witness)

    def _view(self) -> View:
        witness, sentences = self.witness, conclusions(self.witness)
        rows = [{"kind": self.kind, "gap": self.gap, "deviations": self.deviations, "in_support": self.in_support}]
        return View(
            sentences,
            tables=[_pair_table(witness, self.deviations)],
            figures=[pair.pair_drawing(self.figure())],
            rows=rows,
        )

    def save(self, folder: str | Path, enclosed: Enclosed | None = None) -> str:
        """Write the model, witness.json, pair.png and pair.html; `headcount recheck FOLDER` verifies it.

        folder: must be new or empty. enclosed: what `enclose` returned (default: none); it is written to
        enclosure.json, which `recheck` does not verify. A pair without a gap is not a witness: it raises BadInput.
        """
        if not self.witness.shows_a_gap:
            raise BadInput(
                f"a pair with a gap of {max(self.gap, 0.0):.3g} is not a witness, so nothing was written: "
                f"{self.witness.found.effort} (try more starts or more time)"
            )
        figure = self.figure()
        files: dict[str, Any] = {"pair.png": pair.pair_png(figure), "pair.html": pair.pair_html(figure).encode()}
        if enclosed is not None:
            files["enclosure.json"] = {**asdict(enclosed), "sup_error_at_most": enclosed.bound / 2}
        return self.model.save(folder, {"witness.json": self.witness.data, **files})

    def enclose(
        self, seconds: float = 60.0, goal: float = 1.1, on_step: Callable[[float, int, float], None] | None = None
    ) -> Enclosed:
        """Prove an upper bound of the largest gap, by branch and bound over the box; practical for few tokens only.

        seconds: time limit (default 60). goal: stop when the upper bound is this multiple of the gap found (default
        1.1). on_step: called with the bound, the number of boxes left and the seconds spent.
        """
        if not isinstance(self.task, GeneralizedRetrieval) or self.learned or not self.task.symbolic:
            raise BadInput("only a retrieval task of expressions can be enclosed: this target is known by values only")
        lower = self.gap if self.kind == "exact" else 0.0
        return irreducible_bound(
            self.model,
            self.task,
            self.witness.found.box,
            output=self.witness.data["output"],
            seconds=seconds,
            lower=lower,
            goal=goal,
            on_step=on_step,
        )

    def __str__(self) -> str:
        return "\n".join(map(plain, conclusions(self.witness)))


def _pair_table(witness: Witness, deviations: float) -> Table:
    """Return a table of the target and the model's prediction for both inputs."""
    columns = [Column(name="", kind="text", key=True), Column(name="Target"), Column(name="Prediction")]
    rows = [
        [name, f"{target:.4g}", f"{predicted:.4g}"]
        for name, target, predicted in zip(("X_1", "X_2"), witness.y, witness.predictions, strict=True)
    ]
    distance = f"The targets are {deviations:.2f} standard deviations of the target apart."
    return Table(caption="The two inputs", columns=columns, rows=rows, notes=[distance])


def attack(
    model: SavedModel | str | Path,
    task: Task | None = None,
    box: Box | None = None,
    *,
    surrogate: SavedModel | str | Path | None = None,
    among: search.Among = "all",
    starts: int = 64,
    budget: float | str | None = None,
    seed: int = 0,
    device: str = "cpu",
    on_progress: search.OnProgress | None = None,
    seconds: float | str | None = None,
    told: search.OnProgress | None = None,
) -> AttackResult:
    """Find two inputs that a model's attention cannot tell apart although their targets differ, and prove it.

    model: a saved model or its folder. task: the target (default: the model's own task). box: the two corners of the
    tokens' box (default: the model's, or its task's). surrogate: a model, or its folder, whose predictions stand in for
    an unknown task; the result is then only evidence. among: "all" inputs of the task (those in the support of its
    law), "typical" ones only, or all of the "box", inputs of the task or not. starts: pairs searched at once (default
    64). budget: seconds, or a text such as "50s" or "5m" (default 55 s); the best pair by then counts. seed: draws the
    starts. device: "cpu" or "cuda". on_progress: called with the completed fraction of the work, its stage and the best
    gap in standard deviations. seconds, told: the old names of budget and on_progress.
    """
    find_device(device)
    limit = duration(renamed_argument("seconds", seconds, "budget", budget, removed="0.3") or DEFAULT_BUDGET, "budget")
    saved = model if isinstance(model, SavedModel) else load_model(model)
    stand_in = surrogate if isinstance(surrogate, SavedModel) or surrogate is None else load_model(surrogate)
    if task is not None:
        check_task(task)
    task = task or saved_task(saved.task)
    found = search.attack(
        saved,
        task,
        box,
        surrogate=stand_in,
        among=among,
        starts=starts,
        seconds=limit,
        seed=seed,
        device=device,
        on_progress=renamed_argument("told", told, "on_progress", on_progress, removed="0.3"),
    )
    return AttackResult(make_witness(saved, task, found, stand_in), saved, task, stand_in is not None)
