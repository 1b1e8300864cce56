"""`headcount probe MODEL`: which heads of a Hugging Face model matter, and which can go."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from headcount.cli.common import Device, Json, Whole, console, page_name, print_files, print_json
from headcount.core import BadInput, working

if TYPE_CHECKING:
    from headcount.probing import ProbeRecord

POINT_COLUMNS = 6
"""Columns of the terminal for each point of the curve."""
DEFAULT_OUT = Path("headcount-probe")
"""The default of --out: pages go to a folder in here, one for each model."""


def probe(
    model: Annotated[
        Path, Parameter(help="The folder of a Hugging Face model (BERT, ViT, GPT-2, Llama, T5 families).")
    ],
    data: Annotated[
        Path | None,
        Parameter(
            help="Lines of text (.txt), or the model's inputs as arrays (.npz); default: built-in text or noise."
        ),
    ] = None,
    /,
    *,
    prune: Annotated[float, Parameter(help="Fraction by which the loss may grow when heads are removed.")] = 0.01,
    out: Annotated[
        Path | None,
        Parameter(
            help="Folder for page, pictures and record (default: headcount-probe/NAME, with a name from the model's "
            "path; with --json none)."
        ),
    ] = None,
    save: Annotated[
        Path | None, Parameter(help="Folder for the model without the heads that can go (default: it is not saved).")
    ] = None,
    save_at_chance: Annotated[
        bool, Parameter(negative=(), help="With --save: save even a model that is at chance level on the data.")
    ] = False,
    samples: Annotated[Whole, Parameter(help="Maximum number of samples to measure on.")] = 32,
    batch: Annotated[Whole, Parameter(help="Samples per batch.")] = 4,
    seed: Annotated[Whole, Parameter(help="Seed of masked and random tokens.")] = 0,
    device: Device = "cpu",
    json: Json = False,
) -> int:
    """Measure what every attention head of a model is worth, which heads repeat others and which can be removed."""
    from headcount.core import Progress
    from headcount.probing import check_out, check_target, probe_folder, write_folder

    for name, value, least in (("--samples", samples, 1), ("--batch", batch, 1), ("--seed", seed, 0)):
        if value < least:
            raise BadInput(f"{name} must be {least} or more, not {value}")
    if not 0 <= prune < 100:
        raise BadInput(f"--prune must be a fraction of the loss, 0 or more (0.01 is one per cent), not {prune:g}")
    if out is None and not json:
        out = DEFAULT_OUT / page_name(model, "model")
    if out is not None:
        check_out(out)
    if save_at_chance and save is None:
        raise BadInput("--save-at-chance needs --save FOLDER: nothing is saved without it")
    if save is not None:
        check_target(save, model)
        if out is not None and save.absolute() == out.absolute():
            raise BadInput(f"--save and --out name the same folder, {save}: the model and the page need one each")
    with Progress("probing", 1.0, every=5.0, closes=False) as progress:
        found = probe_folder(
            model,
            data,
            budget=prune,
            samples=samples,
            batch=batch,
            seed=seed,
            device=device,
            save=save,
            save_at_chance=save_at_chance,
            on_progress=lambda share, note: progress.advance(max(share - progress.done, 0.0), note=note),
        )
    if json:
        print_json(found.record.data())
    else:
        _show(found.record, save)  # before anything is written: a full disk must not cost the answer
    if out is not None:
        with working("drawing"):
            write_folder(found.record, out)
    if out is not None and not json:
        names = {"Page": "index.html", "Picture": "heads.png", "Curve": "curve.png", "Record": "probe.json"}
        print_files((what, out / name) for what, name in names.items() if (out / name).is_file())
    return 0


def _show(record: ProbeRecord, save: Path | None) -> None:
    """Print the answer first, then the layers, the curve and the findings."""
    from headcount.probing import (
        MAX_TERMINAL_POINTS,
        curve_chart,
        curve_table,
        headline,
        layer_table,
        loading_text,
        sentences,
    )
    from headcount.render import as_terminal
    from headcount.render.charts import print_chart

    terminal = console()
    terminal.print(f"{headline(record)} (measured)", style="bold")
    tables = [layer_table(record), curve_table(record, MAX_TERMINAL_POINTS)]
    chart = curve_chart(record, min(MAX_TERMINAL_POINTS, terminal.width // POINT_COLUMNS))
    for table in tables if chart is not None else tables[:1]:
        terminal.print(as_terminal(table))
    if chart is not None:
        terminal.print()
        print_chart(chart, terminal)
    terminal.print()
    for text in [*sentences(record), *record.notes]:
        terminal.print(text)
    for text in loading_text(record):
        terminal.print(text, soft_wrap=True)  # a line to paste must not be broken
    if save is not None and record.saved is None:
        terminal.print("Nothing was saved: no head can be removed.")
