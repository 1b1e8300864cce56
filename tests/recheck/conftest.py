"""What the tests of the trusted part share."""

from __future__ import annotations

from collections.abc import Generator

import pytest
from flint import ctx


@pytest.fixture
def precise() -> Generator[None]:
    """Balls of 128 bits for what a test itself computes; the verifier chooses its own, and restores these."""
    before, ctx.prec = ctx.prec, 128
    yield
    assert ctx.prec == 128
    ctx.prec = before
