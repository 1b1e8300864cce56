"""The attention layer by itself: free heads, weights in and out, heads removed, and what is refused."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from attention_cases import BATCH, CLOSE, EMBED, HEADS, KEYS, QUERIES, causal, inputs, pair
from torch import Tensor, nn

from headcount import Attention, BadInput


def by_hand(layer: Attention, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Head by head, in loops: the formula at the top of the module."""
    out = torch.zeros(query.shape[0], layer.embed_dim, dtype=query.dtype)
    for i in range(layer.num_heads):
        k = [layer.k_weight[i] @ z + layer.k_bias[i] for z in key]
        v = [layer.v_weight[i] @ z + layer.v_bias[i] for z in value]
        for t, x in enumerate(query):
            q = layer.q_weight[i] @ x + layer.q_bias[i]
            r = torch.stack([(q @ kk) / math.sqrt(layer.head_dim) for kk in k])
            a = torch.exp(r - r.max()) / torch.exp(r - r.max()).sum()
            out[t] += layer.o_weight[i] @ sum(w * vv for w, vv in zip(a, v, strict=True))
    return out + layer.o_bias


@pytest.mark.parametrize(("heads", "head_dim"), [(1, 1), (4, 2), (5, 3), (7, 9)])
def test_free_heads(heads, head_dim):
    torch.manual_seed(4)
    layer = Attention(EMBED, heads, head_dim=head_dim, kdim=4, vdim=3, dtype=torch.float64)
    assert layer.q_weight.shape == (heads, head_dim, EMBED)
    assert layer.o_weight.shape == (heads, EMBED, head_dim)
    for p in layer.parameters():
        nn.init.normal_(p)
    given = inputs(batched=False, kdim=4, vdim=3)
    torch.testing.assert_close(layer(*given)[0], by_hand(layer, *given), **CLOSE)
    assert f"num_heads={heads}, head_dim={head_dim}" in repr(layer)
    with pytest.raises(ValueError, match=rf"but {heads} · {head_dim} is not 6"):
        layer.to_torch()


@pytest.mark.parametrize("options", [{}, {"kdim": 4, "vdim": 9}, {"bias": False}, {"add_bias_kv": True}])
def test_the_same_seed_draws_the_weights_of_torch(options):
    torch.manual_seed(9)
    theirs = nn.MultiheadAttention(EMBED, HEADS, **options)
    after = torch.rand(3)
    torch.manual_seed(9)
    ours = Attention(EMBED, HEADS, **options)
    assert torch.equal(torch.rand(3), after)
    for name, p in Attention.from_torch(theirs).state_dict().items():
        assert torch.equal(ours.state_dict()[name], p), name


@pytest.mark.parametrize("options", [{}, {"kdim": 4}, {"bias": False, "batch_first": False}, {"add_bias_kv": True}])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_conversion_to_torch_and_back_is_exact(options, dtype):
    theirs = pair(add_zero_attn=True, dropout=0.25, **options)[0].to(dtype).eval()
    theirs.out_proj.weight.requires_grad_(False)
    state = torch.random.get_rng_state()
    ours = Attention.from_torch(theirs)
    back = ours.to_torch()
    assert torch.equal(torch.random.get_rng_state(), state)  # nothing is drawn for weights that are replaced
    assert list(back.state_dict()) == list(theirs.state_dict())
    assert all(torch.equal(p, q) for p, q in zip(back.parameters(), theirs.parameters(), strict=True))
    frozen = {name for name, p in ours.named_parameters() if not p.requires_grad}
    assert frozen == {"o_weight"}
    assert [p.requires_grad for p in back.parameters()] == [p.requires_grad for p in theirs.parameters()]
    for name in ("embed_dim", "num_heads", "head_dim", "kdim", "vdim", "dropout", "batch_first", "add_zero_attn"):
        assert getattr(ours, name) == getattr(back, name) == getattr(theirs, name)
    assert not ours.training
    assert not back.training
    before = ours.q_weight.clone()
    theirs.load_state_dict({name: p + 1 for name, p in theirs.state_dict().items()})
    assert torch.equal(ours.q_weight, before)  # a copy


def test_state_dict_and_deepcopy():
    torch.manual_seed(6)
    options = {"head_dim": 4, "add_bias_kv": True, "dtype": torch.float64, "batch_first": True}
    layer, other = Attention(EMBED, HEADS, **options), Attention(EMBED, HEADS, **options)
    expected = layer(*inputs())[0]
    assert not torch.allclose(other(*inputs())[0], expected)
    other.load_state_dict(layer.state_dict())
    twin = copy.deepcopy(layer)
    nn.init.zeros_(layer.o_weight)
    assert torch.equal(other(*inputs())[0], expected)
    assert torch.equal(twin(*inputs())[0], expected)


@pytest.mark.parametrize("gone", [[0], [2], [1, 3], [0, 1, 2], [], [1, 1]])
@pytest.mark.parametrize("head_dim", [2, 5])
def test_removing_heads_equals_zeroing_them(gone, head_dim):
    torch.manual_seed(7)
    layer = Attention(8, 4, head_dim=head_dim, add_bias_kv=True, batch_first=True, dtype=torch.float64).eval()
    for p in layer.parameters():
        nn.init.normal_(p)
    x = torch.randn(2, 5, 8, dtype=torch.float64)
    smaller, silent = layer.without_heads(gone), copy.deepcopy(layer)
    with torch.no_grad():
        silent.o_weight[gone] = 0.0
    for need_weights in (True, False):
        out, weights = smaller(x, x, x, need_weights=need_weights, average_attn_weights=False)
        expected, all_weights = silent(x, x, x, need_weights=need_weights, average_attn_weights=False)
        torch.testing.assert_close(out, expected, **CLOSE)
        if need_weights:
            kept = [i for i in range(4) if i not in gone]
            torch.testing.assert_close(weights, all_weights[:, kept], **CLOSE)
    a_head = head_dim * (4 * 8 + 3 + 2)
    count = lambda m: sum(p.numel() for p in m.parameters())  # noqa: E731
    assert count(layer) - count(smaller) == len(set(gone)) * a_head
    assert smaller.num_heads == 4 - len(set(gone))
    assert not smaller.training
    assert smaller.q_weight.requires_grad
    if gone:
        wrong = layer.without_heads([(gone[0] + 1) % 4, *gone[1:]])
        assert not torch.allclose(wrong(x, x, x)[0], silent(x, x, x)[0])


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("layout", ["batch first", "batch second", "unbatched"])
def test_a_hook_can_replace_head_outputs(need_weights, layout):
    torch.manual_seed(7)
    layer = Attention(EMBED, HEADS, head_dim=4, batch_first=layout == "batch first", dtype=torch.float64)
    given = inputs(batch_first=layer.batch_first, batched=layout != "unbatched")
    silent, other = copy.deepcopy(layer), copy.deepcopy(layer)
    with torch.no_grad():
        silent.o_weight[1], other.o_weight[2] = 0.0, 0.0
    shapes = []

    def silence(_module, _inputs, o):
        shapes.append(list(o.shape))
        return o * torch.tensor([1.0, 0.0, 1.0])[:, None, None]

    hook = layer.head_outputs.register_forward_hook(silence)
    found = layer(*given, need_weights=need_weights)[0]
    hook.remove()
    assert shapes == [[1 if layout == "unbatched" else BATCH, HEADS, QUERIES, 4]]
    torch.testing.assert_close(found, silent(*given)[0], **CLOSE)
    assert not torch.allclose(found, other(*given)[0])
    assert not torch.allclose(found, layer(*given)[0])
    assert not any("head_outputs" in name for name in layer.state_dict())


def test_a_mask_for_all_former_heads_fits_after_removal():
    torch.manual_seed(7)
    layer = Attention(EMBED, 4, head_dim=2, batch_first=True, dtype=torch.float64)
    mask = torch.randn(BATCH * 4, QUERIES, KEYS, dtype=torch.float64)
    smaller = layer.without_heads([1]).without_heads([2])  # its third head is the layer's last
    assert (smaller.heads_before, smaller.kept_heads) == (4, (0, 2))
    own = mask.unflatten(0, (BATCH, 4))[:, [0, 2]].flatten(0, 1)
    given = inputs()
    expected = smaller(*given, attn_mask=own)[0]
    assert torch.equal(smaller(*given, attn_mask=mask)[0], expected)
    assert torch.equal(copy.deepcopy(smaller)(*given, attn_mask=mask)[0], expected)
    turned = mask.unflatten(0, (BATCH, 4)).roll(1, 1).flatten(0, 1)
    assert not torch.allclose(smaller(*given, attn_mask=turned)[0], expected)
    with pytest.raises(BadInput, match=r"= \[6, 4, 5\]; got \[9, 4, 5\]"):
        smaller(*given, attn_mask=mask[:9])


@pytest.mark.parametrize("options", [{}, {"kdim": 4, "vdim": 7}, {"bias": False}, {"add_bias_kv": True}])
def test_weights_can_be_shared_with_the_layer_of_torch(options):
    theirs = pair(**options)[0]
    theirs.out_proj.weight.requires_grad_(False)
    ours = Attention.from_torch(theirs, copy=False)
    assert {name for name, p in ours.named_parameters() if not p.requires_grad} == {"o_weight"}
    with torch.no_grad():
        for p in theirs.parameters():
            p.add_(1.0)
    fresh = Attention.from_torch(theirs)
    assert all(torch.equal(p, q) for p, q in zip(ours.parameters(), fresh.parameters(), strict=True))
    storages = {p.untyped_storage().data_ptr() for p in theirs.parameters()}
    assert {p.untyped_storage().data_ptr() for p in ours.parameters()} == storages
    assert not storages & {p.untyped_storage().data_ptr() for p in fresh.parameters()}


@pytest.mark.parametrize("name", ["in_proj_weight", "out_proj.weight"])
def test_parametrized_weights_are_read_as_torch_uses_them(name):
    theirs, plain = pair()
    owner, _, own = name.rpartition(".")
    nn.utils.parametrizations.spectral_norm(theirs.get_submodule(owner), own)
    theirs.eval()
    ours = Attention.from_torch(theirs)
    torch.testing.assert_close(ours(*inputs())[0], theirs(*inputs())[0], **CLOSE)
    assert not torch.allclose(plain(*inputs())[0], theirs(*inputs())[0])


STORED = [{}, {"kdim": 4, "vdim": 7}, {"bias": False}, {"add_bias_kv": True}]


@pytest.mark.parametrize("options", STORED)
def test_a_state_dict_of_torchs_layer_is_read(options):
    theirs, ours = pair(**options)
    whole = nn.ModuleDict({"inner": nn.Sequential(Attention(EMBED, HEADS, dtype=torch.float64, **options))})
    stored = {f"inner.0.{name}": weight for name, weight in theirs.state_dict().items()}
    names = list(stored)
    whole.load_state_dict(stored)
    assert list(stored) == names  # the caller's own is left as it is
    assert all(torch.equal(p, q) for p, q in zip(whole.parameters(), ours.parameters(), strict=True))


def test_a_state_dict_of_other_sizes_is_rejected():
    stored = pair()[0].state_dict()
    with pytest.raises(RuntimeError, match=r"Missing key.*q_weight"):
        Attention(EMBED, HEADS, head_dim=5).load_state_dict(stored)
    with pytest.raises(RuntimeError, match=r"Missing key.*q_weight"):
        Attention(EMBED, HEADS).load_state_dict({name: w for name, w in stored.items() if name != "in_proj_weight"})
    with pytest.raises(RuntimeError, match="size mismatch for q_weight"):
        Attention(2 * EMBED, HEADS, head_dim=2).load_state_dict(stored)
    ours = pair()[1]
    with pytest.raises(RuntimeError, match=r"Unexpected key.*in_proj_weight"):
        ours.load_state_dict({**ours.state_dict(), **stored})


def test_it_replaces_attention_in_the_layers_of_torch():
    torch.manual_seed(8)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dtype=torch.float64)
    whole = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    changed = copy.deepcopy(whole)
    for each in changed.layers:
        each.self_attn = Attention.from_torch(each.self_attn)
    x, hidden = torch.randn(2, 5, 8, dtype=torch.float64), torch.zeros(2, 5, dtype=torch.bool)
    hidden[1, 3:] = True
    for options in ({}, {"src_key_padding_mask": hidden}, {"mask": causal(5, 5), "is_causal": True}):
        for context in (torch.no_grad, torch.enable_grad):
            with context():
                mine, other = changed(x, **options), whole(x, **options)
            torch.testing.assert_close(mine[~hidden], other[~hidden], **CLOSE)


@pytest.mark.parametrize(
    ("sizes", "options", "line"),
    [
        ((10, 3), {}, "3 heads do not divide embed_dim 10: give head_dim"),
        ((0, 3), {}, "embed_dim must be at least 1, not 0"),
        ((6, 0), {}, "num_heads must be at least 1, not 0"),
        ((6, -2), {"head_dim": 2}, "num_heads must be at least 1, not -2"),
        ((6, 3), {"head_dim": 0}, "head_dim must be at least 1, not 0"),
        ((6, 3), {"kdim": 0}, "kdim must be at least 1"),
        ((6, 3), {"dropout": 1.5}, "dropout must be between 0 and 1, not 1.5"),
    ],
)
def test_bad_sizes_are_rejected(sizes, options, line):
    with pytest.raises(BadInput, match=line) as caught:
        Attention(*sizes, **options)
    assert isinstance(caught.value, ValueError)
    assert "\n" not in str(caught.value)


def _zeros(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.zeros(shape, dtype=dtype)


QUERY, KEY = (3, 4, 6), (3, 5, 6)


@pytest.mark.parametrize(
    ("shapes", "options", "line"),
    [
        (((6,), (6,), (6,)), {}, r"three axes, or two without a batch; got query \[6\], key \[6\], value \[6\]"),
        ((QUERY, (5, 6), (5, 6)), {}, "three axes, or two"),
        (((4, 6), (1, 5, 6), (1, 5, 6)), {}, "three axes, or two"),
        (((3, 4, 7), KEY, KEY), {}, r"must be \(6, 6, 6\); got query \[3, 4, 7\]"),
        ((QUERY, KEY, (3, 4, 6)), {}, r"the same length, and all the same batch \(batch first\)"),
        ((QUERY, (2, 5, 6), (2, 5, 6)), {}, "all the same batch"),
        (
            (QUERY, KEY, KEY),
            {"key_padding_mask": _zeros(3, 4)},
            r"key_padding_mask must be \[batch, keys\] = \[3, 5\], .*got \[3, 4\]",
        ),
        ((QUERY, KEY, KEY), {"key_padding_mask": _zeros(5)}, "key_padding_mask must be"),
        ((QUERY, KEY, KEY), {"attn_mask": _zeros(5, 4)}, r"\[4, 5\] or .* = \[9, 4, 5\]; got \[5, 4\]"),
        ((QUERY, KEY, KEY), {"attn_mask": _zeros(3, 4, 5)}, r"got \[3, 4, 5\]"),
        (
            (QUERY, KEY, KEY),
            {"attn_mask": _zeros(4, 5, dtype=torch.int64)},
            "floating point, not torch.int64",
        ),
        ((QUERY, KEY, KEY), {"is_causal": True}, "pass attn_mask as well"),
    ],
)
def test_bad_inputs_are_rejected(shapes, options, line):
    layer = Attention(6, 3, batch_first=True, dtype=torch.float64)
    with pytest.raises(BadInput, match=line) as caught:
        layer(*(_zeros(*shape) for shape in shapes), **options)
    assert isinstance(caught.value, ValueError)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("gone", [[3], [-1], [0, 1, 2], [5]])
def test_heads_that_cannot_be_removed(gone):
    layer = Attention(6, 3)
    with pytest.raises(BadInput, match="must be from 0 to 2, and one must stay"):
        layer.without_heads(gone)
