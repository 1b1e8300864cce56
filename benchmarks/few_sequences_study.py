"""Is the advice honest on few sequences? Ask about real labelled data sets, and about tasks with known D.

    python -m benchmarks.few_sequences_study prepare DATA --sktime FOLDER --shared FOLDER
    python -m benchmarks.few_sequences_study run DATA OUT [--device cuda] [--first 0] [--draws 5] [--synthetic 8]
        [--at-once 8 --shared 8 | --at-once 4 --cores 2]

`prepare` writes the six real sets as DATA/NAME.npz. Four of them come with packages (sktime's folder `datasets/data`,
scikit-learn), two are in the folders of CIFAR-10 and MS MARCO that docs/real-data.md describes.

`run` asks the search behind `headcount advise` about subsets of 100 and 300 sequences of each set, five draws each. It
compares the answers with the *truth*: the same search with ten times the budget, trained on as many sequences from the
same draws and validated on all remaining sequences. If the truth itself is not settled, the case is counted separately.
For the synthetic tasks (D = 2 and 3, 40 to 400 sequences) D is known. Their draws 0 to 9, and all from 100 on, are for
development; the study uses draws 10 to 17.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import itertools
import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.dimension_study import is_fair
from benchmarks.questions import ask_all
from headcount.advisor import Material, Search, Split, Splits, TrialEngine, material, prepared
from headcount.analysis import HeadsNeeded
from headcount.tasks import parse_task
from headcount.tasks.arrays import ArrayTask
from headcount.training import device_name, find_device, full_precision

SIZES = (100, 300)
"""Sequences of a real subset."""
TRUTH_BUDGET_RATIO = 10.0
"""The budget of the truth, relative to the budget of an answer."""
MAX_HEADS = 32
CONFIDENCE_LEVEL = 0.95
SYNTHETIC_SIZES = (40, 120, 200, 400)
"""Sequences of a synthetic task."""
NAMES = ("italy", "vowels", "plaid", "digits", "cifar", "marco")
Arrays = dict[str, NDArray[Any]]


class Case(NamedTuple):
    """One question of the study."""

    name: str
    size: int
    draw: int
    intrinsic: int | None = None


# -- the real data sets -------------------------------------------------------------------------------------


def read_ts(folder: Path, name: str) -> tuple[list[NDArray[np.float64]], list[str]]:
    """Read the training and test file of a set in sktime's .ts format: arrays [length, dim], and their labels."""
    X: list[NDArray[np.float64]] = []
    y: list[str] = []
    for part in ("TRAIN", "TEST"):
        for line in (folder / name / f"{name}_{part}.ts").read_text(encoding="utf-8").splitlines():
            if line.strip() and line[0] not in "#@":
                *dims, label = line.strip().split(":")
                X.append(np.array([[float(v) for v in one.split(",")] for one in dims]).T)
                y.append(label)
    return X, y


def padded(X: list[NDArray[np.float64]], y: Any) -> Arrays:
    """Pad sequences to the length of the longest."""
    length = max(map(len, X))
    inputs, mask = np.zeros((len(X), length, X[0].shape[1]), np.float32), np.zeros((len(X), length), bool)
    for i, one in enumerate(X):
        inputs[i, : len(one)], mask[i, : len(one)] = one, True
    return {"X": inputs, "y": np.asarray(y), "mask": mask}


def patched(series: NDArray[np.float64], max_patches: int = 128, width: int = 8) -> NDArray[np.float64]:
    """Cut a long series into at most `max_patches` patches of `width` numbers."""
    count = max(1, min(max_patches, len(series) // width))
    return series[: count * width, 0].reshape(count, width)


def cifar(folder: Path, images: int = 3000, patch: int = 4) -> Arrays:
    """Return images as patches, [images, 64, 48], with the label animal or vehicle."""
    from headcount.datasets.cifar10 import read_cifar

    found = read_cifar(folder)
    vehicles = [found.classes.index(name) for name in ("airplane", "automobile", "ship", "truck")]
    X = found.test_pixels[:images].numpy().reshape(images, 32 // patch, patch, 32 // patch, patch, 3)
    y = np.isin(found.test_labels[:images].numpy(), vehicles)
    return {"X": X.transpose(0, 1, 3, 2, 4, 5).reshape(images, 64, -1), "y": np.where(y, "vehicle", "animal")}


def marco(folder: Path, queries: int = 3000, dim: int = 16) -> Arrays:
    """Return queries as word vectors, without their question word (what, how, where or who), which is the label.

    The vector of a word is its row in the leading singular vectors of the matrix of words that occur together.
    """
    question_words = ("what", "how", "where", "who")
    with gzip.open(folder / "queries.jsonl.gz", "rt", encoding="utf-8") as file:
        texts = [json.loads(line)["text"].lower().split() for line in file]
    chosen = [words for words in texts if words and words[0] in question_words and 4 <= len(words) <= 13]
    count: dict[str, int] = {}
    for words in texts:
        for word in words:
            count[word] = count.get(word, 0) + 1
    known = {word: i for i, word in enumerate(sorted(count, key=lambda w: (-count[w], w))[:2000])}
    together = np.zeros((len(known), len(known)))
    for words in texts:
        indices = [known[w] for w in words if w in known]
        for a, b in itertools.permutations(indices, 2):
            together[a, b] += 1
    U, S, _ = np.linalg.svd(np.log1p(together))
    vectors = U[:, :dim] * np.sqrt(S[:dim])
    rare = vectors[len(known) // 2 :].mean(0)
    order = np.random.default_rng(0).permutation(len(chosen))[:queries]
    X = [np.stack([vectors[known[w]] if w in known else rare for w in chosen[i][1:]]) for i in order]
    return padded(X, [chosen[i][0] for i in order])


def prepare(data: Path, sktime: Path, shared: Path) -> None:
    """Write all real data sets."""
    from sklearn.datasets import load_digits

    digits: Any = load_digits()
    plaid, labels = read_ts(sktime, "PLAID")
    made: dict[str, Arrays] = {
        "italy": padded(*read_ts(sktime, "ItalyPowerDemand")),
        "vowels": padded(*read_ts(sktime, "JapaneseVowels")),
        "plaid": padded([patched(one) for one in plaid], labels),
        "digits": {"X": digits.images.astype(np.float32), "y": digits.target},
        "cifar": cifar(shared / "cifar10"),
        "marco": marco(shared / "msmarco"),
    }
    data.mkdir(parents=True, exist_ok=True)
    for name, arrays in made.items():
        np.savez_compressed(data / f"{name}.npz", **arrays)  # pyright: ignore[reportArgumentType]
        print(name, arrays["X"].shape, len(np.unique(arrays["y"])), "classes")


def read(data: Path, name: str) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.bool_] | None]:
    """Read a prepared data set: X, y and the mask, if there is one."""
    with np.load(data / f"{name}.npz") as file:
        return file["X"], file["y"], file.get("mask")


def drawn_rows(name: str, samples: int, size: int, draw: int) -> NDArray[np.int64]:
    """Return the indices of the sequences of one draw."""
    return np.random.default_rng([20_261_121, NAMES.index(name), size, draw]).permutation(samples)[:size]


# -- the questions ------------------------------------------------------------------------------------------


def run_search(data: Material, device: str, budget: float, shared: float, seed: int) -> tuple[HeadsNeeded, Search]:
    """Run the search behind `headcount advise`; `shared` stretches its deadline if other searches share the device."""
    engine = TrialEngine(data, device, time.monotonic() + shared * budget)
    found = Search(engine, MAX_HEADS, CONFIDENCE_LEVEL, seed, budget)
    decision = found.run()
    if decision is None:
        raise RuntimeError("nothing was trained")
    return decision, found


def ask_real(data: Path, case: Case, device: str, budget: float, shared: float) -> dict[str, Any]:
    """Ask about one subset."""
    X, y, mask = read(data, case.name)
    rows = drawn_rows(case.name, len(X), case.size, case.draw)
    search_data = material(
        X[rows], y[rows], None if mask is None else mask[rows], kind="classification", seed=case.draw
    )
    return row_of(case, *run_search(search_data, device, budget, shared, case.draw))


def ask_truth(
    data: Path, name: str, size: int, draws: list[int], device: str, budget: float, shared: float
) -> dict[str, Any]:
    """Ask for the truth at this training size: ten times the budget, validated on all remaining sequences."""
    X, y, mask = read(data, name)
    full = material(X, y, mask, kind="classification")
    splits: list[Split] = []
    for draw in draws:
        rows = drawn_rows(name, len(X), size, draw)
        rest = np.setdiff1d(np.arange(len(X)), rows)
        splits.append(Split(np.sort(rows[: round(0.8 * size)]), rest))
    task = ArrayTask.from_arrays(full.task.X, full.task.y, full.task.mask, name=name)
    search_data = prepared(task, full.classes, 0, splits=Splits((tuple(splits),), 1.0))
    return row_of(Case(name, size, -1), *run_search(search_data, device, TRUTH_BUDGET_RATIO * budget, shared, 0))


def ask_synthetic(case: Case, device: str, budget: float, shared: float) -> dict[str, Any]:
    """Ask about a few sequences of a task whose D is known."""
    rng = np.random.default_rng([20_261_122, case.intrinsic or 0, case.size, case.draw])
    family = str(rng.choice(["sum-of-maxima", "quadratic-basins", "sphere-anchors"]))
    length, dim = int(rng.choice([8, 12, 16])), int((case.intrinsic or 0) + rng.integers(0, 2))
    for _ in range(1000):
        spec: dict[str, Any] = {
            "family": family,
            "intrinsic": case.intrinsic,
            "dim": dim,
            "seed": int(rng.integers(10_000)),
        }
        spec |= {"draw": "orthonormal"} if family == "sum-of-maxima" else {"outer": str(rng.choice(["sum", "product"]))}
        if is_fair(spec, length):
            break
    task = parse_task({**spec, "length": length})  # pyright: ignore[reportPossiblyUnboundVariable]
    X = task.sample(case.size, int(rng.integers(10_000)), dtype=torch.float64)
    y: NDArray[Any] = task.value(X)[:, 0].numpy()
    y = y + float(rng.uniform(0.0, 0.1)) * y.std() * rng.standard_normal(case.size)
    search_data = material(X.numpy(), y, kind="regression", seed=case.draw)
    return row_of(case, *run_search(search_data, device, budget, shared, case.draw))


def row_of(case: Case, decision: HeadsNeeded, found: Search) -> dict[str, Any]:
    """Return one answer as a row."""
    best = {
        h: min(one.validation for one in found.found if one.heads == h) for h in sorted({o.heads for o in found.found})
    }
    return {
        "name": case.name,
        "size": case.size,
        "draw": case.draw,
        "intrinsic": case.intrinsic,
        "verdict": decision.verdict,
        "cause": decision.cause,
        "answer": decision.estimate,
        "low": decision.low,
        "high": decision.high,
        "settled": found.settled,
        "agreed": round(decision.agreement or 0.0, 3),
        "margin": round(decision.margin or 0.0, 4),
        "floor": round(decision.noise_floor or 0.0, 4),
        "trials": len(found.found),
        "curve": {h: float(f"{error:.3g}") for h, error in best.items()},
    }


def with_truth(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add the truth to every row, whether the interval covers it, and whether a settled answer equals it."""
    truths = {(r["name"], r["size"]): r for r in rows if r["draw"] < 0}
    out: list[dict[str, Any]] = []
    for row in rows:
        if row["draw"] < 0:
            out.append({**row, "truth": None, "covered": None, "right": None})
            continue
        truth = row["intrinsic"]
        if truth is None:
            found = truths.get((row["name"], row["size"]))
            truth = found["answer"] if found is not None and found["settled"] else None
        covered = None if truth is None else row["low"] <= truth <= (row["high"] or 10**9)
        right = row["answer"] == truth if truth is not None and row["settled"] else None
        out.append({**row, "truth": truth, "covered": covered, "right": right})
    return out


def wilson(hits: int, count: int, z: float = 1.96) -> list[float]:
    """Return Wilson's 95 % interval for a proportion."""
    if not count:
        return [0.0, 1.0]
    p, d = hits / count, 1 + z * z / count
    middle, half = p + z * z / (2 * count), z * ((p * (1 - p) + z * z / (4 * count)) / count) ** 0.5
    return [round((middle - half) / d, 3), round((middle + half) / d, 3)]


def summary(rows: list[dict[str, Any]]) -> dict[str, int]:
    """Count covered and right answers; cases whose truth is not settled are counted separately."""
    answers = [row for row in rows if row["draw"] >= 0]
    known = [row for row in answers if row["truth"] is not None]
    settled, bounded = ([r for r in known if r["settled"]], [r for r in known if r["high"] is not None])
    return {
        "asked": len(answers),
        "truth_unsettled": len(answers) - len(known),
        "known": len(known),
        "covered": sum(r["covered"] for r in known),
        "bounded": len(bounded),
        "bounded_covered": sum(r["covered"] for r in bounded),
        "settled": len(settled),
        "settled_right": sum(r["right"] for r in settled),
    }


def wilson_intervals(counts: dict[str, int]) -> dict[str, list[float]]:
    """Return Wilson's intervals for the two proportions that matter."""
    return {
        "covered": wilson(counts["covered"], counts["known"]),
        "settled_right": wilson(counts["settled_right"], counts["settled"]),
    }


def run(options: argparse.Namespace) -> None:
    """Ask all questions, several at a time, and write rows and counts."""
    draws = list(range(options.first, options.first + options.draws))
    common = (options.device, options.budget, options.shared)
    names: list[str] = options.names
    jobs: dict[str, Callable[[], dict[str, Any]]] = {}
    for name, size in itertools.product(names if draws else (), SIZES):
        jobs[f"truth {name} {size}"] = partial(ask_truth, options.data, name, size, draws, *common)
    for draw, name, size in itertools.product(draws, names, SIZES):
        jobs[f"{name} {size} {draw}"] = partial(ask_real, options.data, Case(name, size, draw), *common)
    synthetic_draws = range(options.first, options.first + options.synthetic)
    for intrinsic, size, draw in itertools.product((2, 3), SYNTHETIC_SIZES, synthetic_draws):
        case = Case("synthetic", size, draw, intrinsic)
        jobs[f"D {intrinsic} {size} {draw}"] = partial(ask_synthetic, case, *common)
    options.out.mkdir(parents=True, exist_ok=True)
    name, start = "few-sequences" if options.draws else "few-sequences-synthetic", time.monotonic()
    with full_precision():
        rows, failed = ask_all(jobs, options.out / f"{name}-rows.json", at_once=options.at_once, cores=options.cores)
    rows = with_truth(sorted(rows, key=lambda r: (r["name"], r["size"], r["draw"], r["intrinsic"] or 0)))
    counts = {**summary(rows), "failed": failed}
    print(counts, wilson_intervals(counts))
    with (options.out / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    if options.result:
        sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
        from results import write_result

        settings = {"budget": options.budget, "shared": options.shared, "at_once": options.at_once}
        write_result(
            name,
            {
                "rows": rows,
                "wilson": wilson_intervals(counts),
                **settings,
                "seconds": round(time.monotonic() - start, 1),
            },
            seeds=draws or list(synthetic_draws),
            counts=counts,
            device=device_name(find_device(options.device)),
            folder=options.out,
        )


def main() -> int:
    """Prepare the data, or run the study."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    prepare_parser = verbs.add_parser("prepare")
    prepare_parser.add_argument("data", type=Path)
    prepare_parser.add_argument("--sktime", type=Path, required=True)
    prepare_parser.add_argument("--shared", type=Path, required=True)
    add = verbs.add_parser("run").add_argument
    add("data", type=Path)
    add("out", type=Path)
    add("--device", default="cpu")
    add("--budget", type=float, default=60.0, help="seconds per question on a machine of its own")
    add("--shared", type=float, default=1.0, help="factor on these seconds if other questions share the machine")
    add("--first", type=int, default=0)
    add("--draws", type=int, default=5)
    add("--synthetic", type=int, default=8, help="draws of every D and size")
    add("--names", nargs="*", default=list(NAMES))
    add("--at-once", type=int, default=1, help="questions asked at a time")
    add("--cores", type=int, help="cores per question (default: threads of one process)")
    add("--result", action="store_true")
    options = parser.parse_args()
    if options.verb == "prepare":
        prepare(options.data, options.sktime, options.shared)
    else:
        run(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
