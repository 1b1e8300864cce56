"""Standard output and standard error: what is said to people, whoever is still reading."""

from __future__ import annotations

import errno
import io
import os
import stat
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, TextIO, cast

from headcount.core.text.harmless import plain


class Guarded:
    """A standard stream that outlives its reader; with `clean` no hidden character passes but line feeds.

    Where the reader has left (`| head -1`, a closed terminal) the rest is dropped and the work goes on. Any other
    failure, such as a full disk, is an error of a stream that is `needed`: standard output holds the answer.
    """

    def __init__(self, stream: TextIO, *, clean: bool, needed: bool) -> None:
        self.stream, self.clean, self.needed = stream, clean, needed
        self.lost = False
        """Whether the reader has left before the end."""

    def write(self, text: str) -> int:
        """Write a text, or drop it where nobody reads."""
        try:
            self.stream.write(plain(text, lines=True) if self.clean else text)
        except OSError as error:
            self._fail(error)
        return len(text)

    def flush(self) -> None:
        """Hand over what was written."""
        try:
            self.stream.flush()
        except OSError as error:
            self._fail(error)

    def _fail(self, error: OSError) -> None:
        """Let the rest go nowhere; raise what is not a reader's leaving, where the stream is needed."""
        left = error.errno == errno.EPIPE or (error.errno == errno.EIO and _is_device(self.stream))
        self.lost = self.lost or left
        _send_nowhere(self.stream)
        if self.needed and not left:
            raise OSError(error.errno, error.strerror, "standard output") from None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def _is_device(stream: TextIO) -> bool:
    """Whether a stream is a terminal or another device; one that has hung up no longer calls itself a terminal."""
    try:
        return stat.S_ISCHR(os.fstat(stream.fileno()).st_mode)
    except (OSError, ValueError):
        return False


def _send_nowhere(stream: TextIO) -> None:
    """Point a stream at the null device, or the interpreter fails to flush it at its end."""
    try:
        number = stream.fileno()
    except (OSError, ValueError):  # a test's or a notebook's: no file of its own
        return
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, number)
    os.close(null)


def _fill_closed() -> None:
    """Put the null device where standard streams are closed (`>&-`): the next file opened would take their place."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # open() takes the lowest free number: this one
        if getattr(sys, name) is None:
            raw = io.FileIO(number, "r" if number == 0 else "w", closefd=False)
            setattr(sys, name, io.TextIOWrapper(cast("Any", raw), errors="replace"))


@contextmanager
def guarded_streams() -> Generator[Guarded]:
    """Guard both streams for the length of a command, and return standard output."""
    _fill_closed()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without Σ shows ? instead of ending half-way
    before = sys.stdout, sys.stderr
    out = Guarded(before[0], clean=False, needed=True)
    err = Guarded(before[1], clean=True, needed=False)
    sys.stdout, sys.stderr = cast("TextIO", out), cast("TextIO", err)
    try:
        yield out
    finally:
        sys.stdout, sys.stderr = before


def drawing_stream() -> TextIO:
    """Return standard error for a live bar, whose own control codes must pass."""
    stream: Any = sys.stderr
    if isinstance(stream, Guarded):
        return cast("TextIO", Guarded(stream.stream, clean=False, needed=False))
    return stream


def put(text: str, end: str = "\n") -> None:
    """Write finished text, such as JSON, to standard output."""
    sys.stdout.write(text + end)
    if end:
        sys.stdout.flush()


def put_line(text: str, stream: TextIO) -> None:
    """Write one line for people to a stream."""
    stream.write(f"{plain(text)}\n")
    stream.flush()


def tell_lines(text: str) -> None:
    """Write a text of many lines, such as a traceback, to standard error."""
    sys.stderr.write(plain(text, lines=True))
    sys.stderr.flush()


def tell(text: str) -> None:
    """Write one line in the command's name to standard error, whatever line breaks the text has."""
    put_line(f"headcount: {' '.join(plain(text, lines=True).split())}", sys.stderr)
