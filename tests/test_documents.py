"""Every command and snippet in README and docs is executed (how: tests/documents.py)."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import headcount
from documents import (
    Command,
    ForkServer,
    commands,
    document_paths,
    environment,
    expected_output,
    matches,
    run_document,
    split,
    without_comment,
)
from support import REPO

# What is shown but not run: it fetches from the network, or enters what was fetched.
NOT_RUN = (r"git clone [^;&|]+", r"cd headcount", r"pip install [^;&|]+")
# Commands of make are only resolved here; the output shown for these is compared by a test that runs them.
RUN_ELSEWHERE = ("make demo",)

DOCUMENTS = document_paths(REPO)
NAMES = [str(path.relative_to(REPO)) for path in DOCUMENTS]


def read(document: Path) -> str:
    """The text; that a document is missing is for the first test to say."""
    return document.read_text(encoding="utf-8") if document.is_file() else ""


@pytest.fixture(scope="module")
def fork_server() -> Iterator[ForkServer]:
    with ForkServer.started() as server:
        yield server


@pytest.mark.parametrize("document", DOCUMENTS, ids=NAMES)
def test_a_document_runs(document: Path, fork_server: ForkServer):
    problems = run_document(fork_server, REPO, document, NOT_RUN)
    assert not problems, "\n" + "\n".join(problems)


@pytest.mark.parametrize("document", DOCUMENTS, ids=NAMES)
def test_relative_links_lead_somewhere(document: Path):
    prose = "\n".join(split(read(document))[1])
    targets = re.findall(r"\]\(([^)\s#]+)[^)]*\)", re.sub(r"`[^`]*`", "", prose))
    missing = [
        t for t in targets if "://" not in t and not t.startswith("mailto:") and not (document.parent / t).exists()
    ]
    assert missing == []


def test_output_shown_for_make_is_compared_somewhere():
    shown = [
        without_comment(item.text)
        for document in DOCUMENTS
        for block in split(read(document))[0]
        if block.language == "console"
        for item in commands(block)
        if isinstance(item, Command) and item.text.startswith("make") and item.expected
    ]
    assert set(shown) <= set(RUN_ELSEWHERE), "show no output for it, or run it in a test of its own"
    tests = [p for p in (REPO / "tests").rglob("test_*.py") if p.name != Path(__file__).name]
    compared = any("expected_output(" in p.read_text() for p in tests)
    assert compared or not shown, "no test compares the output of make demo with expected_output(README, 'make demo')"


# -- what prose names in passing ----------------------------------------------------------------------------


def mentioned(text: str, pattern: str) -> set[str]:
    """Names in inline code, but for lines that speak of what is to come."""
    lines = [line for line in split(text)[1] if "to come" not in line]
    return {name for code in re.findall(r"`([^`]+)`", "\n".join(lines)) for name in re.findall(pattern, code)}


def mentioned_anywhere(pattern: str) -> list[str]:
    return sorted(set().union(*(mentioned(read(path), pattern) for path in DOCUMENTS)))


def test_make_targets_in_prose_exist():
    targets = mentioned_anywhere(r"^make ([a-z-]+)")
    done = subprocess.run(
        ["make", "-n", *targets], cwd=REPO, env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_verbs_in_prose_exist(headcount_here):
    unknown = {verb for verb in mentioned_anywhere(r"^headcount ([a-z]+)") if headcount_here(verb, "--help").returncode}
    assert unknown == set()


def test_public_names_in_prose_exist():
    names = mentioned_anywhere(r"\bhc\.(\w+)")
    assert [name for name in names if not hasattr(headcount, name)] == []


def test_names_in_prose_are_found():
    text = "`make fly` and `headcount levitate --now`, `hc.wings(2)`\n`headcount later` is to come\n"
    text += "```text\n`make x`\n```\n"
    assert mentioned(text, r"^make ([a-z-]+)") == {"fly"}
    assert mentioned(text, r"^headcount ([a-z]+)") == {"levitate"}
    assert mentioned(text, r"\bhc\.(\w+)") == {"wings"}


# -- the check itself can fail ------------------------------------------------------------------------------

GOOD = """
```python
a = 20
print(a + 1)
```
```output
2...
```
```toml
# numbers.toml
values = [1, 2]
```
```console
$ cat numbers.toml | grep values    # made above
values = [1, 2]
$ echo one \\
>   two; echo three; echo four
one two
...
four
$ exit 2
(exit status 2)
$ make test ARGS=-x
$ git clone https://example.org/headcount
```
- in a list

  ```python
  assert a == 20
  from pathlib import Path
  assert Path("numbers.toml").exists()
  ```
"""

BROKEN = {
    "snippet": ("\n```python\nx = 1\nassert x == 2\n```", "4: the snippet fails: AssertionError"),
    "syntax": ("```python\nx =\n```", "2: the snippet fails: SyntaxError"),
    "missing name": (
        "```python\nfrom headcount import nothing_of_the_kind\n```",
        "2: the snippet fails: ImportError",
    ),
    "leaving": ("```python\nraise SystemExit(0)\n```", "2: the snippet fails: SystemExit"),
    "printed": ("```python\nprint(1.25)\n```\n```output\n1.24\n```", "5: the output differs"),
    "output without python": ("```output\n1\n```", "2: an output block follows"),
    "wrong output": ("```console\n$ echo 0.31\n0.32\n```", "2: the output differs"),
    "missing line": ("```console\n$ echo a\na\nb\n```", "2: the output differs"),
    "extra line": ("```console\n$ printf 'a\\nb\\n'\na\n```", "2: the output differs"),
    "unknown command": ("```console\n$ headcuont demo\n```", "2: `headcuont demo` exits with 127"),
    "failing command": ("```console\n$ false | cat\n```", "2: `false | cat` exits with 1"),
    "unexpected success": ("```console\n$ true\n(exit status 2)\n```", "2: `true` exits with 0"),
    "unknown target": ("```console\n$ make tets\n```", "2: `make tets` exits with 2"),
    "no prompt": ("```console\nmake test\n```", "2: a console block begins with"),
    "empty console": ("```console\n```", "2: a console block without a command"),
    "more than a clone": ("```console\n$ git clone x; false\n```", "2: `git clone x; false` exits with"),
    "bash": ("```bash\nmake test\n```", "2: a block of kind 'bash'"),
    "untagged": ("```\n$ make test\n```", "2: a command outside a console block"),
    "text": ("```text\nheadcount demo\n```", "2: a command outside a console block"),
    "indented": ("Run\n\n    make test\n", "3: a command in an indented block"),
    "unclosed": ("```python\nx = 1\n", "2: a block of kind 'unclosed'"),
    "toml": ("```toml\n# sweep.toml\nx = \n```", "2: not valid TOML"),
    "toml without kind": ("```toml\nx = 1\n```", "2: a toml block begins with a comment"),
    "json": ("```json\n{1}\n```", "2: not valid JSON"),
}


def test_a_good_document_passes(tmp_path, fork_server):
    (tmp_path / "page.md").write_text(GOOD)
    assert run_document(fork_server, REPO, tmp_path / "page.md", NOT_RUN) == []


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_document_is_reported(case, tmp_path, fork_server):
    text, problem = BROKEN[case]
    (tmp_path / "page.md").write_text(text)
    problems = run_document(fork_server, REPO, tmp_path / "page.md", NOT_RUN)
    assert len(problems) == 1, problems
    assert problems[0].startswith(f"page.md:{problem}")


def test_a_missing_document_and_a_dying_one_are_reported(tmp_path, fork_server):
    assert run_document(fork_server, REPO, tmp_path / "README.md")
    (tmp_path / "page.md").write_text("```python\nimport os\nos._exit(0)\n```")
    assert "died" in run_document(fork_server, REPO, tmp_path / "page.md")[0]


def test_wildcards():
    assert matches(["a ... c", "...", "z"], ["a b c", "1", "2", "z"])
    assert matches(["...", "z"], ["z"])
    assert not matches(["a ... c"], ["a b d"])
    assert not matches(["...", "z"], ["z", "y"])
    assert not matches(["3 heads"], ["4 heads"])


def test_expected_output_is_found(tmp_path):
    (tmp_path / "page.md").write_text("```console\n$ make demo   # the tour\nheads ...\n```")
    assert expected_output(tmp_path / "page.md", "make demo") == ["heads ..."]
    with pytest.raises(LookupError):
        expected_output(tmp_path / "page.md", "make test")
