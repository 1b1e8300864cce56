"""Data on which the Triton kernels are judged, and the judge: in the interpreter by the tests, on a GPU by
`benchmarks/gpu_check.py`.

A hidden unit within rounding of 0 may fall on either side of the ReLU in float32, and its gradient jumps. So x, W1 and
the biases lie on dyadic grids on which z = x W1 + b is exact in float32 (a multiple of 2⁻¹⁸ below 64) and never 0; z
still fills the 24 bits. Then the worst model is judged, tensor by tensor, by ‖error‖/‖exact‖.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from headcount.models.transformer.flat import Flat
from headcount.models.transformer.reference import Transformer
from headcount.models.transformer.spec import ModelSpec
from headcount.models.transformer.stacked import forward_collapsed

NAMES = ("W1", "hidden_bias", "score", "score_bias")
LIMIT = 1e-5
Found = dict[str, Tensor]
"""What is judged: tensors with the models in front."""


def on_grid(values: Tensor, bits: int, most: float) -> Tensor:
    """Round to multiples of 2^−bits within ±most."""
    return (values.clamp(-most, most) * 2**bits).round() / 2**bits


def odd(values: Tensor) -> Tensor:
    """Round to odd multiples of 2⁻¹⁸, within ±2: between all multiples of 2⁻¹⁷, so that no sum with them is 0."""
    return ((values.clamp(-2, 2) * 2**17).floor() + 0.5) / 2**17


def draw(case: tuple[Any, ...], device: str = "cpu") -> dict[str, Any]:
    """Arguments of `pool_plain`.

    A case is models, samples, batch, length, dim, hidden, heads, three switches, score size.
    """
    M, S, B, T, d, N, h, positions, gates, mask, size = case
    g = torch.Generator().manual_seed(7)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=g)

    known = torch.rand(S, T, generator=g) < 0.6
    known[:, 0] = True
    x, W1 = on_grid(normal(S, T, d), 8, 4.0), on_grid(normal(M, d, N) / d**0.5, 9, 2 / d**0.5)
    data = {
        "x": x,
        "index": torch.randint(S, (M, B), generator=g),
        "W1": W1,
        "hidden_bias": odd(normal(M, T if positions else 1, N) / 2),
        "score": size * normal(M, h, N) / N**0.5,
        "score_bias": normal(M, h, T) if gates else None,
        "mask": known if mask else None,
    }
    return {k: None if v is None else v.to(device) for k, v in data.items()}


def is_exact(x: Tensor, W1: Tensor, hidden_bias: Tensor) -> bool:
    """Whether float32 computes z = x W1 + b without rounding, whatever the order, and never 0."""
    most = torch.einsum("std,mdk->mstk", x.abs(), W1.abs()).amax() + hidden_bias.abs().max()
    z = torch.einsum("std,mdk->mstk", x.double(), W1.double()) + hidden_bias[:, None].double()
    whole = z * 2**18
    return bool(most < 64) and bool((whole == whole.round()).all()) and bool((z != 0).all())


def as_dtype(data: dict[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    """Copies of the tensors, numbers in another dtype."""
    return {k: v.to(dtype, copy=True) if v is not None and v.is_floating_point() else v for k, v in data.items()}


def first_only(data: dict[str, Any]) -> dict[str, Any]:
    """The first model alone."""
    return {k: v[:1].clone() if v is not None and k not in ("x", "mask") else v for k, v in data.items()}


def pooled_and_gradients(function: Callable[..., Tensor], data: dict[str, Any], dtype: torch.dtype) -> Found:
    """The pooled state and all gradients, for one fixed d_pooled."""
    data = as_dtype(data, dtype)
    names = [n for n in NAMES if data[n] is not None]
    out = function(**{**data, **{n: data[n].requires_grad_() for n in names}})
    d = torch.randn(8, *out.shape[1:], generator=torch.Generator().manual_seed(3))[: len(out)]
    gradients = torch.autograd.grad(out, [data[n] for n in names], d.to(out.device, dtype))
    return {"pooled": out.detach(), **dict(zip(names, gradients, strict=True))}


def errors(found: Found, exact: Found, scale: Tensor) -> dict[str, float]:
    """‖error‖/‖exact‖ of every tensor, the worst over the models.

    Where the exact tensor vanishes (no score matters at T = 1) the error is measured in units of scale[models].
    """
    out: dict[str, float] = {}
    for name, right in exact.items():
        error = torch.linalg.vector_norm((found[name].double() - right).flatten(1), dim=1)
        size = torch.linalg.vector_norm(right.flatten(1), dim=1)
        each = error / torch.where(size < 1e-10 * scale, scale, size)
        out[name] = float(each.nan_to_num(nan=torch.inf).max())
    return out


def judge(ours: Found, twin: Found, exact: Found, scale: Tensor, extreme: bool) -> dict[str, Any]:
    """One row of the result: the worst error beside the float32 twin's, and the limit.

    At scores of 1000 the rounding of the score itself moves the softmax by 1e-4 in any float32 program: there the
    limit is twice the twin's error, where that is above 1e-5.
    """
    mine, other = errors(ours, exact, scale), errors(twin, exact, scale)
    limits = {k: max(LIMIT, 2 * other[k]) if extreme else LIMIT for k in mine}
    worst = max(mine, key=lambda k: mine[k] / limits[k])
    return {
        "worst": worst,
        "error": mine[worst],
        "twin": other[worst],
        "limit": limits[worst],
        "passes": all(mine[k] <= limits[k] for k in mine) and all(ours[k].shape == exact[k].shape for k in exact),
        "errors": mine,
        "twin errors": other,
    }


def spec_of(options: dict[str, Any]) -> ModelSpec:
    """A small model unless told otherwise."""
    return ModelSpec(**{"dim": 4, "length": 8, "heads": 4, "head_dim": 8, "hidden": 32, **options})


def draw_step(
    options: dict[str, Any],
    models: int,
    batch: int,
    *,
    mask: bool = False,
    betas: bool = False,
    size: float = 1.0,
    shift: float = 0.0,
    device: str = "cpu",
) -> tuple[Flat, dict[str, Any]]:
    """Weights and data of a whole step; `size` multiplies the scores.

    `shift` is added to the targets: with all misses of one sign the gradient of a single number is no difference of
    large ones, which no float32 program can give to 1e-5.
    """
    spec = spec_of(options)
    flat, samples = Flat.of(spec), batch + 7
    for seed in range(100):
        g = torch.Generator().manual_seed(seed)

        def normal(*shape: int, g: torch.Generator = g) -> Tensor:
            return torch.randn(*shape, generator=g)

        nets = [Transformer(spec, seed=1000 * seed + m) for m in range(models)]
        with torch.no_grad():
            for net in nets:
                inner, attention = net.encoder.inner, net.layers[0].attention
                inner.weight.copy_(on_grid(normal(*inner.weight.shape) / spec.dim**0.5, 9, 2 / spec.dim**0.5))
                inner.bias.copy_(odd(normal(spec.hidden) / 2))
                attention.query.mul_(size)
                if net.encoder.hidden_bias is not None:
                    net.encoder.hidden_bias.copy_(on_grid(normal(spec.length, spec.hidden) / 2, 17, 2.0))
                if attention.gates is not None:
                    attention.gates.copy_(normal(spec.heads, spec.length))
                if attention.log_beta is not None:
                    attention.log_beta.copy_(normal(spec.heads) / 4)
        known = torch.rand(samples, spec.length, generator=g) < 0.6
        known[:, 0] = True
        data = {
            "theta": torch.stack([torch.from_numpy(flat.pack(net)) for net in nets]),
            "X": on_grid(normal(samples, spec.length, spec.dim), 8, 4.0),
            "index": torch.randint(samples, (models, batch), generator=g),
            "y": normal(models, batch, spec.out_dim) + shift,
            "mask": known if mask else None,
            "betas": torch.rand(models, generator=g) + 0.1 if betas else None,
        }
        if spec.feedforward != "relu2" or min(_nearest(n, data, m) for m, n in enumerate(nets)) > 1e-4:
            return flat, {k: None if v is None else v.to(device) for k, v in data.items()}
    raise AssertionError("no draw keeps F's hidden units away from 0")


def _nearest(net: Transformer, data: dict[str, Any], m: int) -> float:
    """How near to 0 a hidden unit of F comes in one model's batch."""
    seen: list[float] = []
    hook = (
        net.layers[0]
        .feedforward.layers[0]
        .register_forward_hook(lambda *a: seen.append(float(a[2].detach().abs().min())))
    )
    rows = data["index"][m]
    net(data["X"][rows], None if data["mask"] is None else data["mask"][rows])
    hook.remove()
    return seen[0]


def split(flat: Flat, loss: Tensor, gradient: Tensor) -> Found:
    """The flat gradient tensor by tensor, and the loss."""
    sizes = [int(torch.tensor(shape).prod()) for shape in flat.shapes.values()]
    return {"loss": loss[:, None], **dict(zip(flat.shapes, gradient.split(sizes, 1), strict=True))}


def step_twin(flat: Flat, data: dict[str, Any], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Loss and gradient by autograd through the collapsed model, which pools in plain PyTorch in float64."""
    data = as_dtype(data, dtype)
    theta = data["theta"].requires_grad_()
    out = forward_collapsed(flat, theta, data["X"], data["index"], data["mask"], data["betas"])
    loss = (out - data["y"]).square().mean((1, 2))
    (gradient,) = torch.autograd.grad(loss.sum(), theta)
    return loss.detach(), gradient


def step_ours(flat: Flat, data: dict[str, Any], **tuning: int) -> tuple[Tensor, Tensor]:
    """Loss and gradient by the kernels."""
    from headcount.kernels.step.triton import loss_and_gradient

    spec = flat.spec
    beta = spec.beta if isinstance(spec.beta, float) else spec.head_dim**-0.5
    beta = beta if data["betas"] is None else data["betas"]
    places, gelu = tuple(int(o) for o in flat.offsets()), spec.feedforward == "gelu2"
    return loss_and_gradient(
        data["theta"], places, flat.sizes(), gelu, beta, data["X"], data["index"], data["y"], data["mask"], **tuning
    )


def adam_error(step: Callable[..., None], device: str = "cpu") -> tuple[float, bool]:
    """The largest error of three steps in float32 against float64, in units of what is added; whether the dead rest.

    A sum may cancel, so each result is compared with the sizes of its terms.
    """
    from headcount.kernels.adam.plain import adam_plain

    g = torch.Generator().manual_seed(5)
    theta, first, grads = (torch.randn(5, 777, generator=g) for _ in range(3))
    start = [t.to(device) for t in (theta, first, torch.rand(5, 777, generator=g) * torch.rand(5, 1, generator=g))]
    rates = torch.rand(4, 5, generator=g).to(device)
    alive = torch.tensor([True, True, False, True, True], device=device)
    ours, exact, worst = [t.clone() for t in start], [t.double() for t in start], 0.0
    for scale in (1.0, 1e-3, 1e3):
        grad = (scale * grads).to(device)
        sizes = [t.abs() for t in exact]  # the same step with every sign a plus bounds the terms
        adam_plain(sizes[0], grad.double().abs(), sizes[1], sizes[2], rates.double(), alive)
        root = rates[1].double()[:, None]
        adam_plain(exact[0], grad.double(), exact[1], exact[2], rates.double(), alive)
        step(ours[0], grad, ours[1], ours[2], rates, alive)
        pushed = rates[0].double()[:, None] * sizes[1] / (exact[2].sqrt() * root + 1e-8)
        terms = [start[0].double().abs() + exact[0].abs() + pushed, sizes[1], sizes[2]]
        worst = max(worst, *(float(((a - b).abs() / t).max()) for a, b, t in zip(ours, exact, terms, strict=True)))
        exact = [t.double() for t in ours]
        start = [t.clone() for t in ours]
    return worst, all(torch.equal(a[2], b[2]) for a, b in zip(ours, start, strict=True))
