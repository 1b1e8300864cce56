"""`headcount advise DATA`: how many heads the data need, with an interval, evidence and a price."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from headcount.cli.common import (
    ARRAYS,
    Device,
    Json,
    TargetKind,
    Time,
    Whole,
    console,
    duration,
    page_name,
    print_files,
    print_json,
)
from headcount.core import BadInput, working

if TYPE_CHECKING:
    from headcount.advisor import Advice, Configuration, WitnessRecord

DEFAULT_OUT = Path("headcount-advice")
"""The default of --out: pages go to a folder in here, one for each path of data."""
WITNESS_BUDGET_FRACTION = 0.07
"""Fraction of the budget for the search for a witness."""
WITNESS_MAX_SECONDS = 20.0
"""Time limit of the search for a witness, in seconds."""


def advise(
    data: Annotated[
        Path, Parameter(help="Arrays: .npz (X, y, mask), X.npy beside y.npy, .parquet or .csv in long form.")
    ],
    file: Annotated[Path | None, Parameter(help="With --json: the file to write (default: standard output).")] = None,
    /,
    *,
    budget: Annotated[Time, Parameter(help="Time for the answer: 120 (seconds), 90s, 5m, 1h.")] = "5m",
    heads_max: Annotated[Whole, Parameter(name="--heads-max", help="The largest head count to try.")] = 32,
    confidence: Annotated[float, Parameter(help="Confidence of the interval and of comparisons.")] = 0.95,
    kind: TargetKind = "auto",
    embed_dim: Annotated[
        Whole | None,
        Parameter(
            name="--embed-dim", help="The width of your model, for the configuration (default: the measured width)."
        ),
    ] = None,
    steps: Annotated[
        Whole | None,
        Parameter(
            help="Steps of every trial; with them every run gives the same answer (default: what the budget allows)."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        Parameter(
            help="Folder to write: index.html, advice.json and advice.png (default: headcount-advice/NAME, with a "
            "name from the path of the data; with --json none)."
        ),
    ] = None,
    seed: Annotated[Whole, Parameter(help="Seed of the split, the weights and the batches.")] = 0,
    device: Device = "cpu",
    json: Json = False,
) -> int:
    """Say how many attention heads sequences need: the smallest count whose error is within a margin of the best."""
    from headcount.training import warm_up_device

    warm_up_device(device)
    from headcount.advisor import FILES, MIN_SEARCH_SECONDS, check_numbers, check_width
    from headcount.advisor import advise as ask
    from headcount.core import check_output_folder, write_json

    if file is not None and not json:
        raise BadInput(f"{file}: only one data file is allowed (a second file name is that of the record, with --json)")
    if file is not None and data.suffix.lower() == ".json":
        data, file = file, data  # --json FILE DATA
    if data.suffix.lower() not in ARRAYS:
        raise BadInput(f"{data}: unsupported type of file for sequences: use {', '.join(ARRAYS)}")
    if seed < 0:
        raise BadInput(f"--seed must be 0 or more, not {seed}")
    seconds = duration(budget, "--budget")
    check_numbers(seconds, heads_max, confidence, steps, flags=True)
    check_width(embed_dim, "--embed-dim")
    if file is not None and str(file) in ("-", "/dev/stdout"):
        file = None
    if file is not None:
        _check_record(file, data)
    if out is None and not json:
        out = DEFAULT_OUT / page_name(data.with_suffix(""), "data")
    if out is not None:
        check_output_folder(out, FILES, FILES[0])
    found = ask(
        data,
        budget=seconds,
        heads_max=heads_max,
        confidence=confidence,
        device=device,
        seed=seed,
        kind=kind,
        steps=steps,
        witness=max(MIN_SEARCH_SECONDS, min(WITNESS_MAX_SECONDS, WITNESS_BUDGET_FRACTION * seconds)),
    )
    config = _sizes(found, embed_dim)
    witness = found.looked  # None after Ctrl-C
    if json and file is None:
        print_json(found.data(config, witness))
    else:
        _show(found, config, witness)  # before anything is written: a full disk must not cost the answer
    if file is not None:
        write_json(file, found.data(config, witness))
    if out is not None:
        with working("drawing"):
            found.write(out, config, witness)
        if not json or file is not None:
            names = {"Page": "index.html", "Record": "advice.json", "Picture": "advice.png"}
            print_files((what, out / name) for what, name in names.items())
    return 0


def _sizes(found: Advice, embed_dim: int | None) -> Configuration | None:
    """Return sizes for the user's width, or for the measured one, with a note, if no head count divides the user's."""
    if found.record.named is None:
        return None
    try:
        return found.configuration(embed_dim)
    except BadInput as error:
        note = f"{error}. The sizes here are those at the measured width."
        return found.configuration().model_copy(update={"note": note})


def _check_record(file: Path, data: Path) -> None:
    """Refuse a file for the record that cannot be written or would overwrite data, before the work, not after it."""
    from headcount.core import check_writable

    if file.is_dir() or not file.parent.is_dir():
        why = "is a folder" if file.is_dir() else "cannot be written: its folder does not exist"
        raise BadInput(f"{file} {why}: --json takes a file to write")
    if file.suffix.lower() in ARRAYS or (file.exists() and data.exists() and file.samefile(data)):
        raise BadInput(f"{file} is data, which --json would overwrite: choose a name for the record that ends in .json")
    if file.is_file() or not file.exists():
        check_writable(file.parent, "--json FILE")


def _show(found: Advice, config: Configuration | None, witness: WitnessRecord | None) -> None:
    """Print the answer first, then the curve, the price, the reasons, and the code for a model."""
    from headcount.advisor import curve_table, curve_text, price_text
    from headcount.render import as_terminal
    from headcount.render.words import percent

    record, terminal = found.record, console()
    low, high = record.interval
    end = f"{low} or more" if record.interval_open else f"{low} to {high}"
    terminal.print(record.sentence, style="bold")
    terminal.print(
        f"Recommended heads: {record.named or 'none'}   interval at {percent(record.confidence)}: "
        f"{end}   {record.trials} models in {record.seconds:.0f} s"
    )
    terminal.print(as_terminal(curve_table(record)))
    terminal.print()
    for price in record.prices:
        terminal.print(price_text(price, record.recommended_heads))
    for curve in record.curves:
        terminal.print(curve_text(curve))
    for reason in (*record.reasons, *(witness.sentences if witness is not None else ())):
        terminal.print(f"- {reason.text} ({reason.tag})")
    if witness is not None and witness.why:
        terminal.print(f"No pair of inputs that one head fewer confuses: {witness.why}")
    terminal.print(f"What would settle it: {record.settle}")
    if config is not None:
        for layer, name in ((config.torch, "nn.MultiheadAttention"), (config.free, "hc.Attention")):
            free = "" if layer is config.torch else f", head_dim={layer.head_dim}"
            terminal.print(f"{name}({layer.embed_dim}, {layer.num_heads}{free})")
        terminal.print(config.note)
