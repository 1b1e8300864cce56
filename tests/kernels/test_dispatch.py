"""What runs, and why not the others: the choice on a CPU and, as far as it can be told here, on a GPU; the lists
themselves; and every implementation that can run beside the twin of its list.

The Triton ones run in Triton's interpreter, in a process of their own (`test_triton.py` says why).
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import encoder_kernel_cases as encoders
import numpy as np
import pytest
import torch
import triton_cases as cases
from torch import Tensor

from headcount.core.errors import BadInput
from headcount.kernels import dispatch, explain, load_kernels, prefer_attention, step_on_core, without_kernels
from headcount.kernels.dispatch import OPERATIONS, UNWANTED, Implementation, Operation
from headcount.models.transformer.compiled import why_not_compiled

ORDER = {
    "pool_tokens": ["triton", "plain"],
    "whole_step": ["triton", "written out", "autograd"],
    "step_on_core": ["numba", "autograd"],
    "attend": ["narrow", "fused", "plain"],
    "add_norm": ["triton", "plain"],
    "adam_at": ["triton", "plain"],
}
NUMBA = pytest.mark.skipif(why_not_compiled() is not None, reason="numba is not here")
SMALL = (4, 8, 32, 32, 4, 8, 32, 1)
"""Sizes of a model that the kernels take."""

# -- the choice ----------------------------------------------------------------------------------------------


def reasons(operation: str, *facts: Any) -> list[str | None]:
    """The reasons in the order of the list, after a look at the names and at what `choose` takes."""
    rows = explain(operation, *facts)
    assert [row.implementation for row in rows] == ORDER[operation]
    (runs,) = [row.implementation for row in rows if row.why_not is None]
    assert OPERATIONS[operation].choose(*facts).name == runs
    return [row.why_not for row in rows]


def test_every_operation_has_the_expected_order() -> None:
    assert {name: [one.name for one in each.implementations] for name, each in OPERATIONS.items()} == ORDER


CPU = "the tensors are on the cpu"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_runs_on_a_cpu(dtype: torch.dtype) -> None:
    x, score, theta = torch.zeros(3, 4, 2, dtype=dtype), torch.zeros(1, 2, 5, dtype=dtype), torch.zeros(1, 4)
    assert reasons("pool_tokens", x, score) == [CPU, None]
    assert reasons("whole_step", theta, SMALL) == [CPU, "it is only for runs that compile nothing", None]
    assert reasons("add_norm", x) == [CPU, None]
    assert reasons("adam_at", theta) == [CPU, None]
    with without_kernels():
        assert reasons("pool_tokens", x, score) == [UNWANTED, None]
        assert reasons("whole_step", theta, SMALL) == [UNWANTED, None, "written out comes first"]
        assert reasons("adam_at", theta) == [UNWANTED, None]
        assert reasons("add_norm", x) == [CPU, None]  # the encoders' kernels are not asked for
    assert reasons("pool_tokens", x, score) == [CPU, None]


def test_attention_on_a_cpu() -> None:
    few, many = torch.zeros(1, 32, 3, 2, 16), torch.zeros(1, 33, 3, 2, 16)
    written = "up to 32 tokens plain attention is faster"
    assert reasons("attend", few) == [written, written, None]
    assert reasons("attend", many) == ["no trial found it to be the fastest", None, "fused comes first"]
    with prefer_attention("narrow"):
        assert reasons("attend", few) == [written, written, None]
        assert reasons("attend", many) == [CPU, None, "fused comes first"]


@NUMBA
def test_a_step_on_a_core() -> None:
    assert reasons("step_on_core") == [None, "numba comes first"]
    assert reasons("step_on_core", None) == [None, "numba comes first"]
    assert reasons("step_on_core", "depth above 1") == ["the kernels do not cover depth above 1", None]


def test_a_step_on_a_core_without_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = "numba or threadpoolctl cannot be imported here (No module named 'threadpoolctl')"
    monkeypatch.setitem(sys.modules, "threadpoolctl", None)
    dispatch._why_numba_is_missing.cache_clear()
    try:
        found = explain("step_on_core")[0].why_not
        assert found is not None
        assert found.startswith(missing.partition("(")[0])
        assert step_on_core() is None
        assert reasons("step_on_core", "layer norm")[0] == "the kernels do not cover layer norm"
    finally:
        dispatch._why_numba_is_missing.cache_clear()


def on_gpu(dtype: torch.dtype, *shape: int) -> Any:
    """What the reasons read of a tensor on a GPU."""
    return SimpleNamespace(device=SimpleNamespace(type="cuda"), dtype=dtype, shape=shape)


@pytest.fixture
def triton(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton is there, whether or not it is."""
    monkeypatch.setattr(dispatch, "has_triton", lambda: True)


def test_without_triton_a_gpu_computes_in_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "has_triton", lambda: False)
    missing, single = "triton is not installed", torch.float32
    assert reasons("pool_tokens", on_gpu(single, 9, 4, 2), on_gpu(single, 1, 2, 5)) == [missing, None]
    assert reasons("whole_step", on_gpu(single, 1, 4), SMALL)[0] == missing
    assert reasons("adam_at", on_gpu(single, 1, 4)) == [missing, None]
    assert reasons("add_norm", on_gpu(torch.bfloat16, 1, 4)) == [missing, None]
    with prefer_attention("narrow"):
        assert reasons("attend", on_gpu(torch.bfloat16, 1, 33, 3, 2, 16))[0] == missing


@pytest.mark.usefixtures("triton")
def test_the_kernels_of_a_gpu_compute_in_one_dtype() -> None:
    single, double, half = torch.float32, torch.float64, torch.bfloat16
    other = "the kernel computes in float32, not float64"
    x, score = on_gpu(double, 9, 4, 2), on_gpu(double, 1, 2, 5)
    assert reasons("pool_tokens", x, score) == [other, None]
    assert reasons("whole_step", on_gpu(double, 1, 4), SMALL) == [
        other,
        "it is only for runs that compile nothing",
        None,
    ]
    assert reasons("adam_at", on_gpu(double, 1, 4)) == [other, None]
    assert reasons("adam_at", on_gpu(single, 1, 4)) == [None, "triton comes first"]
    assert reasons("add_norm", on_gpu(single, 1, 4)) == ["the kernel computes in bfloat16, not float32", None]
    assert reasons("add_norm", on_gpu(half, 1, 4)) == [None, "triton comes first"]
    with without_kernels():
        assert reasons("pool_tokens", on_gpu(single, 9, 4, 2), on_gpu(single, 1, 2, 5)) == [UNWANTED, None]
        assert reasons("whole_step", on_gpu(single, 1, 4), SMALL) == [UNWANTED, None, "written out comes first"]
        assert reasons("adam_at", on_gpu(single, 1, 4)) == [UNWANTED, None]
        assert reasons("add_norm", on_gpu(half, 1, 4)) == [None, "triton comes first"]


LIMITS = {"dim": 31, "hidden": 64, "heads": 32, "head_dim": 64, "hidden_ff": 64}
PLACES = ("dim", "length", "hidden", "width", "heads", "head_dim", "hidden_ff", "out_dim")


@pytest.mark.usefixtures("triton")
@pytest.mark.parametrize("name", LIMITS)
def test_the_kernels_of_a_gpu_have_limits(name: str) -> None:
    """The largest size is taken, the next one is not, and the reason names it."""
    theta = on_gpu(torch.float32, 1, 4)
    for size in (LIMITS[name], LIMITS[name] + 1):
        sizes = dict(zip(PLACES, SMALL, strict=True)) | {name: size}
        wanted = None if size == LIMITS[name] else f"{name} = {size} is above the kernel's limit of {LIMITS[name]}"
        assert reasons("whole_step", theta, tuple(sizes.values()))[0] == wanted
        if name in dispatch.POOL_LIMITS:
            x, score = (9, 8, sizes["dim"]), (1, sizes["heads"], sizes["hidden"])
            x, score = on_gpu(torch.float32, *x), on_gpu(torch.float32, *score)
            assert reasons("pool_tokens", x, score)[0] == wanted


@pytest.mark.usefixtures("triton")
def test_rows_and_heads_have_limits_too() -> None:
    assert reasons("add_norm", on_gpu(torch.bfloat16, 1, 4096))[0] is None
    assert reasons("add_norm", on_gpu(torch.bfloat16, 1, 4097))[0] == "width = 4097 is above the kernel's limit of 4096"


@pytest.mark.usefixtures("triton")
@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton, a test extra, is missing")
def test_narrow_heads_on_a_gpu() -> None:
    half = torch.bfloat16
    assert reasons("attend", on_gpu(half, 1, 33, 3, 2, 16))[:2] == ["no trial found it to be the fastest", None]
    with prefer_attention("narrow"):
        for n in (16, 32, 64):
            assert reasons("attend", on_gpu(half, 1, 33, 3, 2, n)) == [None, *2 * ["narrow comes first"]]
        assert reasons("attend", on_gpu(half, 1, 33, 3, 2, 24))[0] == "head_dim must be 16, 32 or 64, not 24"
        single = on_gpu(torch.float32, 1, 33, 3, 2, 16)
        assert reasons("attend", single)[0] == "it computes in bfloat16, not float32"
    with prefer_attention("flash"):
        assert reasons("attend", on_gpu(half, 1, 33, 3, 2, 16))[1] is None


def test_an_unknown_operation_is_named() -> None:
    with pytest.raises(BadInput, match="unknown operation 'pool': did you mean 'pool_tokens'"):
        explain("pool")


# -- what is said --------------------------------------------------------------------------------------------


def test_a_reason_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    dispatch._log_once.cache_clear()
    with caplog.at_level(logging.INFO, logger=dispatch.__name__):
        for _ in range(2):
            step_on_core("depth above 1")
            explain("step_on_core", "layer norm")  # a question, not a choice
    assert [record.getMessage() for record in caplog.records] == [
        "the general stacked forward trains this model: the kernels do not cover depth above 1"
    ]


def test_train_logs_why_a_model_uses_another_path(headcount_here: Any, caplog: pytest.LogCaptureFixture) -> None:
    dispatch._log_once.cache_clear()
    sizes = ["--heads", 1, "--steps", 2, "--batch", 4, "--train-size", 8, "--length", 4, "--depth", 2]
    done = headcount_here("train", "sum-of-maxima", *sizes, "--out", "m")
    assert done.returncode == 0, done.stderr
    line = "the general stacked forward trains this model: the kernels do not cover depth above 1"
    assert line in done.stderr + caplog.text


@pytest.mark.parametrize(
    ("also", "imported"),
    [
        ("", []),
        pytest.param("step_on_core()", ["headcount.kernels.step.numba", "numba"], marks=NUMBA),
    ],
)
def test_nothing_is_imported_before_it_is_chosen(also: str, imported: list[str]) -> None:
    code = (
        "import sys, torch\nfrom headcount.kernels import attend, explain, add_norm, pool_tokens, step_on_core\n"
        "x = torch.zeros(2, 3, 1)\nexplain('pool_tokens', x, x)\nexplain('whole_step', x, (1,) * 8)\nadd_norm(x, x)\n"
        "y = x[:1, :1]\npool_tokens(x, torch.zeros(1, 1).long(), y, y, y)\nattend(torch.zeros(1, 40, 3, 1, 4))\n"
        f"{also}\nours = {{m for m in sys.modules if m.startswith('headcount.') and m.endswith(('triton', 'numba'))}}\n"
        "print(sorted(ours - {'headcount.kernels.pool.numba'} | {'numba'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == str(imported), done.stderr[-2000:]


# -- lists that are wrong ------------------------------------------------------------------------------------


def never(*_: Any) -> str:
    return "never"


def way(name: str, why_not: Callable[..., str | None] | None = None, load: Callable[[], Any] = lambda: None) -> Any:
    return Implementation(name, load, why_not)


WRONG = {
    "two with the same name": ((way("a", never), way("a")), "a name of its own, not a, a"),
    "what always applies before others": ((way("a"), way("b", never)), "the last implementation, and no other"),
    "two that always apply": ((way("a"), way("b")), "the last implementation, and no other"),
    "none that always applies": ((way("a", never), way("b", never)), "the last implementation, and no other"),
    "none at all": ((), "the last implementation, and no other"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_list_is_rejected(case: str) -> None:
    ways, complaint = WRONG[case]
    with pytest.raises(ValueError, match=f"made up: .*{complaint}"):
        Operation("made up", ways)
    assert Operation("made up", (way("a", never), way("b"))).choose().name == "b"


@pytest.mark.parametrize("name", ORDER)
def test_no_other_order_passes(name: str) -> None:
    """The twin must stay behind; the other places are those of ORDER."""
    listed = OPERATIONS[name].implementations
    for other in itertools.permutations(listed):
        if other[-1] is listed[-1]:
            assert ([one.name for one in Operation(name, other).implementations] == ORDER[name]) == (other == listed)
        else:
            with pytest.raises(ValueError, match="the last implementation"):
                Operation(name, other)


def test_an_implementation_that_cannot_be_checked_is_not_skipped() -> None:
    """Another one in its place, without a word, would be other bits without a word."""

    def breaks(*_: Any) -> str | None:
        raise ZeroDivisionError

    made = Operation("made up", (way("a", breaks), way("b")))
    for ask in (made.choose, made.explain):
        with pytest.raises(ZeroDivisionError):
            ask()


# -- every implementation beside its twin --------------------------------------------------------------------

Found = dict[str, Tensor]


def run_pool(function: Any) -> Found:
    case = (2, 5, 3, 7, 3, 17, 3, True, True, True, 1.0)
    return cases.pooled_and_gradients(function, cases.draw(case), torch.float32)


def run_step(function: Any) -> Found:
    options = {"positions": "gates", "beta": "learned", "heads": 3, "head_dim": 5, "hidden": 17, "length": 5}
    flat, data = cases.draw_step(options, 2, 6, mask=True)
    if function is None:
        return cases.split(flat, *cases.step_twin(flat, data, torch.float32))
    places, rest = tuple(int(o) for o in flat.offsets()), (data["X"], data["index"], data["y"], data["mask"])
    return cases.split(flat, *function(data["theta"], places, flat.sizes(), True, 1.0, *rest))


def run_on_core(function: Any) -> Found:
    flat, data = cases.draw_step({"heads": 3, "head_dim": 5, "hidden": 17, "length": 5}, 1, 6)
    if function is None:
        return cases.split(flat, *cases.step_twin(flat, data, torch.float32))
    load_kernels("float32")
    theta, X = data["theta"][0].numpy(), data["X"][data["index"][0]].numpy()
    grad, loss, nothing = np.empty_like(theta), np.empty(1), np.empty(0)
    every, masks = np.arange(len(X))[None], np.zeros((0, 0), np.bool_)
    function(
        theta,
        grad,
        theta,
        flat.offsets(),
        flat.sizes(),
        flat.spec.head_dim**-0.5,
        True,
        X,
        data["y"][0].numpy(),
        masks,
        every,
        nothing,
        0,
        0.0,
        False,
        loss,
    )
    return cases.split(flat, torch.from_numpy(loss).float(), torch.from_numpy(grad)[None])


def run_attention(function: Any) -> Found:
    packed, seen, pull = encoders.attention_data((2, 40, 2, 16, True, 1.0), "cpu", torch.float32)
    leaf = packed.requires_grad_()
    out = function(leaf, seen)
    return {"out": out.detach(), "gradient": torch.autograd.grad(out, leaf, pull)[0]}


def run_add_norm(function: Any) -> Found:
    g = torch.Generator().manual_seed(1)
    s, added, pull = (torch.randn(2, 9, 48, generator=g) for _ in range(3))
    keep = (torch.rand(2, 9, 48, generator=g) > 0.3).float()
    leaves = [s.requires_grad_(), added.requires_grad_()]
    out, u = function(*leaves, keep, 0.3)
    slopes = torch.autograd.grad((out * pull).sum() + (u * pull).sum(), leaves)
    return {"sum": out.detach(), "norm": u.detach(), "of the stream": slopes[0], "of what is added": slopes[1]}


def run_adam(function: Any) -> Found:
    g = torch.Generator().manual_seed(2)
    theta, grad, first, second = (torch.rand(4, 1500, generator=g) for _ in range(4))
    rates, losses = torch.rand(3, 4, 4, generator=g), torch.zeros(3, 4)
    loss, alive = torch.tensor([1.0, torch.nan, 2.0, torch.inf]), torch.tensor([True, True, False, True])
    function(theta, grad, first, second, rates, alive, torch.tensor([1]), loss, losses)
    return {
        "theta": theta,
        "first": first,
        "second": second,
        "alive": alive.float(),
        "losses": losses.nan_to_num(7.0, 8.0),
    }


RUNS: dict[str, Callable[[Any], Found]] = {
    "pool_tokens": run_pool,
    "whole_step": run_step,
    "step_on_core": run_on_core,
    "attend": run_attention,
    "add_norm": run_add_norm,
    "adam_at": run_adam,
}
"""Values and gradients by one implementation, None for autograd; an operation without a line here fails."""
NEEDS_TRITON = ("triton", "narrow")


def disagreements(operation: Operation, run: Callable[[Any], Found], names: list[str]) -> list[str]:
    """Which implementations do not compute what the last of their list does, or do not compute at all."""
    twin = run(operation.implementations[-1].load())
    found: list[str] = []
    for one in operation.implementations:
        if one.name not in names:
            continue
        try:
            ours = run(one.load())
        except Exception as error:
            found.append(f"{one.name}: {type(error).__name__}: {error}")
            continue
        assert ours.keys() == twin.keys()
        largest = max(float(t.abs().max()) for t in twin.values())
        for name, right in twin.items():
            size = max(float(right.abs().max()), 1e-3 * largest)
            if not float((ours[name] - right).abs().max()) < 2e-5 * size:  # NaN fails every comparison
                found.append(f"{one.name}: {name}")
    return found


def test_every_operation_is_compared() -> None:
    assert RUNS.keys() == OPERATIONS.keys()


@pytest.mark.parametrize("name", [pytest.param(n, marks=NUMBA) if n == "step_on_core" else n for n in RUNS])
def test_what_runs_here_agrees_with_its_twin(name: str) -> None:
    operation = OPERATIONS[name]
    here = [one.name for one in operation.implementations if one.name not in NEEDS_TRITON]
    assert disagreements(operation, RUNS[name], here) == []


def check_interpreted() -> dict[str, list[str]]:
    """In a process with Triton's interpreter: which kernels were compared."""
    kernels = {name: [n for n in ORDER[name] if n in NEEDS_TRITON] for name in RUNS}
    for name, run in RUNS.items():
        assert disagreements(OPERATIONS[name], run, kernels[name]) == [], name
    return kernels


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton, a test extra, is missing")
def test_the_kernels_of_a_gpu_agree_in_the_interpreter(repo: Any) -> None:
    code = "import json, test_dispatch; print(json.dumps(test_dispatch.check_interpreted()))"
    paths = [str(repo / part) for part in ("tests/kernels", "tests", "src")]
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False, timeout=600
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout) == {
        "pool_tokens": ["triton"],
        "whole_step": ["triton"],
        "step_on_core": [],
        "attend": ["narrow"],
        "add_norm": ["triton"],
        "adam_at": ["triton"],
    }


def missing() -> Any:
    raise ImportError("no such kernel")


LIES: dict[str, Callable[[], Any]] = {
    "in a value": lambda: lambda *a: tuple(1.001 * t for t in dispatch.add_norm_plain(*a)),
    "in a gradient": lambda: lambda s, added, *a: dispatch.add_norm_plain(s, added.detach() + 0 * added, *a),
    "by a number that is none": lambda: lambda *a: tuple(t * torch.nan for t in dispatch.add_norm_plain(*a)),
    "by not being there": missing,
}


@pytest.mark.parametrize("lie", LIES)
def test_an_implementation_that_wrongly_claims_to_apply_is_detected(lie: str) -> None:
    right = OPERATIONS["add_norm"].implementations[-1]
    made = Operation("add_norm", (Implementation("wrong", LIES[lie], lambda *_: None), right))
    assert made.choose(torch.zeros(1)).name == "wrong"  # it is believed: so it must be compared
    assert disagreements(made, run_add_norm, ["wrong"])
    assert disagreements(made, run_add_norm, [right.name]) == []
