"""Advice records without training: one for every verdict, with all that a record can hold."""

from __future__ import annotations

from headcount.advisor.record import AdviceRecord, Curve, CurvePoint, LengthPoint, Price
from headcount.advisor.words.answer import sentence, settles
from headcount.analysis.record import HeadsNeeded, Reason, Verdict
from headcount.core.origin import provenance

VERDICTS: tuple[Verdict, ...] = (
    "transition",
    "one-head",
    "gentle",
    "not-reached",
    "failed",
    "noise",
    "unclear",
    "too-few",
)
ERRORS: dict[Verdict, dict[int, float]] = {
    "transition": {1: 0.42, 2: 0.13, 3: 0.0021, 4: 0.0018, 8: 0.0019},
    "one-head": {1: 0.0101, 2: 0.0104, 4: 0.0102, 8: 0.0103},
    "gentle": {1: 0.31, 2: 0.24, 4: 0.19, 8: 0.185, 16: 0.184},
    "not-reached": {1: 0.9, 2: 0.71, 4: 0.5, 8: 0.21, 16: 0.08, 32: 0.013},
    "failed": {1: 1.01, 2: 1.02, 4: 1.2, 8: 1.3},
    "noise": {1: 1.0, 2: 1.001, 4: 1.01, 8: 1.02},
    "unclear": {1: 0.83, 2: 0.8, 4: 0.59, 8: 0.56},
    "too-few": {1: 0.7},
}
HEADS: dict[Verdict, int | None] = {"transition": 3, "one-head": 1, "gentle": 4, "noise": 1}


def point(heads: int, error: float, head_dim: int = 4, wrong: float | None = None) -> CurvePoint:
    return CurvePoint(
        heads=heads,
        head_dim=head_dim,
        hidden=32,
        seeds=3,
        validation=error,
        median=1.3 * error,
        worst=2.1 * error,
        train=0.7 * error,
        wrong=wrong,
        excess=max(error - 0.0011, 0.0),
        parameters=300 * heads + 1200,
        step_seconds=1e-4 * (4 + heads),
    )


def made_record(verdict: Verdict = "transition", *, name: str = "sensors.csv", classes: bool = False) -> AdviceRecord:
    """A record that reads like a real one."""
    heads, errors = HEADS.get(verdict), ERRORS[verdict]
    decision = HeadsNeeded(
        verdict=verdict,
        estimate=None if verdict == "noise" else heads,
        low=heads or 1,
        high=None if verdict in ("not-reached", "noise", "failed", "unclear", "too-few") else heads,
        noise_floor=0.0011,
        spread=1e-4,
        gain_chance=0.4,
        margin=1e-4,
        shares={heads or 0: 1.0},
        errors=list(errors.items()),
    )
    curve = [point(h, error, wrong=error / 4 if classes else None) for h, error in errors.items()]
    at = {p.heads: p for p in curve}
    prices = [
        Price(
            heads=h,
            error=at[h].validation,
            error_ratio=at[h].validation / at[heads].validation,
            told_apart=h < heads,
            parameters=at[h].parameters,
            parameters_ratio=at[h].parameters / at[heads].parameters,
            step_seconds=at[h].step_seconds,
            step_ratio=0.9,
        )
        for h in ((2, 4) if heads == 3 else ())
        if heads is not None
    ]
    curves = [
        Curve(
            kind="width",
            fixed="heads × head size about 12",
            points=[point(1, 0.4, 12), point(2, 0.12, 6), point(3, 0.0021), point(4, 0.003, 3), point(6, 0.004, 2)],
        ),
        Curve(
            kind="parameters",
            fixed="at most 2100 parameters in all",
            points=[point(1, 0.41), point(2, 0.14), point(3, 0.0021), point(4, 0.0034)],
        ),
    ]
    return AdviceRecord(
        name=name,
        verdict=verdict,
        sentence=sentence(decision, 32),
        needed=decision,
        recommended_heads=heads or min(errors, key=lambda h: errors[h]),
        interval=[decision.low, decision.high or 32],
        interval_open=decision.high is None,
        no_transition=verdict not in ("transition", "not-reached"),
        confidence=0.95,
        settled=verdict == "transition",
        noise_floor=0.0011,
        noise_floor_high=min(errors.values()),
        curve=curve,
        curves=curves if verdict == "transition" else [],
        prices=prices,
        lengths=[
            LengthPoint(shortest=3, longest=8, samples=70, error=0.0016),
            LengthPoint(shortest=9, longest=16, samples=130, error=0.0023),
        ]
        if verdict == "transition"
        else [],
        answers={str(heads or "none"): 1.0},
        reasons=[
            Reason(tag="measured", text="The best model errs by little."),
            Reason(tag="proved", text="If y is made of 3 minima over tokens, 3 heads reach every accuracy."),
            Reason(tag="extrapolated", text="Deeper models may need fewer heads per layer."),
        ],
        settle=settles(decision),
        kind="classification" if classes else "regression",
        classes=["no", "yes"] if classes else None,
        samples=1000,
        train_samples=800,
        validation_samples=200,
        length=16,
        dim=2,
        out_dim=2 if classes else 1,
        model={"head_dim": 4, "hidden": 32, "depth": 1, "positions": "none"},
        train={"steps": 1500, "batch": 128, "learning_rate": 0.01},
        trials=14,
        seconds=62.3,
        budget=300.0,
        seed=0,
        provenance=provenance("cpu"),
    )
