"""`advise`: how many heads some data need, answered within a time budget, with evidence and prices."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray

from headcount.advisor.charts import answer_chart
from headcount.advisor.configuration import Configuration, configuration
from headcount.advisor.data import Kind, Material, from_file, from_task, material
from headcount.advisor.decide import TrialsByHeads
from headcount.advisor.engine import TrialEngine
from headcount.advisor.page import advice_page, write_page
from headcount.advisor.predict import predict
from headcount.advisor.prices import by_length, curve_points, other_curves, prices, step_times
from headcount.advisor.record import AdviceRecord, Curve, CurvePoint, ShorterPoint, WitnessRecord
from headcount.advisor.search import SEARCH_FRACTION, USUAL_BUDGET, Search
from headcount.advisor.shorter_sequences import in_words, on_halves
from headcount.advisor.trials import Outcome
from headcount.advisor.warnings import data_warnings
from headcount.advisor.witness import MIN_SEARCH_SECONDS, find_witness, save_witness
from headcount.advisor.words.answer import (
    NOT_COMPARED,
    category_text,
    curve_table,
    data_text,
    reasons,
    recommended_text,
    sentence,
    settles,
)
from headcount.analysis import HeadsNeeded, Reason
from headcount.core import (
    BadInput,
    Displayable,
    Progress,
    check_output_folder,
    json_bytes,
    provenance,
    run_concurrently,
    write_files,
)
from headcount.core.text import duration, plain
from headcount.render import View
from headcount.render.charts import Chart, picture
from headcount.sweeps import ModelOptions
from headcount.tasks import Task
from headcount.tasks.arrays import ArrayTask
from headcount.training import check_seed, device_name, find_device, full_precision, start_kernels

MAX_HEADS = 256
MAX_SECONDS = 10_000_000
"""Upper limit of a budget."""
FILES = ("advice.json", "advice.png", "index.html")
TASK_SAMPLES = 10_000
"""Sequences that are drawn from a task."""
PRICES_END_FRACTION = 0.93
"""Fraction of the budget at which pricing stops; the witness search gets the rest."""
PRICES_MAX_FRACTION = 0.3
"""Largest fraction of the budget that pricing may take, so that a quick answer stays quick."""
WITNESS_TIME_FRACTION = 0.5
"""The witness search may take this fraction of the time that the answer took."""
MAX_WITNESS_DELAY = 0.5
"""Seconds by which the witness search may exceed the budget."""
TOO_FEW_MODELS = "Too few models were trained to tell."
"""The sentence after Ctrl-C, where otherwise the budget would be called too small."""


@dataclass(frozen=True, eq=False)
class Advice(Displayable):
    """The answer: a record of numbers and sentences, and the best model that was found."""

    record: AdviceRecord
    best: Outcome
    material: Material
    trials: tuple[Outcome, ...]
    task: Task | None = None
    """The task that the data were sampled from, if known."""
    looked: WitnessRecord | None = None
    """The witness, if `advise` was asked to search for one."""

    @property
    def recommended_heads(self) -> int:
        """The recommended head count; if the data do not say (`record.named` is None), that of the best model."""
        return self.record.recommended_heads

    @property
    def interval(self) -> tuple[int, int]:
        """The smallest and the largest head count that the answer may be."""
        low, high = self.record.interval
        return low, high

    def predict(self, X: Any, mask: Any = None) -> NDArray[Any]:
        """Predict new sequences with the best model: y[samples], y[samples, out], or labels.

        X: [samples, length, dim], as in training, of any length. mask: True at real tokens; None if all are real.
        """
        return predict(self.best, self.material, X, mask)

    def configuration(self, embed_dim: int | None = None) -> Configuration:
        """Return sizes and source code for torch's attention and for hc.Attention.

        embed_dim: the required width; None for the width that was measured.
        """
        return configuration(self.record, embed_dim)

    def witness(self, seconds: float | str = 20.0) -> WitnessRecord:
        """Return two inputs that the layer with one head fewer cannot tell apart, or why there are none.

        seconds: the most that the search may take, as a number or a text such as "20s" (default 20).
        """
        seconds = duration(seconds, "seconds")
        if not MIN_SEARCH_SECONDS <= seconds < MAX_SECONDS:
            raise BadInput(f"the search for a witness needs {MIN_SEARCH_SECONDS:g} seconds or more, not {seconds:g}")
        heads, seed = self.record.named, self.record.seed
        return find_witness(self.trials, self.material, heads, task=self.task, seconds=seconds, seed=seed)

    def save_witness(self, found: WitnessRecord, folder: str | Path) -> None:
        """Write a proved witness and its layer as a folder that `headcount recheck` verifies.

        found: what `witness` returned. folder: must be new or empty.
        """
        save_witness(found, self.trials, self.material, self.record.named, self.task, Path(folder))

    def page(self, path: str | Path, config: Configuration | None = None, witness: WitnessRecord | None = None) -> None:
        """Write the plain-language page as one self-contained file.

        path: the file. config: what `configuration` returned, to be shown. witness: what `witness` returned (default:
        `looked`).
        """
        write_page(self.record, Path(path), config, witness or self.looked)

    def data(self, config: Configuration | None = None, witness: WitnessRecord | None = None) -> dict[str, Any]:
        """Return the record as plain data.

        config: what `configuration` returned, to be included. witness: what `witness` returned (default: `looked`).
        """
        witness = witness or self.looked
        return {
            **self.record.data(),
            "configuration": None if config is None else config.data(),
            "witness": None if witness is None else witness.data(),
        }

    def write(
        self, folder: str | Path, config: Configuration | None = None, witness: WitnessRecord | None = None
    ) -> None:
        """Write a folder with the record, the picture and the page: all of them or none.

        folder: where to write; the folder of an earlier advice is replaced. config, witness: as for `page`.
        """
        check_output_folder(Path(folder), FILES, FILES[0])
        page = advice_page(self.record, config, witness or self.looked)
        contents = (json_bytes(self.data(config, witness)), picture(self.figure()), page.encode())
        write_files(Path(folder), dict(zip(FILES, contents, strict=True)))

    def figure(self) -> Chart:
        """Return error against heads as a chart."""
        table = TrialsByHeads.of(self.trials)
        dots = {h: [trial.validation for trial in row] for h, row in zip(table.heads, table.trials, strict=True)}
        return answer_chart(self.record, dots)

    def _view(self) -> View:
        return View(
            sentences=[self.record.sentence, recommended_text(self.record)],
            tables=[curve_table(self.record)],
            figures=[self.figure()] if self.record.curve else [],
            rows=[point.data() for point in self.record.curve],
        )

    def __repr__(self) -> str:
        return plain(self.record.sentence)


def advise(
    data: Task | ArrayTask | str | Path | Any,
    y: Any = None,
    mask: Any = None,
    *,
    budget: float | str = USUAL_BUDGET,
    heads_max: int = 32,
    confidence: float = 0.95,
    device: str = "cpu",
    seed: int = 0,
    kind: Kind = "auto",
    steps: int | None = None,
    witness: float | str | None = None,
    quiet: bool = False,
) -> Advice:
    """Return how many heads some data need, found within a time budget.

    The clock starts once the data are read and the kernels are loaded (compiled, the first time on a machine). Ctrl-C
    ends the search: if two head counts have fully trained models, the answer so far is returned, with
    `record.interrupted`; before that, and at a second Ctrl-C, KeyboardInterrupt is raised.

    data: a task, a file of arrays, or X[samples, length, dim]. y: the targets of X. mask: True at real tokens, if the
    sequences of X differ in length. budget: seconds, or a text such as "90s" or "2m" (default 300). heads_max: the
    largest head count to try. confidence: the level of the interval, between 0.5 and 1. device: "cpu" (all cores) or
    "cuda". seed: of the splits, the models' weights and their batches. kind: whether whole numbers are classes; "auto"
    treats a few different ones as classes. steps: of every trial, instead of what the budget allows; the answer is then
    the same every time. witness: the most time, like the budget, for finding two inputs that one head fewer confuses
    (`Advice.looked`); less if the answer came quickly. quiet: whether to show no progress.
    """
    budget = duration(budget, "budget")
    witness = None if witness is None else duration(witness, "witness")
    check_numbers(budget, heads_max, confidence, steps, witness)
    seed = check_seed(seed)
    dataset = _read(data, y, mask, kind, seed)
    task = data if isinstance(data, Task) else None
    with (
        full_precision(),
        Progress("advising", float(budget), quiet=quiet, every=10.0, closes=False, bound=steps is None) as progress,
    ):
        if find_device(device).type == "cpu":
            start_kernels(progress, "float32", [ModelOptions().model(heads=1, dim=1, length=2, out_dim=1)])
        start = time.monotonic()

        def note(text: str) -> None:
            progress.advance(max(time.monotonic() - start - progress.done, 0.0), note=text)

        engine = TrialEngine(dataset, device, start + SEARCH_FRACTION * budget, on_trial=lambda _: note(""))
        search = Search(engine, heads_max, confidence, seed, budget, steps, note)
        try:
            decision = search.run()
        except KeyboardInterrupt:  # training on the cores handles Ctrl-C itself; this came at another moment
            engine.interrupt()
            decision = search.conclude() if search.found else None
        if engine.interrupted and len({trial.heads for trial in search.found if trial.completed}) < 2:
            raise KeyboardInterrupt
        if decision is None:
            if engine.failures:
                raise BadInput(f"nothing could be trained ({engine.failures[0]}): give more samples, or other features")
            raise BadInput(
                f"the budget is too small, nothing was trained (not one evaluation in {budget:g} s): give more time or "
                f"fewer samples"
            )
        if steps is None:
            room = budget - MIN_SEARCH_SECONDS  # for prices, if a witness search fits in after them
            fits = witness is not None and room >= SEARCH_FRACTION * budget
            engine.deadline = start + min(PRICES_END_FRACTION * budget, room if fits else budget)
        witnesses: list[WitnessRecord] = []

        def search_witness() -> None:
            if witness is not None and not engine.interrupted:
                if not engine.gpu:  # on a GPU, prices are trained at the same time
                    note("searching for two inputs that one head fewer confuses")
                now = time.monotonic()
                seconds = max(MIN_SEARCH_SECONDS, min(witness, WITNESS_TIME_FRACTION * (now - start)))
                if steps is None:
                    seconds = min(seconds, start + budget - now + MAX_WITNESS_DELAY)
                witnesses.append(
                    find_witness(
                        search.found,
                        engine.material,
                        _answer(decision),
                        task=task,
                        seconds=seconds,
                        seed=seed,
                        halt=engine.halt,
                    )
                )

        record = _record(search, decision, start, note, search_witness)
    best = TrialsByHeads.of(search.found).champion
    return Advice(record, best, engine.material, tuple(search.found), task, *witnesses)


def check_numbers(
    budget: float,
    heads_max: int,
    confidence: float,
    steps: int | None,
    witness: float | None = None,
    *,
    flags: bool = False,
) -> None:
    """Raise BadInput for numbers out of range, named as in `advise` or, with `flags`, as in the command."""

    def called(name: str) -> str:
        return f"--{name.replace('_', '-')}" if flags else name

    for name, value, kinds in (
        ("budget", budget, int | float),
        ("confidence", confidence, int | float),
        ("heads_max", heads_max, int),
        ("steps", 1 if steps is None else steps, int),
        ("witness", 20 if witness is None else witness, int | float),
    ):
        if isinstance(value, bool) or not isinstance(value, kinds):
            is_time = name in ("budget", "witness")
            expected = "a whole number" if kinds is int else "a number of seconds" if is_time else "a number"
            raise BadInput(f"{called(name)} must be {expected}, not {value!r}")
    if not 0 < budget < MAX_SECONDS:
        raise BadInput(f"{called('budget')} must be above 0 and below {MAX_SECONDS:,} seconds, not {budget:g}")
    if not 2 <= heads_max <= MAX_HEADS:  # a single head count could not be compared with anything
        raise BadInput(f"{called('heads_max')} must lie between 2 and {MAX_HEADS}, not {heads_max}")
    if not 0.5 <= confidence < 1:
        raise BadInput(f"{called('confidence')} must lie between 0.5 and 1, not {confidence}")
    if steps is not None and steps < 1:
        raise BadInput(f"{called('steps')} must be 1 or more, not {steps}")
    if witness is not None and not MIN_SEARCH_SECONDS <= witness < MAX_SECONDS:
        raise BadInput(f"witness must be {MIN_SEARCH_SECONDS:g} seconds or more, or None, not {witness:g}")


def _read(data: Any, y: Any, mask: Any, kind: Kind, seed: int) -> Material:
    """Return the material for whatever data the user gave."""
    if isinstance(data, str | Path | Task | ArrayTask) and not (y is None and mask is None):
        raise BadInput("y and mask go only with an array X: a file or a task has its own")
    if isinstance(data, str | Path):
        return from_file(data, kind=kind, seed=seed)
    if isinstance(data, ArrayTask):
        return from_task(data, kind=kind, seed=seed)
    if isinstance(data, Task):
        X = data.sample(TASK_SAMPLES, seed, dtype=torch.float64)
        return material(X.numpy(), data.value(X).numpy(), None, kind=kind, seed=seed, name=data.name)
    if y is None:
        raise BadInput("y is missing: give X and y, a file, or a task")
    return material(data, y, mask, kind=kind, seed=seed)


def _answer(decision: HeadsNeeded) -> int | None:
    """Return the recommended head count; for noise that is 1, the smallest."""
    return decision.estimate if decision.estimate is not None else 1 if decision.verdict == "noise" else None


def _record(
    search: Search, decision: HeadsNeeded, start: float, note: Callable[[str], None], search_witness: Callable[[], None]
) -> AdviceRecord:
    """Return the record; prices and the search for a witness use the rest of the time."""
    dataset, engine = search.engine.material, search.engine
    heads = sorted({trial.heads for trial in search.found})
    answer = _answer(decision)
    try:
        step = step_times(search, heads) if engine.left() > 0 else {}  # before anything else runs
    except KeyboardInterrupt:
        engine.interrupt()
        step = {}
    points: list[CurvePoint] = curve_points(search.found, (decision.noise_floor or 0.0), step)
    curves: list[Curve] = []
    shorter: list[ShorterPoint] = []
    champion = TrialsByHeads.of(search.found).champion
    has_prices = decision.verdict in ("transition", "one-head", "gentle") and not engine.interrupted
    if answer is not None and has_prices and search.steps is None:
        note("prices")
        engine.deadline = min(engine.deadline, time.monotonic() + PRICES_MAX_FRACTION * search.budget)
        work = [
            lambda: shorter.extend(on_halves(search, champion, answer)),
            lambda: curves.extend(other_curves(search, decision, answer, engine)),
        ]
    else:
        work = []
    try:
        run_concurrently([*work, search_witness], threaded=engine.gpu, on_failure=engine.halt.set)
    except KeyboardInterrupt:  # there is an answer already: leave out prices and witness
        engine.interrupt()
    sizes = {"length": dataset.task.length, **search.options.data()}
    high = decision.high if decision.high is not None else max(search.heads_max, decision.least)
    inflation = dataset.splits.inflation
    listed = prices(points, search.found, answer, search.confidence, inflation) if answer in heads else []
    apart = all(price.told_apart for price in listed if price.heads < (answer or 0))
    settled = search.settled and not engine.interrupted
    folds, challenges = dataset.splits.folds, search.challenged
    tried, ids = search.tried_codes, dataset.task.codes
    categories = category_text(
        0 if ids is None else len(ids.values[0][1]), [] if tried is None else tried.columns, dataset.codes is not None
    )
    all_reasons = [
        *data_warnings(dataset),
        Reason(
            tag="measured", text=data_text(dataset.validation_size, folds, len(dataset.splits.repeats) > 1, settled)
        ),
        *([Reason(tag="measured", text=categories)] if categories else []),
        *reasons(decision, points, dict(sizes), challenges, apart),
        *([Reason(text=NOT_COMPARED)] if search.limited else []),
        *in_words(shorter),
    ]
    text = sentence(decision, search.heads_max, settled)
    if engine.interrupted:
        text = TOO_FEW_MODELS if decision.verdict == "too-few" else text
        text += f" Interrupted: this is the answer so far, from {search.models} models."
    return AdviceRecord(
        name=dataset.task.name,
        verdict=decision.verdict,
        sentence=text,
        needed=decision,
        recommended_heads=champion.heads if answer is None else answer,
        interval=[decision.least, high],
        interval_open=decision.high is None,
        no_transition=not (
            (decision.verdict == "transition" and settled)
            or (decision.verdict == "not-reached" and decision.low == decision.estimate)
        ),
        confidence=search.confidence,
        settled=settled,
        interrupted=engine.interrupted,
        noise_floor=(decision.noise_floor or 0.0),
        noise_floor_high=champion.validation,
        curve=points,
        curves=curves,
        prices=listed,
        lengths=by_length(engine, champion),
        answers={str(h) if h else "none": share for h, share in sorted(decision.shares.items())},
        reasons=all_reasons,
        shorter=shorter,
        settle=settles(decision, search.challenges.get((decision.estimate or 0) - 1), search.steps, settled),
        margin=decision.margin or 0.0,
        challenges=challenges,
        folds=folds,
        categories=categories,
        kind="regression" if dataset.classes is None else "classification",
        classes=None if dataset.classes is None else list(dataset.classes),
        samples=dataset.task.samples,
        train_samples=dataset.train_size,
        validation_samples=dataset.validation_size,
        length=dataset.task.length,
        shortest=None if dataset.task.mask is None else int(dataset.task.mask.sum(1).min()),
        dim=dataset.dim,
        out_dim=dataset.task.out_dim,
        model=search.options.data(),
        train=search.train.data(),
        trials=search.models,
        seconds=time.monotonic() - start,
        budget=search.budget,
        seed=search.seed,
        provenance=provenance(device_name(engine.where)),
    )
