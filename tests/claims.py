"""Claims: every measured figure in README and docs is a link to the number in a result file.

    [140 times](benchmarks/results/demo.json#transition.drop)    from README.md
    [8.1e-6](../benchmarks/results/demo.json#nmse.1)             from docs/; 1 indexes a list

The text holds one number, and it must be the file's value rounded to the digits shown; with `%` the file
holds the fraction. Text that links to a string must be that string.

A statement about many rows ("all", "at most", a ratio of cells) is computed from them: the text before
<!-- computed: NAME --> must be what the function NAME of tests/computed returns.

A figure that is not about our rows (a number of the paper, a setting) needs a comment on its line:
<!-- not measured: REASON -->, where REASON begins like one of REASONS.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from decimal import ROUND_HALF_DOWN, ROUND_HALF_EVEN, ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any

from computed import COMPUTED, Results
from documents import split

NUMBER = re.compile(r"[-−]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:[eE][-+−]?\d+)?")
LINK = re.compile(r"\[((?:[^\[\]]|\n(?!\n))*)\]\(([^()\s]+)\)")
EXEMPT = re.compile(r"<!-- not measured: (\S[^\n]*?) -->")
REASONS = (
    "the paper's",
    "a setting",
    "a constant",
    "a definition",
    "a level",
    "the level",
    "limits",
    "arithmetic",
    "it varies",
)
MARK = re.compile(r"<!--\s*computed\b(?:: (\S+) -->)?")
COMMENT = re.compile(r"<!--.*?-->", re.S)
CODE = re.compile(r"(`+)(?!`)(?:(?!\n\n).)+?(?<!`)\1(?!`)", re.S)
URL = re.compile(r"https?://\S+")

_N = r"(?<![\w.])\d+(?:[.,]\d+)*"
_GAP = r"[ \u00a0\u202f\n-]?"
_COMPARED = r"(?:as|larger|smaller|faster|slower|lower|higher|better|worse|more|less|fewer|longer|shorter|cheaper)"
FIGURE = re.compile(
    rf"{_N}[eE][-+−]?\d+"  # 3e-5
    rf"|{_N}\s?[·×]\s?10(?:\^|[⁻⁺⁰¹²³⁴-⁹])|(?<![\w.])10(?:\^[-−{{]|⁻)"  # 3·10⁻⁵, 10^-5
    rf"|{_N}{_GAP}(?:%|s|ms|[µμ]s|us|ns|secs?|seconds?|mins?|minutes?|hours?|[kKMG]i?B|[kMG]FLOPS?)(?!\w)"
    rf"|{_N}(?:[×x](?!\w)|{_GAP}[×x]{_GAP}(?={_COMPARED}))"  # 140×
    rf"|{_N}{_GAP}(?:times\s{_COMPARED}\b|fold\b)|\bfactors?\sof\s(?:about\s)?{_N}"
    rf"|\b(?:NMSE|MSE|R²|accuracy|loss|error)\s(?:(?:of|is|was|about|near|below|under|reaches|=|≈|<|≤)\s)*{_N}\.\d+"
    rf"|(?<=\|)\s*[-−]?\d+\.\d+\s*(?=\|)"  # a cell of a table that is a decimal number
)


def claim_problems(document: Path, results: Path) -> list[str]:
    """Check all claims of one document against the result files, and find figures that are not claims."""
    if not document.is_file():
        return [f"{document.name} does not exist"]
    text = "\n".join(split(document.read_text(encoding="utf-8"))[1])
    found: list[tuple[int, str]] = []
    exempt: set[int] = set()
    for match in EXEMPT.finditer(text):
        exempt.add(_line(text, match.start()))
        if not match[1].startswith(REASONS):
            allowed = f"a reason begins with {', '.join(REASONS)} (link or compute what our rows say)"
            found.append((_line(text, match.start()), f"not measured: {match[1]!r}: {allowed}"))
    text, problems = _without_computed(text, Results(results))
    found += problems
    text = CODE.sub(_blank, COMMENT.sub(_blank, text))
    for match in LINK.finditer(text):
        shown, (target, _, fragment) = match[1], match[2].partition("#")
        if not target.endswith(".json") or "://" in target:
            continue
        problem = _claim_problem(shown, (document.parent / target).resolve(), fragment, results.resolve())
        if problem:
            found.append((_line(text, match.start()), f"[{shown}]({match[2]}): {problem}"))
    for line, figure in _figures(text):
        if line not in exempt:
            found.append((line, f"{figure!r} is not a link to a result file (see tests/claims.py)"))
    return [f"{document.name}:{line}: {problem}" for line, problem in sorted(found)]


def _without_computed(text: str, results: Results) -> tuple[str, list[tuple[int, str]]]:
    """Return the text with correct computed statements blanked out, and the problems of the others."""
    problems: list[tuple[int, str]] = []
    correct: list[tuple[int, int]] = []
    for mark in MARK.finditer(text):
        name = mark[1]
        if name not in COMPUTED:
            problems.append((_line(text, mark.start()), f"computed: tests/computed has no {name!r}"))
            continue
        try:
            stated = COMPUTED[name](results)
        except Exception as error:
            problems.append((_line(text, mark.start()), f"computed: {name}: the rows do not support it: {error!r}"))
            continue
        words = r"\s+".join(map(re.escape, stated.split()))
        phrase = re.search(rf"(?<![\w.,−-]){words}[.,;:)]*\s*\Z", text[: mark.start()])
        if phrase is None:
            problems.append((_line(text, mark.start()), f"computed: {name}: the rows say {stated!r}"))
        else:
            correct.append(phrase.span())
    for start, end in correct:
        text = text[:start] + re.sub(r"[^\n]", " ", text[start:end]) + text[end:]
    return text, problems


def _figures(text: str) -> Iterator[tuple[int, str]]:
    """Yield figures outside claims; the text of other links counts as prose."""

    def keep_text(match: re.Match[str]) -> str:
        is_claim = match[2].partition("#")[0].endswith(".json") and "://" not in match[2]
        return _blank(match) if is_claim else " " + match[1] + " " * (len(match[0]) - len(match[1]) - 1)

    prose = URL.sub(_blank, LINK.sub(keep_text, text))
    for match in FIGURE.finditer(prose):
        start = match.start() + len(match[0]) - len(match[0].lstrip())
        yield _line(prose, start), " ".join(match[0].split())


def _claim_problem(shown: str, file: Path, fragment: str, results: Path) -> str | None:
    """Compare one claim with its file; return the problem, if there is one."""
    if not file.is_relative_to(results):
        return "the file is not in benchmarks/results"
    if not file.is_file():
        return "no such result file"
    if not fragment:
        return "add the place in the file, #like.this" if NUMBER.search(shown) else None
    value: Any = json.loads(file.read_text(encoding="utf-8"))
    for part in fragment.split("."):
        try:
            value = value[int(part)] if isinstance(value, list) else value[part]
        except (KeyError, IndexError, TypeError, ValueError):
            return f"the file has no {fragment!r} (stopped at {part!r})"
    if isinstance(value, str):
        return None if shown == value else f"the file says {value!r}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"{fragment!r} is not a number"
    numbers = NUMBER.findall(shown)
    if len(numbers) != 1:
        return "the text of a claim must contain exactly one number"
    scaled = Decimal(repr(value)) * (100 if "%" in shown else 1)
    return None if rounds_to(scaled, numbers[0]) else f"the file says {value}"


def rounds_to(value: Decimal, shown: str) -> bool:
    """Whether a value, rounded to the digits shown, equals the shown number; a tie may be rounded either way."""
    figure = Decimal(shown.replace(",", "").replace("−", "-"))
    step = Decimal((0, (1,), int(figure.as_tuple().exponent)))
    ways = (ROUND_HALF_EVEN, ROUND_HALF_UP, ROUND_HALF_DOWN)
    return any((value / step).to_integral_value(way) == figure / step for way in ways)


def _line(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1


def _blank(match: re.Match[str]) -> str:
    """Return spaces of the same length, so that lines keep their numbers."""
    return re.sub(r"[^\n]", " ", match[0])
