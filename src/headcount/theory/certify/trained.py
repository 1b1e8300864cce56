"""A proved upper bound of the sup error of a model of the class on a box of tokens.

Two branch and bounds share the time, and the smaller bound is the certificate: over the minima z (`over_minima`), whose
cost does not grow with the number of tokens that are alike, and over boxes of all tokens (`over_tokens`), for few
tokens, where heads may work against each other. Both evaluate every bound in arithmetic rounded outward on the stored
weights: the bound is a statement about exact arithmetic, not about float32 or float64. Beside it stand the worst error
that a search found, and what a constant would achieve: a bound that is not below that is vacuous.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from headcount.core import BadInput
from headcount.models import SavedModel
from headcount.tasks import GeneralizedRetrieval, parse_task
from headcount.theory.certify.constant import constant_error
from headcount.theory.certify.over_minima import SIDES, LevelBoxes
from headcount.theory.certify.over_tokens import TokenBoxes
from headcount.theory.certify.token_cells import fold
from headcount.theory.certify.worst_found import Box, Worst, check_box, worst_error

SHARED_TIME_FRACTION = 0.6  # of the time is shared by both methods; the better one gets the rest
MAX_NUMBERS_FOR_TOKEN_BOXES = 12  # per sequence


@dataclass(frozen=True)
class Certificate:
    """What was proved and what was found: the error is at most `bound` on the box, and `worst.error` was seen there.

    The best constant errs by at most `constant`, proved too.
    """

    bound: float
    constant: float
    worst: Worst
    finished: bool
    boxes: int
    left: int
    seconds: float
    low: tuple[float, ...]
    high: tuple[float, ...]

    @property
    def gap(self) -> float:
        """bound/worst; 1 would be exact."""
        return self.bound / self.worst.error if self.worst.error > 0 else float("inf")

    @property
    def vacuous(self) -> bool:
        """Whether a constant, which ignores the input, is proved to do as well."""
        return self.bound >= self.constant

    def data(self) -> dict[str, Any]:
        """The certificate as JSON data."""
        return {
            "bound_proved": self.bound if np.isfinite(self.bound) else None,
            "arithmetic": "exact",
            "constant_error_proved": self.constant if np.isfinite(self.constant) else None,
            "vacuous": self.vacuous,
            "worst_measured": self.worst.error if np.isfinite(self.worst.error) else None,
            "gap": self.gap if np.isfinite(self.gap) else None,
            "finished": self.finished,
            "boxes": self.boxes,
            "boxes_left": self.left,
            "seconds": self.seconds,
            "box": [list(self.low), list(self.high)],
            "worst_input": self.worst.X.tolist(),
        }


Report = Callable[[float, float, int, float], None]  # bound, worst, boxes left, seconds


def certify(
    saved: SavedModel,
    task: GeneralizedRetrieval | None = None,
    box: Box | None = None,
    *,
    seconds: float = 60.0,
    goal: float = 1.1,
    seed: int = 0,
    on_step: Report | None = None,
) -> Certificate:
    """Bound the sup error of a saved model on its task, until bound/worst is at most `goal` or the time is over."""
    start = time.monotonic()
    problem = covered(saved, task)
    with np.errstate(all="ignore"):  # what overflows is an infinity, and proves nothing
        return _certify(saved, problem, box, seconds, goal, seed, on_step, start)


def _certify(
    saved: SavedModel,
    problem: GeneralizedRetrieval,
    box: Box | None,
    seconds: float,
    goal: float,
    seed: int,
    on_step: Report | None,
    start: float,
) -> Certificate:
    low, high = check_box(box or saved.box or problem.box, problem.dim)
    corners = (low.tolist(), high.tolist())
    worst = worst_error(saved, problem, corners, seed=seed, seconds=seconds / 4)
    folded, target = fold(saved.transformer), goal * worst.error
    standard = (np.asarray(saved.mean), np.asarray(saved.std))
    placed = saved.transformer.spec.positions != "none"
    ways: list[LevelBoxes | TokenBoxes] = [LevelBoxes(saved, folded, problem, low, high, *standard, placed, seed)]
    if problem.length * problem.dim <= MAX_NUMBERS_FOR_TOKEN_BOXES:
        ways.append(TokenBoxes(folded, problem, low, high, *standard, placed))
    used = [0.0] * len(ways)
    while True:
        best, spent = min(ways, key=lambda way: way.bound), time.monotonic() - start
        if on_step is not None:
            on_step(best.bound, worst.error, best.left, spent)
        finished = best.bound <= target
        going = [k for k, way in enumerate(ways) if not way.stuck]
        if finished or not going or spent >= seconds:
            break
        ranks = used if spent < SHARED_TIME_FRACTION * seconds else [way.bound for way in ways]
        k = min(going, key=ranks.__getitem__)
        begun = time.monotonic()
        ways[k].step(target)
        used[k] += time.monotonic() - begun
    return Certificate(
        best.bound,
        constant_error(problem, low, high),
        worst,
        finished,
        sum(way.boxes for way in ways),
        best.left,
        time.monotonic() - start,
        tuple(corners[0]),
        tuple(corners[1]),
    )


def covered(saved: SavedModel, task: GeneralizedRetrieval | None = None) -> GeneralizedRetrieval:
    """Return the task to certify; reject a model or task for which no bound is known."""
    spec = saved.transformer.spec
    for wrong, what in (
        (spec.depth > 1, "depth above 1"),
        (spec.layer_norm, "layer norm"),
        (spec.class_key, "the class token among its keys"),
    ):
        if wrong:
            raise BadInput(f"certify covers models of depth 1 without layer norm; this one has {what}")
    if task is None:
        if saved.task is None or saved.task.get("kind") == "arrays":
            raise BadInput("the model has no task: certify needs one whose functions are expressions")
        parsed = parse_task(saved.task)
    else:
        parsed = task
    if not isinstance(parsed, GeneralizedRetrieval):
        raise BadInput(f"certify covers retrieval tasks; {parsed.name} has no f_i and F0")
    if not parsed.symbolic:
        raise BadInput(f"{parsed.name} uses a bare Python function, so nothing can be proved: use expressions")
    sizes = (spec.dim, spec.length if spec.positions != "none" else parsed.length, spec.out_dim)
    if sizes != (parsed.dim, parsed.length, parsed.out_dim):
        raise BadInput("the model and the task differ in dim, length or outputs")
    if spec.dim > max(SIDES):
        raise BadInput(f"certify covers tokens of at most {max(SIDES)} numbers, not {spec.dim}")
    if not all(bool(torch.isfinite(p).all()) for p in saved.transformer.parameters()):
        raise BadInput("a weight of the model is not a finite number")
    return parsed
