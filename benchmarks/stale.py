"""Which figures were measured with other code than today's? Every result file records its source and a hash of it.

    python -m benchmarks.stale                 list them: file, part, date of measurement, what has changed
    python -m benchmarks.stale --renew FILE    record today's hash if a sample gives the same bits
    python -m benchmarks.stale --mark          mark stale figures in README and docs with their date, unmark others

Timings are never renewed: measure them again. Errors are renewed if a sample, computed again, is equal: the analysis of
the saved rows, or a model trained or built again from its seed. If no sample is cheap, the part is refused and the exit
status is 2.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path.extend(
    str(Path(__file__).resolve().parents[1] / folder)
    for folder in ("tests", "tests/analysis", "tests/training", "tests/reproduction", "tests/sweeps", "tests/theory")
)

from benchmarks.result_sources import REPO, RESULTS, parts_of, source_at, source_now
from benchmarks.source import Source, source_of
from headcount.core import provenance, write_json, write_text

Result = dict[str, Any]
MAX_SHOWN_DEFINITIONS = 4
"""Changed definitions that a line names."""


@dataclass(frozen=True)
class Stale:
    """A part of a result file whose source has changed since it was measured."""

    file: Path
    part: str
    date: str
    commit: str | None
    entries: tuple[str, ...] = ()
    """The entries of its source, by the names that they had then."""

    def covers(self, fragment: str) -> bool:
        """Whether a place in the file belongs to the part."""
        return parts_of(self.file.stem)[self.part].covers(fragment)


def stale_parts(file: Path, source: Source | None = None) -> list[Stale]:
    """Return the parts of a result file that were measured with other code than this, or that have no hash."""
    result = json.loads(file.read_text(encoding="utf-8"))
    found: list[Stale] = []
    for name, part in parts_of(file.stem).items():
        recorded_source = result.get("source", {}).get(name, {})
        if recorded_source.get("hash") != (source or source_now()).hash(part.entries):
            date = recorded_source.get("date") or str(result["provenance"]["time"])[:10]
            found.append(
                Stale(file, name, date, recorded_source.get("commit"), tuple(recorded_source.get("entries", ())))
            )
    return found


def all_stale(folder: Path = RESULTS) -> list[Stale]:
    """Return the stale parts of all result files."""
    return [one for file in sorted(folder.glob("*.json")) for one in stale_parts(file)]


def changes(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """Return which definitions differ, by name; a definition that only moved does not count."""
    old, new = Counter(before.values()), Counter(after.values())
    gone = {_name(at): at for at, digest in before.items() if digest not in new}
    come = {_name(at): at for at, digest in after.items() if digest not in old}
    lines: list[str] = []
    for label, these in (
        ("changed", [come[name] for name in come if name in gone]),
        ("new", [come[name] for name in come if name not in gone]),
        ("gone", [gone[name] for name in gone if name not in come]),
    ):
        if these:
            more = f" and {len(these) - MAX_SHOWN_DEFINITIONS} more" if len(these) > MAX_SHOWN_DEFINITIONS else ""
            names = [at.removeprefix("headcount.") for at in sorted(these)]
            lines.append(f"{label} {', '.join(names[:MAX_SHOWN_DEFINITIONS])}{more}")
    return "; ".join(lines) or "other entries in the table"


def _name(place: str) -> str:
    return place.rpartition(":")[2]


def what_changed(one: Stale) -> str:
    """Return what has changed since the commit at which a part was measured, if the history has it."""
    if one.commit is None:
        return "the file names no source"
    today, recorded_entries, reason = parts_of(one.file.stem)[one.part].entries, one.entries, ""
    for entries in (recorded_entries, today):  # the names of then, or today's if the file does not record them
        try:
            before = source_at(one.commit.rstrip("+")).definitions(entries)
            return changes(before, source_now().definitions(today))
        except LookupError as error:
            reason = str(error)
    return f"unknown: {reason}"


# -- renewing ------------------------------------------------------------------------------------------------


def _exact_text(value: Any) -> str:
    """Return a result as text that shows every bit."""
    return json.dumps(value, sort_keys=True)


def _paper_rows(result: Result) -> dict[str, Any]:
    from kept import kept_runs

    from benchmarks.paper_runs import computed

    return computed(kept_runs(result["name"].removeprefix("paper-")))


def _study_rows(result: Result) -> dict[str, Any]:
    from study import figures

    return figures(result["name"])


def _demo_run(result: Result) -> dict[str, Any]:
    """Train and analyse the twelve models again with the command; their times are not compared."""
    with TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "headcount", "demo", "--json", "--out", str(Path(folder) / "demo")]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    again = json.loads(done.stdout)["transition"]
    for new, old in zip(again["rows"], result["transition"]["rows"], strict=True):
        new["seconds"] = old["seconds"]
    return {"transition": again}


def _built_tasks(result: Result) -> dict[str, Any]:
    """Build, recheck and attack three of the tasks again; their times are not compared."""
    from test_build import judge

    rows = list(result["rows"])
    with TemporaryDirectory() as folder:
        for seed in (0, 2, 5):
            again = judge(seed, Path(folder) / str(seed), effort=1.0)
            rows[seed] = {**again, **{key: rows[seed][key] for key in ("seconds_build", "seconds_recheck")}}
    return {"rows": rows}


def _paper_cell(result: Result) -> dict[str, Any]:
    """Train one of the six models again with the plain loop."""
    from test_train import cell

    return {"nmse": {**result["nmse"], "3": [cell(3, 0, 8000), *result["nmse"]["3"][1:]]}}


def _attacked_layers(result: Result) -> dict[str, Any]:
    """Train and attack the first layer again, and where there are such, the first one with random weights."""
    from test_curve import attacked_again

    random = next((number for number, row in enumerate(result["rows"]) if row["layer"] == "random"), 0)
    return {"rows": attacked_again(result, sorted({0, random}))}


Sample = Callable[[Result], dict[str, Any]]
SAMPLES: dict[tuple[str, str], Sample] = {
    ("built-tasks", "measured"): _built_tasks,
    ("demo", "measured"): _demo_run,
    ("demo", "computed"): _demo_run,
    ("dimension-study", "computed"): _study_rows,
    ("dimension-study-fresh", "computed"): _study_rows,
    ("irreducible", "measured"): _attacked_layers,
    ("irreducible-typical", "measured"): _attacked_layers,
    ("paper-cell", "measured"): _paper_cell,
}
"""Functions that compute some keys of a result again, by result and part; `_paper_rows` does it for paper-*."""


def sample_of(name: str, part: str) -> Sample | None:
    """Return a function that computes a sample of a part again within a minute; None if there is none."""
    if part == "computed" and name.startswith("paper-"):
        return _paper_rows
    return SAMPLES.get((name, part))


def refusal(one: Stale, result: Result, sample: Sample | None) -> str | None:
    """Return why a part cannot be renewed; None if a sample of it is equal bit by bit."""
    if one.part == "timed":
        return f"a timing cannot be renewed: measure it again (it was measured on {one.date})"
    if sample is None:
        return "no sample of it is cheap: measure it again"
    for key, value in sample(result).items():
        if _exact_text(value) != _exact_text(result[key]):
            return f"{key} differs with today's code: measure or compute it again"
    return None


def renew(file: Path, sample: Callable[[str, str], Sample | None] = sample_of) -> dict[str, str | None]:
    """Record today's hash for the stale parts whose sample is equal; return by part why the others are refused."""
    result: Result = json.loads(file.read_text(encoding="utf-8"))
    found = {one.part: refusal(one, result, sample(file.stem, one.part)) for one in stale_parts(file)}
    origin = provenance()
    for part in (part for part, reason in found.items() if reason is None):
        renewed_source = source_of(parts_of(file.stem)[part].entries, source_now())
        renewed_source |= {"commit": origin["commit"], "renewed": datetime.now(UTC).date().isoformat()}
        result["source"] = {
            **result.get("source", {}),
            part: {**result.get("source", {}).get(part, {}), **renewed_source},
        }
    if None in found.values():
        write_json(file, result)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """List stale figures, renew a file, or mark the documents."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--renew", type=Path, metavar="FILE")
    chosen.add_argument("--mark", action="store_true")
    options = parser.parse_args(arguments)
    try:
        if options.renew is not None:
            parts = renew(options.renew)
            for part, reason in parts.items():
                print(
                    f"{options.renew.name} ({part}): {reason or 'renewed'}", file=sys.stderr if reason else sys.stdout
                )
            if not parts:
                print(f"{options.renew.name}: nothing is stale")
            return 2 if any(parts.values()) else 0
    except (LookupError, OSError, ValueError) as error:
        print(f"stale: {error}", file=sys.stderr)
        return 2
    found = all_stale()
    if options.mark:
        from documents import document_paths
        from marks import with_marks

        for document in document_paths(REPO):
            text = document.read_text(encoding="utf-8")
            if (new := with_marks(text, document, found)) != text:
                write_text(document, new)
                print(f"marked {document.relative_to(REPO)}")
        return 0
    for one in found:
        print(f"{one.file.name} ({one.part}): measured {one.date}; {what_changed(one)}")
    files, total = {one.file for one in found}, len(list(RESULTS.glob("*.json")))
    print(f"{len(files)} of {total} result files contain figures whose source has changed since they were measured")
    return 0


if __name__ == "__main__":
    sys.exit(main())
