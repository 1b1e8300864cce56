"""Answers to common questions about heads, with the numbers of one advice, each with what it rests on."""

from __future__ import annotations

from typing import Any

from headcount.advisor.record import AdviceRecord
from headcount.advisor.words.answer import price_text
from headcount.analysis import Tag
from headcount.core import Spec
from headcount.render.words import error_text, heads_text


class Answer(Spec):
    """A question, its answer, and what the answer rests on."""

    question: str
    tag: Tag
    text: str


def torch_note(heads: int, head_dim: int, width: int, given: int, bound: bool) -> str:
    """Return how torch's head count follows from the recommended one.

    heads: recommended. given: the smallest number from `heads` on that divides the width. bound: whether the user gave
    the width.
    """
    if not bound:
        return f"embed_dim {width} is {heads_text(heads)} times the measured head size {head_dim}."
    if given != heads:
        return (
            f"{heads_text(heads)} would do, but {heads} does not divide embed_dim {width}: {given} is the smallest "
            f"larger number that does. hc.Attention takes exactly {heads}."
        )
    return f"{heads_text(heads)} divide{'s' if heads == 1 else ''} embed_dim {width}."


def answers(record: AdviceRecord, heads: int, theirs: tuple[int, int, int], ours: dict[str, Any]) -> list[Answer]:
    """Return the answers for this record; parameter counts are exact arithmetic.

    theirs: heads, head size and parameters of torch's layer. ours: the fields of our layer's sizes.
    """
    found: list[Answer] = []

    def add(question: str, tag: Tag, text: str) -> None:
        found.append(Answer(question=question, tag=tag, text=text))

    (num_heads, size, count), width, n = theirs, int(ours["embed_dim"]), int(ours["head_dim"])
    add(
        "Do more heads add parameters?",
        "proved",
        f"Not in nn.MultiheadAttention: at embed_dim {width} it has {count:,} parameters with any number of heads. In "
        f"hc.Attention each head of size {n} adds {4 * n * width + 3 * n:,}, and {heads_text(heads)} make "
        f"{int(ours['parameters']):,} in all.",
    )
    if num_heads == heads:
        divides = f"{heads} divides {width}, which gives"
    else:
        divides = f"{heads} does not divide {width}; {num_heads} is the next number that does, which gives"
    add(
        "Must the number of heads divide the width?",
        "proved",
        f"In nn.MultiheadAttention, yes: each head has size embed_dim / num_heads. Here {divides} heads of size "
        f"{size}. In hc.Attention, no.",
    )
    add("More heads or larger heads at a fixed width?", *_trade(record, heads, n))
    for price in record.prices:
        fewer = price.heads < heads
        add(
            "What if I take too few heads?" if fewer else "What if I take more heads?",
            "measured",
            price_text(price, heads),
        )
    if (size, width) == (n, heads * n):
        add(
            "Are these the sizes that were measured?",
            "measured",
            f"Yes, {heads_text(heads)} of size {n} at width {width}, in models with one layer.",
        )
    else:
        enough = size >= n and width >= heads * n
        outlook = "no size is smaller, so these should do as well" if enough else "smaller sizes may do worse"
        add(
            "Are these the sizes that were measured?",
            "extrapolated",
            f"No: {heads_text(heads)} of size {n} at width {heads * n} were measured, not {heads_text(num_heads)} of "
            f"size {size} at width {width}; {outlook}.",
        )
    return found


def _trade(record: AdviceRecord, heads: int, head_dim: int) -> tuple[Tag, str]:
    """Return heads against head size: from the curve at fixed width if it was measured, else from the main curve."""
    curve = next((c for c in record.curves if c.kind == "width" and len(c.points) > 1), None)
    if curve is None:
        return "extrapolated", (
            f"That was not measured here. The curve at head size {head_dim} suggests {heads_text(heads)} first, and "
            f"then the remaining width for their size."
        )
    errors = ", ".join(f"{p.heads} × {p.head_dim}: {error_text(p.validation)}" for p in curve.points)
    best = min(curve.points, key=lambda p: p.validation)
    return "measured", (
        f"With {curve.fixed}, the errors by heads × head size are {errors}; {heads_text(best.heads)} "
        f"{'has' if best.heads == 1 else 'have'} the smallest."
    )
