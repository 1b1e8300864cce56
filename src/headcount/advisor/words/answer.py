"""An advice in words: the sentence, the reasons with their tags, what would settle it, the table and the picture."""

from __future__ import annotations

from collections.abc import Sequence

from headcount.advisor.record import AdviceRecord, Challenge, Curve, CurvePoint, Price
from headcount.analysis import HeadsNeeded, Reason
from headcount.analysis.words import error_text, heads_text, percent, times_text
from headcount.render import NONE, Column, Table
from headcount.render.words import Headline, split
from headcount.theory.bounds import exponents

LONGER = "a longer budget"
NOTHING = "Nothing is open."
IMPATIENT = 1.5
"""Where a challenge divides the error of fewer heads by so much, size or training limited them."""
SMALL_GAIN = 0.9
"""A gain beyond this factor is named even where it counts as none."""
ALIKE = 1.1
"""Errors within this factor are no reason to prefer one of the two."""
BOTH = 1.5
"""Where the better of the two alone leaves so many times the error, both were needed."""
NOT_COMPARED = (
    "Not all head counts were trained at these larger sizes: the answer and the table are those of the usual ones."
)
WEAK = 1.0
"""A lower bound error^(−k) with k below this rules out no block that anybody would build."""

TAGS = (
    "Proved: a theorem or exact arithmetic. Measured: seen on the models that were trained here. Extrapolated: "
    "beyond what was measured."
)


def headline(record: AdviceRecord) -> Headline:
    """Return the answer and its certainty, then its grounds."""
    told = split(record.sentence)
    return told._replace(claim=f"{told.claim} ({percent(record.confidence)} interval {_span(record)})")


def recommended_text(record: AdviceRecord) -> str:
    """Say the recommended heads and the interval."""
    at = f"at {percent(record.confidence)} confidence"
    end = f"{_span(record)} only" if _span(record).isdigit() else _span(record)
    if record.named is None:
        best = f"the best model so far has {heads_text(record.recommended_heads)}"
        return f"No number of heads is shown to be right ({best}); the interval {at}: {end}."
    sure = "" if record.settled else " The answer is not settled."
    return f"Recommended: {heads_text(record.recommended_heads)}; the interval {at}: {end}.{sure}"


def _span(record: AdviceRecord) -> str:
    """Write the interval."""
    low, high = record.interval
    return f"{low} or more" if record.interval_open else f"{low} to {high}" if low != high else f"{low}"


def evidence(record: AdviceRecord) -> str:
    """Say what the answer was measured on: how many models, and how many sequences trained and decided."""
    sizes = f"{record.train_samples:,} sequences to train on and {record.validation_samples:,} others"
    if record.folds > 1:
        sizes = f"{record.validation_samples:,} sequences, {record.train_samples:,} at a time to train on"
    return f"on {record.trials} models that were trained in {record.seconds:.0f} s, {sizes}."


def again(record: AdviceRecord) -> str:
    """Say what the draws of the bootstrap answer."""
    named = {h: share for h, share in record.answers.items() if share >= 0.005}
    if not named or set(named) == {"none"}:
        return ""
    words = {h: "more than were tried" if h == "none" else heads_text(int(h)) for h in named}
    shares = ", ".join(f"{words[h]} in {percent(share)}" for h, share in named.items())
    return f"If seeds and validation sequences are drawn again, the answer is {shares} of the draws."


def sentence(decision: HeadsNeeded, heads_max: int, settled: bool | None = None) -> str:
    """Say the answer in one sentence: how many heads, as surely as that is shown and no more.

    `settled` is what the search says of it, which knows of challenges too; the decision's own word unless given.
    """
    answer, low = decision.estimate, decision.least
    match decision.verdict:
        case "transition" | "one-head" | "gentle":
            assert answer is not None
            by_heart = ""
            if decision.cause == "by-heart":
                by_heart = " The models learn these sequences by heart: with more of them, more heads may help."
            return _claim(decision, answer, decision.settled if settled is None else settled) + by_heart
        case "not-reached":
            falls = f"the error still falls at {heads_text(heads_max)}, the largest number allowed"
            if low == 1:
                return f"Any number of heads: {falls}, and no number is shown to be too few."
            return f"{heads_text(low)} or more: fewer are shown to be worse, and {falls}."
        case "failed":
            guess = "no head count can be named" if answer is None else f"{heads_text(answer)} is a guess"
            why = {
                "lottery": "with equal heads few models learn it and most do not",
                "patience": "longer training still does much better",
            }.get(decision.cause, "models with equal heads differ as much as others do")
            return f"Optimisation failed, not expressivity: {why}; {guess}."
        case "noise":
            if decision.cause == "by-heart":
                return (
                    "Noise alone, or too few samples: the models learn the training part by heart, and nothing of it "
                    "holds elsewhere."
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
    """State what is shown: one head count, a range, or a lower end."""
    low, high = decision.least, decision.high
    little = "beyond this step more gain little" if decision.by_step else "more gain nothing beyond the margin"
    if decision.settled and not settled:
        return f"{heads_text(answer)}, as it looks: larger models, or longer training, may do with fewer."
    if settled:
        if decision.verdict == "one-head":
            return f"One head suffices: {little}."
        step = "" if decision.verdict == "transition" else " The error falls gently, without a step."
        return f"{heads_text(answer)}: fewer are shown to be worse, and {little}.{step}"
    if high is None:
        if low == 1:
            return "Any number of heads: none is shown to be too few, and none to be enough."
        return f"{heads_text(low)} or more: fewer are shown to be worse, but no head count is shown to be enough."
    if low == 1:
        return f"Between 1 and {heads_text(high)}: {high} or some fewer are shown to be enough, and none to be too few."
    return (
        f"Between {low} and {heads_text(high)}: fewer than {low} are shown to be worse, and {high} or some fewer are "
        f"shown to be enough."
    )


def settles(
    decision: HeadsNeeded, challenge: Challenge | None = None, steps: int | None = None, settled: bool | None = None
) -> str:
    """Say what would settle what is open; `challenge` is that of the head count before the answer."""
    text = _open(decision, challenge, decision.settled if settled is None else settled)
    if steps is None or decision.cause == "by-heart":
        return text
    asked = f"every model took {steps} steps, as asked, and twice as many show whether the answer stays."
    return f"Nothing else is open: {asked}" if text == NOTHING else f"{text} {asked[0].upper()}{asked[1:]}"


def _open(decision: HeadsNeeded, challenge: Challenge | None, settled: bool) -> str:
    """What is open, whatever the number of steps."""
    if decision.cause == "by-heart" and decision.verdict != "unclear":
        return "More samples: longer training and more heads only learn these by heart."
    match decision.verdict:
        case "transition" | "one-head" | "gentle":
            if decision.settled and not settled:
                return f"{LONGER.capitalize()}: larger models of all head counts are to be compared."
            if settled and challenge is not None and challenge.gain >= IMPATIENT:
                return f"{LONGER.capitalize()}: fewer heads still gained much by larger models and longer training."
            if settled:
                return NOTHING
            if decision.sequences is not None:
                return f"More samples (about {decision.sequences:,} that validate, by extrapolation), or {LONGER}."
            return f"More samples, or {LONGER}."
        case "not-reached":
            return f"More heads to try (--heads-max, heads_max=) and {LONGER} show where the error stops falling."
        case "failed":
            return f"{LONGER.capitalize()} (more steps and seeds), other features, or more samples."
        case "noise":
            return (
                f"Noise cannot be told from a function that these models did not learn: a plain model on the minimum, "
                f"maximum and mean of each feature tells them apart where it explains y; else more samples, other "
                f"features, {LONGER}."
            )
        case "unclear":
            return "More samples: on these the errors are too uneven to tell a gain from chance."
        case _:  # too few trials: no other verdict is left where there is a noise floor
            return f"{LONGER.capitalize()}, or a faster device."


def reasons(
    decision: HeadsNeeded,
    points: list[CurvePoint],
    record: dict[str, object],
    challenges: Sequence[Challenge],
    apart: bool = True,
) -> list[Reason]:
    """Say why, each reason with what it rests on; `challenges` are those that were made, in order.

    `apart` says whether the validation sequences tell the answer from one head fewer.
    """
    told: list[Reason] = []

    def add(tag: str, text: str) -> None:
        told.append(Reason(tag=tag, text=text))  # pyright: ignore[reportArgumentType]

    best = min(points, key=lambda p: p.validation)
    answer, at = decision.estimate, {p.heads: p for p in points}
    add(
        "measured",
        f"The best model, with {heads_text(best.heads)}, errs by {error_text(best.validation)} of the "
        f"variance of y on validation sequences, and by {error_text(best.train)} on training ones.",
    )
    if best.wrong is not None:
        add("measured", f"It names the wrong class for {100 * best.wrong:.1f} % of the validation sequences.")
    if decision.verdict in ("noise", "unclear"):
        add(
            "measured",
            f"Its gain over always guessing the average would arise by chance with probability "
            f"{decision.gain_chance or 0.0:.2g}.",
        )
    if decision.verdict == "unclear":
        add("measured", "Head counts are not compared: on these sequences not even that gain is shown.")
        return told
    if decision.verdict == "noise":
        add(
            "measured",
            "Recommended is one head, the fewest, since more gained nothing; as nothing was learned, the "
            "interval leaves every number open.",
        )
        return told
    floor = error_text(decision.noise_floor or 0.0)
    add(
        "measured",
        f"Noise floor: between {floor} and {error_text(best.validation)} of the "
        f"variance of y; equally good models differ by {error_text(decision.spread or 0.0)}.",
    )
    add(
        "measured",
        f"Margin: a head count is enough where it errs at most {error_text(decision.margin or 0.0)} of the "
        f"variance of y more than the best one, or has reached a step beyond which little is gained.",
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
                f"{heads_text(answer)}, in {_of(below.seeds)}"
                f"{'' if apart else '; so few validation sequences do not tell the two apart'}.",
            )
        for challenge in challenges:
            add("measured", challenge_text(challenge))
        if more:
            least = min(more, key=lambda p: p.validation)
            gain = decision.verdict == "one-head" and least.validation < SMALL_GAIN * at[answer].validation
            add(
                "measured",
                f"More heads than {answer} reach {error_text(least.validation)} at best, against "
                f"{error_text(at[answer].validation)}{': within the margin, and counted as none' if gain else ''}.",
            )
        add(
            "measured",
            f"{percent(decision.agreement or 0.0)} of the bootstrap's draws over seeds, validation "
            f"sequences and the rule's constants give {heads_text(answer)}.",
        )
        drawn = [h for h in decision.shares if h]
        if drawn and decision.least < min(drawn):
            add(
                "measured",
                f"The interval goes down to {decision.least}: fewer models than the rule asks for, or "
                f"models that scatter, leave it open whether fewer heads only had bad luck.",
            )
        told.extend(_theory(decision, answer, record))
    add(
        "extrapolated",
        f"The models have one layer, heads of size {record['head_dim']} and {record['hidden']} hidden "
        f"units; deeper or wider models may need fewer heads a layer.",
    )
    if record.get("positions") == "gates":
        add(
            "extrapolated",
            "They see positions in the attention scores alone, whose weights are positive: a sum with "
            "both signs takes two heads there, and one where values see positions too.",
        )
    return told


def challenge_text(challenge: Challenge) -> str:
    """Say what twice the hidden units and twice the training did for a head count, and which of them helped."""
    what = f"{challenge.hidden} hidden units and {challenge.steps:,} steps, twice the usual"
    heads = heads_text(challenge.heads).capitalize()
    if not challenge.passed:
        slow = challenge.gain >= IMPATIENT
        rest = f", which divided the error by {times_text(challenge.gain)}" if slow else ""
        return (
            f"{heads} with {what}{rest}: still an error of {error_text(challenge.after)}, which does not replace heads."
        )
    alone = {"hidden units": challenge.hidden_alone, "training": challenge.steps_alone}
    known = {name: error for name, error in alone.items() if error is not None}
    helped = ""
    if known:
        parts = ", ".join(f"{error_text(error)} with more {name} alone" for name, error in known.items())
        most = min(known, key=lambda name: known[name])
        both = known[most] > BOTH * challenge.after
        alike = len(known) == 2 and max(known.values()) <= ALIKE * min(known.values())
        which = "both together" if both else "either of them" if alike else most
        helped = f" ({parts}: {which} helped)"
    instead = "" if challenge.before is None else f" instead of {error_text(challenge.before)}"
    error = f"error {error_text(challenge.after)}{instead}{helped}"
    return f"{heads} became enough with {what}: {error}. Not heads but these limited it."


def category_text(ids: int, tried: Sequence[int], used: bool) -> str:
    """Say which numbers were taken for categories; `tried` are columns of few whole numbers, `used` the outcome."""
    if ids:
        amounts = "where they are amounts, give floats, and both readings are tried"
        return f"X holds {ids} different ids, taken as categories (one-hot); {amounts}."
    if not tried:
        return ""
    few = f"column {tried[0]}" if len(tried) == 1 else f"columns {', '.join(map(str, tried))}"
    better = "categories (one-hot), with which" if used else "amounts: as categories (one-hot)"
    end = "a short trial did clearly better" if used else "a short trial did not do clearly better"
    return f"The few whole numbers of {few} (from 0) were taken as {better} {end}."


def data_text(material_size: int, folds: int, repeats: bool, settled: bool = True) -> str:
    """Say how many sequences decided, and how; and where they could not."""
    decided = f"{material_size:,} sequences decided" if settled else f"{material_size:,} sequences do not settle it"
    if folds == 1:
        return f"{decided}; no model was trained on them."
    return (
        f"{decided}, each predicted by models that were not trained on it ({folds} folds"
        f"{', dealt anew for every seed' if repeats else ''}). Their errors depend on each other: the level of the "
        f"interval is nominal, with a corrected variance."
    )


def _theory(decision: HeadsNeeded, answer: int, record: dict[str, object]) -> list[Reason]:
    """What is proved, and on which condition."""
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
    told = [
        Reason(
            tag="proved",
            text=f"If y is made of {answer} minima over tokens, {heads_text(answer)} reach every "
            f"accuracy at a cost in which the length is no exponent (Theorem 2 (1)).",
        )
    ]
    sharp = exponents(length=length, heads=answer - 1, head_dim=head_dim, intrinsic=answer)[1]
    fewer = f"{heads_text(answer - 1)} with bounded weights {'needs' if answer == 2 else 'need'}"
    if sharp.vacuous:
        text = (
            f"The lower bound for {heads_text(answer - 1)} (Theorem 2 (2)) says nothing at length {length}: it bites "
            f"from {sharp.bites_from_length} on."
        )
    elif sharp.k < WEAK:
        text = (
            f"The lower bound for {heads_text(answer - 1)} (Theorem 2 (2)) is weak at length {length} and rules out "
            f"little: a feed-forward block that grows like error^(−{sharp.k:.1f})."
        )
    else:
        text = (
            f"If y is made of {answer} minima, {fewer} a feed-forward block that grows like error^(−{sharp.k:.1f}) "
            f"(Theorem 2 (2), sup error)."
        )
    return [*told, Reason(tag="proved", text=text)]


def _of(models: int) -> str:
    """Say of how many models a number is the best."""
    return "the only model" if models == 1 else f"the best of {models} models"


def curve_table(record: AdviceRecord) -> Table:
    """The curve as a table."""
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
    """Say what a neighbouring head count costs or saves."""
    factor = price.error_ratio
    error = f"error × {times_text(factor)}" if price.told_apart else "no difference in error that can be told"
    step = "" if price.step_ratio is None else f", step time × {price.step_ratio:.2f}"
    less = "fewer" if price.heads < answer else "more"
    count = abs(price.heads - answer)
    what = f"one head {less}" if count == 1 else f"{count} heads {less}"
    return f"{what.capitalize()} ({price.heads}): {error}, parameters × {price.parameters_ratio:.2f}{step}."


def curve_text(curve: Curve) -> str:
    """Say what the errors are while something else than the head size is kept."""
    several = max(p.seeds for p in curve.points) > 1
    spread = lambda p: f" ({p.median:.2g})" if several else ""  # noqa: E731
    errors = ", ".join(f"{p.heads}: {p.validation:.2g}{spread(p)}" for p in curve.points)
    of = f"best of {max(p.seeds for p in curve.points)} models (median)" if several else "one model each"
    return f"At fixed {curve.kind} ({curve.fixed}), error by heads, {of}: {errors}."
