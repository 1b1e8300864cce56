"""The task, the models and the training of a run in plain words, read from the run's own record."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from headcount.analysis import Part
from headcount.core.readers import toml_text
from headcount.store import Run


class TaskText(NamedTuple):
    """A task in words, and its formula."""

    words: str
    formula: str


_OUTER = {
    "sum": "added up",
    "product": "multiplied (each plus 1)",
    "sum-product": "added up and multiplied",
    "square": "added up and squared",
    "tanh": "added up and squashed by tanh",
    "exp": "added up and put through exp(−·)",
    "vector": "put out as partial sums",
}

_POINTS = "Each input is a sequence of {T} random points with {d} coordinates. "
_SPHERE = "Each input is a sequence of {T} random points on a sphere. "
_NEAREST = "the model has to find how close the nearest point comes; the {D} squared distances are then {outer}."

_FAMILIES = {
    "sum-of-maxima": TaskText(
        _POINTS + "For each of {D} fixed directions the model has to find how far the points reach in that direction; "
        "the answer is the sum of these {D} numbers.",
        "y = Σᵢ maxₜ aᵢ·x(t)    i = 1…{D},  t = 1…{T},  x(t) ∈ ℝ{power}",
    ),
    "quadratic-basins": TaskText(
        _POINTS + "For each of {D} fixed places " + _NEAREST,
        "y = F₀(z₁, …, z{index})    zᵢ = minₜ |x(t) − cᵢ|²/{d},  t = 1…{T}",
    ),
    "min-plus-max": TaskText(
        "Each input is a sequence of {T} random numbers. The answer is the smallest plus the largest of them.",
        "y = maxₜ x(t) + minₜ x(t)    t = 1…{T}",
    ),
    "sparse-regression": TaskText(
        "Each input is a sequence of {T} tokens, of which {D} carry a mark. The model has to find the marked tokens; "
        "their values are then {outer}.",
        "y = F₀(v₁, …, v{index})    vᵢ: the value of the token with mark i",
    ),
    "sphere-anchors": TaskText(
        _SPHERE + "For each of {D} fixed anchors " + _NEAREST,
        "y = F₀(z₁, …, z{index})    zᵢ = minₜ |x(t) − qᵢ|²/4,  |x(t)| = 1",
    ),
    "nearest-neighbour": TaskText(
        _SPHERE + "The answer is the earlier point that lies nearest to the last one.",
        "y = the x(t), t < {T}, nearest to x({T})",
    ),
    "mean": TaskText(
        "A control: the answer is an average over all {T} tokens. Nothing has to be searched for, so one head can "
        "do it.",
        "y = (1/{T}) Σₜ |x(t) − ½|²",
    ),
    "linear": TaskText(
        "A control: the answer is a weighted sum of all numbers of the {T} tokens. Nothing has to be searched for.",
        "y = Σₜ w(t)·x(t)    t = 1…{T}",
    ),
}
"""The families by name; {T}, {d}, {D}, their small forms and {outer} are filled in."""
_ENTRY = {
    "means": "Each candidate (query and passage) enters as one vector, the means of its frozen word, position and "
    "segment embeddings; the encoder attends over the candidates.",
    "tokens": "All tokens of all candidates (query and passage) stand in one sequence; the encoder attends over them.",
}


def _marco(task: dict[str, Any]) -> str:
    return (
        f"MS MARCO: of {task.get('length', '?')} passages one answers the query, the others were mined to look like "
        f"it. The model has to say which. {_ENTRY.get(str(task.get('entry', '')), '')}"
    ).strip()


def _cifar(task: dict[str, Any]) -> str:
    length, patch = task.get("length", "?"), task.get("patch", "?")
    side = f" of side {task['side']}" if "side" in task and isinstance(length, int) else ""
    return (
        f"CIFAR-10: an image lies at a random spot of a frame{side}, its border drawn out to fill the frame. The frame "
        f"is cut into squares of {patch} by {patch} pixels, {length} tokens with the class token. The model has to "
        f"name what is on it, one of {task.get('classes', 10)} classes."
    )


_REAL: dict[str, Callable[[dict[str, Any]], str]] = {"marco": _marco, "cifar": _cifar}
"""Tasks on real data, by kind."""
_UPPER = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
_LOWER = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


def task_text(run: Run) -> TaskText:
    """Return the task in words; a task of unknown family is described by its sizes."""
    if run.task.get("kind") in _REAL:
        return TaskText(_REAL[run.task["kind"]](run.task), "")
    task, family = run.task, section(run, "task")
    T, d, D = (str(v if v is not None else "?") for v in (task.get("length"), task.get("dim"), run.intrinsic))
    name = str(family.get("family", ""))
    if name not in _FAMILIES:
        label = f"The task “{task.get('name', 'without a name')}”"
        return TaskText(f"{label}: from a sequence of {T} tokens with {d} numbers each, predict y.", "")
    outer = _OUTER.get(str(family.get("outer", "sum")), "combined")
    small = {"power": d.translate(_UPPER), "index": D.translate(_LOWER)}
    words, formula = (text.format(T=T, d=d, D=D, outer=outer, **small) for text in _FAMILIES[name])
    if family.get("sets", "all") != "all":
        words += f" Each search is limited to some of the positions ({family['sets']} sets)."
    return TaskText(words, formula)


def settings(run: Run, on: Part = "validation") -> list[tuple[str, str]]:
    """Return what was done, as pairs of a name and a text; what is not on record is left out."""
    model, train = section(run, "model"), section(run, "train")
    heads = sorted({t.heads for t in run.trials})
    seeds = sorted({t.seed for t in run.trials})
    pairs = [
        ("Sequence length T", run.task.get("length")),
        ("Numbers per token d", run.task.get("dim")),
        ("Look-ups D", run.intrinsic if run.intrinsic is not None else "not defined for this task"),
        ("Model", _model(model)),
        ("Heads tried", ", ".join(map(str, heads))),
        ("Seeds", f"{_starts(run, len(seeds))} per head count: {_listed(seeds)}"),
        ("Models trained", f"{len(run.trials)}, in {_duration(run.seconds)}"),
        ("Training", _training(train)),
        ("Training data", _data(train) or _samples(run, "train", on)),
        ("Validation", _validation(train, on) or _samples(run, "validation", on)),
    ]
    return [(name, str(value)) for name, value in pairs if value not in (None, "")]


def origin(run: Run) -> list[tuple[str, str]]:
    """Return where the numbers came from, as pairs of a name and a text."""
    made: dict[str, Any] = run.provenance
    versions, machine = _mapping(made.get("versions")), _mapping(made.get("machine"))
    pairs = [
        ("Time", made.get("time")),
        ("Commit", made.get("commit")),
        ("Versions", ", ".join(f"{name} {version}" for name, version in versions.items())),
        ("Machine", ", ".join(f"{name}: {value}" for name, value in machine.items())),
    ]
    rest = {k: v for k, v in made.items() if k not in ("time", "commit", "versions", "machine")}
    pairs += [(name.capitalize(), v if isinstance(v, str) else json.dumps(v)) for name, v in rest.items()]
    return [(name, str(value)) for name, value in pairs if value]


def experiment(run: Run) -> str:
    """Return the sweep that a run belongs to as the text of a sweep file, or as JSON if TOML cannot express it."""
    stated = run.sweep or run.spec
    try:
        return toml_text(stated)
    except ValueError:
        return json.dumps(stated, indent=2, ensure_ascii=False)


def experiment_title(run: Run) -> str:
    """Return the title of the text of `experiment`."""
    how = "; saved as a file, headcount sweep FILE runs it again" if run.sweep else ""
    return f"The experiment “{run.name}”, as it was run{how}"


def section(run: Run, name: str) -> dict[str, Any]:
    """Return one part of the spec, or an empty mapping if the spec has another form."""
    return _mapping(run.spec.get(name))


def _mapping(value: Any) -> dict[str, Any]:
    return {str(k): v for k, v in value.items()} if isinstance(value, dict) else {}


def _model(model: dict[str, Any]) -> str:
    if not model:
        return ""
    depth = model.get("depth", 1)
    parts = [
        "a one-layer transformer" if depth == 1 else f"a transformer of {depth} layers",
        f"head dimension n = {model['head_dim']}" if "head_dim" in model else "",
        f"hidden width N = {model['hidden']}" if "hidden" in model else "",
        f"width E = {model['width']}" if model.get("width") else "",
        _positions(model),
        f"dropout {model['dropout']:g}" if model.get("dropout") else "",
        "layer norm" if model.get("layer_norm") else "",
    ]
    return ", ".join(part for part in parts if part)


def _positions(model: dict[str, Any]) -> str:
    if "dropout" in model:  # on real data the task determines the positions
        return ""
    return f"positions: {model['positions']}" if model.get("positions", "none") != "none" else "no positions"


def _training(train: dict[str, Any]) -> str:
    parts = [
        f"{train['steps']:,} steps" if isinstance(train.get("steps"), int) else "",
        f"batches of {train['batch']}" if "batch" in train else "",
        f"{str(train['optimiser']).capitalize()}" if "optimiser" in train else "",
        f"learning rate {train['learning_rate']:g}" if isinstance(train.get("learning_rate"), float) else "",
        f"{train['schedule']} schedule" if "schedule" in train else "",
        f"{train['dtype']}" if "dtype" in train else "",
    ]
    return ", ".join(part for part in parts if part)


def _data(train: dict[str, Any]) -> str:
    if train.get("fresh"):
        return "new random sequences in every batch"
    size = train.get("train_size")
    return f"{size:,} random sequences, the same for all models" if isinstance(size, int) else ""


def _validation(train: dict[str, Any], on: Part) -> str:
    size = train.get("validation_size")
    used = "; all errors on this page are measured on them" if on == "validation" else ""
    return f"{size:,} other sequences{used}" if isinstance(size, int) else ""


def _samples(run: Run, part: Part, on: Part) -> str:
    """Return how many samples of real data a part has, and whether the page's errors are measured on them."""
    size, measured = run.task.get(part), run.samples.get(part)
    count = f"{size:,} samples" if isinstance(size, int) else ""
    limited = f"{measured:,} of them" if isinstance(size, int) and measured not in (None, size) else "them"
    return f"{count}; all errors on this page are measured on {limited}" if count and part == on else count


def _starts(run: Run, found: int) -> str:
    """Return the number of random starts, and how many were planned if that is more."""
    planned = run.spec.get("seeds")
    if isinstance(planned, int) and planned > found:
        return f"{found} of {planned} planned random starts"
    return f"{found} random starts"


def _listed(numbers: list[int]) -> str:
    if len(numbers) > 4 and numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"{numbers[0]} to {numbers[-1]}"
    return ", ".join(map(str, numbers))


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"
