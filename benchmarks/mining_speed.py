"""How long does mining take? Time 12,000 queries × 64 candidates over all passages of an MS MARCO folder.

    python -m benchmarks.mining_speed OUT --data DIR [--embeddings DIR] [--queries 12000]

reads the folder, turns texts into vectors of frozen word embeddings, mines with both searches and all checks, prints
the seconds of each part and writes OUT/mining-speed.json.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from headcount.datasets.msmarco import Tokens, mine, read_marco, read_model
from results import write_result

CANDIDATES = 64
"""Candidates per query, the positive included."""


def main(arguments: Sequence[str] | None = None) -> Path:
    """Time reading, vectors and mining; return the result file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--embeddings", type=Path)
    parser.add_argument("--queries", type=int, default=12_000)
    options = parser.parse_args(arguments)
    clock, seconds = time.perf_counter(), dict[str, float]()

    def lap(name: str) -> None:
        nonlocal clock
        seconds[name], clock = round(time.perf_counter() - clock, 1), time.perf_counter()
        print(f"{name}: {seconds[name]} s", flush=True)

    pieces, tables = read_model(options.embeddings)
    collection = read_marco(options.data)
    lap("reading")
    vectors = Tokens.of(collection, pieces, quiet=True).vectors(tables.words)
    lap("vectors")
    found = mine(collection, CANDIDATES, seed=0, queries=options.queries, embeddings=vectors, quiet=True)
    lap("mining")
    options.out.mkdir(parents=True, exist_ok=True)
    counts = {"queries": len(found.query), "candidates": found.passages.shape[1], "passages": len(collection.passages)}
    return write_result("mining-speed", {"seconds": seconds}, seeds=[0], counts=counts, folder=options.out)


if __name__ == "__main__":
    print(main())
