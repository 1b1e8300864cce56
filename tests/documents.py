"""Documents that run: execute the fenced blocks of Markdown files, with one process and one folder per document.

The blocks of a document run in order. The processes of documents and of plain commands are forks of a process that has
imported the libraries and nothing else.

    python     is executed; the blocks of a document share their names
    output     is what the python block before it prints
    console    `$ ` starts a command, `> ` continues it, and the other lines are its output; a last line
               `(exit status 2)` expects failure. Commands of make are resolved with `make -n`, not run;
               a plain `headcount …` runs in a fork, anything else in bash
    toml       begins with a comment: its kind, or a file name (`# sweep.toml`) for later blocks
    json       must parse
    text, bibtex, math, no tag: is only shown; a command in it is an error, because it would never be tested

In expected output `...` stands for anything within a line, or for any number of lines if it is alone on its line.
As a script (`python -P tests/documents.py`) this module imports the libraries and waits for requests (`serve`).
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import io
import json
import multiprocessing
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tempfile
import tomllib
import traceback
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

SHOWN_ONLY = ("", "text", "bibtex", "math")
COMMAND = re.compile(r"(?:\$ |(?:headcount|make|pip|pip3|python|python3|git|cd|uv|source|export) \S)")
MAKE_COMMAND = re.compile(r"make(?: [^;&|]*)?")
PLAIN_COMMAND = re.compile(r"headcount(?: [\w./=,:+-]+)*")
"""A command without any characters that are special to the shell."""
LIBRARIES = (
    "torch",
    "numba",
    "scipy.optimize",
    "matplotlib.figure",
    "pydantic",
    "rich.console",
    "cyclopts",
    "flint",
    "transformers.models.gpt2.modeling_gpt2",
)
"""Importing these takes seven seconds; headcount is not among them, so that every process imports it itself."""
CONSOLE_SECONDS, DOCUMENT_SECONDS = 300, 900


@dataclass(frozen=True)
class Block:
    """A fenced block; `line` is the number of its first line of content."""

    line: int
    language: str
    text: str


@dataclass
class Command:
    """One command of a console block."""

    line: int
    text: str
    expected: list[str] = field(default_factory=list[str])
    status: int = 0


def document_paths(repo: Path) -> list[Path]:
    """Return the documents whose blocks and figures are checked; README.md must exist."""
    return [repo / n for n in ("README.md", "CONTRIBUTING.md")] + sorted((repo / "docs").rglob("*.md"))


def split(text: str) -> tuple[list[Block], list[str]]:
    """Return the fenced blocks, and the lines of the text with all fenced lines blank."""
    blocks: list[Block] = []
    prose: list[str] = []
    fence: re.Match[str] | None = None
    start, content = 0, list[str]()
    for number, line in enumerate(text.splitlines(), 1):
        if fence is None:
            fence = re.match(r"(\s*)(`{3,}|~{3,})\s*([^`]*)$", line)
            start, content = number + 1, []
            prose.append("" if fence else line)
            continue
        prose.append("")
        closing = line.strip()
        if closing and set(closing) == {fence[2][0]} and len(closing) >= len(fence[2]):
            language = (fence[3].split() or [""])[0].lower()
            blocks.append(Block(start, language, "\n".join(content)))
            fence = None
        else:
            indent = len(line) - len(line.lstrip())
            content.append(line[min(len(fence[1]), indent) :])
    if fence is not None:
        blocks.append(Block(start, "unclosed", "\n".join(content)))
    return blocks, prose


def commands(block: Block) -> Iterator[Command | str]:
    """Yield the commands of a console block; a string is a problem."""
    current: Command | None = None
    for number, line in enumerate(block.text.splitlines(), block.line):
        if line.startswith("$ "):
            if current is not None:
                yield current
            current = Command(number, line[2:].strip())
        elif current is None:
            yield f"{number}: a console block begins with '$ ' and a command"
            return
        elif line.startswith("> ") and not current.expected:
            current.text += "\n" + line[2:]
        elif match := re.fullmatch(r"\(exit status (\d+)\)", line):
            current.status = int(match[1])
        else:
            current.expected.append(line)
    if current is None:
        yield f"{block.line}: a console block without a command"
    else:
        yield current


def expected_output(document: Path, command: str) -> list[str]:
    """Return the output that a document shows for a command, for a test that runs the command itself."""
    for block in split(document.read_text(encoding="utf-8"))[0]:
        for item in commands(block) if block.language == "console" else ():
            if isinstance(item, Command) and without_comment(item.text) == command:
                return item.expected
    raise LookupError(f"{document.name} has no command {command!r}")


def without_comment(command: str) -> str:
    """Return a command without its trailing comment."""
    return re.sub(r"\s+#\s.*$", "", command)


def matches(expected: Sequence[str], actual: Sequence[str]) -> bool:
    """Whether output agrees line by line; `...` is the only wildcard."""
    patterns = [
        None if line.strip() == "..." else ".*".join(map(re.escape, line.rstrip().split("..."))) for line in expected
    ]

    ends = {0}  # how many lines of the output the patterns so far can match
    for pattern in patterns:
        if pattern is None:
            ends = set(range(min(ends, default=len(actual) + 1), len(actual) + 1))
        else:
            ends = {j + 1 for j in ends if j < len(actual) and re.fullmatch(pattern, actual[j].rstrip())}
    return len(actual) in ends


def unrun_commands(text: str) -> Iterator[str]:
    """Yield commands that would never run: in blocks of other kinds, or in code blocks made by indentation."""
    blocks, prose = split(text)
    for block in blocks:
        if block.language in ("python", "console", "output", "toml", "json"):
            continue
        if block.language not in SHOWN_ONLY:
            known = "console (for commands), python, output, toml, json or text"
            yield f"{block.line}: a block of kind {block.language!r} is never run: use {known}"
        elif any(COMMAND.match(line.strip()) for line in block.text.splitlines()):
            yield f"{block.line}: a command outside a console block is never run: use console"
    for number, (before, line) in enumerate(zip(["", *prose], prose, strict=False), 1):
        if not before.strip() and re.match(r"(?: {4,}|\t)", line) and COMMAND.match(line.strip()):
            yield f"{number}: a command in an indented block is never run: use a console block"


class Runner:
    """Executes the blocks of one document in the current folder."""

    def __init__(self, repo: Path, document: Path, not_run: Sequence[str], fork_server: ForkServer) -> None:
        self.repo, self.document, self.fork_server = repo, document, fork_server
        self.not_run = [re.compile(pattern) for pattern in not_run]
        self.names: dict[str, Any] = {"__name__": "__main__"}
        self.printed: list[str] | None = None
        self.problems: list[str] = []

    def report(self, line: int, problem: str) -> None:
        self.problems.append(f"{self.document.name}:{line}: {problem}")

    def run(self) -> list[str]:
        text = self.document.read_text(encoding="utf-8")
        self.problems += [f"{self.document.name}:{problem}" for problem in unrun_commands(text)]
        for block in split(text)[0]:
            action = getattr(self, f"run_{block.language}", None)
            if action is not None:
                action(block)
            if block.language != "python":
                self.printed = None
        return self.problems

    def run_python(self, block: Block) -> None:
        output = io.StringIO()
        try:  # the blank lines give tracebacks the document's own line numbers
            code = compile("\n" * (block.line - 1) + block.text, str(self.document), "exec")
            with contextlib.redirect_stdout(output):
                exec(code, self.names)
        except (Exception, SystemExit) as error:
            frames = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(self.document)]
            line = frames[-1] if frames else getattr(error, "lineno", None)
            self.report(line or block.line, f"the snippet fails: {type(error).__name__}: {error}")
        self.printed = output.getvalue().splitlines()

    def run_output(self, block: Block) -> None:
        if self.printed is None:
            self.report(block.line, "an output block follows the python block that prints it")
        else:
            self.compare(block.line, block.text.splitlines(), self.printed)

    def run_toml(self, block: Block) -> None:
        title = re.match(r"#\s*(\S+)", block.text)
        if title is None:
            self.report(block.line, "a toml block begins with a comment that names its kind, such as '# sweep.toml'")
        elif title[1].endswith(".toml"):
            Path(Path(title[1]).name).write_text(block.text + "\n", encoding="utf-8")
        try:
            tomllib.loads(block.text)
        except tomllib.TOMLDecodeError as error:
            self.report(block.line, f"not valid TOML: {error}")

    def run_json(self, block: Block) -> None:
        try:
            json.loads(block.text)
        except ValueError as error:
            self.report(block.line, f"not valid JSON: {error}")

    def run_console(self, block: Block) -> None:
        for command in commands(block):
            if isinstance(command, str):
                self.problems.append(f"{self.document.name}:{command}")
            elif not any(pattern.fullmatch(without_comment(command.text)) for pattern in self.not_run):
                self.run_command(command)

    def run_command(self, command: Command) -> None:
        make = MAKE_COMMAND.fullmatch(without_comment(command.text))
        text, folder = (command.text, Path.cwd()) if make is None else (f"make -n{command.text[4:]}", self.repo)
        program = shutil.which("headcount", path=environment()["PATH"])
        try:
            if program is not None and PLAIN_COMMAND.fullmatch(without_comment(text)):
                done = self.fork_server.run(
                    "command", [program, *shlex.split(without_comment(text))[1:]], CONSOLE_SECONDS
                )
            else:
                done = subprocess.run(
                    ["bash", "-c", f"set -o pipefail\n{text}"],
                    cwd=folder,
                    env=environment(),
                    timeout=CONSOLE_SECONDS,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    check=False,
                )
        except subprocess.TimeoutExpired:
            return self.report(command.line, f"`{command.text}` ran longer than {CONSOLE_SECONDS} s")
        output = done.stdout.splitlines()
        if done.returncode != command.status:
            tail = "\n    ".join(output[-8:])
            return self.report(command.line, f"`{command.text}` exits with {done.returncode}:\n    {tail}")
        if command.expected and make is None:
            self.compare(command.line, command.expected, output)
        return None

    def compare(self, line: int, expected: list[str], actual: list[str]) -> None:
        if not matches(expected, actual):
            parts = ["the output differs; expected:", *expected[:30], "  but got:", *actual[:30]]
            self.report(line, "\n    ".join(parts))


class ForkServer:
    """A client of a process that runs `serve`: it has requests executed in forks of that process, one at a time."""

    def __init__(self, requests: TextIO, answers: TextIO) -> None:
        self.requests, self.answers = requests, answers

    @classmethod
    @contextlib.contextmanager
    def started(cls) -> Iterator[ForkServer]:
        """Start a new process that has imported LIBRARIES."""
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "encoding": "utf-8"}
        with subprocess.Popen([sys.executable, "-P", __file__], env=environment(), **pipes) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            yield cls(process.stdin, process.stdout)

    @classmethod
    @contextlib.contextmanager
    def forked(cls) -> Iterator[ForkServer]:
        """Start a fork of this process as it is now; its children do not see later changes here."""
        (request_read, request_write), (answer_read, answer_write) = os.pipe(), os.pipe()
        if (pid := os.fork()) == 0:
            os.close(request_write)
            os.close(answer_read)
            with os.fdopen(request_read) as requests, os.fdopen(answer_write, "w") as answers:
                serve(requests, answers)
            os._exit(0)
        os.close(request_read)
        os.close(answer_write)
        with os.fdopen(request_write, "w") as requests, os.fdopen(answer_read) as answers:
            yield cls(requests, answers)
        os.waitpid(pid, 0)

    def run(self, kind: str, arguments: Sequence[str], limit: float) -> subprocess.CompletedProcess[str]:
        """Run a command (program, arguments…) or a document (see `_document`) in the current folder."""
        with tempfile.NamedTemporaryFile() as output:
            request = [kind, list(arguments), str(Path.cwd()), output.name, limit]
            print(json.dumps(request), file=self.requests, flush=True)
            status = json.loads(self.answers.readline())
            if status is None:
                raise subprocess.TimeoutExpired(arguments[0], limit)
            return subprocess.CompletedProcess(arguments, status, Path(output.name).read_text(encoding="utf-8"))


def serve(requests: Iterable[str], answers: TextIO) -> None:
    """Fork for every request, a line of JSON; answer with the exit status, or null after a timeout."""
    forks = multiprocessing.get_context("fork")
    for line in requests:
        kind, arguments, folder, output, limit = json.loads(line)
        process = forks.Process(
            target=_run_role,
            args=({"command": _command, "document": _document}[kind], *arguments),
            kwargs={"folder": folder, "output": output},
        )
        process.start()
        process.join(limit)
        timed_out = process.exitcode is None
        if timed_out:
            process.kill()
            process.join()
        print(json.dumps(None if timed_out else process.exitcode), file=answers, flush=True)


def _run_role(role: Any, *arguments: str, folder: str, output: str) -> None:
    """Run a function in the forked process, with an empty standard input and the output in a file."""
    nothing, file = os.open(os.devnull, os.O_RDONLY), os.open(output, os.O_WRONLY | os.O_APPEND)
    for descriptor, source in enumerate((nothing, file, file)):
        os.dup2(source, descriptor)
    os.chdir(folder)
    role(*arguments)


def _command(program: str, *arguments: str) -> None:
    """Run the script that is on PATH."""
    sys.argv = [program, *arguments]
    runpy.run_path(program, run_name="__main__")


def _document(repo: str, document: str, report: str, *not_run: str) -> None:
    """Run all blocks of a document; its commands are forks of this process as it was before the first block."""
    sys.path.insert(0, "")
    with ForkServer.forked() as fork_server:
        problems = Runner(Path(repo), Path(document), not_run, fork_server).run()
    Path(report).write_text(json.dumps(problems), encoding="utf-8")


def environment() -> dict[str, str]:
    """Return an environment with this Python's programs first on PATH and nothing from an outer make or terminal."""
    dropped = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "COLUMNS", "LINES", "FORCE_COLOR")
    kept = {key: value for key, value in os.environ.items() if key not in dropped}
    programs = str(Path(sys.executable).parent)
    return {**kept, "PATH": f"{programs}{os.pathsep}{kept.get('PATH', '')}", "MPLBACKEND": "Agg"}


def run_document(fork_server: ForkServer, repo: Path, document: Path, not_run: Sequence[str] = ()) -> list[str]:
    """Execute a document in its own process and an empty folder; return the problems."""
    if not document.is_file():
        return [f"{document.name} does not exist"]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        inside = Path(folder) / "cwd"
        inside.mkdir()
        arguments = [str(repo), str(document), str(report), *not_run]
        try:
            with contextlib.chdir(inside):
                done = fork_server.run("document", arguments, DOCUMENT_SECONDS)
        except subprocess.TimeoutExpired:
            return [f"{document.name}: ran longer than {DOCUMENT_SECONDS} s"]
        if done.returncode != 0 or not report.exists():
            return [f"{document.name}: the document's process died ({done.returncode}): {done.stdout[-2000:]}"]
        return json.loads(report.read_text(encoding="utf-8"))


if __name__ == "__main__":
    for library in LIBRARIES:
        with contextlib.suppress(ImportError):
            importlib.import_module(library)
    gc.freeze()  # the children's garbage collector need not look through the libraries
    serve(sys.stdin, sys.stdout)
