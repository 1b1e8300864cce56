"""The sentences and tables of a probe, written once so that terminal, Markdown and page cannot disagree."""

from __future__ import annotations

from headcount.core.text import plain
from headcount.probing.curve import curve_table
from headcount.probing.record import MIN_REDUNDANT_SIMILARITY, Pair, ProbeRecord, Pruned
from headcount.render import NONE, Column, Table, as_markdown

MEANING = (
    "All results are measured on the data named above and hold only for them: other data may use other heads.",
    "Ablation: how much the loss grows when the output of this head alone is set to zero.",
    "If two heads do the same, neither looks important alone; the plan notices, because it measures again.",
    "Gradient: mean size of the loss's slope in a multiplier on the head's output, at 1. It shows small changes only.",
    "Similarity: linear CKA of two heads' outputs over positions of the data; 1 means equal up to rotation and scale.",
    "Two heads with a similarity of at least 0.95 are called redundant.",
    "Every layer keeps at least one head (or group of heads that share a key and value).",
    "Guessing: all tokens equally likely, classes in proportion to the labels, numbers by their mean.",
)


def count_text(number: int, noun: str) -> str:
    """Return a count with its noun, such as "1 head" or "2 heads"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def headline(record: ProbeRecord) -> str:
    """Return the answer in one sentence."""
    if record.at_chance:
        return f"{record.model} is at chance level on these data; the effects of its heads cannot be measured"
    total, gone = len(record.heads), len(record.plan.gone())
    share = f"{100 * record.share:g} %"
    can = "none can go" if not gone else f"{gone} can go"
    verb = "carries" if record.carry_ablation == 1 else "carry"
    return (
        f"{record.carry_ablation} of {count_text(total, 'head')} {verb} {share} of the effect; {can} for at most "
        f"{100 * record.plan.budget:g} % more loss"
    )


def sentences(record: ProbeRecord) -> list[str]:
    """Return the findings, one line each, all of them measured."""
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
    """Return that a model does not beat guessing, and what that means."""
    return (
        f"At chance level: guessing without looking at the input has the loss {record.chance:.4g}, the model "
        f"{record.loss:.4g}. Effects of single heads are noise here: use data of the kind that the model was made for."
    )


def loading_text(record: ProbeRecord) -> list[str]:
    """Return where a pruned model was saved, and how to load it."""
    loading = record.loading
    if record.saved is None or loading is None:
        return []
    found = [f"Saved in {record.saved}, and loaded again: the same outputs.", f"Load it: {loading.line}"]
    if loading.zeros:
        found.append(
            f"Its config.json has one number of heads for all layers, {loading.heads[0]}, so {loading.zeros} of the "
            f"removed heads {'is' if loading.zeros == 1 else 'are'} stored as zeros."
        )
    return found


def removal_text(pruned: Pruned) -> list[str]:
    """Return the results of the actual removal."""
    fewer = 1 - pruned.parameters_after / pruned.parameters_before
    difference = f"they differ by {number(pruned.difference)} of the largest output"
    gap = difference if pruned.difference else "bit by bit"
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
        f"Parameters {sizes} ({100 * fewer:.1f} % fewer).",
        f"Time of a batch {spent}: {pruned.ratio:.2f} times, {spread}.",
    ]


def redundant_text(record: ProbeRecord) -> str:
    """Return a sentence with the redundant pairs of heads, or with the most similar pair."""
    if record.redundant:
        shown = ", ".join(_pair(pair) for pair in record.redundant[:4])
        more = f" and {len(record.redundant) - 4} more" if len(record.redundant) > 4 else ""
        count = count_text(len(record.redundant), "pair")
        return f"{count} of redundant heads (similarity {MIN_REDUNDANT_SIMILARITY:g} or more): {shown}{more}."
    if not record.closest:
        return "No layer has two heads to compare."
    best = max(record.closest, key=lambda pair: pair.similarity)
    return f"No two heads of a layer are redundant; the most similar are {_pair(best)} ({best.similarity:.2f})."


def layer_table(record: ProbeRecord) -> Table:
    """Return a table with one row per layer."""
    effects, gone = record.effects("ablation"), record.plan.gone()
    closest = {pair.layer: pair for pair in record.closest}
    rows: list[list[str]] = []
    for i, layer in enumerate(record.layers):
        best = max(range(layer.heads), key=lambda head: effects[i][head])
        pair, removed = closest.get(i), [head for where, head in gone if where == i]
        rows.append(
            [
                str(i + 1),
                str(layer.heads),
                str(layer.carry_ablation),
                str(layer.carry_gradient),
                f"{number(effects[i][best])} (head {best + 1})",
                NONE if pair is None else f"{pair.similarity:.2f} ({pair.first + 1}, {pair.second + 1})",
                ranges([head + 1 for head in removed]) or NONE,
            ]
        )
    columns = [
        Column(name="Layer", meaning="counted from 1, in the order of the model"),
        Column(name="Heads", meaning="attention heads of the layer"),
        Column(name="Ablation 95 %", meaning="heads that carry 95 % of the layer's effect, by ablation"),
        Column(name="Gradient 95 %", meaning="the same by the gradient of a mask"),
        Column(name="Largest effect", meaning="loss increase without the layer's most important head"),
        Column(name="Most similar", meaning="linear CKA of the layer's most similar heads"),
        Column(name="Can go", meaning="heads that the plan removes"),
    ]
    return Table(caption="One row per layer (measured)", columns=columns, rows=rows, marked=None)


def head_table(record: ProbeRecord) -> Table:
    """Return a table with one row per head, the most important first."""
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
    caption = "One row per head, the most important first (measured)"
    return Table(caption=caption, columns=columns, rows=rows, marked=None)


def markdown(record: ProbeRecord) -> str:
    """Return the sentences and the tables as a Markdown document."""
    points = "\n".join(f"- {plain(text)}" for text in [*sentences(record), *loading_text(record), *record.notes])
    tables = "\n".join(
        f"{table.caption}\n\n{as_markdown(table)}"
        for table in (layer_table(record), curve_table(record), head_table(record))
    )
    head = f"# {plain(record.model)}: {plain(headline(record))}\n\nMeasured; {plain(record.architecture)}."
    return f"{head}\n\n{points}\n\n{tables}"


def number(value: float) -> str:
    """Return a loss increase as text that fits a cell."""
    return "0" if value == 0 else f"{value:.1e}" if abs(value) < 1e-3 or abs(value) >= 1e4 else f"{value:.4g}"


def ranges(numbers: list[int]) -> str:
    """Return numbers with runs as ranges: 1, 2, 3, 5 becomes "1–3, 5"."""
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
