"""`headcount probe MODEL`: which heads of a Hugging Face model matter, and which can go."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from headcount.base.errors import BadInput
from headcount.cli.common import Device, Json, Whole, console, print_json


def probe(
    model: Annotated[Path, Parameter(help="The folder of a Hugging Face model (BERT, ViT, GPT-2, Llama families).")],
    data: Annotated[
        Path | None, Parameter(help="Lines of text (.txt), or arrays named as the model's inputs (.npz).")
    ] = None,
    /,
    *,
    prune: Annotated[float, Parameter(help="Share by which the loss may grow when heads go.")] = 0.01,
    out: Annotated[Path | None, Parameter(help="Folder to write: probe.json, heads.md, heads.png, index.html.")] = None,
    save: Annotated[Path | None, Parameter(help="Folder to write: the model without the heads that can go.")] = None,
    samples: Annotated[Whole, Parameter(help="Samples to measure on, at most.")] = 32,
    batch: Annotated[Whole, Parameter(help="Samples at once.")] = 4,
    seed: Annotated[Whole, Parameter(help="Seed of masked and random tokens.")] = 0,
    device: Device = "cpu",
    json: Json = False,
) -> int:
    """Measure what every attention head of a model is worth, which repeat others and which can go; remove them."""
    from headcount.advice.probe_folder import probe_folder
    from headcount.advice.probe_page import check_out, write_folder
    from headcount.advice.probe_save import check_target
    from headcount.base.progress import Progress

    for name, value, least in (("--samples", samples, 1), ("--batch", batch, 1), ("--seed", seed, 0)):
        if value < least:
            raise BadInput(f"{name} must be {least} or more, not {value}")
    if not 0 <= prune < 100:
        raise BadInput(f"--prune is a share of the loss from 0 on (0.01: one per cent), not {prune:g}")
    if out is not None:
        check_out(out)
    if save is not None:
        check_target(save, model)
    with Progress("probing", 1.0, every=5.0, closes=False) as progress:
        found = probe_folder(
            model, data, budget=prune, samples=samples, batch=batch, seed=seed, device=device, save=save,
            told=lambda share, note: progress.advance(max(share - progress.done, 0.0), note=note),
        )  # fmt: skip
    if out is not None:
        write_folder(found.record, out)
    if json:
        print_json(found.record.data())
        return 0
    from headcount.advice.probe_words import headline, layer_table, sentences
    from headcount.report.narrow import print_table

    terminal = console()
    terminal.print(f"[bold]{headline(found.record)}[/bold] (measured)")
    table = layer_table(found.record)
    names = [column.name for column in table.columns]
    print_table(terminal, table.caption, names, table.rows, keys=1, marked=table.marked)
    for text in [*sentences(found.record), *found.record.notes]:
        terminal.print(text, markup=False)
    if save is not None:
        kept = f"Saved in {save}, and read again: the same outputs."
        terminal.print(kept if found.record.saved else "Nothing was saved: no head goes.", markup=False)
    if out is not None:
        terminal.print(f"Page     {out / 'index.html'}\nPicture  {out / 'heads.png'}", markup=False)
    return 0
