"""Write the data of the golden test: PYTHONPATH=src:tests python -m golden.make

Run it only if a change of hashes, store, formats or results is intended. Whatever then differs in tests/golden/data is
part of that change and belongs in its commit message. Moving modules changes only the imports in names.py.
`python -m golden.make results` writes only the parts that are named: hashes, store, models, statements, results.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

import headcount as hc
from golden import names, observe
from golden.observe import DATA, Json

os.environ["HEADCOUNT_COMMIT"] = "golden"  # provenance must not name today's commit


def write(name: str, value: Any) -> None:
    """Write JSON data with a line for each entry of its first levels, so that a diff shows what changed."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=1)
    if len(text) > 20_000:
        text = _short(value)
    (DATA / name).parent.mkdir(parents=True, exist_ok=True)
    (DATA / name).write_text(text + "\n", encoding="utf-8")


def _short(value: Any, depth: int = 0) -> str:
    """Return JSON with a line for each entry of the first levels and deeper values on one line."""
    plain = json.dumps(value, ensure_ascii=False, allow_nan=False)
    if depth == 3 or len(plain) < 120 or not isinstance(value, dict | list):
        return plain
    before, comma = "\n" + " " * (depth + 1), ","
    if isinstance(value, dict):
        parts = [f"{json.dumps(key, ensure_ascii=False)}: {_short(item, depth + 1)}" for key, item in value.items()]
        return "{" + before + (comma + before).join(parts) + "\n" + " " * depth + "}"
    return "[" + before + (comma + before).join(_short(item, depth + 1) for item in value) + "\n" + " " * depth + "]"


# -- the store ----------------------------------------------------------------------------------------------


def stop_half_way(store: Any, spec: Any) -> None:
    """Leave one trial failed, one stopped at half of its steps with a checkpoint, and one that has not begun."""
    (panel,) = spec.panels()
    trials = [panel.trial(heads, 0) for heads in panel.heads]
    failed, stopped, _ = store.add_run(spec.name, [t.data() for t in trials], about={"spec": spec.data()})
    assert store.claim([failed, stopped]) == [failed, stopped]
    store.fail(failed, "RuntimeError: made to fail", {"seconds": 0.5})
    job = names.Job(panel.task, trials[1].model, trials[1].train, 0, names.prepare(panel.task, trials[1].train))
    stop = threading.Event()

    def on_step(step: int, _: float | None) -> None:
        if step >= trials[1].train.steps // 2:
            stop.set()

    session = names.CoreSession([("", job)], on_step)
    with contextlib.suppress(names.Stopped):
        while session.unfinished:
            session.launch(stop)
            session.collect()
    moments = session.trial.moments
    assert 0 < moments.step < trials[1].train.steps
    store.checkpoint(stopped, moments.step, moments.arrays(), moments.curve)
    store.release()


def interrupt(store: Any, sources: observe.RealSources, name: str) -> None:
    """Leave encoders with a checkpoint of their sixth step."""
    launch, window = names.EncoderTrainer.launch, names.session.WINDOW_SECONDS

    def interrupted(self: Any, steps: int) -> Any:
        if self.steps == 5:
            os.kill(os.getpid(), signal.SIGINT)
        return launch(self, steps)

    names.EncoderTrainer.launch, names.session.WINDOW_SECONDS = interrupted, 1e-9
    try:
        with contextlib.suppress(KeyboardInterrupt):
            sources.run(name, store)
    finally:
        names.EncoderTrainer.launch, names.session.WINDOW_SECONDS = launch, window


def make_store() -> None:
    """Train the golden store; write what its reader and the command line return."""
    target = DATA / "store"
    shutil.rmtree(target, ignore_errors=True)
    with TemporaryDirectory() as place:
        folder = Path(place)
        sources = observe.RealSources(folder)
        for spec in observe.sweep_specs():
            hc.sweep(spec, store=folder / "store", workers=1, quiet=True)
        with names.Store.open(folder / "store") as store:
            for spec in observe.unfinished_specs():
                stop_half_way(store, spec)
            for name in observe.REAL[:2]:
                sources.run(name, store)
            interrupt(store, sources, observe.REAL[2])
        with contextlib.closing(sqlite3.connect(folder / "store/trials.sqlite")) as db:
            db.execute("VACUUM")  # deleted rows named the process that wrote them
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        write("store.json", observe.dump(folder / "store"))
        write("store-commands.json", observe.store_commands(folder))
        write("store-exported.json", observe.exported(folder))
        shutil.copytree(folder / "store", target, ignore=shutil.ignore_patterns(".*.lock", ".writers"))


# -- models, certificates and witnesses ---------------------------------------------------------------------

MODELS: dict[str, tuple[Json, torch.dtype]] = {
    "default": ({}, torch.float64),
    "float32": ({}, torch.float32),
    "gates": ({"positions": "gates", "beta": "learned"}, torch.float64),
    "additive": ({"positions": "additive", "beta": 2.5, "feedforward": "relu2"}, torch.float32),
    "concatenated": ({"positions": "concatenated", "class_key": True, "width": 5, "hidden_ff": 3}, torch.float64),
    "relu5": ({"feedforward": "relu5"}, torch.float64),
    "deep": ({"depth": 2, "layer_norm": True, "residual": True, "positions": "gates"}, torch.float64),
    "deep-float32": ({"depth": 3, "layer_norm": True, "class_key": True}, torch.float32),
}


def random_model(options: Json, dtype: torch.dtype) -> Any:
    """Return a model in which no tensor is zero or at its initial value."""
    sizes = {"dim": 2, "length": 4, "out_dim": 2, "heads": 2, "head_dim": 2, "hidden": 4, **options}
    model = hc.Transformer(hc.ModelSpec(**sizes), seed=3, dtype=dtype)
    draw = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for _, parameter in model.named_parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=draw, dtype=torch.float64).to(dtype)
    return model


def make_models() -> None:
    """Write models with every option of the format, and their predictions."""
    shutil.rmtree(DATA / "models", ignore_errors=True)
    task = hc.make_task("quadratic-basins", intrinsic=2, dim=2, length=4, outer="vector").data()
    for name, (options, dtype) in MODELS.items():
        known: Json = {"task": task, "box": ((0.0, 0.0), (1.0, 1.0)), "mean": (0.1, 0.2), "std": (1.5, 0.7)}
        hc.SavedModel(random_model(options, dtype), **({} if name == "default" else known)).save(DATA / "models" / name)
    trained = hc.train(
        hc.make_task("min-plus-max", length=4),
        hc.ModelSpec(dim=1, length=4, heads=2, head_dim=2, hidden=4),
        hc.TrainSpec(steps=40, warmup=4, batch=8, train_size=40, validation_size=20),
    )
    trained.save(DATA / "models/trained")
    inputs: Json = {}
    for folder in sorted((DATA / "models").iterdir()):
        spec = hc.load_model(folder).transformer.spec
        draw = torch.Generator().manual_seed(7)
        X = torch.rand(3, spec.length, spec.dim, dtype=torch.float64, generator=draw)
        inputs[folder.name] = observe.hexed(X)
    write("model-inputs.json", inputs)
    write("model-outputs.json", {name: observe.predictions(DATA / "models" / name, X) for name, X in inputs.items()})


def make_statements() -> None:
    """Write certificates of both kinds and witnesses, and what `recheck` prints about them."""
    shutil.rmtree(DATA / "statements", ignore_errors=True)
    (DATA / "statements").mkdir(parents=True)
    flat = ["min-plus-max", "--length", "4"]
    for name, more in (("enough-heads", ["--eps", "0.2"]), ("one-wide-head", ["--eps", "0.5", "--wide"])):
        done = observe.command(DATA / "statements", "build", *flat, *more, "--out", name)
        assert done["status"] == 0, done
    task = hc.make_task("quadratic-basins", intrinsic=2, dim=2, length=4)
    narrow = {"head_dim": 1, "width": 2}
    for name, kind, among, options in (
        ("exact", "exact", "all", narrow),
        ("typical", "exact", "typical", narrow),
        ("near", "near", "all", {}),
        ("deep", "exact", "all", {"depth": 2, "width": 3}),
    ):
        model = random_model({"heads": 1, "out_dim": 1, **options}, torch.float64)
        found = hc.attack(hc.SavedModel(model, task=task.data()), among=among, starts=8, budget=10.0)
        assert found.kind == kind, f"{name}: the search found a pair that is {found.kind}"
        found.save(DATA / "statements" / name)
    for path in (DATA / "statements").glob("*/*.*"):
        if path.suffix in (".png", ".html"):  # pictures are not statements
            path.unlink()
    write("statements.json", observe.rechecked())


def make_results() -> None:
    """Write what is trained and measured."""
    with TemporaryDirectory() as place:
        sources = observe.RealSources(Path(place))
        write("results.json", observe.results(sources, Path(place)))


def make_hashes() -> None:
    """Write the identities of trials and tasks."""
    write("trials.json", observe.trial_hashes())
    write("tasks.json", observe.tasks())
    write("task-values.json", observe.values())


PARTS: dict[str, Callable[[], None]] = {
    "hashes": make_hashes,
    "store": make_store,
    "models": make_models,
    "statements": make_statements,
    "results": make_results,
}


if __name__ == "__main__":
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"
    for part in sys.argv[1:] or PARTS:
        PARTS[part]()
    write("environment.json", observe.environment())
    size = sum(path.stat().st_size for path in DATA.rglob("*") if path.is_file())
    assert size < 1_000_000, f"the data take {size:,} bytes: make them smaller"
