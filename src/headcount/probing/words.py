"""A probe in words and tables: written once, so that terminal, Markdown and page cannot disagree."""

from __future__ import annotations

from headcount.core.text import plain
from headcount.probing.curve import curve_table
from headcount.probing.record import REDUNDANT, Pair, ProbeRecord, Pruned
from headcount.render import NONE, Column, Table, as_markdown

MEANING = (
    "Everything here is measured on the data named above, and holds for them: other data may use other heads.",
    "Ablation: how much the loss grows when the output of one head is set to zero, all others untouched.",
    "Of two heads that do the same, neither looks important alone; the plan sees it, since it measures again.",
    "Gradient: mean size of the loss's slope in a multiplier on the head's output, at 1. It sees small changes only.",
    "Similarity: linear CKA of two heads' outputs over positions of the data; 1 means equal up to rotation and scale.",
    "Two heads are called redundant from a similarity of 0.95 on.",
    "A layer keeps at least one head (or group of heads that share a key and value).",
    "Guessing: tokens all equally likely, classes by their share of the labels, numbers by their mean.",
)


def count_text(number: int, noun: str) -> str:
    """Write 1 head, 2 heads."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def headline(record: ProbeRecord) -> str:
    """The answer in one sentence."""
    if record.at_chance:
        return f"{record.model} is at chance level on these data; what its heads are worth cannot be told"
    total, gone = len(record.heads), len(record.plan.gone())
    share = f"{100 * record.share:g} %"
    can = "none can go" if not gone else f"{gone} can go"
    verb = "carries" if record.carry_ablation == 1 else "carry"
    return (
        f"{record.carry_ablation} of {count_text(total, 'head')} {verb} {share} of the effect; {can} for at most "
        f"{100 * record.plan.budget:g} % more loss"
    )


def sentences(record: ProbeRecord) -> list[str]:
    """What was found, a line each; all measured."""
    plan, total = record.plan, len(record.heads)
    by = f"{record.carry_ablation} by ablation, {record.carry_gradient} by gradient"
    sizes = f"{count_text(total, 'head')} in {count_text(len(record.layers), 'layer')}"
    found = [
        f"Loss {record.loss:.4g} ({record.loss_name}) on {record.samples}.",
        *([chance_text(record)] if record.at_chance else []),
        f"Of {sizes} these carry {100 * record.share:g} % of the effect: {by}.",
        redundant_text(record),
    ]
    if plan.steps:
        again = "after every removal" if plan.remeasured == "all" else "for the next candidates after every removal"
        found.append(
            f"{count_text(len(plan.gone()), 'head')} can go: the loss is then {plan.loss:.4g}, and {plan.allowed:.4g} "
            f"is allowed (budget {100 * plan.budget:g} %; measured again {again})."
        )
    if record.pruned is not None:
        found += removal_text(record.pruned)
    else:
        found.append(f"{(record.not_pruned or '').capitalize()}.")
    return found


def chance_text(record: ProbeRecord) -> str:
    """Say that a model does not beat guessing, and what that means."""
    return (
        f"At chance level: guessing without a look at the input has the loss {record.chance:.4g}, and the model "
        f"{record.loss:.4g}. Effects of single heads are noise here: give data of the kind that the model was made for."
    )


def loading_text(record: ProbeRecord) -> list[str]:
    """Say where a pruned model was saved, and how to load it."""
    loading = record.loading
    if record.saved is None or loading is None:
        return []
    found = [f"Saved in {record.saved}, and loaded again: the same outputs.", f"Load it: {loading.line}"]
    if loading.zeros:
        found.append(
            f"Its config.json states one number of heads for all layers, {loading.heads[0]}: of the removed heads "
            f"{loading.zeros} {'is' if loading.zeros == 1 else 'are'} stored as zeros."
        )
    return found


def removal_text(pruned: Pruned) -> list[str]:
    """What the real removal gave."""
    less = 1 - pruned.parameters_after / pruned.parameters_before
    gap = f"{number(pruned.difference)} of the largest output apart" if pruned.difference else "bit by bit"
    same = (
        f"The model without them gives the masked model's outputs: {gap}."
        if pruned.equal
        else f"The model without them does NOT give the masked model's outputs: {gap}."
    )
    sizes = f"{pruned.parameters_before:,} before, {pruned.parameters_after:,} after"
    spent = f"{_time(pruned.seconds_before)} before, {_time(pruned.seconds_after)} after"
    spread = f"{pruned.ratio_low:.2f} to {pruned.ratio_high:.2f} in {pruned.repeats} repetitions"
    return [
        same,
        f"Parameters {sizes} ({100 * less:.1f} % fewer).",
        f"Time of a batch {spent}: {pruned.ratio:.2f} times, {spread}.",
    ]


def redundant_text(record: ProbeRecord) -> str:
    """Name the pairs that repeat each other, or the most similar one."""
    if record.redundant:
        shown = ", ".join(_pair(pair) for pair in record.redundant[:4])
        more = f" and {len(record.redundant) - 4} more" if len(record.redundant) > 4 else ""
        count = count_text(len(record.redundant), "pair")
        return f"{count} of heads repeat each other (similarity from {REDUNDANT:g} on): {shown}{more}."
    if not record.closest:
        return "No layer has two heads to compare."
    best = max(record.closest, key=lambda pair: pair.similarity)
    return f"No two heads of a layer repeat each other; the most similar are {_pair(best)} with {best.similarity:.2f}."


def layer_table(record: ProbeRecord) -> Table:
    """One row a layer."""
    effects, gone = record.effects("ablation"), record.plan.gone()
    closest = {pair.layer: pair for pair in record.closest}
    rows: list[list[str]] = []
    for i, layer in enumerate(record.layers):
        best = max(range(layer.heads), key=lambda head: effects[i][head])
        pair, lost = closest.get(i), [head for where, head in gone if where == i]
        rows.append(
            [
                str(i + 1),
                str(layer.heads),
                str(layer.carry_ablation),
                str(layer.carry_gradient),
                f"{number(effects[i][best])} (head {best + 1})",
                NONE if pair is None else f"{pair.similarity:.2f} ({pair.first + 1}, {pair.second + 1})",
                ranges([head + 1 for head in lost]) or NONE,
            ]
        )
    columns = [
        Column(name="Layer", meaning="counted from 1, as they are reached"),
        Column(name="Heads", meaning="attention heads of the layer"),
        Column(name="Ablation 95 %", meaning="heads that carry 95 % of the layer's effect, by ablation"),
        Column(name="Gradient 95 %", meaning="the same by the gradient of a mask"),
        Column(name="Largest effect", meaning="loss increase without the layer's most important head"),
        Column(name="Most similar", meaning="linear CKA of the layer's most similar heads"),
        Column(name="Can go", meaning="heads that the plan removes"),
    ]
    return Table(caption="One row a layer (measured)", columns=columns, rows=rows, marked=None)


def head_table(record: ProbeRecord) -> Table:
    """One row a head, the most important first."""
    order = {head: step for step, head in enumerate(record.plan.gone(), 1)}
    rows = [
        [
            str(h.layer + 1),
            str(h.head + 1),
            number(h.ablation),
            number(h.gradient),
            str(order.get((h.layer, h.head), NONE)),
        ]
        for h in sorted(record.heads, key=lambda head: -head.ablation)
    ]
    columns = [
        Column(name="Layer", meaning="counted from 1"),
        Column(name="Head", meaning="counted from 1"),
        Column(name="Ablation", meaning="loss increase without the head"),
        Column(name="Gradient", meaning="mean size of the loss's slope in the head's mask"),
        Column(name="Goes as", meaning="its place in the order of removal"),
    ]
    return Table(caption="One row a head, the most important first (measured)", columns=columns, rows=rows, marked=None)


def markdown(record: ProbeRecord) -> str:
    """The sentences and both tables as a Markdown document."""
    told = "\n".join(f"- {plain(text)}" for text in [*sentences(record), *loading_text(record), *record.notes])
    tables = "\n".join(
        f"{table.caption}\n\n{as_markdown(table)}"
        for table in (layer_table(record), curve_table(record), head_table(record))
    )
    head = f"# {plain(record.model)}: {plain(headline(record))}\n\nMeasured; {plain(record.architecture)}."
    return f"{head}\n\n{told}\n\n{tables}"


def number(value: float) -> str:
    """A loss increase that fits a cell."""
    return "0" if value == 0 else f"{value:.1e}" if abs(value) < 1e-3 or abs(value) >= 1e4 else f"{value:.4g}"


def ranges(numbers: list[int]) -> str:
    """Write 1, 2, 3, 5 as 1–3, 5."""
    runs: list[list[int]] = []
    for value in sorted(numbers):
        if runs and value == runs[-1][-1] + 1:
            runs[-1].append(value)
        else:
            runs.append([value])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs)


def _pair(pair: Pair) -> str:
    return f"heads {pair.first + 1} and {pair.second + 1} of layer {pair.layer + 1}"


def _time(seconds: float) -> str:
    return f"{1000 * seconds:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"
