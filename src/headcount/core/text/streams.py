"""Standard output and standard error, which survive a reader that has left."""

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
    """A standard stream that outlives its reader; with `escapes` hidden characters other than line feeds are escaped.

    When the reader has left (`| head -1`, a closed terminal) further output is dropped and the work continues. Any
    other failure, such as a full disk, is an error where the stream is `required`: standard output carries the answer.
    """

    def __init__(self, stream: TextIO, *, escapes: bool, required: bool) -> None:
        self.stream, self.escapes, self.required = stream, escapes, required
        self.reader_left = False
        """Whether the reader has left before the end."""

    def write(self, text: str) -> int:
        """Write a text, or drop it when the reader has left."""
        try:
            self.stream.write(plain(text, lines=True) if self.escapes else text)
        except OSError as error:
            self._fail(error)
        return len(text)

    def flush(self) -> None:
        """Flush the stream, if its reader is still there."""
        try:
            self.stream.flush()
        except OSError as error:
            self._fail(error)

    def _fail(self, error: OSError) -> None:
        """Discard further output; raise if the stream is required and the reader has not simply left."""
        left = error.errno == errno.EPIPE or (error.errno == errno.EIO and _is_device(self.stream))
        self.reader_left = self.reader_left or left
        _redirect_to_null(self.stream)
        if self.required and not left:
            raise OSError(error.errno, error.strerror, "standard output") from None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def _is_device(stream: TextIO) -> bool:
    """Whether a stream is a terminal or another device; a terminal that has hung up fails `isatty`."""
    try:
        return stat.S_ISCHR(os.fstat(stream.fileno()).st_mode)
    except (OSError, ValueError):
        return False


def _redirect_to_null(stream: TextIO) -> None:
    """Point a stream at the null device; otherwise the interpreter fails to flush it at exit."""
    try:
        number = stream.fileno()
    except (OSError, ValueError):  # a stream without a file, as in tests and notebooks
        return
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, number)
    os.close(null)


def _replace_closed() -> None:
    """Open the null device for closed standard streams (`>&-`): the next file opened would take their place."""
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
    """Guard both streams for the duration of a command, and yield standard output."""
    _replace_closed()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without Σ shows ? instead of an error
    before = sys.stdout, sys.stderr
    out = Guarded(before[0], escapes=False, required=True)
    err = Guarded(before[1], escapes=True, required=False)
    sys.stdout, sys.stderr = cast("TextIO", out), cast("TextIO", err)
    try:
        yield out
    finally:
        sys.stdout, sys.stderr = before


def drawing_stream() -> TextIO:
    """Return standard error for a live bar, whose own control codes must pass."""
    stream: Any = sys.stderr
    if isinstance(stream, Guarded):
        return cast("TextIO", Guarded(stream.stream, escapes=False, required=False))
    return stream


def write_output(text: str, end: str = "\n") -> None:
    """Write finished text, such as JSON, to standard output."""
    sys.stdout.write(text + end)
    if end:
        sys.stdout.flush()


def write_line(text: str, stream: TextIO) -> None:
    """Write a text to a stream as one line, with hidden characters escaped."""
    stream.write(f"{plain(text)}\n")
    stream.flush()


def write_error_text(text: str) -> None:
    """Write a text of several lines, such as a traceback, to standard error."""
    sys.stderr.write(plain(text, lines=True))
    sys.stderr.flush()


def notify(text: str) -> None:
    """Write `headcount: text` to standard error as one line; line breaks in the text become spaces."""
    write_line(f"headcount: {' '.join(plain(text, lines=True).split())}", sys.stderr)
