"""What the golden test compares, observed now: JSON data with exact floats."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import math
import os
import platform
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import torch

import headcount as hc
import real_tiny
from golden import names
from probing import probe_models

DATA = Path(__file__).parent / "data"
SOURCE = Path(hc.__file__).parent
Json = dict[str, Any]


def environment() -> Json:
    """Return what the last bits of training and prediction depend on."""
    packages = ("llvmlite", "numba", "numpy", "scipy", "torch")
    return {
        "cpu": llvm.get_host_cpu_name(),
        "torch_cpu": torch.backends.cpu.get_cpu_capability(),
        "python": platform.python_version(),
        **{name: version(name) for name in packages},
    }


# -- comparison ---------------------------------------------------------------------------------------------


def differences(golden: Any, found: Any, relative: float = 0.0, where: str = "") -> list[str]:
    """Return every place where two JSON values differ; floats may differ by `relative`, other values not at all.

    A float is a JSON number with a point, or a text as `float.hex` writes it. 1 and 1.0 differ.
    """
    if isinstance(golden, dict) and isinstance(found, dict):
        changed = [
            f"{where}.{key}: {'missing' if key in golden else 'new'}" for key in sorted(golden.keys() ^ found.keys())
        ]
        both = (differences(golden[k], found[k], relative, f"{where}.{k}") for k in golden if k in found)
        return [*changed, *(line for lines in both for line in lines)]
    if isinstance(golden, list) and isinstance(found, list):
        changed = [] if len(golden) == len(found) else [f"{where}: {len(golden)} items kept, {len(found)} found"]
        both = (
            differences(a, b, relative, f"{where}[{i}]") for i, (a, b) in enumerate(zip(golden, found, strict=False))
        )
        return [*changed, *(line for lines in both for line in lines)]
    if type(golden) is type(found) and golden == found:
        return []
    a, b = _float(golden), _float(found)
    if relative and a is not None and b is not None and abs(a - b) <= relative * max(abs(a), abs(b), 1e-6):
        return []
    return [f"{where}: {golden!r} kept, {found!r} found"]


def _float(value: Any) -> float | None:
    """Read a float of either form; None for anything else."""
    if isinstance(value, str) and value.lstrip("-").startswith("0x"):
        return float.fromhex(value)
    return value if isinstance(value, float) else None


def hexed(values: Any) -> Any:
    """Write floats exactly: one, or nested lists of them, or a tensor or array."""
    if isinstance(values, torch.Tensor):
        values = values.detach().numpy()
    if isinstance(values, np.ndarray):
        values = values.tolist()
    if isinstance(values, list | tuple):
        return [hexed(value) for value in values]
    return value.hex() if isinstance(value := values, float) else value


def without(data: Any, keys: Iterable[str]) -> Any:
    """Return JSON data without some keys, at any depth."""
    if isinstance(data, dict):
        return {key: without(value, keys) for key, value in data.items() if key not in keys}
    return [without(value, keys) for value in data] if isinstance(data, list) else data


# -- identities ---------------------------------------------------------------------------------------------


def listed(hashes: list[str], trials: int) -> Json:
    """Describe an ordered list of hashes; `trials` is the number of all trials, of which only some may be hashed."""
    digest = hashlib.sha256("\n".join(hashes).encode()).hexdigest()
    return {"trials": trials, "hashed": len(hashes), "sha256": digest, "first": hashes[:3]}


MAX_HASHED_TRIALS = 300
"""For a spec with more trials than this only those of its last seed are hashed: seeds differ in one number."""


def spec_hashes(spec: Any) -> Json:
    """Return the trials of a sweep or an experiment, in the order in which a store gets them."""
    panels = spec.panels()
    trials = spec.seeds * sum(len(panel.heads) for panel in panels)
    seeds = range(spec.seeds) if trials <= MAX_HASHED_TRIALS else [spec.seeds - 1]
    return listed([panel.trial(h, seed).hash() for panel in panels for seed in seeds for h in panel.heads], trials)


MADE_UP = {"content": "0" * 64, "train": 1000, "validation": 200}
SOURCES = {
    "marco": {**MADE_UP, "passages": 5000, "seed": 0, "embeddings": "1" * 64, "dim": 384, "most": 24},
    "cifar": {**MADE_UP, "classes": 10},
}
"""Descriptions of real data that do not exist: hashes of trials need nothing else."""


def trial_hashes() -> Json:
    """Return the identities of all trials of the specs that ship with the package, by spec and scale."""
    found: Json = {}
    for item in dict.fromkeys(item.spec for item in names.ITEMS.values()):
        one = next(known for known in names.ITEMS.values() if known.spec == item)
        found |= {f"{item}-{scale}": spec_hashes(names.sweep_of(one, scale)) for scale in names.SCALES}
    for kind, data in (("marco", names.MarcoData(**SOURCES["marco"])), ("cifar", names.CifarData(**SOURCES["cifar"]))):
        for scale in names.SCALES:
            found[f"{kind}-{scale}"] = spec_hashes(names.real_plan(kind, scale).spec(data))
    for path in sorted(SOURCE.rglob("*.toml")):
        stated = tomllib.loads(path.read_text(encoding="utf-8"))
        if "cells" in stated:
            units = [unit.hash_of() for unit in names.IrreducibleSpec.parse(stated).units()]
            found[path.name] = listed(units, len(units))
        elif "scales" not in stated:
            found[path.name] = spec_hashes(names.read_sweep(path))
    return found


FAMILIES: list[tuple[str, Json]] = [
    *(
        (name, {})
        for name in (
            "sum-of-maxima",
            "quadratic-basins",
            "min-plus-max",
            "sparse-regression",
            "sphere-anchors",
            "nearest-neighbour",
            "mean",
            "linear",
        )
    ),
    ("sum-of-maxima", {"intrinsic": 5, "dim": 3, "length": 7, "draw": "gaussian", "seed": 11, "sets": "random"}),
    ("sum-of-maxima", {"intrinsic": 3, "dim": 2, "length": 5, "draw": "unit", "limit": 2.5, "sets": "halves"}),
    ("sum-of-maxima", {"intrinsic": 2, "dim": 2, "length": 1000, "seed": 3}),
    ("sum-of-maxima", {"intrinsic": 2, "dim": 2, "draw": "given", "given": [[0.1, 1.0], [1e-3, -0.7]]}),
    *(
        ("quadratic-basins", {"intrinsic": 2, "dim": 3, "length": 6, "outer": outer, "seed": 2})
        for outer in ("product", "sum-product", "square", "tanh", "exp", "vector")
    ),
    ("quadratic-basins", {"intrinsic": 4, "dim": 1, "length": 9, "sets": "bands", "share": 0.3}),
    ("min-plus-max", {"length": 2}),
    ("sparse-regression", {"q": 2, "length": 5, "outer": "square"}),
    ("sparse-regression", {"q": 1, "length": 1, "outer": "exp"}),
    ("sphere-anchors", {"intrinsic": 2, "dim": 2, "length": 4, "outer": "tanh", "seed": 9}),
    ("nearest-neighbour", {"dim": 2, "length": 3}),
    ("mean", {"dim": 1, "length": 1}),
    ("linear", {"dim": 3, "length": 4, "seed": 5}),
]


def tasks() -> list[Json]:
    """Return every family with its defaults and with unusual options: its hash and tree of expressions."""
    made = [(name, options, hc.make_task(name, **options)) for name, options in FAMILIES]
    return [
        {"family": name, "options": options, "hash": task.hash(), "data": task.data() if task.length < 100 else None}
        for name, options, task in made
    ]


def values() -> list[Json]:
    """Return some inputs of every task and their targets."""
    found: list[Json] = []
    for name, options in FAMILIES:
        task = hc.make_task(name, **options)
        X = task.sample(2, 4, dtype=torch.float64)
        found.append({"family": name, "X": hexed(X[:, :3]), "y": hexed(task.value(X))})
    return found


# -- the command line ---------------------------------------------------------------------------------------


@contextlib.contextmanager
def inside(folder: Path) -> Iterator[None]:
    """Change to a folder, so that no absolute path is printed."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def command(folder: Path, *arguments: str) -> Json:
    """Run the command line in this process and a folder; return its exit status and its output as JSON data or text."""
    out = io.StringIO()
    with inside(folder), contextlib.redirect_stdout(out):
        try:
            names.main(list(arguments))
        except SystemExit as left:
            status = int(left.code or 0)
        else:
            status = 0
    text = out.getvalue()
    return {"status": status, "output": json.loads(text) if "--json" in arguments else text}


# -- the store ----------------------------------------------------------------------------------------------


def dump(folder: Path) -> Json:
    """Return every row, curve and checkpoint of a store, as its reader returns them."""
    found: Json = {"runs": {}, "trials": {}}
    with names.Store.open(folder, read_only=True) as store:
        for run in store.runs():
            found["runs"][run] = {"members": store.members(run), "about": store.about(run)}
        trials = store.trials()
        saved = store.load_checkpoints([trial.hash for trial in trials])
        for trial in trials:
            row = {key: getattr(trial, key) for key in type(trial).__dataclass_fields__}
            step, arrays = saved.get(trial.hash, (None, {}))
            kept = {name: _array(array) for name, array in arrays.items()}
            curve = [[step, error] for step, error in store.curve(trial.hash)]
            found["trials"][trial.hash] = {**row, "curve": curve, "checkpoint": {"step": step, "arrays": kept}}
    return json.loads(json.dumps(found, allow_nan=False))


def _array(array: np.ndarray) -> Json:
    """Describe an array to the last bit."""
    little = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<"), copy=False))
    digest = hashlib.sha256(little.tobytes()).hexdigest()
    first = [float(v).hex() for v in little.ravel()[:2]]
    return {"dtype": array.dtype.name, "shape": list(array.shape), "sha256": digest, "first": first}


ADDED = ("notices", "cells_lacking_targets", "cells_apart", "fitted_without")
"""Keys that the records of an analysis have gained since the data were written: codes and numbers of its notes."""


def store_commands(folder: Path) -> Json:
    """Return what commands print about the store `folder`/store.

    The provenance in the analysis of a run without a finished trial is that of the analysis itself; it is left out.
    """
    with names.Store.open(folder / "store", read_only=True) as store:
        ended = {run: any(trial.state == "done" for trial in store.trials(run=run)) for run in store.runs()}
    commands = [["runs", "--check"], ["runs", "--check", "--json"], ["runs", "--json"]]
    commands += [["runs", run, "--json"] for run in ended]
    commands += [["runs", "plain", "--json", "--sort", "error"], ["analyse", "candidates", "--on", "train", "--json"]]
    found = {" ".join(one): command(folder, *one, "--store", "store") for one in commands}
    for run, known in ended.items():
        output = command(folder, "analyse", run, "--json", "--resamples", "200", "--store", "store")
        found[f"analyse {run} --json"] = output if known else without(output, ("provenance",))
    return without(found, ADDED)


def exported(folder: Path) -> Json:
    """Return the identity of the best model of some runs of the store in `folder`, exported by the command line."""
    commands = {
        run: ["export", run, "best", "--out", run, "--store", "store", "--json"] for run in ("compiled", "plain")
    }
    return {run: command(folder, *one) for run, one in commands.items()}


def finished(store: Any, run: str) -> list[Json]:
    """Return how the trials of a run ended, with all errors to the last bit and nothing that varies."""
    rows: list[Json] = []
    for trial in store.trials(run=run):
        measured = {key: hexed(value) for key, value in (trial.metrics or {}).items()}
        curve = [[step, error.hex()] for step, error in store.curve(trial.hash)]
        rows.append({"hash": trial.hash, "state": trial.state, "step": trial.step, **measured, "curve": curve})
    return rows


def weights(store: Any, trials: list[str]) -> Json:
    """Return the last weights of some trials to the last bit."""
    return {trial: hexed(arrays["theta"]) for trial, (_, arrays) in store.load_checkpoints(trials).items()}


# -- specs of what is trained -------------------------------------------------------------------------------

TASK = {"family": "sum-of-maxima", "intrinsic": 2, "dim": 2}
MODEL = {"head_dim": 2, "hidden": 4}
TRAIN = {
    "steps": 40,
    "warmup": 4,
    "batch": 8,
    "train_size": 40,
    "validation_size": 20,
    "evaluations": 4,
    "learning_rate": 0.02,
}
DEEP = {"depth": 2, "layer_norm": True, "residual": True}


def sweep_spec(name: str, **fields: Any) -> Any:
    """Return a small sweep."""
    parts = {"task": TASK, "model": MODEL, "train": TRAIN}
    merged = {part: {**values, **fields.pop(part, {})} for part, values in parts.items()}
    return hc.SweepSpec.parse({"name": name, "heads": [1, 2], "lengths": [4], "seeds": 1, **merged, **fields})


def sweep_specs() -> list[Any]:
    """Return the sweeps of the golden store: every kind of trial but those on real data."""
    recipes = [
        {"name": "float64", "train": {"dtype": "float64"}},
        {"name": "adamw", "train": {"optimiser": "adamw", "weight_decay": 0.01}},
        {"name": "fresh", "train": {"fresh": True}},
        {"name": "polish", "train": {"polish": 3}},
        {"name": "constant", "train": {"schedule": "constant"}},
        {"name": "relu", "model": {"feedforward": "relu2"}},
        {"name": "gates", "model": {"positions": "gates", "beta": "learned"}},
        {"name": "additive", "model": {"positions": "additive", "beta": 2.5}},
        {"name": "concatenated", "model": {"positions": "concatenated", "class_key": True}},
        {"name": "wider", "model": {"width": 5, "hidden_ff": 6}},
    ]
    plain = [
        {"name": "five layers in F", "model": {"feedforward": "relu5"}},
        {"name": "layer norm", "model": {"layer_norm": True}},
        {"name": "deep", "model": DEEP},
        {"name": "deep with gates", "model": {"depth": 2, "positions": "gates", "beta": "learned"}},
    ]
    return [
        sweep_spec("compiled", lengths=[3, 4], seeds=2, heads=[1, 2, 3]),
        sweep_spec("shared", heads=[2, 3]),  # its trials are of the run before
        sweep_spec("recipes", settings=recipes, heads=[2]),
        sweep_spec("plain", settings=plain, heads=[2]),
        sweep_spec("diverged", train={"learning_rate": 10.0, "diverged_above": 1.01}),
    ]


def unfinished_specs() -> list[Any]:
    """Return the sweeps of which the store holds a failed trial, one that stopped half-way and one not begun."""
    fields: Json = {"heads": [1, 2, 3]}
    rate = {"learning_rate": 0.03}
    return [
        sweep_spec("unfinished", train=rate, **fields),
        sweep_spec("unfinished-deep", model=DEEP, train=rate, **fields),
    ]


class RealSources:
    """Tiny data like the real ones, made on the spot, with the experiments on them."""

    def __init__(self, folder: Path) -> None:
        corpus, bert = real_tiny.write_corpus(folder / "corpus"), real_tiny.write_bert(folder / "bert")
        self.marco = names.open_marco(corpus, bert, lengths=[2, 4], validation=12, quiet=True)
        self.cifar = names.open_cifar(real_tiny.write_pictures(folder / "images"), patch=8)

    def spec(self, name: str) -> Any:
        """Return an experiment by name."""
        if name == "candidates":
            train = names.RealTrain(steps=12, warmup=2, batch=8, evaluations=3)
            model = names.RealModel(head_dim=4, depth=2)
            sizes: Json = {"heads": [1, 2], "lengths": [2, 4], "seeds": 1, "model": model}
            return names.RealSpec(name=name, kind="marco", source=self.marco.data, train=train, **sizes)
        rate = 3e-3 if name == "frames" else 2e-3
        train = names.RealTrain(steps=12, warmup=2, batch=8, evaluations=3, learning_rate=rate)
        model = names.RealModel(head_dim=4, depth=1, dropout=0.1)
        sizes = {"heads": [2], "lengths": [32], "seeds": 2, "model": model}
        return names.RealSpec(name=name, kind="cifar", source=self.cifar.data, train=train, **sizes)

    def run(self, name: str, store: Any) -> None:
        """Train what is left of an experiment; the store keeps the weights of the frames."""
        source = self.marco if name == "candidates" else self.cifar
        names.run_on_store(self.spec(name), store, feeds=source.feeds(), quiet=True, weights=name == "frames")


REAL = ("candidates", "frames", "frames-unfinished")

# -- models -------------------------------------------------------------------------------------------------


def predictions(folder: Path, X: list[Any]) -> Json:
    """Return what a saved model answers to kept inputs, once with the last token of the first one hidden."""
    model = hc.load_model(folder)
    tokens = torch.tensor([[[float.fromhex(v) for v in row] for row in one] for one in X], dtype=torch.float64)
    mask = torch.ones(tokens.shape[:2], dtype=torch.bool)
    mask[0, -1] = False
    y = {"y": model.predict(tokens), "y_masked": model.predict(tokens, mask)}
    return {"hash": model.hash(), "dtype": str(model.dtype), **{key: hexed(v.double()) for key, v in y.items()}}


# -- results ------------------------------------------------------------------------------------------------

VARIES = (
    "seconds",
    "seconds_before",
    "seconds_after",
    "step_seconds",
    "provenance",
    "ratio",
    "ratio_low",
    "ratio_high",
)
"""Times, ratios of times, and provenance."""


def sweep_result(folder: Path | None) -> Json:
    """Train a few cells in memory, or through a store in a folder; return all errors and the analysis."""
    spec = sweep_spec(
        "cells",
        heads=[1, 2, 3],
        lengths=[3, 4],
        seeds=2,
        settings=[{"name": "one layer"}, {"name": "deep", "model": DEEP, "heads": [1, 2], "lengths": [3]}],
    )
    result = hc.sweep(spec, store=folder, quiet=True, workers=1)
    trials = [
        [*map(str, run.values.values()), t.heads, t.seed, t.state, hexed(t.nmse), hexed(t.train_nmse)]
        for run in result.runs
        for t in run.trials
    ]
    return {"trials": trials, "analysis": without(result.analysis.data(), (*VARIES, *ADDED))}


def real_result(sources: RealSources, folder: Path) -> Json:
    """Train the tiny encoders; return all that was measured."""
    with names.Store.open(folder) as store:
        for name in REAL:
            sources.run(name, store)
        return {name: finished(store, name) for name in REAL}


def advice_result() -> Json:
    """Ask for advice on a small array, with a fixed number of steps."""
    task = hc.make_task("min-plus-max", length=4)
    X = task.sample(120, 0, dtype=torch.float64)
    found = hc.advise(X.numpy(), task.value(X)[:, 0].numpy(), steps=10, heads_max=2, budget=600, quiet=True)
    assert all(math.isfinite(one.validation) for one in found.trials)
    errors = [[one.heads, one.wanted.seed, one.validation.hex(), one.train.hex()] for one in found.trials]
    return {"trials": errors, "record": without(json.loads(json.dumps(found.record.data())), VARIES)}


def probe_result(folder: Path) -> Json:
    """Probe a tiny model with random weights, made in `folder`, which holds nothing else."""
    probe_models.make("bert").save_pretrained(folder / "bert")
    found = command(folder, "probe", "bert", "--samples", "4", "--json")
    return without(found, VARIES)


def results(sources: RealSources, folder: Path) -> Json:
    """Return everything that is trained or measured anew, in a new folder."""
    return {
        "memory": sweep_result(None),
        "store": sweep_result(folder / "sweep"),
        "real": real_result(sources, folder / "real"),
        "advice": advice_result(),
        "probe": probe_result(folder / "probe"),
    }


# -- certificates and witnesses -----------------------------------------------------------------------------

OLD = Path(__file__).parent.parent / "recheck" / "old"


def rechecked() -> Json:
    """Return what verifying each certificate and witness says, those of earlier versions included."""
    found = {f"{p.parent.name}/{p.name}": p for place in (OLD, DATA / "statements") for p in sorted(place.iterdir())}
    return {name: command(path.parent, "recheck", path.name, "--json") for name, path in found.items()}
