"""Which code each result file depends on: one table, and what result files record about it (`make stale` compares).

A result has up to three parts. *measured*: what was trained, built, attacked or counted. *timed*: how long it took.
*computed*: what the analysis computed from the saved rows. A part with keys covers only those keys of the file; a part
without keys covers the whole file. Its entries are the definitions where the code behind it begins, and everything that
they reach counts (benchmarks/source.py).

How entries are chosen: an error depends on the training step with its data, batches, initial weights and kernels, but
not on the code that schedules trials, shows progress or stores them. A timing depends on everything that runs while the
clock does. Reading users' files counts only for the advisor. If a result comes from a GPU alone or a CPU alone, the
other's kernels do not count.
"""

from __future__ import annotations

import functools
import io
import json
import subprocess
import tarfile
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from benchmarks.source import Source, source_of
from headcount.core import provenance

HERE = Path(__file__).resolve().parent
REPO = HERE.parent
RESULTS = HERE / "results"


@dataclass(frozen=True)
class Part:
    """The entries that a part of a result depends on, and the keys of the file that it covers (none: all)."""

    entries: tuple[str, ...]
    keys: tuple[str, ...] = ()

    def covers(self, fragment: str) -> bool:
        """Whether a place in the file, such as errors.T8.h2, belongs to the part."""
        return not self.keys or fragment.split(".")[0] in self.keys


NO_FILES = (
    "!tasks.arrays.task",
    "!tasks.arrays.csv",
    "!tasks.arrays.files",
    "!tasks.arrays.long_form",
    "!models.files",
)
DATA = ("training.data:prepare", "training.data:fresh_pool", "tasks.families:FAMILIES", *NO_FILES)
ON_GPU = ("training.stacked:StackTrainer", "training.lbfgs:polish", *DATA)
ON_CORES = (
    "training.on_cores:CpuTrial",
    "training.on_cores:TorchTrial",
    *DATA,
    "!kernels.adam.triton",
    "!kernels.pool.triton",
    "!kernels.step.triton",
)
REAL = ("training.encoder.stacked:EncoderTrainer", "training.encoder.measures")
MARCO = (*REAL, "training.feeds.candidates", "datasets.msmarco.mining:mine", "datasets.msmarco.embeddings:Tokens")
CIFAR = (*REAL, "training.feeds.images", "datasets.cifar10.frames", "datasets.cifar10.read:read_cifar")
ANALYSIS = ("analysis.of_runs:analyse",)
ATTACK = ("theory.attack.search:attack", "recheck.witness", *NO_FILES)
BUILD = ("theory.construct.enough_heads:build", "recheck.certificate:verify", *NO_FILES)
IRREDUCIBLE = ("sweeps.attack_trials:attack_unit", *ATTACK, "training.loop:train", *DATA)
GPU_STEP = ("training.stacked:StackTrainer", "kernels.pool.triton", "kernels.step.triton", *NO_FILES)
READ = ("datasets.msmarco.embeddings:read_model",)
MINING = (
    "datasets.msmarco.collection:read_marco",
    "datasets.msmarco.mining:mine",
    "datasets.msmarco.embeddings:Tokens",
    *READ,
)
READERS = (
    "core.readers.reading",
    "core.readers.packed",
    "core.readers.model_file",
    "core.readers.statement_file",
    "tasks.arrays.files",
    "datasets.msmarco.formats",
    "datasets.cifar10.read:read_cifar",
    "tasks.serial:parse_task",
    "sweeps.file:read_sweep",
    "probing.load:load_folder",
    "recheck.certificate:verify",
    "recheck.witness:verify_witness",
)
ADVICE = ("advisor.advice:advise",)
WORDING_MODULES = ("words.answer", "words.configuration", "page", "tables", "charts", "configuration")
RENDER_MODULES = sorted(
    ".".join(path.relative_to(REPO / "src/headcount").with_suffix("").parts)
    for path in (REPO / "src/headcount/render").rglob("*.py")
)
NO_WORDING = (*(f"!advisor.{name}" for name in WORDING_MODULES), *(f"!{name}" for name in RENDER_MODULES))
"""Excludes the wording and drawing of an answer, which do not change it."""
SEARCH = ("advisor.search:Search", "advisor.data:material", "advisor.data:prepared")
STUDY = ("benchmarks.advisor_study:study_task", "benchmarks.advisor_study:study_control")
FEW_SEQUENCES = ("benchmarks.few_sequences_study:ask_real", "benchmarks.few_sequences_study:ask_truth")
VIT = (
    "benchmarks.peers.vit:plain_loop",
    "benchmarks.peers.vit:stacked_loop",
    "benchmarks.peers.turns:in_turns",
    "benchmarks.vit_speed:builders",
)
BENCH = (
    "benchmarks.peers.run:_steps",
    "benchmarks.peers.sweep:run_sweep_bench",
    *("!models.files", "!tasks.task", "!tasks.retrieval", "!tasks.controls", "!tasks.arrays"),
)
"""Everything that runs while the clock does, so not the tasks: their sequences are drawn before it starts."""
KEPT_ANALYSIS = Part(ANALYSIS, ("answers", "slopes", "reversals"))

TABLE: dict[str, dict[str, Part]] = {
    "advisor-speed-*": {"timed": Part(("cli.advise:advise", *ADVICE))},
    "advisor-study*": {"measured": Part((*ADVICE, *NO_WORDING, *STUDY))},
    "attack-built": {"measured": Part((*ATTACK, *BUILD))},
    "bench-*": {"timed": Part(BENCH)},
    "built-tasks": {
        "measured": Part((*BUILD, "theory.certify.worst_found:worst_error")),
        "timed": Part(BUILD, ("median_seconds", "most_seconds")),
    },
    "certify": {
        "measured": Part(("theory.certify.trained:certify", "theory.certify.worst_found:worst_error", *ON_CORES))
    },
    "demo": {
        "measured": Part((*ON_CORES, "specs/demo.toml")),
        "timed": Part(("sweeps.run:run_sweep", "specs/demo.toml", *NO_FILES), ("seconds",)),
        "computed": Part(("analysis.of_runs:find_transition",), ("transition",)),
    },
    "dimension-study*": {
        "measured": Part((*ON_GPU, "benchmarks.dimension_study:task_spec")),
        "computed": Part(ANALYSIS),
    },
    "every-encoder": {"measured": Part(("theory.bounds.lipschitz", "theory.bounds.reach", *ON_CORES))},
    "few-sequences": {"measured": Part((*SEARCH, *FEW_SEQUENCES))},
    "few-sequences-synthetic": {"measured": Part((*SEARCH, "benchmarks.few_sequences_study:ask_synthetic"))},
    "float64-rounding": {
        "measured": Part(
            (*BUILD, "theory.construct.one_wide_head:build_wide", "models.transformer.reference:Transformer")
        )
    },
    "gpu-precision": {"measured": Part(GPU_STEP)},
    "gpu-tests": {"measured": Part(("sweeps.experiments:STACKS", "training.stacked:StackTrainer", *NO_FILES))},
    "irreducible-long": {"measured": Part((*IRREDUCIBLE, "specs/irreducible-long.toml"))},
    "irreducible*": {"measured": Part((*IRREDUCIBLE, "specs/irreducible.toml"))},
    "mining-speed": {"timed": Part(MINING)},
    "mutated-inputs": {"measured": Part(READERS)},
    "paper-cell": {"measured": Part(("training.loop:train", *DATA))},
    "paper-table4-longer": {"measured": Part((*ON_CORES, "specs/table4-longer.toml")), "computed": KEPT_ANALYSIS},
    "paper-times": {"timed": Part(("sweeps.run:run_on_store", *NO_FILES))},
    "paper-*": {"measured": Part(ON_GPU), "computed": KEPT_ANALYSIS},
    "precision-marco": {"measured": Part((*MARCO, "benchmarks.precision_study:compare"))},
    "precision-cifar": {"measured": Part((*CIFAR, "benchmarks.precision_study:compare"))},
    "real-marco*": {
        "measured": Part(MARCO),
        "timed": Part(("sweeps.run:run_on_store", *MARCO, *NO_FILES), ("seconds", "pieces")),
        "computed": Part((*ANALYSIS, "reproduction.words:stated_findings"), ("findings",)),
    },
    "real-cifar*": {
        "measured": Part(CIFAR),
        "timed": Part(("sweeps.run:run_on_store", *CIFAR, *NO_FILES), ("seconds", "pieces")),
        "computed": Part((*ANALYSIS, "reproduction.words:stated_findings"), ("findings",)),
    },
    "reference": {"measured": Part(("models.transformer.reference:Transformer",))},
    "before-after": {"timed": Part(("training.on_cores:CpuTrial", "sweeps.run:run_on_store", "cli.demo:demo"))},
    "store-flips": {"measured": Part(("store.store:Store", "store.check:quick_check"))},
    "store-kills": {"measured": Part(("store.store:Store",))},
    "store-scale": {"timed": Part(("store.store:Store", "cli.runs:runs", "benchmarks.store_scale:measure"))},
    "vit-speed-*": {"timed": Part(VIT)},
}
"""The parts of result files by a pattern for their names; the first match counts. A test checks that all have one."""


def parts_of(name: str) -> dict[str, Part]:
    """Return the parts of a result by its name."""
    for form, parts in TABLE.items():
        if fnmatchcase(name, form):
            return parts
    raise LookupError(f"result {name!r} is not in the table of benchmarks/result_sources.py: say what it depends on")


@functools.cache
def source_now() -> Source:
    """Return the code of this checkout."""
    return Source.of_folders(REPO / "src" / "headcount", HERE)


@functools.cache
def source_at(commit: str) -> Source:
    """Return the code of a commit; raise LookupError if the history does not have it."""
    git = ["git", "-C", str(REPO), "-c", "safe.directory=*", "archive", commit, "src/headcount"]
    scripts = subprocess.run([*git, "benchmarks"], capture_output=True, check=False)
    done = scripts if scripts.returncode == 0 else subprocess.run(git, capture_output=True, check=False)
    if done.returncode:
        raise LookupError(f"the history has no commit {commit}")
    package, scripts = dict[str, str](), dict[str, str]()
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        for member in archive.getmembers():
            if member.isfile() and member.name.endswith((".py", ".toml", ".json")):
                file = archive.extractfile(member)
                text = file.read().decode() if file is not None else ""
                if member.name.startswith("src/headcount/"):
                    package[member.name.removeprefix("src/headcount/")] = text
                elif member.name.endswith(".py"):
                    scripts[member.name] = text
    return Source.of_files(package, scripts)


def date_of(commit: str) -> str:
    """Return the date of a commit that the history has."""
    git = ["git", "-C", str(REPO), "-c", "safe.directory=*", "show", "-s", "--format=%cs", commit]
    return subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()


def _recorded_part(name: str, part: str) -> dict[str, Any]:
    """Return what an existing result file records about the source of a part; empty if there is no such file."""
    file = RESULTS / f"{name}.json"
    return json.loads(file.read_text(encoding="utf-8"))["source"].get(part, {}) if file.exists() else {}


def recorded(name: str, trained: str | None = None) -> dict[str, Any]:
    """Return what a new result file records about its source: entries, hash, commit and date of every part.

    The code is that of this checkout. For rows that were trained earlier, at the commit `trained`, it is the code of
    that commit (of the first, if there are several).
    """
    found: dict[str, Any] = {}
    now, before = provenance()["commit"], str(trained or "").split(",")[0].rstrip("+")
    for key, part in parts_of(name).items():
        earlier = before and not str(now).startswith(before) and key != "computed"
        if earlier and (kept_part := _recorded_part(name, key)).get("commit") == trained:  # entries may have moved
            found[key] = kept_part
            continue
        source, commit = (source_at(before), trained) if earlier else (source_now(), now)
        date = date_of(before) if earlier else datetime.now(UTC).date().isoformat()
        found[key] = {**source_of(part.entries, source), "commit": commit, "date": date}
    return found
