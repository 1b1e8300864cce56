"""Is today's code as fast as it was? Time commands and trainings of two commits, in turns.

    python -m benchmarks.before_after --before COMMIT [--repeats N]

runs every question in new processes, with the old code and the new code in turns, so that a slow moment of the machine
affects both. A ratio is new over old for the fastest repetitions; below 1 is faster. The script prints a table and
writes benchmarks/results/before-after.json.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.old_code import REPO, environment, unpack_code

sys.path.append(str(REPO / "tests"))

STEP_TRAINING = """
import sys, time
import headcount as hc
length, steps = int(sys.argv[1]), int(sys.argv[2])
task = hc.make_task("sum-of-maxima", intrinsic=3, dim=3, length=length)
spec = hc.ModelSpec(dim=3, length=length, heads=3, head_dim=8, hidden=32)
recipe = dict(warmup=10, train_size=2000, validation_size=200)
hc.train(task, spec, hc.TrainSpec(steps=20, **recipe), seed=0)  # compiles or loads the kernels
start = time.perf_counter()
hc.train(task, spec, hc.TrainSpec(steps=steps, **recipe), seed=0)
print(time.perf_counter() - start)
"""
SWEEP = """
import time
import headcount as hc
task = hc.make_task("sum-of-maxima", intrinsic=2, dim=2, length=8)
options = dict(heads=range(1, 4), seeds=4, warmup=10)
hc.sweep(task, steps=20, **options)
start = time.perf_counter()
hc.sweep(task, steps=1000, **options)
print(time.perf_counter() - start)
"""


@dataclass(frozen=True)
class Question:
    """What is timed: a command from start to end, or the seconds that a script prints."""

    title: str
    arguments: tuple[str, ...]
    repeats: int
    prints_seconds: bool = False


@dataclass(frozen=True)
class Row:
    """The times of one question, in seconds."""

    title: str
    before: list[float]
    after: list[float]
    ratio: float
    """New over old, of the fastest repetitions."""
    ratio_of_medians: float

    @classmethod
    def of(cls, title: str, before: Sequence[float], after: Sequence[float]) -> Row:
        """Compare the repetitions of the old and the new code."""
        medians = statistics.median(after) / statistics.median(before)
        old, new = ([round(seconds, 4) for seconds in times] for times in (before, after))
        return cls(title, old, new, round(min(after) / min(before), 3), round(medians, 3))


def questions(repeats: int) -> list[Question]:
    """Return all questions; cheap ones have more repetitions."""
    return [
        Question("import headcount", ("-c", "import headcount"), 5 * repeats),
        Question("headcount --help", ("-m", "headcount", "--help"), 5 * repeats),
        Question("headcount demo", ("-m", "headcount", "demo", "--json", "--out", "{folder}/demo"), repeats),
        *(
            Question(f"training, T = {length}", ("-c", STEP_TRAINING, str(length), str(steps)), repeats, True)
            for length, steps in ((8, 8000), (32, 3000), (128, 800))
        ),
        Question("sweep of 12 trials", ("-c", SWEEP), repeats, True),
    ]


def ask(question: Question, source: Path) -> float:
    """Return the seconds that one repetition took."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, *(word.replace("{folder}", folder) for word in question.arguments)]
        start = time.perf_counter()
        done = subprocess.run(command, env=environment(source), capture_output=True, text=True, cwd=folder, check=False)
        seconds = time.perf_counter() - start
    if done.returncode:
        raise SystemExit(f"{question.title}: {done.stderr}")
    return float(done.stdout.split()[-1]) if question.prints_seconds else seconds


def in_turns(question: Question, before: Path, after: Path, timer: Callable[[Question, Path], float] = ask) -> Row:
    """Time the old and the new code in turns; the first repetition fills caches and does not count."""
    old, new = [], []
    for repetition in range(question.repeats + 1):
        pair = [(old, before), (new, after)]
        for seconds, source in pair if repetition % 2 else pair[::-1]:
            seconds.append(timer(question, source))
    return Row.of(question.title, old[1:], new[1:])


def main(arguments: Sequence[str] | None = None) -> None:
    """Time all questions, print a table and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", required=True, help="the commit to compare with")
    parser.add_argument("--repeats", type=int, default=5, help="repetitions of each training (default: 5)")
    options = parser.parse_args(arguments)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        before = unpack_code(options.before, Path(folder))
        for question in questions(options.repeats):
            row = in_turns(question, before, REPO / "src")
            rows.append(row)
            print(f"{row.title:24} {min(row.before):8.3f} s {min(row.after):8.3f} s   × {row.ratio:.2f}", flush=True)
    from results import write_result

    table: dict[str, Any] = {row.title: {k: v for k, v in asdict(row).items() if k != "title"} for row in rows}
    payload = {"before_commit": options.before, "table": table}
    write_result("before-after", payload, seeds=[0], counts={"questions": len(rows), "repeats": options.repeats})


if __name__ == "__main__":
    main()
