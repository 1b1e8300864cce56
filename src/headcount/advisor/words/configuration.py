"""Answers to what people ask about heads, with the numbers of one advice, each with what it rests on."""

from __future__ import annotations

from typing import Any

from headcount.advisor.record import AdviceRecord
from headcount.advisor.words.answer import price_text
from headcount.analysis import Tag
from headcount.analysis.words import error_text, heads_text
from headcount.core import Spec


class Answer(Spec):
    """A question, its answer, and what the answer rests on."""

    question: str
    tag: Tag
    text: str


def torch_note(heads: int, head_dim: int, width: int, given: int, bound: bool) -> str:
    """Say how torch's sizes come about."""
    if not bound:
        return f"embed_dim {width} is {heads_text(heads)} times the measured head size {head_dim}."
    if given != heads:
        return (
            f"{heads_text(heads)} would do, but {heads} does not divide embed_dim {width}: {given} is the smallest "
            f"larger number that does. hc.Attention takes exactly {heads}."
        )
    return f"{heads_text(heads)} divide{'s' if heads == 1 else ''} embed_dim {width}."


def answers(record: AdviceRecord, heads: int, theirs: tuple[int, int, int], ours: dict[str, Any]) -> list[Answer]:
    """Answer with the numbers of this record; counts of parameters are exact arithmetic."""
    told: list[Answer] = []

    def add(question: str, tag: Tag, text: str) -> None:
        told.append(Answer(question=question, tag=tag, text=text))

    (num_heads, size, count), width, n = theirs, int(ours["embed_dim"]), int(ours["head_dim"])
    add(
        "Do more heads add parameters?",
        "proved",
        f"Not in nn.MultiheadAttention: at embed_dim {width} it has {count:,} parameters with any number of heads. In "
        f"hc.Attention each head of size {n} adds {4 * n * width + 3 * n:,}, and {heads_text(heads)} make "
        f"{int(ours['parameters']):,}.",
    )
    next_one = "" if num_heads == heads else f", {num_heads} is the next that does"
    over = f"{heads} {'divides' if num_heads == heads else 'does not divide'} {width}{next_one}"
    add(
        "Must the number of heads divide the width?",
        "proved",
        f"In nn.MultiheadAttention yes, and each head then has size embed_dim / num_heads: {over}, with heads of size "
        f"{size}. In hc.Attention no.",
    )
    add("More heads or larger heads at a fixed width?", *_trade(record, heads, n))
    for price in record.prices:
        few = price.heads < heads
        add(
            "What if I take too few heads?" if few else "What if I take more heads?",
            "measured",
            price_text(price, heads),
        )
    if (size, width) == (n, heads * n):
        add(
            "Do these sizes stand for what was measured?",
            "measured",
            f"Yes, {heads_text(heads)} of size {n} at width {width}, in models with one layer.",
        )
    else:
        enough = size >= n and width >= heads * n
        hope = "no size is smaller, so they should do as well" if enough else "smaller ones may do worse"
        add(
            "Do these sizes stand for what was measured?",
            "extrapolated",
            f"Measured were {heads_text(heads)} of size {n} at width {heads * n}, not {heads_text(num_heads)} of size "
            f"{size} at width {width}: {hope}.",
        )
    return told


def _trade(record: AdviceRecord, heads: int, head_dim: int) -> tuple[Tag, str]:
    """Heads against head size: measured where the curve at fixed width was, else what the other curve suggests."""
    curve = next((c for c in record.curves if c.kind == "width" and len(c.points) > 1), None)
    if curve is None:
        return "extrapolated", (
            f"That was not measured here. The curve at head size {head_dim} says that {heads_text(heads)} should come "
            f"first, and the width that is left goes into their size."
        )
    errors = ", ".join(f"{p.heads} × {p.head_dim}: {error_text(p.validation)}" for p in curve.points)
    best = min(curve.points, key=lambda p: p.validation)
    return "measured", (
        f"With {curve.fixed} the errors by heads × head size are {errors}; the smallest is that of "
        f"{heads_text(best.heads)}."
    )
