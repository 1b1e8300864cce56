"""Result files: benchmarks/results/NAME.json, written by slow tests, read by the claims of documents."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.result_sources import RESULTS, parts_of, recorded
from headcount.core.files import write_json
from headcount.core.origin import provenance

RESERVED = ("name", "provenance", "source", "seeds", "counts")


def write_result(
    name: str,
    payload: Mapping[str, Any],
    *,
    seeds: Sequence[int],
    counts: Mapping[str, int],
    device: str = "cpu",
    folder: Path = RESULTS,
    commit: str | None = None,
    trained: str | None = None,
) -> Path:
    """Write what was measured, with where it came from, the seeds and how many of each thing were counted.

    The commit is that of the source tree, unless stated: a result from a tree without one is refused. What the result
    depends on is in the table of benchmarks/result_sources.py; its source is hashed here. `trained` is the commit of
    rows that were trained before.
    """
    clash = sorted(set(payload) & set(RESERVED))
    if clash:
        raise ValueError(f"{name}: {', '.join(clash)} are set by write_result itself")
    origin = provenance(device)
    origin["commit"] = commit or origin["commit"]
    result = {
        "name": name,
        "provenance": origin,
        "source": recorded(name, trained),
        "seeds": list(seeds),
        "counts": dict(counts),
        **payload,
    }
    problems = shape_problems(result, name)
    if problems:
        raise ValueError("; ".join(problems))
    path = folder / f"{name}.json"
    write_json(path, result)
    return path


def result_problems(path: Path) -> list[str]:
    """Say what a result file lacks."""
    try:
        return shape_problems(json.loads(path.read_text(encoding="utf-8")), path.stem)
    except ValueError as error:
        return [f"{path.name}: not readable JSON: {error}"]


def shape_problems(result: Any, name: str) -> list[str]:
    """Check the keys that every result has."""
    if not isinstance(result, dict):
        return [f"{name}: a result is an object"]
    problems: list[str] = []
    if result.get("name") != name:
        problems.append("name is not that of the file")
    origin = result.get("provenance")
    origin = origin if isinstance(origin, dict) else {}
    if not origin.get("commit"):
        problems.append("provenance.commit is missing")
    if not origin.get("machine"):
        problems.append("provenance.machine is missing")
    problems += source_problems(result.get("source"), name)
    seeds, counts = result.get("seeds"), result.get("counts")
    if not isinstance(seeds, list) or not seeds or not all(type(seed) is int for seed in seeds):
        problems.append("seeds must be a list of whole numbers")
    if not isinstance(counts, dict) or not counts or not all(type(n) is int for n in counts.values()):
        problems.append("counts must map names to whole numbers")
    return [f"{name}: {problem}" for problem in problems]


def source_problems(source: Any, name: str) -> list[str]:
    """Check that a result names the source of each of its parts, and a hash of it."""
    try:
        parts = parts_of(name)
    except LookupError as error:
        return [str(error)]
    told: dict[str, Any] = source if isinstance(source, dict) else {}
    if set(told) != set(parts):
        return [f"source must have the parts {', '.join(parts)} (benchmarks/result_sources.py)"]
    whole = all(isinstance(one, dict) and one.get("entries") and one.get("hash") for one in told.values())
    return [] if whole else ["every part of source names entries and a hash"]
