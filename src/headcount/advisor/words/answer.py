"""The advice in words: its sentence, the reasons with their tags, what would settle it, and the table of the curve."""

from __future__ import annotations

from collections.abc import Sequence

from headcount.advisor.record import AdviceRecord, Challenge, Curve, CurvePoint, Price
from headcount.analysis import HeadsNeeded, Reason
from headcount.core.text import exponent_text
from headcount.render import NONE, Column, Table
from headcount.render.words import Headline, error_text, heads_text, percent, split, times_text
from headcount.theory.bounds import exponents

LONGER_BUDGET = "a longer budget"
NOTHING_OPEN = "Nothing is left open."
LARGE_CHALLENGE_GAIN = 1.5
"""A challenge that divides the error of fewer heads by this factor shows that size or training limited them."""
NAMED_GAIN_RATIO = 0.9
"""More heads that bring the error below this fraction of the answer's are mentioned even if within the margin."""
SIMILAR_ERROR_RATIO = 1.1
"""Errors within this factor of each other count as equal."""
BOTH_NEEDED_RATIO = 1.5
"""If the better of the two changes alone leaves this many times the error of both, both were needed."""
NOT_COMPARED = (
    "Not all head counts were trained at these larger sizes: the answer and the table are for the usual sizes."
)
WEAK_BOUND_EXPONENT = 1.0
"""A lower bound error^(−k) with k below this rules out no block of a practical size."""

TAGS = (
    "Proved: a theorem or exact arithmetic. Measured: seen on the models that were trained here. Extrapolated: "
    "beyond what was measured."
)


def headline(record: AdviceRecord) -> Headline:
    """Return the answer and its certainty, then its grounds."""
    parts = split(record.sentence)
    return parts._replace(claim=f"{parts.claim} ({percent(record.confidence)} interval {_interval_text(record)})")


def recommended_text(record: AdviceRecord) -> str:
    """Return the recommended heads and the interval in a sentence."""
    at = f"at {percent(record.confidence)} confidence"
    interval = _interval_text(record)
    interval += " only" if interval.isdigit() else ""
    if record.named is None:
        best = f"the best model so far has {heads_text(record.recommended_heads)}"
        return f"No number of heads is shown to be right ({best}); interval {at}: {interval}."
    open_note = "" if record.settled else " The answer is not settled."
    return f"Recommended: {heads_text(record.recommended_heads)}; interval {at}: {interval}.{open_note}"


def _interval_text(record: AdviceRecord) -> str:
    """Return the interval as text: 3, 2 to 4, or 2 or more."""
    low, high = record.interval
    return f"{low} or more" if record.interval_open else f"{low} to {high}" if low != high else f"{low}"


def evidence(record: AdviceRecord) -> str:
    """Return the evidence behind the answer: the models, and the training and validation sequences."""
    sizes = f"{record.train_samples:,} training and {record.validation_samples:,} validation sequences"
    if record.folds > 1:
        sizes = f"{record.validation_samples:,} sequences, {record.train_samples:,} of them for training at a time"
    return f"on {record.trials} models trained in {record.seconds:.0f} s, with {sizes}."


def redraws_text(record: AdviceRecord) -> str:
    """Return how often the bootstrap draws give each head count; empty where no count has half a per cent of them."""
    named = {h: share for h, share in record.answers.items() if share >= 0.005}
    if not named or set(named) == {"none"}:
        return ""
    words = {h: "more heads than were tried" if h == "none" else heads_text(int(h)) for h in named}
    shares = ", ".join(f"{words[h]} in {percent(share)}" for h, share in named.items())
    return f"When seeds and validation sequences are redrawn, the answer is {shares} of the draws."


def sentence(decision: HeadsNeeded, heads_max: int, settled: bool | None = None) -> str:
    """Return the answer in one sentence that claims no more than the evidence supports.

    settled: whether the search, which also knows of challenges, calls the answer settled (default: the decision's own
    view).
    """
    answer, low = decision.estimate, decision.least
    match decision.verdict:
        case "transition" | "one-head" | "gentle":
            assert answer is not None
            by_heart = ""
            if decision.cause == "by-heart":
                by_heart = " The models memorise these sequences: with more sequences, more heads may help."
            return _claim(decision, answer, decision.settled if settled is None else settled) + by_heart
        case "not-reached":
            falls = f"the error still falls at {heads_text(heads_max)}, the largest number allowed"
            if low == 1:
                return f"Any number of heads: {falls}, and no number is shown to be too few."
            return f"{heads_text(low)} or more: fewer are shown to be worse, and {falls}."
        case "failed":
            guess = "no head count can be named" if answer is None else f"{heads_text(answer)} is only a guess"
            why = {
                "lottery": "of models with the same number of heads a few learn the task and most do not",
                "patience": "longer training still lowers the error a lot",
            }.get(
                decision.cause, "models with the same number of heads differ as much as models with different numbers"
            )
            return f"Optimisation failed, not expressivity: {why}; {guess}."
        case "noise":
            if decision.cause == "by-heart":
                return (
                    "Noise alone, or too few samples: the models memorise the training sequences, and nothing they "
                    "learn carries over to others."
                )
            return (
                "Noise alone, or a function that these models did not learn: no head count predicts y better than its "
                "mean."
            )
        case "unclear":
            return (
                f"Unclear: that the best model predicts y better than its mean may be chance (probability "
                f"{decision.gain_chance or 0.0:.2g})."
            )
        case _:  # too few trials: no other verdict is left where there is a noise floor
            return "The budget is too small to tell: too few models were trained."


def _claim(decision: HeadsNeeded, answer: int, settled: bool) -> str:
    """Return what is shown: one head count, a range, or a lower bound."""
    low, high = decision.least, decision.high
    more = "more gain little beyond this step" if decision.by_step else "more gain nothing beyond the margin"
    if decision.settled and not settled:
        return f"{heads_text(answer)}, it seems: larger models or longer training may need fewer."
    if settled:
        if decision.verdict == "one-head":
            return f"One head suffices: {more}."
        step = "" if decision.verdict == "transition" else " The error falls gently, without a step."
        return f"{heads_text(answer)}: fewer are shown to be worse, and {more}.{step}"
    if high is None:
        if low == 1:
            return "Any number of heads: none is shown to be too few, and none to be enough."
        return f"{heads_text(low)} or more: fewer are shown to be worse, but no head count is shown to be enough."
    if low == 1:
        return (
            f"Between 1 and {heads_text(high)}: {high}, or some smaller number, is shown to be enough, and no number "
            f"is shown to be too few."
        )
    return (
        f"Between {low} and {heads_text(high)}: fewer than {low} are shown to be worse, and {high}, or some smaller "
        f"number, is shown to be enough."
    )


def settles(
    decision: HeadsNeeded, challenge: Challenge | None = None, steps: int | None = None, settled: bool | None = None
) -> str:
    """Return what would settle the answer.

    challenge: that of the largest head count below the answer. steps: of every model, where they were given.
    """
    text = _settled_by(decision, challenge, decision.settled if settled is None else settled)
    if steps is None or decision.cause == "by-heart":
        return text
    asked = f"every model took {steps} steps, as asked, and twice as many show whether the answer stays."
    return f"Nothing else is left open: {asked}" if text == NOTHING_OPEN else f"{text} {asked[0].upper()}{asked[1:]}"


def _settled_by(decision: HeadsNeeded, challenge: Challenge | None, settled: bool) -> str:
    """Return what would settle the answer, whatever the number of steps."""
    if decision.cause == "by-heart" and decision.verdict != "unclear":
        return "More samples: longer training and more heads only memorise these."
    match decision.verdict:
        case "transition" | "one-head" | "gentle":
            if decision.settled and not settled:
                return f"{LONGER_BUDGET.capitalize()}: larger models remain to be compared for all head counts."
            if settled and challenge is not None and challenge.gain >= LARGE_CHALLENGE_GAIN:
                gained = "fewer heads still gained much from larger models and longer training"
                return f"{LONGER_BUDGET.capitalize()}: {gained}."
            if settled:
                return NOTHING_OPEN
            if decision.sequences is not None:
                return (
                    f"More samples (about {decision.sequences:,} for validation, by extrapolation), or {LONGER_BUDGET}."
                )
            return f"More samples, or {LONGER_BUDGET}."
        case "not-reached":
            return f"A larger --heads-max (heads_max=) and {LONGER_BUDGET} would show where the error stops falling."
        case "failed":
            return f"{LONGER_BUDGET.capitalize()} (more steps and seeds), other features, or more samples."
        case "noise":
            return (
                f"Noise cannot be told from a function that these models did not learn. Fit a plain model to the "
                f"minimum, maximum and mean of each feature: if it explains y, there is more than noise. Otherwise try "
                f"more samples, other features, or {LONGER_BUDGET}."
            )
        case "unclear":
            return "More samples: on these the errors are too uneven to tell a gain from chance."
        case _:  # too few trials: no other verdict is left where there is a noise floor
            return f"{LONGER_BUDGET.capitalize()}, or a faster device."


def reasons(
    decision: HeadsNeeded,
    points: list[CurvePoint],
    record: dict[str, object],
    challenges: Sequence[Challenge],
    apart: bool = True,
) -> list[Reason]:
    """Return the reasons for the answer, each with what it rests on.

    challenges: those that were made, in order. apart: whether the validation sequences tell the answer from one head
    fewer.
    """
    found: list[Reason] = []

    def add(tag: str, text: str) -> None:
        found.append(Reason(tag=tag, text=text))  # pyright: ignore[reportArgumentType]

    best = min(points, key=lambda p: p.validation)
    answer, at = decision.estimate, {p.heads: p for p in points}
    add(
        "measured",
        f"The best model, with {heads_text(best.heads)}, errs by {error_text(best.validation)} of the "
        f"variance of y on validation sequences, and by {error_text(best.train)} on training ones.",
    )
    if best.wrong is not None:
        add("measured", f"It predicts the wrong class for {100 * best.wrong:.1f} % of the validation sequences.")
    if decision.verdict in ("noise", "unclear"):
        add(
            "measured",
            f"Its gain over always guessing the average would arise by chance with probability "
            f"{decision.gain_chance or 0.0:.2g}.",
        )
    if decision.verdict == "unclear":
        add("measured", "Head counts are not compared: on these sequences not even that gain is shown.")
        return found
    if decision.verdict == "noise":
        add(
            "measured",
            "One head is recommended, the smallest number, since more gained nothing; as nothing was learned, the "
            "interval leaves every number open.",
        )
        return found
    floor = error_text(decision.noise_floor or 0.0)
    add(
        "measured",
        f"Noise floor: between {floor} and {error_text(best.validation)} of the "
        f"variance of y; equally good models differ by {error_text(decision.spread or 0.0)}.",
    )
    add(
        "measured",
        f"Margin: a head count is enough if its error is at most {error_text(decision.margin or 0.0)} of the variance "
        f"of y above that of the best one, or if it has reached a step beyond which little is gained.",
    )
    if answer is not None and answer in at:
        fewer = [p for p in points if p.heads < answer]
        more = [p for p in points if p.heads > answer]
        if fewer:
            below = fewer[-1]
            add(
                "measured",
                f"{heads_text(below.heads).capitalize()}: error {error_text(below.validation)}, "
                f"{times_text(below.validation / max(at[answer].validation, 1e-300))} times that of "
                f"{heads_text(answer)}, in {_best_of(below.seeds)}"
                f"{'' if apart else '; so few validation sequences do not tell the two apart'}.",
            )
        for challenge in challenges:
            add("measured", challenge_text(challenge))
        if more:
            least = min(more, key=lambda p: p.validation)
            gained = decision.verdict == "one-head" and least.validation < NAMED_GAIN_RATIO * at[answer].validation
            note = ": within the margin, so not counted as a gain" if gained else ""
            add(
                "measured",
                f"More than {heads_text(answer)} reach {error_text(least.validation)} at best, against "
                f"{error_text(at[answer].validation)}{note}.",
            )
        add(
            "measured",
            f"{percent(decision.agreement or 0.0)} of the bootstrap draws over seeds, validation sequences "
            f"and the constants of the rule give {heads_text(answer)}.",
        )
        drawn = [h for h in decision.shares if h]
        if drawn and decision.least < min(drawn):
            add(
                "measured",
                f"The interval goes down to {decision.least}: with fewer models than the rule asks for, or with "
                f"models that differ widely, fewer heads may only have had bad luck.",
            )
        found.extend(_theory(decision, answer, record))
    add(
        "extrapolated",
        f"The models have one layer, heads of size {record['head_dim']} and {record['hidden']} hidden "
        f"units; deeper or wider models may need fewer heads per layer.",
    )
    if record.get("positions") == "gates":
        add(
            "extrapolated",
            "The models see positions only in the attention scores, and attention weights are positive: a sum "
            "with both signs then takes two heads, but only one where the values see positions too.",
        )
    return found


def challenge_text(challenge: Challenge) -> str:
    """Return what twice the hidden units and twice the training did for a head count, and which of them helped."""
    what = f"{challenge.hidden} hidden units and {challenge.steps:,} steps, twice the usual"
    heads = heads_text(challenge.heads).capitalize()
    if not challenge.passed:
        slow = challenge.gain >= LARGE_CHALLENGE_GAIN
        gain = f", which divided the error by {times_text(challenge.gain)}" if slow else ""
        still = f"the error is still {error_text(challenge.after)}"
        return f"{heads} with {what}{gain}: {still}, so this does not replace heads."
    alone = {"hidden units": challenge.hidden_alone, "training": challenge.steps_alone}
    known = {name: error for name, error in alone.items() if error is not None}
    helped = ""
    if known:
        parts = ", ".join(f"{error_text(error)} with more {name} alone" for name, error in known.items())
        most = min(known, key=lambda name: known[name])
        both = known[most] > BOTH_NEEDED_RATIO * challenge.after
        alike = len(known) == 2 and max(known.values()) <= SIMILAR_ERROR_RATIO * min(known.values())
        which = "both together" if both else "either of them" if alike else most
        helped = f" ({parts}: {which} helped)"
    instead = "" if challenge.before is None else f" instead of {error_text(challenge.before)}"
    error = f"error {error_text(challenge.after)}{instead}{helped}"
    return f"{heads} became enough with {what}: {error}. These limited it, not the number of heads."


def category_text(ids: int, tried: Sequence[int], used: bool) -> str:
    """Return which numbers were treated as categories.

    ids: different ids in X. tried: columns of few whole numbers that were tried as categories. used: whether they are.
    """
    if ids:
        amounts = "if they are amounts, give floats, and both readings are tried"
        return f"X holds {ids} different ids, treated as categories (one-hot); {amounts}."
    if not tried:
        return ""
    columns = f"column {tried[0]}" if len(tried) == 1 else f"columns {', '.join(map(str, tried))}"
    if used:
        outcome = "categories (one-hot): with these a short trial did clearly better"
    else:
        outcome = "amounts: with categories (one-hot) a short trial did not do clearly better"
    return f"The few different whole numbers in {columns} (counted from 0) were treated as {outcome}."


def data_text(material_size: int, folds: int, repeats: bool, settled: bool = True) -> str:
    """Return how many sequences decided, and how, or that they do not settle the answer."""
    decided = f"{material_size:,} sequences decided" if settled else f"{material_size:,} sequences do not settle it"
    if folds == 1:
        return f"{decided}; no model was trained on them."
    return (
        f"{decided}, each predicted by models that were not trained on it ({folds} folds"
        f"{', dealt anew for every seed' if repeats else ''}). Their errors depend on each other: the level of the "
        f"interval is nominal, with a corrected variance."
    )


def _theory(decision: HeadsNeeded, answer: int, record: dict[str, object]) -> list[Reason]:
    """Return what is proved, and under which condition."""
    if decision.verdict == "one-head":
        return [
            Reason(
                tag="proved",
                text="One head with uniform attention computes every mean of a function of the "
                "tokens exactly, whatever the length.",
            )
        ]
    if decision.verdict != "transition":
        return []
    length, head_dim = int(str(record["length"])), int(str(record["head_dim"]))
    proved = [
        Reason(
            tag="proved",
            text=f"If y is made of {answer} minima over tokens, {heads_text(answer)} reach every "
            f"accuracy at a cost whose exponent does not grow with the length (Theorem 2 (1)).",
        )
    ]
    sharp = exponents(length=length, heads=answer - 1, head_dim=head_dim, intrinsic=answer)[1]
    fewer = f"{heads_text(answer - 1)} with bounded weights {'needs' if answer == 2 else 'need'}"
    if sharp.vacuous:
        text = (
            f"The lower bound for {heads_text(answer - 1)} (Theorem 2 (2)) says nothing at length {length}: it bites "
            f"from {sharp.bites_from_length} on."
        )
    elif sharp.k < WEAK_BOUND_EXPONENT:
        text = (
            f"The lower bound for {heads_text(answer - 1)} (Theorem 2 (2)) is weak at length {length} and rules out "
            f"little: it requires only a feed-forward block that grows like error^(−{exponent_text(sharp.k)})."
        )
    else:
        text = (
            f"If y is made of {answer} minima, {fewer} a feed-forward block that grows like "
            f"error^(−{exponent_text(sharp.k)}) (Theorem 2 (2), sup error)."
        )
    return [*proved, Reason(tag="proved", text=text)]


def _best_of(models: int) -> str:
    """Return how many models a number is the best of."""
    return "the only model" if models == 1 else f"the best of {models} models"


def curve_table(record: AdviceRecord) -> Table:
    """Return the curve as a table."""
    classes = record.kind == "classification"
    columns = [
        Column(name="Heads", meaning="number of attention heads, at fixed head size"),
        Column(name="Models", meaning="models trained from different random starts"),
        Column(name="Error", meaning="of the best model on the validation part, as a share of the variance of y"),
        Column(name="Median", meaning="of the models"),
        Column(name="Training", meaning="error of the best model on the training part"),
        Column(name="Excess", meaning="error above the noise floor"),
        *([Column(name="Wrong", meaning="share of wrong classes on the validation part")] if classes else []),
        Column(name="Parameters", meaning="of the whole model"),
        Column(name="Step", meaning=f"measured time of one training step {record.steps_on}"),
    ]
    rows = [
        [
            str(p.heads),
            str(p.seeds),
            error_text(p.validation),
            error_text(p.median),
            error_text(p.train),
            error_text(p.excess),
            *([NONE if p.wrong is None else f"{100 * p.wrong:.1f} %"] if classes else []),
            f"{p.parameters:,}",
            NONE if p.step_seconds is None else f"{1000 * p.step_seconds:.2f} ms",
        ]
        for p in record.curve
    ]
    heads = [p.heads for p in record.curve]
    marked = heads.index(record.named) if record.named in heads else None
    return Table(caption="Error by number of heads", columns=columns, rows=rows, marked=marked)


def price_text(price: Price, answer: int) -> str:
    """Return what a neighbouring head count costs or saves."""
    factor = price.error_ratio
    error = f"error × {times_text(factor)}" if price.told_apart else "no detectable difference in error"
    step = "" if price.step_ratio is None else f", step time × {price.step_ratio:.2f}"
    less = "fewer" if price.heads < answer else "more"
    count = abs(price.heads - answer)
    neighbour = f"one head {less}" if count == 1 else f"{count} heads {less}"
    return f"{neighbour.capitalize()} ({price.heads}): {error}, parameters × {price.parameters_ratio:.2f}{step}."


def curve_text(curve: Curve) -> str:
    """Return the errors by head count at fixed width or fixed parameters."""
    several = max(p.seeds for p in curve.points) > 1
    median = lambda p: f" ({p.median:.2g})" if several else ""  # noqa: E731
    errors = ", ".join(f"{p.heads}: {p.validation:.2g}{median(p)}" for p in curve.points)
    models = f"best of {max(p.seeds for p in curve.points)} models (median)" if several else "one model each"
    return f"At fixed {curve.kind} ({curve.fixed}), error by heads, {models}: {errors}."
