"""The reference transformer against an independent evaluation of equation 4, over random shapes and options."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from headcount import BadInput, ModelSpec, Transformer
from results import write_result
from twins import parameter_counts, transformer


def random_spec(rng: np.random.Generator) -> ModelSpec:
    pick = lambda *options: options[rng.integers(len(options))]  # noqa: E731
    size = lambda low, high: int(rng.integers(low, high + 1))  # noqa: E731
    return ModelSpec(
        dim=size(1, 4),
        length=size(1, 9),
        out_dim=size(1, 3),
        heads=size(1, 7),
        head_dim=size(1, 5),
        hidden=size(1, 12),
        width=pick(None, size(1, 11)),
        hidden_ff=pick(None, size(1, 9)),
        depth=pick(1, 1, 2, 3),
        positions=pick("none", "additive", "concatenated", "gates"),
        beta=pick("scaled", "learned", 0.1, 3.0, 300.0),
        class_key=pick(False, True),
        feedforward=pick("gelu2", "relu2", "relu5"),
        layer_norm=pick(False, True),
        residual=pick(False, True),
    )


def shaken(spec: ModelSpec, rng: np.random.Generator) -> Transformer:
    """A model whose every weight matters: also those that start at zero or one."""
    model = Transformer(spec, seed=int(rng.integers(1000)), dtype=torch.float64)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.from_numpy(0.3 * rng.standard_normal(tuple(p.shape))))
    return model


def worst_error(seed: int) -> tuple[ModelSpec, float, float]:
    """Return a random spec, its error against the twin, and the error of a twin with one weight moved."""
    rng = np.random.default_rng(seed)
    spec = random_spec(rng)
    model = shaken(spec, rng)
    X = rng.standard_normal((3, spec.length, spec.dim)) * 2
    y = model(torch.from_numpy(X)).detach().numpy()
    weights = {name: t.detach().numpy() for name, t in model.tensors()}
    twin = np.array([transformer(weights, spec.data(), x) for x in X])
    spoiled = {
        **weights,
        "layers.0.feedforward.layers.1.bias": weights["layers.0.feedforward.layers.1.bias"] + 1e-6,
    }
    other = np.array([transformer(spoiled, spec.data(), x) for x in X])
    scale = max(1.0, float(np.abs(y).max()))
    return spec, float(np.abs(y - twin).max()) / scale, float(np.abs(y - other).max()) / scale


@pytest.mark.parametrize("seed", range(40))
def test_equation_4(seed: int) -> None:
    spec, error, _ = worst_error(seed)
    assert error < 1e-12, spec


def test_comparison_can_fail() -> None:
    seen = [worst_error(seed)[2] for seed in range(12)]
    assert sum(e > 1e-9 for e in seen) >= 10  # one bias moved by 1e-6 shows, but behind dead ReLUs


@pytest.mark.slow
def test_equation_4_many() -> None:
    errors = [worst_error(seed)[1] for seed in range(2000)]
    write_result(
        "reference",
        {"largest_error": max(errors), "models": len(errors), "bound": 1e-12},
        seeds=[0, 1999],
        counts={"models": len(errors), "within": sum(e < 1e-12 for e in errors)},
    )
    assert max(errors) < 1e-12


@pytest.mark.parametrize("seed", range(20))
def test_counts(seed: int) -> None:
    spec = random_spec(np.random.default_rng(seed))
    assert Transformer(spec).counts() == parameter_counts(spec.data())


def test_paper_count_by_hand() -> None:
    """The paper's cell d = 4, h = 4, n = 8, N = 32: P has 4·32+32+32·32+32, F has 32·32+32+32+1."""
    counts = Transformer(ModelSpec(dim=4, length=8, heads=4, head_dim=8, hidden=32)).counts()
    assert counts == {"paper": 1216 + 1089, "total": 1216 + 1089 + 4 * 4 * 8 * 32 + 32}


@pytest.mark.parametrize("positions", ["none", "additive", "concatenated"])
@pytest.mark.parametrize("class_key", [False, True])
def test_mask_equals_shorter_sequence(positions: str, class_key: bool) -> None:
    rng = np.random.default_rng(0)
    spec = ModelSpec(
        dim=2,
        length=6,
        heads=3,
        head_dim=2,
        hidden=8,
        depth=2,
        residual=True,
        positions=positions,
        class_key=class_key,
    )
    model = shaken(spec, rng)
    X = torch.from_numpy(rng.standard_normal((4, 6, 2)))
    mask = torch.tensor([[True] * k + [False] * (6 - k) for k in (1, 3, 5, 6)])
    y = model(X, mask)
    weights = {name: t.detach().numpy() for name, t in model.tensors()}
    for row, k in enumerate((1, 3, 5, 6)):
        twin = transformer(weights, spec.data(), X[row, :k].numpy())
        assert np.abs(y[row].detach().numpy() - twin).max() < 1e-12
        changed = X.clone()
        changed[row, k:] = 7.0
        assert torch.equal(model(changed, mask)[row], y[row])


def test_saturated_softmax_is_a_minimum() -> None:
    """With a large beta a head returns the value at its best token: the reference stays finite and exact there."""
    spec = ModelSpec(dim=1, length=5, heads=1, head_dim=1, hidden=1, beta=1e6, feedforward="relu2")
    model = Transformer(spec, dtype=torch.float64)
    with torch.no_grad():
        for p in model.parameters():
            p.fill_(0.0)
        model.class_token.fill_(1.0)
        for p in (model.encoder.inner.weight, model.encoder.outer.weight):
            p.fill_(1.0)
        attention = model.layers[0].attention
        attention.query.fill_(-1.0)
        for p in (attention.key, attention.value, attention.output):
            p.fill_(1.0)
        for layer in model.layers[0].feedforward.layers:
            layer.weight.fill_(1.0)
    X = torch.rand(50, 5, 1, dtype=torch.float64)
    assert torch.allclose(model(X)[:, 0], 1.0 + X.amin(1)[:, 0], atol=1e-5)


def test_heads_permute_and_equal_heads_average() -> None:
    spec = ModelSpec(dim=3, length=6, heads=4, head_dim=3, hidden=9, positions="gates", beta="learned")
    model = shaken(spec, np.random.default_rng(1))
    X = torch.randn(5, 6, 3, dtype=torch.float64)
    y = model(X)
    order = torch.tensor([2, 0, 3, 1])
    with torch.no_grad():
        for p in model.layers[0].attention.parameters():
            p.copy_(p[order])
    assert torch.allclose(model(X), y, atol=1e-13)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("heads", 0),
        ("heads", -1),
        ("heads", 2.5),
        ("heads", True),
        ("head_dim", 0),
        ("hidden", 0),
        ("width", 0),
        ("depth", 0),
        ("beta", 0.0),
        ("beta", float("nan")),
        ("beta", float("inf")),
        ("beta", "cold"),
        ("positions", "rotary"),
        ("feedforward", "gelu5"),
    ],
)
def test_bad_specs(key: str, value: object) -> None:
    with pytest.raises(BadInput, match=key) as caught:
        ModelSpec(**{"dim": 2, "length": 4, "heads": 2, key: value})
    assert "\n" not in str(caught.value)


def test_unknown_key_names_the_nearest() -> None:
    with pytest.raises(BadInput, match="'head_dims'.*did you mean 'head_dim'"):
        ModelSpec(dim=2, length=4, heads=2, head_dims=3)


def test_wrong_input_gives_a_one_line_error() -> None:
    model = Transformer(ModelSpec(dim=2, length=4, heads=2, positions="gates"))
    with pytest.raises(BadInput, match=r"X\[batch, 4, 2\]"):
        model(torch.zeros(1, 5, 2))
    with pytest.raises(BadInput, match="mask"):
        model(torch.zeros(1, 4, 2), torch.zeros(1, 4, dtype=torch.bool))
