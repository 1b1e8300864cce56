"""What README, docs/analysis.md, docs/attack.md and docs/build.md state about studies, attacks and timings."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

from computed.rows import WORDS, Results, at_least, at_most, computed, digits, listed, share, span


def _coverage(results: Results, study: str) -> str:
    tasks = [task for name, task in results.json(study)["tasks"].items() if name.startswith("study")]
    bounded = [task["covered"] for task in tasks if task["high"] is not None]
    above = [task["covered"] for task in tasks if task["high"] is None]
    first = f"{sum(bounded)} of the {len(bounded)} bounded intervals"
    return f"{first} and {sum(above)} of the {len(above)} that are open above"


@computed("study-coverage")
def _(results: Results) -> str:
    return _coverage(results, "dimension-study")


@computed("study-coverage-fresh")
def _(results: Results) -> str:
    return _coverage(results, "dimension-study-fresh")


@computed("study-far-off")
def _(results: Results) -> str:
    tasks = results.json("dimension-study-fresh")["tasks"]
    (name,) = (n for n, t in tasks.items() if n.startswith("study") and t["low"] > t["intrinsic"] + 1)
    task = tasks[name]
    rows = [row for row in results.rows("dimension-study-fresh") if row["run"] == name]
    few = [row["nmse"] > 0.2 for row in rows if task["intrinsic"] <= row["heads"] < task["low"]]
    return (
        f"one task with D = {task['intrinsic']} reads {task['low']} or more, "
        f"because {sum(few)} of its {len(few)} trials "
        f"with {task['intrinsic']} to {task['low'] - 1} heads were stuck above an error of 0.2"
    )


# -- attacks ------------------------------------------------------------------------------------------------


def _layers(results: Results, name: str = "irreducible", layer: str = "trained") -> list[dict[str, Any]]:
    return [row for row in results.json(name)["rows"] if row["layer"] == layer]


def _proved(row: dict[str, Any]) -> float:
    """Return the largest proved gap of a layer on the whole box, in standard deviations; 0 where none is proved."""
    return row["all"]["deviations_proved"] or 0.0


@computed("irreducible-seeds")
def _(results: Results) -> str:
    counts = [len(row["all"]) for row in results.json("irreducible")["summary"]]
    alone = {len(row["random"]) for row in results.json("irreducible")["summary"] if row.get("random")}
    random = f"{listed([WORDS[n] for n in alone])} layer with random weights"
    return f"medians over {WORDS[min(counts)]} to {WORDS[max(counts)]} trained layers, and {random}"


@computed("irreducible-equal")
def _(results: Results) -> str:
    pairs = [row[among] for row in results.json("irreducible")["rows"] for among in ("all", "typical") if among in row]
    return f"equal to within {at_most(max(pair['distance_float64'] for pair in pairs if pair['deviations'] > 0))}"


@computed("irreducible-random")
def _(results: Results) -> str:
    gaps = {(row["intrinsic"], row["heads"]): row["all"]["deviations"] for row in _layers(results, layer="random")}
    return f"{span(gaps[D, D - 1] / gaps[D, D] for D in range(2, 6))} times from D − 1 heads to D"


@computed("irreducible-longer-search")
def _(results: Results) -> str:
    longer = results.json("irreducible-typical")["median"]
    short = results.json("irreducible")["table"]["D=4,T=16,n=8"]
    now = listed([digits(longer[f"h={heads}"]) for heads in (3, 4, 5)])
    before = listed([digits(short[f"h={heads}"]["typical"]) for heads in (3, 4, 5)])
    return f"medians of {now} with 3, 4 and 5 heads instead of {before}"


@computed("irreducible-enough-heads")
def _(results: Results) -> str:
    gaps = [_proved(row) for row in _layers(results) if row["heads"] >= row["intrinsic"]]
    some = sum(gap > 0 for gap in gaps)
    return (
        f"{some} of the {len(gaps)} trained layers with h ≥ D have an exact pair, "
        f"{sum(gap > 1 for gap in gaps)} of them with a gap above one standard deviation, "
        f"the largest {digits(max(gaps))}"
    )


@computed("irreducible-few-heads")
def _(results: Results) -> str:
    gaps = [_proved(row) for row in _layers(results) if row["heads"] < row["intrinsic"]]
    held = share(gap > 0 for gap in gaps)
    return f"{held} with fewer heads have one, of {at_least(min(gaps))} standard deviations or more"


@computed("irreducible-four")
def _(results: Results) -> str:
    layers = [row for row in _layers(results) if row["intrinsic"] == 4 and row["heads"] in (4, 5)]
    gaps = [_proved(row) for row in layers]
    longer = results.json("irreducible-typical")["gaps"]  # the same cell, every layer attacked for longer
    four, five = (
        digits(max(*(row["typical"]["deviations"] for row in layers if row["heads"] == heads), *longer[f"h={heads}"]))
        for heads in (4, 5)
    )
    return (
        f"{share(gap > 0 for gap in gaps)} with four or five heads have such a pair too, but {span(gaps)} standard "
        f"deviations apart; among typical sequences the largest gap found in two searches is {four} with four heads "
        f"and {five} with five"
    )


def _converged(rows: list[dict[str, Any]], among: str) -> str:
    """Write how many starts of some layers' searches converged: 8–39 of 64."""
    found = [row[among] for row in rows if among in row]
    ranges = [sorted({search[key] for search in found}) for key in ("converged", "starts")]
    return " of ".join(f"{some[0]}–{some[-1]}" if len(some) > 1 else f"{some[0]}" for some in ranges)


def _row_effort(name: str, sizes: tuple[int, int, int, int]) -> Callable[[Results], str]:
    """Return what one row of a table says of the starts behind its gaps: typical; all; random."""

    def text(results: Results) -> str:
        keys = ("intrinsic", "length", "head_dim", "heads")
        parts: list[str] = []
        for layer, among in (("trained", "typical"), ("trained", "all"), ("random", "all")):
            rows = [row for row in _layers(results, name, layer) if tuple(row[key] for key in keys) == sizes]
            parts += [_converged(rows, among)] if rows else []
        return "; ".join(parts)

    return text


EFFORTS = {
    "irreducible": [
        *((D, 16, 8, h) for D in range(2, 6) for h in range(1, D + 2)),
        *((3, length, n, h) for length, n in ((16, 4), (32, 8), (8, 8)) for h in (2, 3)),
    ],
    "irreducible-long": [(4, 16, 8, h) for h in range(1, 6)],
}
for study, rows_of_table in EFFORTS.items():
    for place in rows_of_table:
        computed(f"{study}-effort:{'-'.join(map(str, place))}")(_row_effort(study, place))


@computed("irreducible-effort")
def _(results: Results) -> str:
    """D = 4, T = 16, n = 8, typical sequences: how many starts of a layer converged."""
    layers = [row for row in _layers(results) if (row["intrinsic"], row["length"], row["head_dim"]) == (4, 16, 8)]
    three, four, five = (_converged([row for row in layers if row["heads"] == h], "typical") for h in (3, 4, 5))
    return f"{three} starts converged with three heads, {four} with four and {five} with five"


@computed("irreducible-unequal")
def _(results: Results) -> str:
    """Which layers of the table were not searched until 16 starts had converged."""
    (row,) = (row for row in _layers(results) if not row["typical"]["equal_effort"])
    sizes = f"D = {row['intrinsic']}, T = {row['length']}, {WORDS[row['heads']]} heads"
    search = row["typical"]
    return f"One layer ({sizes}) hit the limit: {search['converged']} of {search['starts']} starts converged"


@computed("attack-built-effort")
def _(results: Results) -> str:
    rows = results.json("attack-built")["rows"]
    (starts,) = {row["starts"] for row in rows}
    counts = [row["converged"] for row in rows]
    return f"{min(counts)} to {max(counts)} of {starts} starts converged"


@computed("irreducible-long-five")
def _(results: Results) -> str:
    gaps = sorted(g for g in results.json("irreducible-long")["gaps"]["all"]["h=5"] if g > 0.1)
    return f"with five, {WORDS[len(gaps)]} of the five layers still have {listed([digits(gap) for gap in gaps])}"


@computed("irreducible-long-proved")
def _(results: Results) -> str:
    proved = [_proved(row) > 0 for row in _layers(results, "irreducible-long") if row["heads"] >= 4]
    return f"{WORDS[sum(proved)]} pair of the {WORDS[len(proved)]} layers with four or five heads was proved"


@computed("built-never-above")
def _(results: Results) -> str:
    above = [row["worst"] > row["proved"] for row in results.json("built-tasks")["rows"]]
    middle = statistics.median(row["worst"] / row["proved"] for row in results.json("built-tasks")["rows"])
    return f"exceeded the proved bound for {WORDS[sum(above)]} task, and is {digits(middle)} of it in the median"


@computed("float64-rounding-covered")
def _(results: Results) -> str:
    ratios = [row["ratio"] for row in results.json("float64-rounding")["rows"]]
    return (
        f"never more than what is proved, which is {digits(min(ratios))} to {digits(max(ratios))} times as large and "
        f"{digits(statistics.median(ratios))} times in the median"
    )


@computed("built-nearly-attained")
def _(results: Results) -> str:
    rows = results.json("built-tasks")["rows"]
    near = sum(row["worst"] >= 0.99 * row["proved"] for row in rows)
    half = sum(row["worst"] >= 0.5 * row["proved"] for row in rows)
    return f"comes within 1 % of it for {near} of the {len(rows)} tasks, and above half of it for {half}"


@computed("bench-cpu-fastest")
def _(results: Results) -> str:
    """Every way that was timed beside the engine, but for our own slow reference."""
    others: list[float] = []
    fastest: set[str] = set()
    for length in (8, 32, 128):
        times = {key: value for key, value in results.json("bench-cpu")[f"T={length}"].items() if "_over_engine" in key}
        del times["reference_over_engine"]
        fastest.add(min(times, key=lambda key: times[key]).removesuffix("_over_engine"))
        others.append(min(times.values()))
    names = ", ".join({"jax": "JAX"}.get(name, name) for name in sorted(fastest, reverse=True))
    return f"{span(others)} times less than with the fastest of the other ways that were timed ({names})"
