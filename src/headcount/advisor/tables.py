"""The tables and lists on the page of an advice."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from headcount.advisor.configuration import Configuration
from headcount.advisor.record import AdviceRecord
from headcount.render import NONE, Column, Table
from headcount.render.words import error_text, times_text

POSITION_TEXTS = {
    "none": "not seen by the models",
    "concatenated": "seen by the models, beside each token",
    "gates": "seen by the models in the attention scores only",
}


def price_table(record: AdviceRecord) -> Table:
    """Return the table of the recommended head count and its neighbours."""
    at = {point.heads: point for point in record.curve}
    answer = record.named
    rows = {
        p.heads: [
            str(p.heads),
            error_text(p.error),
            f"{times_text(p.error_ratio)}",
            "yes" if p.told_apart else "no",
            f"{p.parameters:,}",
            f"{p.parameters_ratio:.2f}",
            _step(p.step_seconds),
            NONE if p.step_ratio is None else f"{p.step_ratio:.2f}",
        ]
        for p in record.prices
    }
    if answer is not None and answer in at:
        own = at[answer]
        rows[answer] = [
            str(answer),
            error_text(own.validation),
            "",
            "",
            f"{own.parameters:,}",
            "",
            _step(own.step_seconds),
            "",
        ]
    order = sorted(rows)
    columns = [
        Column(name="Heads", meaning="number of attention heads"),
        Column(name="Error", meaning="of the best model on the validation part, as a share of the variance of y"),
        Column(name="Error ×", meaning="relative to the recommended heads"),
        Column(name="Told apart", meaning="whether the validation sequences tell the two errors apart"),
        Column(name="Parameters", meaning="of the whole model"),
        Column(name="Parameters ×", meaning="relative to the recommended heads"),
        Column(name="Step", meaning=f"measured time of one training step {record.steps_on}"),
        Column(name="Step ×", meaning="relative to the recommended heads"),
    ]
    marked = order.index(answer) if answer in order else None
    return Table(caption="One head fewer, one more", columns=columns, rows=[rows[h] for h in order], marked=marked)


def fixed_table(record: AdviceRecord) -> Table:
    """Return the table of head counts at fixed width and at fixed parameter count."""
    columns = [
        Column(name="Fixed", meaning="what is held fixed while heads are added"),
        Column(name="Heads", meaning="number of attention heads"),
        Column(name="Size", meaning="of every head"),
        Column(name="Hidden", meaning="units of the feed-forward block"),
        Column(name="Parameters", meaning="of the whole model"),
        Column(name="Models", meaning="models trained from different random starts"),
        Column(name="Error", meaning="of the best model on the validation part, as a share of the variance of y"),
        Column(name="Median", meaning="of the models"),
        Column(name="Training", meaning="error of the best model on the training part"),
    ]
    rows = [
        [
            curve.kind,
            str(p.heads),
            str(p.head_dim),
            str(p.hidden),
            f"{p.parameters:,}",
            str(p.seeds),
            *(error_text(e) for e in (p.validation, p.median, p.train)),
        ]
        for curve in record.curves
        for p in curve.points
    ]
    return Table(caption="At fixed width and at fixed parameters", columns=columns, rows=rows, marked=None)


def length_table(record: AdviceRecord) -> Table:
    """Return the table of the best model's error on sequences of different lengths."""
    columns = [
        Column(name="Length", meaning="tokens of the sequences, from shortest to longest"),
        Column(name="Sequences", meaning="of the validation part"),
        Column(name="Error", meaning="of the best model on them, as a share of the variance of y"),
    ]
    rows = [
        [
            str(p.shortest) if p.shortest == p.longest else f"{p.shortest} to {p.longest}",
            f"{p.samples:,}",
            error_text(p.error),
        ]
        for p in record.lengths
    ]
    return Table(caption="Error by length", columns=columns, rows=rows, marked=None)


def shorter_table(record: AdviceRecord) -> Table:
    """Return the table of head counts on shortened and on whole sequences."""
    columns = [
        Column(name="Length", meaning="tokens of a sequence, shortened or whole"),
        Column(name="Heads", meaning="number of attention heads"),
        Column(name="Error", meaning="as a share of the variance, with the best model's predictions as y"),
    ]
    rows = [[str(p.length), str(p.heads), error_text(p.error)] for p in record.shorter]
    return Table(
        caption="Error on shortened and on whole sequences, with the best model's predictions as y",
        columns=columns,
        rows=rows,
        marked=None,
    )


def layer_table(config: Configuration) -> Table:
    """Return the table of the two layers."""
    columns = [
        Column(name="Layer", meaning="torch's own, and headcount's with the same call"),
        Column(name="embed_dim", meaning="the width"),
        Column(name="num_heads", meaning="number of heads"),
        Column(name="head_dim", meaning="size of a head"),
        Column(name="Parameters", meaning="of the layer, exact"),
    ]
    rows = [
        [name, str(s.embed_dim), str(s.num_heads), str(s.head_dim), f"{s.parameters:,}"]
        for name, s in (("nn.MultiheadAttention", config.torch), ("hc.Attention", config.free))
    ]
    return Table(caption="Recommended sizes", columns=columns, rows=rows, marked=None)


def settings(record: AdviceRecord) -> list[tuple[str, str]]:
    """Return what was trained, on what, and how, as names and values."""
    classes = f", {len(record.classes)} classes" if record.classes is not None else ""
    model, train = record.model, record.train
    tokens = str(record.length) if record.shortest is None else f"{record.shortest} to {record.length}"
    sizes = f"{record.samples:,} sequences of {tokens} tokens with {record.dim} features"
    return [
        ("Data", f"{record.name}: {sizes}"),
        ("Target", f"{record.kind}{classes}, {record.out_dim} output{'' if record.out_dim == 1 else 's'}"),
        ("Split", f"{record.train_samples:,} to train on, {record.validation_samples:,} to validate"),
        ("Models", f"one layer, heads of size {model.get('head_dim')}, {model.get('hidden')} hidden units"),
        ("Positions", POSITION_TEXTS.get(str(model.get("positions")), str(model.get("positions")))),
        ("Training", f"{train.get('steps')} steps of {train.get('batch')} sequences"),
        ("Learning rate", str(train.get("learning_rate"))),
        ("Heads tried", ", ".join(str(p.heads) for p in record.curve)),
        ("Trials", f"{record.trials} in {record.seconds:.1f} s, with a budget of {record.budget:g} s"),
        ("Seed", str(record.seed)),
    ]


def origin(made: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return where the numbers come from, as names and values."""
    return [(name.capitalize(), _flat(value)) for name, value in made.items() if value]


def _flat(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k} {_flat(v)}" for k, v in value.items() if v not in (None, ""))
    return value if isinstance(value, str) else json.dumps(value)


def _step(seconds: float | None) -> str:
    return NONE if seconds is None else f"{1000 * seconds:.2f} ms"
