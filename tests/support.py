"""Names that several tests import; fixtures are in conftest.py."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from beartype import BeartypeConf, beartype

REPO = Path(__file__).resolve().parent.parent
Cli = Callable[..., "subprocess.CompletedProcess[str]"]
check = beartype(conf=BeartypeConf(is_pep484_tower=True))  # a whole number may stand for a float


def check_frame(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Return rows as a data frame: the same columns and values, numbers as numbers and not as objects."""
    import pandas  # here, since most tests need none of it

    frame = pandas.DataFrame(rows)
    assert list(frame.columns) == list(rows[0])
    assert len(frame) == len(rows)
    for name in frame.columns:
        values, found = [row[name] for row in rows], frame[name]
        assert [None if missing else value for value, missing in zip(found, found.isna(), strict=True)] == values
        kinds = {type(value) for value in values if value is not None}
        if kinds and kinds <= {int, float}:
            assert pandas.api.types.is_numeric_dtype(found), f"{name} is {found.dtype}"
            assert values[found.idxmin()] == min(v for v in values if v is not None)
        if kinds == {bool} and None not in values:
            assert pandas.api.types.is_bool_dtype(found)
    return frame


def tracked_files(repo: Path) -> list[Path]:
    """All files that git tracks or would add."""
    git = ["git", "-c", "safe.directory=*", "-C", str(repo), "ls-files", "-z", "-co", "--exclude-standard"]
    done = subprocess.run(git, capture_output=True, text=True, check=True)
    return [repo / name for name in done.stdout.split("\0") if name and (repo / name).is_file()]


def breakable(html: str) -> str:
    """Return a page with plain blanks where the engine keeps a number and its unit on one line."""
    return html.replace("\N{NO-BREAK SPACE}", " ")
