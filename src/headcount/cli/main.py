"""The command `headcount`: runs a verb, and prints every expected error as one line, with exit status 2."""

from __future__ import annotations

import logging
import os
import sys
import traceback
from typing import TYPE_CHECKING, NamedTuple

from headcount.cli.stops import stops_like_interrupt
from headcount.core.text import guarded_streams, notify, write_error_text

if TYPE_CHECKING:
    from cyclopts import App


class Verb(NamedTuple):
    """A verb's entry in `--help`."""

    summary: str
    example: str

    @property
    def text(self) -> str:
        """The summary and the example as one paragraph."""
        return f"{self.summary} Example: headcount {self.example}"


GROUPS: dict[str, dict[str, Verb]] = {
    "Start": {
        "demo": Verb("The two-minute tour on a CPU: train, see the transition, open a page.", "demo"),
        "tasks": Verb(
            "List the tasks, with D, d, T and the assumptions they meet; or examine one.", "tasks quadratic-basins"
        ),
        "train": Verb(
            "Train one model on a task or on your own arrays, and save it as a folder.",
            "train sum-of-maxima --heads 3 --out model",
        ),
        "show": Verb("Show a saved model: its sizes, its hash, its error on fresh data.", "show model"),
    },
    "Your data and models": {
        "advise": Verb(
            "Say how many heads your sequences need, with an interval, evidence and a price.",
            "advise data.npz --budget 2m",
        ),
        "probe": Verb(
            "Say which heads of a Hugging Face model matter, which repeat others, and which can go.", "probe my-bert"
        ),
    },
    "Experiments": {
        "sweep": Verb(
            "Train heads × lengths × sizes × seeds from a TOML file; resumes where it stopped.", "sweep sweep.toml"
        ),
        "runs": Verb("List the runs of a store and their trials; merge stores.", "runs"),
        "analyse": Verb(
            "Say what a run shows: D with its interval, drops, slopes, scaling, laws (also: analyze).",
            "analyse my-sweep",
        ),
        "report": Verb("Write the page of a run, or show it in the terminal.", "report my-sweep"),
        "export": Verb("Take one trained model out of a run, as a folder.", "export my-sweep best --out model"),
        "reproduce": Verb(
            "Train the paper's tables and figures, and show theirs and ours side by side.",
            "reproduce table2 --scale small",
        ),
        "irreducible": Verb(
            "Attack trained layers of every head count: what no feed-forward block can repair.",
            "irreducible --out gaps --for 20m",
        ),
    },
    "Proofs": {
        "bounds": Verb(
            "Compute the theorems' bounds for given sizes: vacuous or not, from where on they bite.",
            "bounds quadratic-basins --heads 1:3 --eps 0.05",
        ),
        "build": Verb(
            "Build a transformer whose error on a task is proved, with a certificate (Theorem 2 (1)).",
            "build quadratic-basins --eps 0.1 --out built",
        ),
        "attack": Verb(
            "Find two inputs that a layer cannot tell apart although their targets differ; prove it.",
            "attack model --out pair",
        ),
        "certify": Verb(
            "Prove a bound of a saved model's worst error on a box, beside the worst error found.",
            "certify model --for 60s",
        ),
        "recheck": Verb("Verify a certificate or a witness from the weights up, in ball arithmetic.", "recheck pair"),
        "density": Verb(
            "Rebuild a continuous function from D minima (Theorem 1), and measure the error.", "density --length 8"
        ),
    },
}
"""The verbs, grouped by purpose, in the order in which `--help` lists them."""
VERBS = {name: verb for verbs in GROUPS.values() for name, verb in verbs.items()}

REMOVED_VERBS = {"bench": "run python -m benchmarks.speed with the same options in headcount's source folder"}
"""Verbs of earlier versions, and what to do instead."""
TRAINING_VERBS = ("sweep", "reproduce", "irreducible")
"""Verbs whose exit status depends on the states of their trials."""
OUT_OF_MEMORY_MESSAGES = (
    "allocate memory",
    "out of memory",
    "failed to map segment",
    "can't start new thread",
    "Unable to allocate",
    "bad_alloc",
    "returned NULL without setting an exception",
)
"""Parts of the messages, of various exceptions, with which libraries report that memory ran out."""
MIN_ADDRESS_SPACE = 1 << 30
"""Bytes; torch and its libraries occupy about 700 MB of address space."""
INTERRUPTED = 130
"""Exit status after Ctrl-C, SIGTERM or SIGHUP."""
READER_LEFT = 141
"""Exit status of a successful command whose standard output was closed by its reader before the end."""
ALIASES = {"analyse": ("analyze",)}
EPILOGUE = "Every verb takes --json for programs and --debug for the full traceback of an error."


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit."""
    tokens = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in tokens
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # spinning threads waste cores that others need
    tokens = [token for token in tokens if token != "--debug"]
    _attach_log_handler()
    with guarded_streams() as out, stops_like_interrupt():
        try:
            _check_address_space()
            status = _run(tokens)
            sys.stdout.flush()
        except KeyboardInterrupt:
            notify("interrupted")
            status = INTERRUPTED
        except Exception as error:
            status = _show_traceback() if debug else _explain(error)
    sys.exit(READER_LEFT if out.reader_left and status == 0 else status)


def _check_address_space() -> None:
    """Refuse a memory limit (ulimit -v) that is too low to load the libraries: they would abort the process."""
    from headcount.core import BadInput

    try:
        import resource
    except ImportError:  # a system without such limits
        return
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if 0 <= limit < MIN_ADDRESS_SPACE:
        raise BadInput(
            f"ulimit -v allows {limit >> 20:,} MiB of memory: at least {MIN_ADDRESS_SPACE >> 20:,} are needed"
        )


class _DistinctLines(logging.Handler):
    """Prints log messages on standard error, equal ones only once: a sweep has thousands of trials."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._seen: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        line = record.getMessage()
        if line not in self._seen:
            self._seen.add(line)
            notify(line)  # not a StreamHandler, which would keep a stream that a progress bar replaces


def _attach_log_handler() -> None:
    """Print the package's log, such as why a model is not trained by the fast engine."""
    log = logging.getLogger("headcount")
    log.setLevel(logging.INFO)
    if not any(isinstance(handler, _DistinctLines) for handler in log.handlers):
        log.addHandler(_DistinctLines())


def _run(tokens: list[str]) -> int:
    from headcount.core import BadInput, options_as_flags

    if "" in tokens:  # as a path it would mean the working directory
        before = tokens[: tokens.index("")]
        raise BadInput(f"missing value after {before[-1] if before else 'headcount'}: an empty text is not allowed")
    if tokens and tokens[0] in REMOVED_VERBS:
        raise BadInput(f"{tokens[0]} is no longer a command of headcount: {REMOVED_VERBS[tokens[0]]}")

    app = make_app()
    with options_as_flags():
        result = app(tokens, exit_on_error=False, print_error=False, result_action="return_value")
    return result if isinstance(result, int) else 0


def make_app() -> App:
    """Return the command line with all its verbs, in groups."""
    from cyclopts import App, Group

    from headcount import __version__
    from headcount.cli.common import STATUSES

    app = App(
        name="headcount",
        help="How many attention heads does a task need, and what does it cost to have fewer?",
        version=__version__,
        help_format="plaintext",
        help_epilogue=EPILOGUE,
        version_format="plaintext",
        suppress_keyboard_interrupt=False,
    )
    flags = Group("Options", sort_key=len(GROUPS) + 1)
    for flag in ("--help", "--version"):
        app[flag].group = flags
    for place, (title, verbs) in enumerate(GROUPS.items(), 1):
        group = Group(title, sort_key=place)
        for order, (verb, entry) in enumerate(verbs.items()):
            statuses = f"{STATUSES}\n\n" if verb in TRAINING_VERBS else ""
            app.command(
                f"headcount.cli.{verb}:{verb}",
                name=[verb, *ALIASES.get(verb, ())],
                help=entry.text,
                group=group,
                sort_key=order,
                help_epilogue=f"{statuses}{EPILOGUE}",
            )
    return app


def _explain(error: Exception) -> int:
    """Print an error as one line and return the exit status: 2 if it is expected, 1 if it is a bug."""
    from cyclopts import CycloptsError

    from headcount.core import HeadcountError

    if isinstance(error, HeadcountError):
        notify(str(error))
    elif isinstance(error, CycloptsError):
        command = " ".join(["headcount", *(error.command_chain or ())])
        notify(f"{_usage(error)} ({command} --help lists what is allowed)")
    elif isinstance(error, UnicodeError):
        notify(f"a name or a text is not valid Unicode ({error}): choose another one")
    elif isinstance(error, OSError):
        where = f": {error.filename}" if error.filename else ""
        notify(f"{error.strerror or error}{where}")
    elif isinstance(error, MemoryError) or any(word in str(error) for word in OUT_OF_MEMORY_MESSAGES):
        notify("out of memory: choose a smaller batch, length or hidden size, or less data")
    elif isinstance(error, RecursionError):
        notify("an expression or a file is nested too deeply: pass many arguments to one sum, product or list instead")
    else:
        notify(f"unexpected {type(error).__name__}: {error} (a bug: run again with --debug and report it)")
        return 1
    return 2


def _usage(error: Exception) -> str:
    """Return the message of a cyclopts error on one line."""
    return " ".join(str(error).split()) or type(error).__name__


def _show_traceback() -> int:
    """Print the traceback of the current exception, made harmless, since it may quote a file; return 1."""
    write_error_text(traceback.format_exc())
    return 1
