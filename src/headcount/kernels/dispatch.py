"""What computes each operation: one list of implementations, in order of preference, each with why it does not apply.

`Operation.choose` takes the first that has nothing against it, `explain` says of every other one why not. A function is
imported when it is chosen, since Triton and numba take a second to load and may be missing. The last of a list always
applies: the readable twin, or the caller's own forward with autograd, for which there is no function here.

An implementation of another kind is one more line of a list, with its reason beside the others'.
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
from headcount.kernels.residual_norm.plain import join_plain
from headcount.kernels.step import plain as step_plain

_LOG = logging.getLogger(__name__)
UNWANTED = "the caller wants none"
_plain = ContextVar("plain", default=False)
narrow_preferred = ContextVar("narrow_preferred", default=False)
"""Whether attention takes the kernel for narrow heads where it applies (`kernels/attention/trial.py` sets it)."""


@contextmanager
def without_kernels() -> Generator[None]:
    """Compute in plain PyTorch inside: to compile kernels, for every shape anew, takes longer than a short run."""
    token = _plain.set(True)
    try:
        yield
    finally:
        _plain.reset(token)


# -- lists ---------------------------------------------------------------------------------------------------


class Row(NamedTuple):
    """One implementation of an operation, and why it does not run; None for the one that does."""

    implementation: str
    why_not: str | None


@dataclass(frozen=True)
class Implementation:
    """One way to compute an operation."""

    name: str
    load: Callable[[], Any]
    """Import its function and return it; None stands for the caller's own."""
    why_not: Callable[..., str | None] | None = None
    """Take what decides (the arguments of `choose`) and say why it does not apply; without it, it always does."""


@dataclass(frozen=True)
class Operation:
    """The implementations of one operation, the one to be preferred first."""

    name: str
    implementations: tuple[Implementation, ...]
    otherwise: str | None = None
    """What the log says, once a reason, where the first one does not apply and somebody may have expected it."""

    def __post_init__(self) -> None:
        """Refuse a list in which a name means two things, or in which something could never run."""
        names = [one.name for one in self.implementations]
        always = [one.name for one in self.implementations if one.why_not is None]
        if len({*names}) != len(names):
            raise ValueError(f"{self.name}: each implementation needs a name of its own, not {', '.join(names)}")
        if not names or always != names[-1:]:
            raise ValueError(f"{self.name}: the last implementation, and no other, must apply always, not {always}")

    def _asked(self, facts: tuple[Any, ...]) -> Iterator[tuple[Implementation, str | None]]:
        for one in self.implementations:
            yield one, None if one.why_not is None else one.why_not(*facts)

    def choose(self, *facts: Any) -> Implementation:
        """Return the first implementation that applies, and tell the log why it is not the first of all."""
        reasons: list[str] = []
        for one, reason in self._asked(facts):
            if reason is None:
                if reasons and self.otherwise is not None and reasons[0] != UNWANTED:
                    _say_once(self.otherwise, reasons[0])
                return one
            reasons.append(reason)
        raise AssertionError("the last one applies always")

    def explain(self, *facts: Any) -> list[Row]:
        """Return a row for every implementation: the one that `choose` takes, and why not the others."""
        rows: list[Row] = []
        runs: str | None = None
        for one, reason in self._asked(facts):
            if reason is None and runs is not None:
                reason = f"{runs} comes first"
            elif reason is None:
                runs = one.name
            rows.append(Row(one.name, reason))
        return rows


@cache
def _say_once(what: str, reason: str) -> None:
    _LOG.info("%s: %s", what, reason)


# -- why not -------------------------------------------------------------------------------------------------

POOL_LIMITS = {"dim": 31, "hidden": 64, "heads": 32}  # larger ones would compile for minutes and spill registers
STEP_LIMITS = {"head_dim": 64, "hidden_ff": 64}  # larger ones would not fit a program's registers
JOIN_LIMIT = 4096  # numbers of a row; a program holds whole rows in registers
NARROW = (16, 32, 64)  # numbers of a head: a tile is as wide
SHORT = 32  # up to so many tokens written scores are faster than a fused kernel, whose tiles are mostly empty


@cache
def has_triton() -> bool:
    """Whether Triton can be imported."""
    return importlib.util.find_spec("triton") is not None


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _no_triton(x: Tensor, dtype: torch.dtype) -> str | None:
    """Say why a Triton kernel that computes in a dtype cannot take a tensor."""
    if x.device.type != "cuda":
        return f"the tensors are on the {x.device.type}"
    if x.dtype != dtype:
        return f"the kernel computes in {_name(dtype)}, not {_name(x.dtype)}"
    return None if has_triton() else "triton is not installed"


def _no_kernel(x: Tensor, *_: Any) -> str | None:
    """Say why a Triton kernel in float32 cannot take a tensor, or is not wanted."""
    return UNWANTED if _plain.get() else _no_triton(x, torch.float32)


def _above(limits: dict[str, int], *sizes: int) -> str | None:
    for (name, most), size in zip(limits.items(), sizes, strict=True):
        if size > most:
            return f"{name} = {size} is above the kernel's {most}"
    return None


def _why_not_pool(x: Tensor, score: Tensor) -> str | None:
    return _no_kernel(x) or _above(POOL_LIMITS, x.shape[2], score.shape[2], score.shape[1])


def _why_not_step(theta: Tensor, sizes: tuple[int, ...]) -> str | None:
    d, _, N, _, h, n, K, _ = sizes
    return _no_kernel(theta) or _above(STEP_LIMITS, n, K) or _above(POOL_LIMITS, d, N, h)


def _why_not_written_out(*_: Any) -> str | None:
    return None if _plain.get() else "it is for runs that compile nothing"


def _why_not_numba(beyond: str | None = None) -> str | None:
    return _without_numba() if beyond is None else f"the kernels do not cover {beyond}"


@cache
def _without_numba() -> str | None:
    """Say why numba cannot be used here; it may lag behind a new NumPy or Python."""
    try:
        importlib.import_module("threadpoolctl")
        importlib.import_module("headcount.kernels.step.numba_cache")
    except ImportError as error:
        return f"numba or threadpoolctl cannot be imported here ({error})"
    return None


def _why_not_fused(packed: Tensor) -> str | None:
    return f"up to {SHORT} tokens written scores are faster" if packed.shape[1] <= SHORT else None


def _why_not_narrow(packed: Tensor) -> str | None:
    if (reason := _why_not_fused(packed)) is not None:
        return reason
    if not narrow_preferred.get():
        return "no trial found it the fastest"
    if packed.device.type != "cuda":
        return f"the tensors are on the {packed.device.type}"
    if not has_triton():
        return "triton is not installed"
    n = packed.shape[-1]
    if n not in NARROW:
        return f"heads of {n} numbers are not 16, 32 or 64"
    from headcount.kernels.pool.triton import INTERPRETED

    if packed.dtype != torch.bfloat16 and not INTERPRETED.value:
        return f"it computes in bfloat16, not {_name(packed.dtype)}"
    return None


def _why_not_join(s: Tensor) -> str | None:
    if (reason := _no_triton(s, torch.bfloat16)) is not None:
        return reason
    return f"rows of {s.shape[-1]} numbers are above the kernel's {JOIN_LIMIT}" if s.shape[-1] > JOIN_LIMIT else None


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


def _join_triton() -> Any:
    from headcount.kernels.residual_norm.triton import join_triton

    return join_triton


def _adam_triton() -> Any:
    from headcount.kernels.adam.triton import adam_triton

    return adam_triton


def _own() -> None:
    """The caller's own forward, and autograd."""


# -- the lists -----------------------------------------------------------------------------------------------

OPERATIONS: dict[str, Operation] = {}
"""The lists by the name of their function in `operations.py`.

They are noted one by one, so that code which needs one of them does not name the others: a figure from a CPU is not
stale when a kernel of a GPU changes (`core/source.py` follows names).
"""


def _listed(operation: Operation) -> Operation:
    OPERATIONS[operation.name] = operation
    return operation


# chosen by x and score
POOL_TOKENS = _listed(
    Operation(
        "pool_tokens",
        (Implementation("triton", _pool_triton, _why_not_pool), Implementation("plain", lambda: pool_plain)),
        otherwise="pooling runs in plain PyTorch",
    )
)

# chosen by theta and its sizes
WHOLE_STEP = _listed(
    Operation(
        "whole_step",
        (
            Implementation("triton", _step_triton, _why_not_step),
            Implementation("written out", lambda: step_plain.loss_and_gradient, _why_not_written_out),
            Implementation("autograd", _own),
        ),
        otherwise="the step goes through autograd",
    )
)

# chosen by what of the model the kernels do not cover, None where they cover it
STEP_ON_CORE = _listed(
    Operation(
        "step_on_core",
        (Implementation("numba", _run_numba, _why_not_numba), Implementation("autograd", _own)),
        otherwise="the general stacked forward trains this model",
    )
)

# chosen by packed; which of torch's kernels the fused one is, torch and `prefer_attention` decide
ATTEND = _listed(
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
JOIN = _listed(
    Operation(
        "join", (Implementation("triton", _join_triton, _why_not_join), Implementation("plain", lambda: join_plain))
    )
)

# chosen by theta
ADAM_AT = _listed(
    Operation(
        "adam_at", (Implementation("triton", _adam_triton, _no_kernel), Implementation("plain", lambda: adam_at_plain))
    )
)


def explain(operation: str, *facts: Any) -> list[Row]:
    """Return what runs for an operation of OPERATIONS, and why not the others: a row an implementation.

    The facts are what it is chosen by, as its list says: `explain("adam_at", theta)`.
    """
    if operation not in OPERATIONS:
        raise BadInput(f"unknown operation {operation!r}: {nearest(operation, OPERATIONS)}")
    return OPERATIONS[operation].explain(*facts)
