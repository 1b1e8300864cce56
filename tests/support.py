"""Names that several tests import; fixtures are in conftest.py."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

from beartype import BeartypeConf, beartype

REPO = Path(__file__).resolve().parent.parent
Cli = Callable[..., "subprocess.CompletedProcess[str]"]
check = beartype(conf=BeartypeConf(is_pep484_tower=True))  # a whole number may stand for a float
