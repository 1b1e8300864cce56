"""`hc.attack(model).save(folder)` is the whole of an attack."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headcount.core import BadInput, Displayable, renamed_argument
from headcount.core.text import duration, plain
from headcount.models import SavedModel, load_model
from headcount.render import View
from headcount.render.pair import picture as pair
from headcount.tasks import Box, GeneralizedRetrieval, Task, saved_task
from headcount.theory.attack import Witness, conclusions, make_witness, pair_figure, search
from headcount.theory.irreducible import Enclosed, irreducible_bound
from headcount.training import find_device

BUDGET = "55s"
"""Of a search, unless stated."""


@dataclass(frozen=True)
class AttackResult(Displayable):
    """Two inputs with (nearly) equal attention output and different targets, with what is proved of them."""

    witness: Witness
    model: SavedModel
    task: Task | None
    learned: bool = False
    """Whether a surrogate stood in for the task."""

    @property
    def kind(self) -> str:
        """Which it is: exact (proved), near, or evidence."""
        return self.witness.kind

    @property
    def gap(self) -> float:
        """The gap between the two targets; half of it is a lower bound of the sup error where the pair is exact."""
        return self.witness.gap

    @property
    def deviations(self) -> float:
        """The gap in standard deviations of the target over the task's own inputs."""
        return self.witness.gap / self.witness.unit

    @property
    def in_support(self) -> bool | None:
        """Whether the two are inputs of the task, as its law draws them; None where only data are known."""
        return self.witness.in_support

    def figure(self) -> dict[str, Any]:
        """Return the data of the picture."""
        return pair_figure(self.model, self.task, self.witness)

    def _view(self) -> View:
        return View(conclusions(self.witness), figures=[pair.pair_drawing(self.figure())])

    def save(self, folder: str | Path, enclosed: Enclosed | None = None) -> str:
        """Write the model, witness.json, pair.png and pair.html; `headcount recheck FOLDER` verifies it.

        An upper bound that `enclose` proved is kept in enclosure.json; no second program verifies that one. A pair
        without a gap is no witness, and is not written. folder: must be new or empty. enclosed: what `enclose`
        returned.
        """
        if not self.witness.shows_a_gap:
            raise BadInput(
                f"a gap of {max(self.gap, 0.0):.3g} is no witness, so nothing is written: "
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
        """Prove an upper bound of the largest gap too, by branch and bound over the box: for few tokens only.

        seconds: the most that it may take. goal: finished when the upper bound is this multiple of the gap found.
        on_step: is called with the bound, the boxes left and the seconds spent.
        """
        if not isinstance(self.task, GeneralizedRetrieval) or self.learned or not self.task.symbolic:
            raise BadInput("only a retrieval task of expressions can be enclosed: here the target is numbers")
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

    def __repr__(self) -> str:
        return "\n".join(map(plain, conclusions(self.witness)))


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
    told: search.OnProgress | None = None,
    seconds: float | str | None = None,
) -> AttackResult:
    """Find two inputs that a model's attention cannot tell apart although their targets differ, and prove it.

    `model` is a saved model or its folder, `task` its own unless stated, `box` the two corners of the tokens' box.
    Both are inputs of the task, in the support of its law; among="typical" keeps to sequences like those that it draws,
    among="box" searches all of the box, inputs of the task or not. With the predictions of a `surrogate` in place of a
    task the result is evidence. starts: of the search, 64 unless stated. budget: seconds, or a text such as "50s" or
    "5m" (default 55 s); the best pair by then counts. seed: draws the starts. device: "cpu" or "cuda". told: is called
    with the share of the work that is done, its stage and the best gap. seconds: the old name of budget.
    """
    find_device(device)
    limit = duration(renamed_argument("seconds", seconds, "budget", budget, removed="0.3") or BUDGET, "budget")
    saved = model if isinstance(model, SavedModel) else load_model(model)
    stand_in = surrogate if isinstance(surrogate, SavedModel) or surrogate is None else load_model(surrogate)
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
        on_progress=told,
    )
    return AttackResult(make_witness(saved, task, found, stand_in), saved, task, stand_in is not None)
