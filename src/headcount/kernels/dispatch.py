"""Which implementation computes an operation: for each one a list, in order of preference, with reasons against each.

`Operation.choose` takes the first implementation that applies; `explain` says why the others do not run. Functions are
imported when they are chosen, since Triton and numba take a second to load and may be missing. The last implementation
of a list always applies: the readable twin, or the caller's own forward with autograd, which has no function here.

A new implementation is one more line of a list, with a function that says why it does not apply.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from headcount.core import BadInput, nearest
from headcount.kernels.adam.plain import adam_at_plain
from headcount.kernels.attention.plain import attend_fused, attend_plain
from headcount.kernels.pool.plain import pool_plain
from headcount.kernels.residual_norm.plain import add_norm_plain
from headcount.kernels.step import plain as step_plain

_LOG = logging.getLogger(__name__)
UNWANTED = "the caller wants none"
_kernels_disabled = ContextVar("plain", default=False)
narrow_preferred = ContextVar("narrow_preferred", default=False)
"""Whether attention uses the kernel for narrow heads if it applies (set by `kernels/attention/trial.py`)."""


@contextmanager
def without_kernels() -> Generator[None]:
    """Compute in plain PyTorch within this context: compiling kernels for each shape takes longer than a short run."""
    token = _kernels_disabled.set(True)
    try:
        yield
    finally:
        _kernels_disabled.reset(token)


# -- lists ---------------------------------------------------------------------------------------------------


class Row(NamedTuple):
    """One implementation of an operation, and why it does not run (None for the one that does)."""

    implementation: str
    why_not: str | None


@dataclass(frozen=True)
class Implementation:
    """One way to compute an operation."""

    name: str
    load: Callable[[], Any]
    """Import and return the function, or return None if the caller has its own."""
    why_not: Callable[..., str | None] | None = None
    """Given the arguments of `choose`, return why it does not apply, or None; without this function it always does."""


@dataclass(frozen=True)
class Operation:
    """The implementations of one operation, in order of preference."""

    name: str
    implementations: tuple[Implementation, ...]
    fallback_note: str | None = None
    """What to log, once per reason, if the first implementation does not apply but may have been expected to."""

    def __post_init__(self) -> None:
        """Raise ValueError if a name occurs twice or an implementation can never run."""
        names = [one.name for one in self.implementations]
        always = [one.name for one in self.implementations if one.why_not is None]
        if len({*names}) != len(names):
            raise ValueError(f"{self.name}: each implementation needs a name of its own, not {', '.join(names)}")
        if not names or always != names[-1:]:
            raise ValueError(f"{self.name}: the last implementation, and no other, must always apply, not {always}")

    def _reasons(self, facts: tuple[Any, ...]) -> Iterator[tuple[Implementation, str | None]]:
        for one in self.implementations:
            yield one, None if one.why_not is None else one.why_not(*facts)

    def choose(self, *facts: Any) -> Implementation:
        """Return the first implementation that applies; if it is not the first of the list, log why."""
        reasons: list[str] = []
        for one, reason in self._reasons(facts):
            if reason is None:
                if reasons and self.fallback_note is not None and reasons[0] != UNWANTED:
                    _log_once(self.fallback_note, reasons[0])
                return one
            reasons.append(reason)
        raise AssertionError("the last implementation always applies")

    def explain(self, *facts: Any) -> list[Row]:
        """Return one row per implementation: the one that `choose` returns, and why the others do not run."""
        rows: list[Row] = []
        runs: str | None = None
        for one, reason in self._reasons(facts):
            if reason is None and runs is not None:
                reason = f"{runs} comes first"
            elif reason is None:
                runs = one.name
            rows.append(Row(one.name, reason))
        return rows


@cache
def _log_once(note: str, reason: str) -> None:
    _LOG.info("%s: %s", note, reason)


# -- why not -------------------------------------------------------------------------------------------------

POOL_LIMITS = {"dim": 31, "hidden": 64, "heads": 32}  # with larger sizes compilation takes minutes and registers spill
STEP_LIMITS = {"head_dim": 64, "hidden_ff": 64}  # larger sizes would not fit into a program's registers
ADD_NORM_MAX_ROW = 4096  # numbers per row; a program holds whole rows in registers
NARROW_HEAD_DIMS = (16, 32, 64)  # supported head_dim of the narrow kernel, whose tiles are as wide as a head
MAX_UNFUSED_TOKENS = 32  # up to this length plain attention beats a fused kernel, whose tiles stay mostly empty


@cache
def has_triton() -> bool:
    """Return whether Triton can be imported."""
    return importlib.util.find_spec("triton") is not None


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _why_not_triton(x: Tensor, dtype: torch.dtype) -> str | None:
    """Return why a Triton kernel that computes in a dtype cannot take a tensor, or None."""
    if x.device.type != "cuda":
        return f"the tensors are on the {x.device.type}"
    if x.dtype != dtype:
        return f"the kernel computes in {_name(dtype)}, not {_name(x.dtype)}"
    return None if has_triton() else "triton is not installed"


def _why_not_float32_kernel(x: Tensor, *_: Any) -> str | None:
    """Return why a float32 Triton kernel cannot take a tensor or is not wanted, or None."""
    return UNWANTED if _kernels_disabled.get() else _why_not_triton(x, torch.float32)


def _above_limit(limits: dict[str, int], *sizes: int) -> str | None:
    for (name, limit), size in zip(limits.items(), sizes, strict=True):
        if size > limit:
            return f"{name} = {size} is above the kernel's limit of {limit}"
    return None


def _why_not_pool(x: Tensor, score: Tensor) -> str | None:
    return _why_not_float32_kernel(x) or _above_limit(POOL_LIMITS, x.shape[2], score.shape[2], score.shape[1])


def _why_not_step(theta: Tensor, sizes: tuple[int, ...]) -> str | None:
    d, _, N, _, h, n, K, _ = sizes
    return _why_not_float32_kernel(theta) or _above_limit(STEP_LIMITS, n, K) or _above_limit(POOL_LIMITS, d, N, h)


def _why_not_written_out(*_: Any) -> str | None:
    return None if _kernels_disabled.get() else "it is only for runs that compile nothing"


def _why_not_numba(beyond: str | None = None) -> str | None:
    return _why_numba_is_missing() if beyond is None else f"the kernels do not cover {beyond}"


@cache
def _why_numba_is_missing() -> str | None:
    """Return why numba cannot be used here (it may not support the latest NumPy or Python yet), or None."""
    try:
        importlib.import_module("threadpoolctl")
        importlib.import_module("headcount.kernels.step.numba_cache")
    except ImportError as error:
        return f"numba or threadpoolctl cannot be imported here ({error})"
    return None


def _why_not_fused(packed: Tensor) -> str | None:
    if packed.shape[1] > MAX_UNFUSED_TOKENS:
        return None
    return f"up to {MAX_UNFUSED_TOKENS} tokens plain attention is faster"


def _why_not_narrow(packed: Tensor) -> str | None:
    if (reason := _why_not_fused(packed)) is not None:
        return reason
    if not narrow_preferred.get():
        return "no trial found it to be the fastest"
    if packed.device.type != "cuda":
        return f"the tensors are on the {packed.device.type}"
    if not has_triton():
        return "triton is not installed"
    n = packed.shape[-1]
    if n not in NARROW_HEAD_DIMS:
        return f"head_dim must be 16, 32 or 64, not {n}"
    from headcount.kernels.pool.triton import INTERPRETED

    if packed.dtype != torch.bfloat16 and not INTERPRETED.value:
        return f"it computes in bfloat16, not {_name(packed.dtype)}"
    return None


def _why_not_add_norm(s: Tensor) -> str | None:
    if (reason := _why_not_triton(s, torch.bfloat16)) is not None:
        return reason
    return _above_limit({"width": ADD_NORM_MAX_ROW}, s.shape[-1])


# -- functions, each imported on first use -------------------------------------------------------------------


def _pool_triton() -> Any:
    from headcount.kernels.pool.triton import pool_triton

    return pool_triton


def _step_triton() -> Any:
    from headcount.kernels.step.triton import loss_and_gradient

    return loss_and_gradient


def _run_numba() -> Any:
    from headcount.kernels.step.numba import run

    return run


def _attend_narrow() -> Any:
    from headcount.kernels.attention.triton import attend_narrow

    return attend_narrow


def _add_norm_triton() -> Any:
    from headcount.kernels.residual_norm.triton import add_norm_triton

    return add_norm_triton


def _adam_triton() -> Any:
    from headcount.kernels.adam.triton import adam_triton

    return adam_triton


def _autograd() -> None:
    """Stand for the caller's own forward with autograd."""


# -- the lists -----------------------------------------------------------------------------------------------

OPERATIONS: dict[str, Operation] = {}
"""The operations by the name of their function in `operations.py`.

They are registered one by one, so that code that needs one of them does not refer to the others: a figure from a CPU
does not become stale when a GPU kernel changes (`benchmarks/source.py` follows names).
"""


def _register(operation: Operation) -> Operation:
    OPERATIONS[operation.name] = operation
    return operation


# chosen by x and score
POOL_TOKENS = _register(
    Operation(
        "pool_tokens",
        (Implementation("triton", _pool_triton, _why_not_pool), Implementation("plain", lambda: pool_plain)),
        fallback_note="pooling runs in plain PyTorch",
    )
)

# chosen by theta and its sizes
WHOLE_STEP = _register(
    Operation(
        "whole_step",
        (
            Implementation("triton", _step_triton, _why_not_step),
            Implementation("written out", lambda: step_plain.loss_and_gradient, _why_not_written_out),
            Implementation("autograd", _autograd),
        ),
        fallback_note="the step goes through autograd",
    )
)

# chosen by the feature of the model that the kernels do not cover, or None
STEP_ON_CORE = _register(
    Operation(
        "step_on_core",
        (Implementation("numba", _run_numba, _why_not_numba), Implementation("autograd", _autograd)),
        fallback_note="the general stacked forward trains this model",
    )
)

# chosen by packed; torch and `prefer_attention` decide which of torch's kernels "fused" uses
ATTEND = _register(
    Operation(
        "attend",
        (
            Implementation("narrow", _attend_narrow, _why_not_narrow),
            Implementation("fused", lambda: attend_fused, _why_not_fused),
            Implementation("plain", lambda: attend_plain),
        ),
    )
)

# chosen by s
ADD_NORM = _register(
    Operation(
        "add_norm",
        (
            Implementation("triton", _add_norm_triton, _why_not_add_norm),
            Implementation("plain", lambda: add_norm_plain),
        ),
    )
)

# chosen by theta
ADAM_AT = _register(
    Operation(
        "adam_at",
        (
            Implementation("triton", _adam_triton, _why_not_float32_kernel),
            Implementation("plain", lambda: adam_at_plain),
        ),
    )
)


def explain(operation: str, *facts: Any) -> list[Row]:
    """Return which implementation of an operation runs, and why the others do not: one row per implementation.

    `facts` are what the implementation is chosen by (see the comments in this file), as in `explain("adam_at", theta)`.
    """
    if operation not in OPERATIONS:
        raise BadInput(f"unknown operation {operation!r}: {nearest(operation, OPERATIONS)}")
    return OPERATIONS[operation].explain(*facts)
