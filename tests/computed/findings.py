"""What docs/findings.md states about the synthetic runs, computed from their rows."""

from __future__ import annotations

import math
import statistics
from itertools import pairwise
from typing import Any

from computed.rows import WORDS, Results, at_least, at_most, computed, digits, listed, share, span
from headcount.reproduction.numbers import PaperCell, cells

QUESTIONS = ("floor", "fixed-size", "dimension", "depth", "norm", "beta", "smallest", "wide-head")
PAPER = ("table2", "table3", "table4", "table5", "figure1b")

# -- the paper's tables -------------------------------------------------------------------


@computed("trial-counts")
def _(results: Results) -> str:
    def trials(names: tuple[str, ...]) -> list[tuple[Any, ...]]:
        columns = ("heads", "seed", "nmse", "train_nmse", "steps", "parameters_total", "seconds")
        return [tuple(row[c] for c in columns) for name in names for row in results.rows(f"paper-{name}")]

    paper, questions = trials(PAPER), trials(QUESTIONS)
    assert len(set(paper)) == len(paper)
    again = len(questions) - len(set(questions))
    return (
        f"{len(paper):,} trials for its tables and figures and {len(set(questions)):,} for the questions "
        f"({len(questions):,} rows, of which {again} repeat a trial of another row)"
    )


@computed("trials-on-a-cpu")
def _(results: Results) -> str:
    assert results.json("paper-table4-longer")["provenance"]["machine"]["device"] == "cpu"
    return f"{len(results.rows('paper-table4-longer'))} more of table 4 on two CPU cores"


def _beside_paper(results: Results, table: str, draw: int) -> list[tuple[PaperCell, float]]:
    """Return the paper's cells of a table, and how many times our best seed's error is theirs."""
    ours = results.cells(f"paper-{table}", "target", "length", "heads")
    return [(cell, ours[draw, cell.length, cell.heads] / cell.value) for cell in cells(table)]


def _reached(results: Results, table: str, enough: int, draw: int) -> str:
    ratios = [ratio for cell, ratio in _beside_paper(results, table, draw) if cell.heads >= enough]
    return f"{sum(ratio <= 1 for ratio in ratios)} of {len(ratios)} cells for draw {draw}"


@computed("table3-reached")
def _(results: Results) -> str:
    return f"{_reached(results, 'table3', 4, 0)} and {_reached(results, 'table3', 4, 4)}"


@computed("table4-reached")
def _(results: Results) -> str:
    return f"{_reached(results, 'table4', 3, 1)} and {_reached(results, 'table4', 3, 0)}"


@computed("table3-draws")
def _(results: Results) -> str:
    def away(draw: int) -> str:
        logs = [abs(math.log(ratio)) for cell, ratio in _beside_paper(results, "table3", draw) if cell.heads < 4]
        return digits(math.exp(statistics.fmean(logs)))

    return f"a factor of {away(4)} on average with draw 4 and of {away(0)} with draw 0"


@computed("table3-few-heads")
def _(results: Results) -> str:
    below = [1 / ratio for cell, ratio in _beside_paper(results, "table3", 4) if cell.heads < 3]
    three = [ratio for cell, ratio in _beside_paper(results, "table3", 4) if cell.heads == 3]
    return f"{span(below)} times smaller than the paper's with 1 and 2 heads, and {span(three)} times as large with 3"


@computed("table4-stuck")
def _(results: Results) -> str:
    trials = [row for row in results.rows("paper-table4") if row["heads"] >= 3]
    stuck = [row for row in trials if row["nmse"] > 1e-3]
    draws = listed(sorted({row["target"] for row in stuck}))
    return f"{len(stuck)} of the {len(trials)} trials with 3 or 4 heads end above 0.001, all of them with draw {draws}"


@computed("table5-ratios")
def _(results: Results) -> str:
    return f"{span(ratio for _, ratio in _beside_paper(results, 'table5', 4))} times the paper's"


@computed("table2-lengths")
def _(results: Results) -> str:
    ours, draws = results.cells("paper-table2", "heads", "target", "length"), range(5)
    assert all(ours[h, d, 8] < min(ours[h, d, T] for T in (16, 32, 64, 128)) for h in (4, 5) for d in draws)
    four, five = (sum(ours[heads, draw, 128] < ours[heads, draw, 16] for draw in draws) for heads in (4, 5))
    return (
        f"T = 8 has the smallest error for every draw, and from T = 16 to T = 128 the error falls for {WORDS[four]} of "
        f"the five draws with 4 heads and for {WORDS[five]} with 5"
    )


@computed("reversal-chance")
def _(results: Results) -> str:
    scores = {t: results.json(f"paper-table{t}")["reversals"]["all"] for t in (2, 3, 4)}
    return f"p = {span(scores[t][f'h{D}']['p'] for t, D in ((2, 4), (3, 4), (4, 3)))}"


@computed("hidden-size-helps")
def _(results: Results) -> str:
    ours = results.cells("paper-figure1b", "length", "target", "heads", "hidden")
    gains = [error / ours[*place, 64] for (*place, hidden), error in ours.items() if hidden == 8 and place[2] < 4]
    return f"from N = 8 to N = 64 the error falls in {share(g > 1 for g in gains)} cells, by {span(gains)} times"


@computed("figure1b-stuck")
def _(results: Results) -> str:
    ours = results.cells("paper-figure1b", "length", "target", "hidden", "heads")
    return f"only {digits(ours[128, 0, 64, 3] / ours[128, 0, 64, 4])} times better than with 3 heads"


@computed("draws-with-few-heads")
def _(results: Results) -> str:
    return f"by up to {digits(max(_draws(results, too_few=True)))} times"


@computed("draws-in-any-cell")
def _(results: Results) -> str:
    return f"by up to {digits(max(_draws(results, too_few=False)))} times"


def _draws(results: Results, *, too_few: bool) -> list[float]:
    """Return by how much the draws of a target differ, cell by cell, with fewer than D heads or with any number."""
    found: list[float] = []
    for name in ("table2", "table3", "table4", "figure1b", "fixed-size", "beta"):
        rows = results.rows(f"paper-{name}")
        keys = [key for key in ("setting", "length", "hidden", "heads") if key in rows[0]]
        errors: dict[tuple[Any, ...], list[float]] = {}
        for place, error in results.cells(f"paper-{name}", *keys, "target").items():
            if not too_few or place[-2] < rows[0]["intrinsic"]:
                errors.setdefault(place[:-1], []).append(error)
        found += [max(those) / min(those) for those in errors.values()]
    return found


# -- the questions ------------------------------------------------------------------------


def _less(before: float, after: float) -> str:
    """Write by how much an error is lower, in per cent."""
    return f"{100 * (1 - after / before):.0f} %"


@computed("floor-recipes")
def _(results: Results) -> str:
    ours = results.cells("paper-floor", "heads", "setting")
    adam, adamw, fresh, polish = (
        ours[3, f"{recipe}, 30,000 steps"] for recipe in ("Adam", "AdamW", "fresh data", "L-BFGS polish")
    )
    within = max(abs(other / adam - 1) for other in (adamw, fresh))
    return f"within {100 * within:.0f} % of Adam after the same steps, and L-BFGS {_less(adam, polish)} lower"


@computed("floor-steps")
def _(results: Results) -> str:
    ours = results.cells("paper-floor", "heads", "setting")
    first, second, third = (ours[3, f"Adam, {steps} steps"] for steps in ("30,000", "100,000", "300,000"))
    return f"by {_less(first, second)} from 30,000 to 100,000 steps, by {_less(second, third)} from 100,000 to 300,000"


@computed("floor-tenfold")
def _(results: Results) -> str:
    ours = results.cells("paper-floor", "heads", "setting")
    return f"by {_less(ours[3, 'Adam, 30,000 steps'], ours[3, 'Adam, 300,000 steps'])}"


@computed("floor-enough-heads")
def _(results: Results) -> str:
    ours = results.cells("paper-floor", "heads", "setting")
    return f"{digits(ours[4, 'Adam, 30,000 steps'] / ours[4, 'Adam, 300,000 steps'])} times"


@computed("floor-few-sequences")
def _(results: Results) -> str:
    few, many = (
        [r["nmse"] for r in results.rows("paper-floor") if (r["setting"], r["heads"]) == (f"{name}, 300,000 steps", 4)]
        for name in ("8,000 sequences", "Adam")
    )
    few_end = f"between {digits(min(few))} and {digits(max(few))} on 8,000 sequences"
    return f"{few_end} and at {at_most(max(many))} or below on 65,536"


@computed("dimension-answers")
def _(results: Results) -> str:
    answers = results.json("paper-dimension")["answers"]
    alone = [{a["estimate"], a["low"], a["high"]} == {int(name.removeprefix("D"))} for name, a in answers.items()]
    return f"the estimate is D, with an interval of D alone, for {share(alone)} values"


@computed("dimension-drops")
def _(results: Results) -> str:
    ours = results.cells("paper-dimension", "intrinsic", "heads")
    drops = [ours[D, D - 1] / ours[D, D] for D in range(2, 9)]
    assert all(later < earlier for earlier, later in pairwise(drops))
    return f"from {digits(drops[0])} times at D = 2 to {digits(drops[-1])} times at D = 8"


def _sizes(results: Results) -> dict[tuple[int, int], dict[str, float]]:
    """Return the errors of `fixed-size` by draw and heads, then by setting."""
    found: dict[tuple[int, int], dict[str, float]] = {}
    for (target, heads, setting), error in results.cells("paper-fixed-size", "target", "heads", "setting").items():
        found.setdefault((target, heads), {})[setting] = error
    return found


@computed("fixed-size-curves")
def _(results: Results) -> str:
    apart = {place: max(e.values()) / min(e.values()) for place, e in _sizes(results).items()}
    few = max(ratio for (_, heads), ratio in apart.items() if heads < 4)
    draw, heads = max(apart, key=lambda place: apart[place])
    most = f"a factor of up to {digits(max(apart.values()))} (draw {draw}, {heads} heads)"
    return f"{most}, with fewer than 4 heads of up to {digits(few)}"


@computed("fixed-size-parameters")
def _(results: Results) -> str:
    total = {(r["setting"], r["heads"]): r["parameters_total"] for r in results.rows("paper-fixed-size")}
    many, few = total["8,000 parameters", 3], total["head size 8", 3]
    errors = [e for (_, heads), e in _sizes(results).items() if heads == 3]
    less = [100 * (1 - e["8,000 parameters"] / e["head size 8"]) for e in errors]
    lower = f"lower the error by {min(less):.0f} to {max(less):.0f} %"
    return f"nearly twice the parameters ({many:,} instead of {few:,}) {lower}"


@computed("fixed-size-more-heads")
def _(results: Results) -> str:
    ours = _sizes(results)
    ratios = [error / ours[draw, 4][s] for (draw, heads), e in ours.items() if heads > 4 for s, error in e.items()]
    return f"with 5, 6 and 8 heads it is {span(ratios)} times that with 4"


@computed("depth-gap")
def _(results: Results) -> str:
    ours = results.cells("paper-depth", "setting", "heads")
    product = {place: int(place[0].removeprefix("L = ")) * place[1] for place in ours}
    few = min(error for place, error in ours.items() if product[place] < 4)
    enough = max(error for place, error in ours.items() if product[place] >= 4)
    return f"by {at_least(few / enough)} times or more"


@computed("depth-seeds")
def _(results: Results) -> str:
    found = {
        layers: [r["nmse"] < 1e-4 for r in results.rows("paper-depth") if (r["setting"], r["heads"]) == (layers, 2)]
        for layers in ("L = 2", "L = 3")
    }
    two, three = (f"{sum(good)} of {len(good)} seeds" for good in found.values())
    return f"below 1e-4 with {two} in two layers and with {three} in three"


@computed("depth-answers")
def _(results: Results) -> str:
    two, three = (results.json("paper-depth")["answers"][layers] for layers in ("L2", "L3"))
    assert three["estimate"] is None
    assert three["sentence"].startswith("Not reached")
    return f"{two['estimate']} for two layers (90 % interval {two['low']} {_up_to(two)}), not reached for three"


def _up_to(answer: dict[str, Any]) -> str:
    return "or more" if answer["high"] is None else f"to {answer['high']}"


@computed("norm-answers")
def _(results: Results) -> str:
    answers = results.json("paper-norm")["answers"]
    plain = answers["2-layers"]["estimate"]
    others = {f"{a['estimate']} {_up_to(a)}" for name, a in answers.items() if name.startswith("2-layers-")}
    return f"{plain} for the plain two layers of `norm` and {listed(sorted(others))} for the other three kinds"


@computed("norm-cost")
def _(results: Results) -> str:
    ours = results.cells("paper-norm", "setting", "heads")
    ratios = {
        place: ours[f"{place[0]}, norm", place[1]] / error for place, error in ours.items() if "norm" not in place[0]
    }
    many = [ratio for (_, heads), ratio in ratios.items() if heads > 3]
    few = [ratio < 1 for (_, heads), ratio in ratios.items() if heads < 4]
    assert min(many) > 1
    return f"{span(many)} times larger in every setting; with 1 to 3 heads it helps in {sum(few)} of {len(few)} cells"


@computed("norm-residual-seeds")
def _(results: Results) -> str:
    seeds = {
        name: [r["nmse"] for r in results.rows("paper-norm") if (r["setting"], r["heads"]) == (name, 2)]
        for name in ("2 layers, residual", "2 layers")
    }
    good, bad = max(seeds["2 layers, residual"]), min(seeds["2 layers"])
    ends = f"{at_most(good)} or below with it and at {at_least(bad)} or above without"
    return f"all three seeds with two heads a layer end at {ends}"


@computed("beta-stuck")
def _(results: Results) -> str:
    four = [row for row in results.rows("paper-beta") if row["heads"] == 4]
    large = [row["nmse"] > 1e-3 for row in four if row["setting"] == "β = 100"]
    others = [row["nmse"] > 1e-3 for row in four if row["setting"] != "β = 100"]
    rest = f"{sum(others)} of {len(others)} at the other temperatures"
    return f"{sum(large)} of {len(large)} trials with 4 heads end above 0.001, and {rest}"


@computed("four-heads-each-time")
def _(results: Results) -> str:
    sizes, betas = (results.json(f"paper-{name}")["answers"].values() for name in ("fixed-size", "beta"))
    counts = [f"{sum(a['estimate'] == 4 for a in answers)} of {len(answers)}" for answers in (sizes, betas)]
    return f"{counts[0]} sizes and {counts[1]} temperatures"


def _smallest(results: Results, heads: int, error: float) -> dict[int, int | None]:
    """Return the smallest N whose best seed is below an error, by length."""
    ours = results.cells("paper-smallest", "heads", "length", "hidden")
    found: dict[int, int | None] = {}
    for h, length, hidden in sorted(ours):
        if h == heads:
            found[length] = found.get(length) or (hidden if ours[h, length, hidden] < error else None)
    return found


@computed("smallest-for-0.01")
def _(results: Results) -> str:
    found = _smallest(results, 2, 0.01)
    reached = listed([f"N = {hidden} at T = {length}" for length, hidden in found.items() if hidden])
    most = max(row["hidden"] for row in results.rows("paper-smallest"))
    missed = listed([length for length, hidden in found.items() if not hidden])
    return f"an error below 0.01 takes {reached}; at T = {missed} not even N = {most} reaches it"


@computed("smallest-for-0.02")
def _(results: Results) -> str:
    (hidden,) = set(_smallest(results, 2, 0.02).values())
    return f"an error below 0.02 takes N = {hidden} at every T"


@computed("smallest-enough-heads")
def _(results: Results) -> str:
    ours = results.cells("paper-smallest", "heads", "hidden", "length")
    return f"N = 4 has {at_most(max(e for (h, N, _), e in ours.items() if (h, N) == (3, 4)))} or less at every T"


def _wide(results: Results) -> dict[tuple[str, int], dict[int, float]]:
    """Return the errors of one head by F and N, then by head size."""
    found: dict[tuple[str, int], dict[int, float]] = {}
    for (*place, size), error in results.cells("paper-wide-head", "setting", "hidden", "head_dim").items():
        found.setdefault((place[0], place[1]), {})[size] = error
    return found


@computed("wide-head-fall")
def _(results: Results) -> str:
    ours = _wide(results).values()
    jump = max(error[12] / error[16] for error in ours)
    slow = f"{span(e[4] / e[32] for e in ours)} times from n = 4 to n = 32"
    return f"{slow}, and from n = 12 to n = 16 by {at_most(jump)} times at most"


@computed("wide-head-doubling")
def _(results: Results) -> str:
    more = [error[16] / error[32] > error[8] / error[16] for error in _wide(results).values()]
    return f"in {sum(more)} of {len(more)} curves"


@computed("wide-head-layers")
def _(results: Results) -> str:
    ours = _wide(results)
    logs = [
        abs(math.log(ours["F of 2 layers", hidden][size] / ours["F of 5 layers", hidden][size]))
        for hidden in (16, 32, 64)
        for size in (4, 8, 12, 16, 32)
    ]
    return f"by a factor of {at_most(math.exp(max(logs)))} at most"
