"""The stacked encoder against the reference, one model at a time: values and gradients, every option.

The error of a tensor is relative to its own largest entry: 1e-10 in float64, 1e-5 in float32 against the reference in
float64. Sabotaged twins show that the comparison sees what it is there for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from headcount.core.errors import BadInput
from headcount.kernels.attention.trial import ATTENTION_KERNELS, prefer_attention
from headcount.models.encoder import stacked as encoder_stacked
from headcount.models.encoder.reference import check_inputs, encode
from headcount.models.encoder.spec import (
    EncoderSpec,
    flat_size,
    has_weight_decay,
    initial_weights,
    pack,
    parameter_counts,
    tensor_shapes,
    unpack,
)
from headcount.models.encoder.stacked import forward, split

CLASS = {"heads": 3, "head_dim": 4, "depth": 2, "inputs": 5, "tokens": 8, "outputs": 6, "readout": "class"}
EACH = {"heads": 2, "head_dim": 5, "depth": 2, "inputs": 7, "tokens": 6, "readout": "each", "positions": False}
SPECS = [
    CLASS,
    {**CLASS, "depth": 1, "heads": 1, "inputs": 1},
    {**CLASS, "depth": 3, "tokens": 41, "expansion": 2},  # beyond written scores
    {**CLASS, "positions": False, "tokens": 2},
    EACH,
    {**EACH, "depth": 1, "positions": True, "tokens": 37},
    {**EACH, "depth": 3, "heads": 5, "head_dim": 3},
]
MODELS, BATCH = 3, 4


class Case:
    """A stack with weights away from their start, where no bias is 0 and no gain 1, and a batch for each model."""

    def __init__(self, options: dict[str, Any], masked: bool) -> None:
        self.spec = EncoderSpec(**options)
        rng = torch.Generator().manual_seed(1)
        start = torch.stack([pack(self.spec, initial_weights(self.spec, seed)).double() for seed in range(MODELS)])
        self.theta = start + 0.3 * torch.randn(start.shape, generator=rng, dtype=torch.float64)
        room = (MODELS, BATCH, self.spec.tokens_in)
        self.X = torch.randn(*room, self.spec.inputs, generator=rng, dtype=torch.float64)
        self.mask = None
        if masked:
            self.mask = torch.rand(room, generator=rng) < 0.6
            self.mask[..., 0] = True
        outputs = self.spec.outputs if self.spec.readout == "class" else self.spec.tokens
        self.pull = torch.randn(MODELS, BATCH, outputs, generator=rng, dtype=torch.float64)  # what the gradient is of

    def reference(self, X: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Values and gradients of one model after the other."""
        values, slopes = list[Tensor](), list[Tensor]()
        for m in range(MODELS):
            theta = self.theta[m].clone().requires_grad_()
            rows = self.X[m] if X is None else X
            y = encode(self.spec, unpack(self.spec, theta), rows, None if self.mask is None else self.mask[m])
            values.append(y.detach())
            slopes.append(torch.autograd.grad((y * self.pull[m]).sum(), theta)[0])
        return torch.stack(values), torch.stack(slopes)

    def stacked(self, dtype: torch.dtype, compute: torch.dtype | None = None) -> tuple[Tensor, Tensor]:
        """The same by the stack."""
        theta = self.theta.to(dtype).requires_grad_()
        y = forward(self.spec, theta, self.X.to(dtype), self.mask, dtype=compute)
        (slope,) = torch.autograd.grad((y * self.pull.to(dtype)).sum(), theta)
        return y.detach().double(), slope.double()

    def error(self, found: tuple[Tensor, Tensor], true: tuple[Tensor, Tensor]) -> float:
        """The largest error of values and of each tensor's gradient, relative to the tensor's largest entry.

        A gradient that is 0 but for rounding, as that of a layer norm's shift through the keys, has no size of its own:
        the largest entry of the whole gradient, times 1e-3, stands for it.
        """
        worst = float(((found[0] - true[0]).abs().max()) / true[0].abs().max())
        least = 1e-3 * float(true[1].abs().max())
        slopes = (unpack(self.spec, slope) for slope in (found[1], true[1]))
        for one, other in zip(*(s.values() for s in slopes), strict=True):
            worst = max(worst, float((one - other).abs().max()) / max(least, float(other.abs().max())))
        return worst


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("options", SPECS)
def test_the_stack_is_the_reference(options: dict[str, Any], masked: bool) -> None:
    case = Case(options, masked)
    true = case.reference()
    assert case.error(case.stacked(torch.float64), true) < 1e-10
    assert case.error(case.stacked(torch.float32), true) < 1e-5


@pytest.mark.parametrize("options", SPECS)
def test_bfloat16_keeps_two_digits(options: dict[str, Any]) -> None:
    case = Case(options, True)
    for found, true in zip(case.stacked(torch.float32, torch.bfloat16), case.reference(), strict=True):
        assert 1e-5 < float((found - true).norm() / true.norm()) < 0.04


@pytest.mark.parametrize("options", [CLASS, EACH])
def test_grouping_rows_and_products_changes_nothing(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(options, False)
    true = case.reference()
    monkeypatch.setattr(encoder_stacked, "_MIN_GROUP_ROWS", 2)
    monkeypatch.setattr(encoder_stacked, "_MIN_UNBATCHED_ROWS", 1)
    assert case.error(case.stacked(torch.float64), true) < 1e-10


@pytest.mark.parametrize("options", [CLASS, {**EACH, "depth": 4}])
def test_peak_memory_of_a_step_is_predicted(options: dict[str, Any]) -> None:
    spec = EncoderSpec(**{**options, "heads": 8, "head_dim": 8, "tokens": 65, "depth": 4})
    theta = torch.stack([pack(spec, initial_weights(spec, seed)) for seed in range(2)]).requires_grad_()
    kept = dict[int, int]()

    def note(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        forward(spec, theta, torch.randn(2, 16, spec.tokens_in, spec.inputs))
    held = sum(kept.values()) / 4 - theta.numel()
    assert 0.6 < held / encoder_stacked.step_peak_numbers(spec, 32) < 1.0  # the peak is a little later


def test_shared_inputs_reach_every_model() -> None:
    case = Case(CLASS, False)
    found = forward(case.spec, case.theta, case.X[1])
    assert torch.allclose(found, case.reference(case.X[1])[0], rtol=1e-10, atol=1e-12)


def test_read_positions_are_the_scores_there() -> None:
    case, read = Case(EACH, True), torch.tensor([4, 0, 2])
    whole = forward(case.spec, case.theta, case.X, case.mask)
    assert torch.allclose(forward(case.spec, case.theta, case.X, case.mask, read=read), whole[..., read], rtol=1e-12)


def test_padding_is_ignored() -> None:
    for options in (CLASS, EACH):
        case = Case(options, True)
        assert case.mask is not None
        noise = torch.where(case.mask[..., None], case.X, 1e3 * torch.randn_like(case.X))
        before, after = (forward(case.spec, case.theta, X, case.mask) for X in (case.X, noise))
        if options is EACH:
            before, after = before[case.mask], after[case.mask]
        assert torch.allclose(before, after, rtol=1e-10, atol=1e-10)


def test_a_dropped_block_adds_nothing_and_a_kept_one_more() -> None:
    spec = EncoderSpec(**{**EACH, "dropout": 0.5})
    case = Case({**EACH, "dropout": 0.5}, False)
    asked = list[torch.Size]()

    def mask(kept: float) -> Callable[[torch.Size, torch.dtype], Tensor]:
        def make(shape: torch.Size, dtype: torch.dtype) -> Tensor:
            asked.append(shape)
            return torch.full(shape, kept, dtype=dtype)

        return make

    for kept, times in ((0.0, 0.0), (1.0, 2.0)):
        found = forward(spec, case.theta, case.X, draw_mask=mask(kept))
        true = torch.stack(
            [
                encode(spec, unpack(spec, case.theta[m]), case.X[m], drop=lambda added, t=times: t * added)
                for m in range(MODELS)
            ]
        )
        assert torch.allclose(found, true, rtol=1e-10, atol=1e-12)
    assert len(asked) == 4 * spec.depth
    assert torch.equal(forward(spec, case.theta, case.X), forward(case.spec, case.theta, case.X))


def _wrong_heads(spec: EncoderSpec, theta: Tensor) -> dict[str, Tensor]:
    """Numbers of a head taken for heads: the split [n, h] instead of [h, n]."""
    w = split(spec, theta)
    for name in [name for name in w if name.endswith(".maps")]:
        w[name] = w[name].reshape(len(theta), 3, spec.head_dim, spec.heads, -1).transpose(2, 3)
    return w


def _swapped(spec: EncoderSpec, theta: Tensor) -> dict[str, Tensor]:
    """Keys for queries and queries for keys."""
    w = split(spec, theta)
    return {n: t[:, [1, 0, 2]] if n.endswith(".maps") else t for n, t in w.items()}


def _next_model(spec: EncoderSpec, theta: Tensor) -> dict[str, Tensor]:
    """The feed-forward weights of the model beside it."""
    return {n: t.roll(1, 0) if n.endswith("inner.weight") else t for n, t in split(spec, theta).items()}


def _no_shift(w: dict[str, Tensor], norm: str, weight: Tensor) -> tuple[Tensor, Tensor]:
    return weight * w[f"{norm}.weight"][:, None], torch.zeros_like(weight[:, :, 0])


@pytest.mark.parametrize("options", [CLASS, EACH])
@pytest.mark.parametrize(
    ("name", "twin"),
    [
        ("split", _wrong_heads),
        ("split", _swapped),
        ("split", _next_model),
        ("_fold_norm", _no_shift),
        ("_normalise", lambda u: nn.functional.layer_norm(u, u.shape[-1:], eps=1e-2)),
    ],
)
def test_sabotage_is_detected(
    options: dict[str, Any], name: str, twin: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(options, False)
    true = case.reference()
    monkeypatch.setattr(encoder_stacked, name, twin)
    assert case.error(case.stacked(torch.float64), true) > 1e-4


def test_an_attention_kernel_is_preferred_by_name() -> None:
    case = Case({**CLASS, "tokens": 41}, False)
    true = case.reference()
    for name in (None, *ATTENTION_KERNELS):  # where a kernel does not apply, another takes its place
        with prefer_attention(name):
            assert case.error(case.stacked(torch.float64), true) < 1e-10
    with (
        pytest.raises(BadInput, match="attention kernel 'flush': did you mean 'flash'"),
        prefer_attention("flush"),
    ):
        pass


def test_weights_have_their_own_random_streams() -> None:
    spec, deeper = EncoderSpec(**CLASS), EncoderSpec(**{**CLASS, "depth": 5, "tokens": 9})
    one, other = initial_weights(spec, 3), initial_weights(deeper, 3)
    assert list(one) == list(tensor_shapes(spec))
    assert all(tensor.dtype == torch.float32 for tensor in one.values())
    same = "layers.0.attention.query"  # no deeper model, no longer sequence changes it
    assert torch.equal(one[same], other[same])
    assert not torch.equal(one[same], initial_weights(spec, 4)[same])
    assert not torch.equal(one["layers.0.attention.query"], one["layers.0.attention.key"])
    assert abs(float(initial_weights(EncoderSpec(**{**CLASS, "heads": 40}), 0)[same].std()) * math.sqrt(160) - 1) < 0.05


def test_flat_vectors_and_counts() -> None:
    spec = EncoderSpec(**CLASS)
    weights = initial_weights(spec, 0)
    theta = pack(spec, weights)
    assert len(theta) == flat_size(spec) == parameter_counts(spec)["total"]
    assert all(torch.equal(weights[name], part) for name, part in unpack(spec, theta).items())
    E = 12
    attention = spec.depth * (4 * E * E + 2 * E)  # four maps of E × E, and the norm before them
    assert parameter_counts(spec)["paper"] == parameter_counts(spec)["total"] - attention
    pulled = {name for name in tensor_shapes(spec) if has_weight_decay(name)}
    assert pulled == {name for name, shape in tensor_shapes(spec).items() if len(shape) > 1} - {"position"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({**EACH, "outputs": 2}, "outputs must be 1"),
        ({**CLASS, "tokens": 1}, "tokens must be at least 2"),
        ({**CLASS, "dropout": 1.0}, "dropout"),
        ({**CLASS, "headss": 1}, "heads"),
    ],
)
def test_bad_specs_give_a_one_line_error(options: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words) as told:
        EncoderSpec(**options)
    assert "\n" not in str(told.value)


def test_bad_inputs_give_a_one_line_error() -> None:
    case = Case(EACH, True)
    assert case.mask is not None
    with pytest.raises(BadInput, match="takes X"):
        forward(case.spec, case.theta, case.X[..., :-1, :])
    with pytest.raises(BadInput, match="mask must be bool"):
        check_inputs(case.spec, case.X, case.mask[:, :, :-1])  # `forward` itself has its shapes checked in the tests
    with pytest.raises(BadInput, match="at least one token"):
        forward(case.spec, case.theta, case.X, torch.zeros_like(case.mask))
