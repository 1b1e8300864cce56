"""Did a change make training slower? Compare today's ratios to the peers with recorded ones.

    python -m benchmarks.check [--recorded FILE] [--tolerance 0.15]

times our engine and torch's layers in turns (`benchmarks.speed` without the peers that take minutes to compile), and
compares "peer over engine" at every length with the recorded result. Ratios differ less between machines than times do.
The exit status is 1 if our lead over any peer has shrunk by more than the tolerance.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.result_sources import RESULTS
from headcount.core import BadInput, HeadcountError
from headcount.core.text import guarded_streams, notify, write_output

SLOW_PEERS = ("vmap", "jax", "reference")
"""Peers that compile for minutes, and our own reference, which changes with our code."""
MAX_LEAD_LOSS = 0.15
"""Fraction of a recorded lead that may be lost."""


@dataclass(frozen=True)
class Ratio:
    """How many times longer than our engine a peer takes, then and now."""

    length: str
    peer: str
    recorded: float
    today: float

    @property
    def change(self) -> float:
        """The change of the lead as a fraction of the recorded one; negative if it has shrunk."""
        return self.today / self.recorded - 1


def compare(recorded: Mapping[str, Any], today: Mapping[str, Any]) -> list[Ratio]:
    """Return every ratio that both results have; raise BadInput if they have none in common."""
    rows = [
        Ratio(length, key.removesuffix("_over_engine"), recorded[length][key], value)
        for length in today
        if length.startswith("T=") and length in recorded
        for key, value in today[length].items()
        if key.endswith("_over_engine") and key in recorded[length]
    ]
    if not rows:
        raise BadInput("the recorded result has no ratio in common with today's: record one with make bench")
    return rows


def losses(rows: Sequence[Ratio], tolerance: float = MAX_LEAD_LOSS) -> list[Ratio]:
    """Return the ratios that have shrunk by more than the tolerance."""
    return [row for row in rows if row.change < -tolerance]


def show(rows: Sequence[Ratio], tolerance: float) -> None:
    """Print both ratios of every peer, and which lead has shrunk."""
    write_output(f"{'':8} {'peer':12} {'recorded':>9} {'today':>9} {'change':>8}")
    for row in rows:
        verdict = "  slower than recorded" if row.change < -tolerance else ""
        write_output(f"{row.length:8} {row.peer:12} {row.recorded:8.1f}× {row.today:8.1f}× {row.change:+8.0%}{verdict}")


def read_recorded(path: Path) -> dict[str, Any]:
    """Read a recorded result; raise BadInput if the file does not contain one."""
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}") from None
    except ValueError:
        raise BadInput(f"{path} is not JSON: use a file that python -m benchmarks.speed --out wrote") from None
    if not isinstance(result, dict):
        raise BadInput(f"{path} is not a result: use a file that python -m benchmarks.speed --out wrote")
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and compare; return 1 if a lead has shrunk, 2 after an error in one line."""
    from benchmarks.peers.run import run_bench

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recorded", type=Path, default=RESULTS / "bench-cpu.json", metavar="FILE")
    parser.add_argument("--tolerance", type=float, default=MAX_LEAD_LOSS, help=f"default: {MAX_LEAD_LOSS}")
    options = parser.parse_args(arguments)
    with guarded_streams():
        try:
            recorded = read_recorded(options.recorded)
            rows = compare(recorded, run_bench("cpu", skip=SLOW_PEERS))
            show(rows, options.tolerance)
        except HeadcountError as error:
            notify(str(error))
            return 2
    return 1 if losses(rows, options.tolerance) else 0


if __name__ == "__main__":
    sys.exit(main())
