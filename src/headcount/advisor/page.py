"""The page of an advice: the answer first, then its charts, prices and reasons, in one file that loads nothing."""

from __future__ import annotations

import json
from pathlib import Path

from headcount.advisor.charts import advice_charts
from headcount.advisor.configuration import Configuration, configuration
from headcount.advisor.record import AdviceRecord, WitnessRecord
from headcount.advisor.tables import (
    fixed_table,
    layer_table,
    length_table,
    origin,
    price_table,
    settings,
    shorter_table,
)
from headcount.advisor.words.answer import (
    TAGS,
    curve_table,
    evidence,
    headline,
    price_text,
    recommended_text,
    redraws_text,
)
from headcount.advisor.words.witness import witness_title
from headcount.core import write_text
from headcount.render import page


def write_page(
    record: AdviceRecord, path: Path, config: Configuration | None = None, witness: WitnessRecord | None = None
) -> None:
    """Write the page as one file."""
    write_text(path, advice_page(record, config, witness))


def advice_page(record: AdviceRecord, config: Configuration | None = None, witness: WitnessRecord | None = None) -> str:
    """Return the page as one HTML document that loads nothing; its only script is the package's own.

    config: what `configuration` returned; None shows the one at the measured width, if the advice names a number of
    heads. witness: what `witness` returned.
    """
    if config is None and record.named is not None:
        config = configuration(record)
    prices = [price_text(price, record.recommended_heads) for price in record.prices]
    return page(
        "advisor/advice.html.j2",
        title=f"{record.name}: {record.sentence}",
        record=record,
        headline=headline(record),
        recommended=recommended_text(record),
        evidence=evidence(record),
        charts=advice_charts(record),
        redraws=f"{redraws_text(record)} {TAGS}".strip(),
        prices=prices,
        price_table=price_table(record),
        fixed_table=fixed_table(record),
        curve_table=curve_table(record),
        length_tables=[table for table in (length_table(record), shorter_table(record)) if table.rows],
        witness=witness,
        witness_title=witness and witness_title(witness),
        pair=witness and _pair(witness),
        config=config,
        layer_table=config and layer_table(config),
        code=config and config.code.strip(),
        done=settings(record),
        origin=origin(record.provenance),
        full_record=json.dumps(record.data(), indent=2, ensure_ascii=False),
    )


def _pair(witness: WitnessRecord) -> str:
    """Return the two inputs as text, one token per line."""
    return json.dumps({"X1": witness.X1, "X2": witness.X2}, indent=None).replace("], [", "],\n [")
