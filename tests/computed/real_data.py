"""What docs/real-data.md states about MS MARCO and CIFAR-10, computed from the rows."""

from __future__ import annotations

import math
import re
import statistics
from itertools import pairwise

from scipy import stats

from computed.rows import WORDS, Results, at_most, computed, listed, share, span
from headcount.reproduction.numbers import cells


def _means(results: Results, kind: str, part: str = "train_accuracy") -> dict[int, dict[int, float]]:
    """Return the mean accuracies by length, then by heads."""
    found: dict[int, dict[int, float]] = {}
    for (length, heads), mean in results.cells(
        f"real-{kind}", "length", "heads", column=part, of=statistics.fmean
    ).items():
        found.setdefault(length, {})[heads] = mean
    return found


def _marco_beside_paper(results: Results, length: int) -> dict[int, float]:
    """Return how many points our training accuracy lies above the paper's, by heads."""
    ours = _means(results, "marco")[length]
    return {c.heads: 100 * (ours[c.heads] - c.value) for c in cells("table6") if c.length == length}


@computed("marco-short")
def _(results: Results) -> str:
    return f"within {at_most(max(map(abs, _marco_beside_paper(results, 8).values())))} points of the paper's"


@computed("marco-long-sequences")
def _(results: Results) -> str:
    apart = _marco_beside_paper(results, 64)
    higher = [heads for heads, points in apart.items() if points > 0]
    assert higher == [heads for heads in apart if heads <= max(higher)]
    return f"higher up to {max(higher)} heads and lower with {listed([h for h in apart if h > max(higher)])}"


def _per_head(results: Results) -> dict[int, dict[tuple[int, int], float]]:
    """Return how many times smaller the training error on MS MARCO is a head, by length and step."""
    return {
        length: {(a, b): ((1 - means[a]) / (1 - means[b])) ** (1 / (b - a)) for a, b in pairwise(sorted(means))}
        for length, means in _means(results, "marco").items()
    }


@computed("marco-factors")
def _(results: Results) -> str:
    return f"{span(f for steps in _per_head(results).values() for (_, b), f in steps.items() if b <= 8)} times a head"


@computed("marco-steepest")
def _(results: Results) -> str:
    places: dict[tuple[int, int], list[int]] = {}
    for length, steps in _per_head(results).items():
        places.setdefault(max(steps, key=lambda step: steps[step]), []).append(length)
    return " and ".join(f"from {a} to {b} heads at T = {listed(lengths)}" for (a, b), lengths in places.items())


@computed("marco-wrong-answers")
def _(results: Results) -> str:
    wrong = max(1 - mean for means in _means(results, "marco").values() for heads, mean in means.items() if heads >= 12)
    return f"at most {at_most(100 * wrong)} % of the answers are wrong at every T"


@computed("marco-law")
def _(results: Results) -> str:
    text = next(f["text"] for f in results.json("real-marco")["findings"] if "δ" in f["claim"])
    found = re.search(r"missing by (a factor of [\d.]+);", text)
    assert found is not None
    return found[1]


@computed("marco-validation")
def _(results: Results) -> str:
    best = {max(means, key=lambda h: means[h]) for means in _means(results, "marco", "accuracy").values()}
    return f"the best mean is that of {' or '.join(WORDS[heads] for heads in sorted(best))} head at every T"


@computed("marco-passes")
def _(results: Results) -> str:
    spec = results.json("real-marco-long")["spec"]
    return f"{spec['train']['steps'] * spec['train']['batch'] / spec['source']['train']:.0f} passes"


@computed("marco-passes-kept")
def _(results: Results) -> str:
    about = results.json("real-marco-long")
    kept = {(row["length"], row["heads"]) for row in results.rows("real-marco-long")}
    for length in about["spec"]["lengths"]:
        heads = {h for T, h in kept if length == T}
        assert heads == set(about["spec"]["heads"][-len(heads) :])
    planned = len(about["spec"]["heads"]) * len(about["spec"]["lengths"])
    return f"{len(kept)} of the {planned} cells, those with the most heads at each T"


@computed("cifar-rise")
def _(results: Results) -> str:
    steps = [means[b] > means[a] for means in _means(results, "cifar").values() for a, b in ((1, 2), (2, 4), (4, 8))]
    return f"{share(steps)} steps from 1 to 2, 4 and 8 heads raise the training accuracy"


@computed("cifar-lengths")
def _(results: Results) -> str:
    lower: list[bool] = []
    for part in ("train_accuracy", "accuracy"):
        means = _means(results, "cifar", part)
        lower += [means[b][heads] < means[a][heads] for a, b in pairwise(sorted(means)) for heads in means[a]]
    claims = [f for f in results.json("real-cifar")["findings"] if f["claim"].startswith("longer sequences")]
    clear = [re.search(r"the longer one is lower in (\d+)", f["text"]) for f in claims]
    train, validation = (found[1] if found else "?" for found in clear)
    return (
        f"in {share(lower)} pairs of neighbouring lengths the longer one has the lower mean, "
        f"beyond the noise in {train} of {len(lower) // 2} on training data and {validation} on validation data"
    )


@computed("cifar-best")
def _(results: Results) -> str:
    ours = [max(means, key=lambda h: means[h]) for means in _means(results, "cifar", "accuracy").values()]
    theirs = {
        length: max((c for c in cells("table9") if c.length == length), key=lambda c: c.value).heads
        for length in {c.length for c in cells("table9")}
    }
    return f"{min(ours)} and {max(ours)} (the paper: {min(theirs.values())} to {max(theirs.values())})"


@computed("cifar-wide")
def _(results: Results) -> str:
    means = _means(results, "cifar")
    assert all(m[24] < m[20] < m[16] for m in means.values())
    return "with 20 heads the training accuracy is lower than with 16 at every T, with 24 lower still"


def _detectable(results: Results, kind: str) -> str:
    """Return from how many points on the paired test of a cell would have told the precisions apart."""
    about = results.json(f"precision-{kind}")
    found: list[float] = []
    for cell in about["cells"]:
        seeds = [
            [
                r[cell["part"]]
                for r in sorted(about["rows"][precision], key=lambda r: r["seed"])
                if (r["length"], r["heads"]) == (cell["length"], cell["heads"])
            ]
            for precision in ("bf16", "float32")
        ]
        apart = [a - b for a, b in zip(*seeds, strict=True)]
        critical = float(stats.t.ppf(1 - about["level"] / len(about["cells"]) / 2, len(apart) - 1))
        found.append(100 * critical * statistics.stdev(apart) / math.sqrt(len(apart)))
    return f"differences of {span(found)} points or more, depending on the cell"


@computed("precision-marco-power")
def _(results: Results) -> str:
    return _detectable(results, "marco")


@computed("precision-cifar-power")
def _(results: Results) -> str:
    return _detectable(results, "cifar")
