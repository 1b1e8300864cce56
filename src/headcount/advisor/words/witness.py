"""The sentences about a witness, each with what it rests on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from headcount.advisor.record import WitnessRecord
from headcount.analysis import Reason, Tag
from headcount.analysis.words import error_text, heads_text
from headcount.core.text import round_down
from headcount.models import SavedModel
from headcount.theory.attack import Found, Witness

EVERY_BLOCK = "every feed-forward block on top of this encoder and attention, of any size,"
SCOPE = "This is about the worst input, not the average one, and about the layer that was trained here."


def witness_title(witness: WitnessRecord) -> str:
    """Return the heading of the page's section about a witness."""
    return f"What {heads_text(witness.heads)} cannot tell apart" if witness.heads else "A witness against fewer heads"


def proved_words(witness: Witness, heads: int, unit: float, among: str) -> WitnessRecord:
    """Return the record of a pair for a known task: proved if it is exact.

    unit: the standard deviation of the targets. among: "typical", or "all" inputs of the task.
    """
    exact, gap, least = witness.kind == "exact", witness.gap, witness.gap / 2
    tag: Tag = "proved" if exact else "measured"
    distance = witness.found.distances[0] if exact else witness.data["claims"]["distance"]
    many = len(witness.found.unit) > 1
    where = f" in output {witness.data['output'] + 1}" if many else ""
    like = "typical inputs of the task" if among == "typical" else "inputs of the task"
    if witness.outside:
        like = f"sequences that are not inputs of this task ({witness.outside})"
    same = "exactly the same output" if exact else f"outputs equal to within {distance:.1e}"
    nearby = "; such a pair is proved to lie next to the stated numbers" if exact else ""
    times = f"{round_down(gap / unit, 2)} standard deviations{' of the data' if witness.outside else ''} as measured"
    apart = f"differ by at least {round_down(gap)}{where} ({times}; {witness.found.effort})"
    texts = (
        f"The trained layer with {heads_text(heads)} gives {same} for two {like} whose targets {apart}{nearby}.",
        f"So {EVERY_BLOCK} errs by at least {round_down(least)} on one of the two. {SCOPE}",
    )
    sentences = [Reason(tag=tag, text=text) for text in texts]
    return WitnessRecord(
        heads=heads,
        tag="proved" if exact else "measured",
        why="",
        target="task",
        gap=gap,
        deviations=gap / unit,
        least_error=least,
        distance=distance,
        output=witness.data["output"],
        targets=list(witness.y),
        predictions=list(witness.predictions),
        X1=witness.X[0].tolist(),
        X2=witness.X[1].tolist(),
        box=[list(side) for side in witness.found.box],
        file=witness.data if exact else None,
        sentences=sentences,
        in_support=witness.in_support,
        starts=witness.found.starts,
        converged=witness.found.converged,
    )


def learned_words(
    found: Found,
    k: int,
    gap: float,
    heads: int,
    unit: float,
    model: SavedModel,
    judges: Sequence[SavedModel],
    classes: Sequence[Any] | None,
    error: float,
) -> WitnessRecord:
    """Return the record of pair `k`, for which the best model stands in for the task: measured, never proved."""
    pair, j = torch.from_numpy(found.X[k]), found.outputs[k]
    y, own = judges[0].predict(pair), model.predict(pair)[:, j].tolist()
    count = f"all {len(judges)} models that do about as well as the best"
    what = "targets" if classes is None else f"scores of class {classes[j]}"
    where = f" in output {j + 1}" if classes is None and y.shape[1] > 1 else ""
    same = f"gives the same output (to within {found.distances[k]:.1e}) for two inputs"
    apart = f"differ by {error_text(gap)}{where} ({gap / unit:.2g} standard deviations; {found.effort})"
    stands = f"errs by {error_text(error)} of the variance of y on validation sequences"
    texts = [
        f"The trained layer with {heads_text(heads)} {same} whose {what} {apart}, according to {count}.",
        f"If so, {EVERY_BLOCK} errs by about {error_text(gap / 2)} or more on one of the two. {SCOPE}",
        f"Only data are known of the task, so models stand in for it and nothing is proved: the best {stands}.",
        "Whether such inputs occur is not known; each of their numbers lies within the range of the data.",
    ]
    named = {tuple(judge.predict(pair).argmax(1).tolist()) for judge in judges}
    if classes is not None and len(named) == 1 and len(set(first := next(iter(named)))) == 2:
        texts.insert(
            1,
            f"The models call the first {classes[first[0]]} and the second {classes[first[1]]}; anything on top of "
            f"this layer gives both the same class.",
        )
    return WitnessRecord(
        heads=heads,
        tag="measured",
        why="",
        target="best model",
        gap=gap,
        deviations=gap / unit,
        least_error=gap / 2,
        distance=found.distances[k],
        output=j,
        targets=y[:, j].tolist(),
        predictions=own,
        X1=found.X[k][0].tolist(),
        X2=found.X[k][1].tolist(),
        box=[list(side) for side in found.box],
        judges=len(judges),
        starts=found.starts,
        converged=found.converged,
        sentences=[Reason(tag="measured", text=t) for t in texts],
    )
