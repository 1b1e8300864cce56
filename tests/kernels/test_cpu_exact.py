"""The compiled step against the true function and gradient, tensor by tensor: 1e-12 in float64, 1e-5 in float32.

The truth is equation 4 and its derivative, written out by hand (`truth`) in a higher precision: long double for
float64, float64 for float32. It is itself compared with the reference model's autograd. The error of a tensor is its
largest absolute error over the largest entry of the true tensor, for the outputs, the loss and the gradient of every
weight alike; a true gradient of 0 (scores where there is one token) admits nothing but 0.

The kink of a ReLU would make a step of rounding into a step of the gradient, so the data stay away from it: tokens and
the encoder's first layer lie on dyadic grids, where W1 x + b is exact in any order, and the bias of a ReLU in F is
chosen so that no argument is near 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import erfc

from headcount import ModelSpec, Transformer
from headcount.models.transformer.compiled import NO_MASK, Compiled
from headcount.models.transformer.flat import Flat

BOUND = {np.float64: 1e-12, np.float32: 1e-5}
HIGHER = {np.float64: np.longdouble, np.float32: np.float64}
Tensors = dict[str, np.ndarray]


@dataclass
class Case:
    """A model and a batch; theta, X and Y hold numbers of the precision to be tested."""

    spec: ModelSpec
    theta: np.ndarray
    X: np.ndarray
    Y: np.ndarray
    mask: np.ndarray

    @property
    def dtype(self) -> Any:
        return self.theta.dtype.type


def split(spec: ModelSpec, theta: np.ndarray) -> Tensors:
    """The tensors of a flat vector, by short names."""
    parts, position = {}, 0
    for name, shape in Flat.of(spec).shapes.items():
        count = int(np.prod(shape))
        parts[name.removeprefix("layers.0.")] = theta[position : position + count].reshape(shape)
        position += count
    return parts


def truth(case: Case, dtype: Any = None, *, gelu: bool | None = None) -> tuple[Tensors, np.ndarray, np.ndarray]:
    """Return outputs, loss and gradients by name, the scores β(r + gate) and the arguments of F's activation."""
    dtype = dtype or HIGHER[case.dtype]
    w = {name: tensor.astype(dtype) for name, tensor in split(case.spec, case.theta).items()}
    X, Y = case.X.astype(dtype), case.Y.astype(dtype)
    gelu = case.spec.feedforward == "gelu2" if gelu is None else gelu
    c, W2, F1, F2 = (
        w[n]
        for n in ("class_token", "encoder.outer.weight", "feedforward.layers.0.weight", "feedforward.layers.1.weight")
    )
    WQ, WK, WV, WO = (w[f"attention.{n}"] for n in ("query", "key", "value", "output"))
    hidden = X @ w["encoder.inner.weight"].T + w["encoder.inner.bias"] + w.get("encoder.hidden_bias", dtype(0))
    u = np.maximum(hidden, 0)
    e = u @ W2.T + w["encoder.outer.bias"]
    q = WQ @ c
    kq = (q[:, None] @ WK)[:, 0]
    fixed = case.spec.beta if isinstance(case.spec.beta, float) else 1 / np.sqrt(dtype(case.spec.head_dim))
    beta = np.exp(w["attention.log_beta"]) if "attention.log_beta" in w else np.full(len(q), fixed, dtype)
    s = (e @ kq.T).swapaxes(1, 2) + w.get("attention.gates", dtype(0))
    s = beta[:, None] * s  # [batch, heads, length]
    known = np.ones(s.shape, bool) if not len(case.mask) else np.broadcast_to(case.mask[:, None], s.shape)
    seen = np.where(known, s, -np.inf)
    a = np.exp(seen - seen.max(2, keepdims=True))
    a /= a.sum(2, keepdims=True)
    m = a @ e
    o = (WV @ m[..., None])[..., 0]
    z = c + (WO @ o[..., None])[..., 0].sum(1)
    pre = z @ F1.T + w["feedforward.layers.0.bias"]
    below = (0.5 * erfc(-pre.astype(np.float64) / np.sqrt(2))).astype(dtype)
    act = pre * below if gelu else np.maximum(pre, 0)
    slope = below + pre * np.exp(-pre * pre / 2) / np.sqrt(2 * dtype(np.pi)) if gelu else (pre > 0).astype(dtype)
    y = act @ F2.T + w["feedforward.layers.1.bias"]
    g: Tensors = {}
    d_y = 2 * (y - Y) / y.size
    g["feedforward.layers.1.weight"], g["feedforward.layers.1.bias"] = d_y.T @ act, d_y.sum(0)
    d_pre = (d_y @ F2) * slope
    g["feedforward.layers.0.weight"], g["feedforward.layers.0.bias"] = d_pre.T @ z, d_pre.sum(0)
    d_z = d_pre @ F1
    g["attention.output"] = np.einsum("be,bhn->hen", d_z, o)
    d_o = np.einsum("be,hen->bhn", d_z, WO)
    g["attention.value"] = np.einsum("bhn,bhe->hne", d_o, m)
    d_m = np.einsum("bhn,hne->bhe", d_o, WV)
    d_a = d_m @ e.swapaxes(1, 2)
    d_a = d_a - np.take_along_axis(d_a, a.argmax(2)[..., None], 2)  # the heaviest token is the zero of d_a
    d_s = a * (d_a - (a * d_a).sum(2, keepdims=True))
    d_r = beta[:, None] * d_s
    if "attention.gates" in w:
        g["attention.gates"] = d_r.sum(0)
    if "attention.log_beta" in w:
        g["attention.log_beta"] = (d_s * s).sum((0, 2))
    d_kq = (d_r @ e).sum(0)
    g["attention.key"] = q[:, :, None] * d_kq[:, None]
    d_q = (WK @ d_kq[..., None])[..., 0]
    g["attention.query"] = d_q[:, :, None] * c
    g["class_token"] = d_z.sum(0) + np.einsum("hn,hne->e", d_q, WQ)
    d_e = a.swapaxes(1, 2) @ d_m + d_r.swapaxes(1, 2) @ kq
    flat_e, flat_u = d_e.reshape(-1, d_e.shape[2]), u.reshape(-1, u.shape[2])
    # Σ_t d_r(t) = 0 exactly: only the direct path reaches b2
    g["encoder.outer.weight"], g["encoder.outer.bias"] = flat_e.T @ flat_u, d_m.sum((0, 1))
    d_hidden = (d_e @ W2) * (hidden > 0)
    g["encoder.inner.weight"] = d_hidden.reshape(-1, u.shape[2]).T @ X.reshape(-1, X.shape[2])
    g["encoder.inner.bias"] = d_hidden.sum((0, 1))
    if "encoder.hidden_bias" in w:
        g["encoder.hidden_bias"] = d_hidden.sum(0)
    return {"outputs": y, "loss": np.square(y - Y).mean(), **g}, np.where(known, s, np.nan), pre


def kernel(case: Case) -> Tensors:
    """What the compiled kernels say, by the names of `truth`."""
    compiled = Compiled(case.spec)
    loss, grad = compiled.gradient(case.theta, case.X, case.Y, case.mask)
    outputs = compiled.predict(case.theta, case.X, case.mask)
    return {"outputs": outputs, "loss": np.array(loss), **split(case.spec, grad)}


def reference(case: Case) -> Tensors:
    """What the reference model and torch's autograd say, in the precision of the case."""
    model = Flat.of(case.spec).unpack(case.theta)
    y = model(torch.from_numpy(case.X), torch.from_numpy(case.mask) if len(case.mask) else None)
    loss = (y - torch.from_numpy(case.Y)).square().mean()
    loss.backward()
    grad = np.concatenate([p.grad.numpy().ravel() for p in model.parameters()])
    return {"outputs": y.detach().numpy(), "loss": loss.detach().numpy(), **split(case.spec, grad)}


def errors(case: Case, got: Tensors, true: Tensors) -> dict[str, float]:
    """The error of every tensor relative to its largest true entry."""
    assert got.keys() == true.keys()
    limits = np.finfo(case.dtype)
    floor = float(limits.tiny / limits.eps)  # what lies below it is 0 for a number of this precision
    out = {}
    for name, value in true.items():
        assert got[name].shape == value.shape, name
        assert np.isfinite(got[name]).all(), name
        out[name] = float(np.abs(got[name] - value).max() / max(np.abs(value).max(), floor))
    return out


def assert_close(case: Case, got: Tensors, true: Tensors, allowed: dict[str, float] | None = None) -> None:
    bound = BOUND[case.dtype]
    bad = {
        name: error
        for name, error in errors(case, got, true).items()
        if not error <= max(bound, (allowed or {}).get(name, 0.0))
    }
    assert not bad, f"above {bound:g}: {bad} in {case.spec} with {len(case.X)} sequences"


def make_case(
    rng: np.random.Generator,
    dtype: Any,
    options: dict[str, Any],
    batch: int,
    *,
    masked: bool = False,
    size: float | None = None,
    cancelling: bool = False,
) -> Case:
    """Draw a model and a batch; with a size, each head's query is scaled until its largest score has that size."""
    spec = ModelSpec(**options)
    compiled = Flat.of(spec)
    model = Transformer(spec, seed=int(rng.integers(1 << 30)), dtype=torch.float64)
    theta = compiled.pack(model)
    theta += 0.2 * rng.standard_normal(theta.shape)
    w = split(spec, theta)  # views
    for name in ("encoder.inner.weight", "encoder.inner.bias", "encoder.hidden_bias"):
        if name in w:
            w[name][:] = np.round(64 * w[name]) / 64
    X = np.round(32 * np.clip(rng.standard_normal((batch, spec.length, spec.dim)), -3, 3)) / 32
    Y = rng.standard_normal((batch, spec.out_dim))
    mask = NO_MASK
    if masked:
        mask = rng.random((batch, spec.length)) < 0.6
        mask[:, 0] = True
    if size is not None:  # one token of every sequence stands out, and all of them in one direction
        winner, every = rng.integers(spec.length, size=batch), np.arange(batch)
        mask[every[: len(mask)], winner[: len(mask)]] = True
        X /= 8
        X[every, winner] += 4 * np.sign(rng.standard_normal(spec.dim))
        for name in () if cancelling else ("class_token", "encoder.outer.weight", "attention.query", "attention.key"):
            np.abs(w[name], out=w[name])  # terms of one sign: the size of a score is the size of what it is summed from
    case = Case(spec, theta.astype(dtype), X.astype(dtype), Y.astype(dtype), mask)
    if size is not None:
        if "attention.gates" in w:
            w["attention.gates"][:] *= 0.1
        scores = truth(case, np.float64)[1]
        sign = np.sign(np.nanmean(scores[every, :, winner] - np.nanmean(scores, 2), 0))  # the winner shall win
        w["attention.query"][:] *= (sign * size / np.nanmax(np.abs(scores), (0, 2)))[:, None, None]
        case.theta = theta.astype(dtype)
    if spec.feedforward == "relu2":
        bias = w["feedforward.layers.0.bias"]
        before = truth(case, np.float64)[2] - bias
        choice = np.quantile(-before, rng.random(64), axis=0) + 0.1 * rng.standard_normal((64, 1))
        gap = np.abs(before[None] + choice[:, None]).min(1)  # [choice, unit]
        bias[:] = np.take_along_axis(choice, gap.argmax(0)[None], 0)[0]
        case.theta = theta.astype(dtype)
    return case


def random_options(rng: np.random.Generator) -> dict[str, Any]:
    pick = lambda *options: options[rng.integers(len(options))]  # noqa: E731
    size = lambda low, high: int(rng.integers(low, high + 1))  # noqa: E731
    return {
        "dim": size(1, 9),
        "length": pick(1, 2, size(3, 40), 300),
        "out_dim": size(1, 3),
        "heads": size(1, 17),
        "head_dim": size(1, 6),
        "hidden": size(1, 40),
        "width": pick(None, size(1, 20)),
        "hidden_ff": pick(None, size(1, 20)),
        "positions": pick("none", "concatenated", "gates"),
        "beta": pick("scaled", "learned", 0.5, 3.0),
        "feedforward": pick("gelu2", "relu2"),
    }


# the ends of the ranges; more sequences than a block holds; every option at T = 1000
EDGES: list[tuple[dict[str, Any], int, bool]] = [
    ({"dim": 1, "length": 1, "heads": 1, "head_dim": 1, "hidden": 1}, 1, False),
    ({"dim": 3, "length": 1, "heads": 17, "head_dim": 1, "positions": "gates", "beta": "learned"}, 5, False),
    (
        {
            "dim": 2,
            "length": 1000,
            "heads": 17,
            "head_dim": 2,
            "hidden": 9,
            "positions": "gates",
            "beta": "learned",
            "out_dim": 2,
        },
        3,
        True,
    ),
    (
        {
            "dim": 4,
            "length": 1000,
            "heads": 4,
            "hidden": 8,
            "hidden_ff": 5,
            "positions": "concatenated",
            "feedforward": "relu2",
        },
        2,
        False,
    ),
    ({"dim": 1, "length": 1000, "heads": 1, "head_dim": 1, "hidden": 3, "positions": "concatenated"}, 1, True),
    ({"dim": 4, "length": 8, "heads": 4, "head_dim": 8, "hidden": 32}, 600, False),
    ({"dim": 5, "length": 70, "heads": 3, "head_dim": 3, "hidden": 10, "positions": "gates"}, 75, True),
]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("edge", range(len(EDGES)))
def test_edges(edge: int, dtype: Any) -> None:
    options, batch, masked = EDGES[edge]
    case = make_case(np.random.default_rng(edge), dtype, options, batch, masked=masked)
    assert_close(case, kernel(case), truth(case)[0])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("seed", range(20))
def test_random_shapes(seed: int, dtype: Any) -> None:
    rng = np.random.default_rng(100 + seed)
    options = random_options(rng)
    case = make_case(
        rng, dtype, options, int(rng.integers(1, 40 if options["length"] < 300 else 5)), masked=seed % 2 == 1
    )
    assert_close(case, kernel(case), truth(case)[0])


# scores of this size, where most heads leave less than this to all tokens but one
SATURATED = {np.float64: ((100.0, 1e-12), (300.0, 1e-12)), np.float32: ((30.0, 1e-6), (60.0, 1e-12))}


def saturated_case(seed: int, dtype: Any, size: float, rest: float = 1e-12, cancelling: bool = False) -> Case:
    rng = np.random.default_rng(200 + seed)
    options = {**random_options(rng), "length": (2, 3, 5, 40)[seed % 4], "hidden": int(rng.integers(8, 40))}
    case = make_case(
        rng, dtype, options, int(rng.integers(2, 30)), masked=seed % 3 == 2, size=size, cancelling=cancelling
    )
    scores = truth(case, np.float64)[1]
    ordered = np.sort(np.where(np.isnan(scores), -np.inf, scores), 2)
    assert (np.exp(ordered[..., -2] - ordered[..., -1]) < rest / 2).mean() > 0.5
    return case


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("seed", range(12))
def test_saturated(seed: int, dtype: Any) -> None:
    """The same bounds where the softmax is saturated, also for gradients that are next to nothing there.

    The score of a head is a sum of terms of one sign here. Where large terms cancel, its error is that of the terms:
    `test_extreme_scores`.
    """
    for size, rest in SATURATED[dtype]:
        case = saturated_case(seed, dtype, size, rest)
        assert_close(case, kernel(case), truth(case)[0])


def test_saturated_long() -> None:
    """T = 1000 and 17 heads, where one token in a thousand wins."""
    options = {"dim": 3, "length": 1000, "heads": 17, "head_dim": 1, "hidden": 7, "beta": "learned"}
    for dtype, size in ((np.float64, 300.0), (np.float32, 60.0)):
        case = make_case(np.random.default_rng(7), dtype, options, 3, size=size)
        assert_close(case, kernel(case), truth(case)[0])


@pytest.mark.parametrize("cancelling", [False, True])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("seed", range(8))
def test_extreme_scores(seed: int, dtype: Any, cancelling: bool) -> None:
    """Scores of 1e4 and 1e6: every tensor within the bound, or within three times the reference's own error.

    A score that is summed from terms of size |r| has an absolute error of |r|·eps in any program of this precision,
    and its weight that as a relative error: 1e6·eps is 2e-10 in float64 and 0.1 in float32, and more where the terms
    cancel. So both are measured against the truth, and the kernel may not be worse than the reference model by more
    than the luck of rounding.
    """
    case = saturated_case(seed, dtype, (1e4, 1e6)[seed % 2], cancelling=cancelling)
    true = truth(case)[0]
    own = errors(case, reference(case), true)
    assert_close(case, kernel(case), true, {name: 3 * error for name, error in own.items()})


@pytest.mark.parametrize("seed", range(8))
def test_truth_is_the_reference(seed: int) -> None:
    """The hand-written derivative against torch's autograd, where nothing is saturated."""
    rng = np.random.default_rng(300 + seed)
    case = make_case(rng, np.float64, random_options(rng), 4, masked=seed % 2 == 1)
    assert_close(case, reference(case), truth(case)[0])


def test_truth_of_a_saturated_gradient() -> None:
    """Against a difference quotient in 60 digits: a derivative of 1e-40 keeps its digits in `truth`."""
    import mpmath

    u, score, d = [2.0, 0.5, 1.25], 60.0, 1e-25
    with mpmath.workdps(60):

        def pooled(s: Any) -> Any:
            a = [mpmath.exp(s * v) for v in u]
            return sum(w * v for w, v in zip(a, u, strict=True)) / sum(a)

        slope = (pooled(mpmath.mpf(score) + d) - pooled(mpmath.mpf(score) - d)) / (2 * d)
    # one head, one unit, identities elsewhere: y = Σ a u, and the derivative by the query is that by the score
    spec = ModelSpec(dim=1, length=3, heads=1, head_dim=1, hidden=1, hidden_ff=1, beta=1.0, feedforward="relu2")
    theta = np.zeros(Flat.of(spec).size)
    w = split(spec, theta)
    for name, tensor in w.items():
        tensor[...] = 0.0 if name.endswith("bias") else 1.0
    w["attention.query"][:] = score
    X = np.array(u).reshape(1, 3, 1)
    case = Case(spec, theta, X, np.zeros((1, 1)), NO_MASK)
    for got in (truth(case)[0], kernel(case)):
        by_output = 2 * float(got["outputs"][0, 0])  # of the squared error
        assert float(got["attention.query"][0, 0, 0]) / by_output == pytest.approx(float(slope), rel=1e-12)
    assert 0 < abs(float(slope)) < 1e-18


def test_the_reference_is_rejected_where_it_loses_its_digits() -> None:
    """a·(da − Σ a da) as it stands, torch's softmax included, does not pass for a saturated head."""
    for dtype in (np.float64, np.float32):
        bad = 0
        for seed in range(12):
            case = saturated_case(seed, dtype, *SATURATED[dtype][1])
            bad += max(errors(case, reference(case), truth(case)[0]).values()) > BOUND[dtype]
        assert bad > 0


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_sabotage_is_rejected(dtype: Any) -> None:
    """One entry of any tensor off by three bounds, a wrong activation, a forgotten mask, a forgotten gate."""
    rng = np.random.default_rng(5)
    options = {"dim": 3, "length": 6, "heads": 3, "head_dim": 2, "hidden": 9, "positions": "gates", "beta": "learned"}
    case = make_case(rng, dtype, options, 20, masked=True)
    true, got = truth(case)[0], kernel(case)
    assert_close(case, got, true)
    for name in got:
        spoiled = {n: v.copy() for n, v in got.items()}
        at = np.unravel_index(np.abs(true[name]).argmax(), true[name].shape)
        spoiled[name] = spoiled[name].astype(np.float64)
        spoiled[name][at] *= 1 + 3 * BOUND[dtype]
        with pytest.raises(AssertionError, match=name):
            assert_close(case, spoiled, true)
    gateless = Case(case.spec, case.theta.copy(), case.X, case.Y, case.mask)
    split(case.spec, gateless.theta)["attention.gates"][:] = 0
    for wrong in (
        truth(case, gelu=False)[0],
        truth(Case(case.spec, case.theta, case.X, case.Y, NO_MASK))[0],
        truth(gateless)[0],
    ):
        with pytest.raises(AssertionError, match="attention.query"):
            assert_close(case, got, wrong)
