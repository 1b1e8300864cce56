"""The attention layer with free heads against nn.MultiheadAttention, option by option."""

from __future__ import annotations

import itertools

import pytest
import torch
from attention_cases import BATCH, CLOSE, EMBED, HEADS, KEYS, MASKS, QUERIES, causal, inputs, masks, pair, results, same
from torch import nn

from headcount import Attention


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("layout", ["batch first", "batch second", "unbatched"])
def test_masks_and_layouts(mask, need_weights, layout):
    batched, first = layout != "unbatched", layout == "batch first"
    theirs, ours = pair(batch_first=first)
    given = inputs(batch_first=first, batched=batched)
    for average in (True, False) if need_weights else (True,):
        options = {**masks(mask, batched=batched), "need_weights": need_weights, "average_attn_weights": average}
        same(theirs, ours, given, **options)


OPTIONS = list(itertools.product([True, False], [True, False], [True, False], [(None, None), (4, None), (7, 2)]))


@pytest.mark.parametrize(("bias", "bias_kv", "zero", "dims"), OPTIONS)
@pytest.mark.parametrize("need_weights", [True, False])
def test_constructor_options(bias, bias_kv, zero, dims, need_weights):
    kdim, vdim = dims
    theirs, ours = pair(bias=bias, add_bias_kv=bias_kv, add_zero_attn=zero, kdim=kdim, vdim=vdim)
    given = inputs(kdim=kdim or EMBED, vdim=vdim or EMBED)
    for mask in ("none", "both", "each head floats"):
        same(theirs, ours, given, **masks(mask), need_weights=need_weights)


@pytest.mark.parametrize("heads", [2, 3])  # an even count takes torch's fused kernel
@pytest.mark.parametrize("need_weights", [True, False])
def test_self_attention_in_eval_without_gradients(heads, need_weights):
    theirs = nn.MultiheadAttention(EMBED, heads, dropout=0.5, batch_first=True, dtype=torch.float64).eval()
    ours, x = Attention.from_torch(theirs), inputs()[0]
    hidden = torch.zeros(BATCH, QUERIES, dtype=torch.bool)
    hidden[1, 2:] = True
    with torch.no_grad():
        for padding in (None, hidden):
            for mine, other in zip(*(m(x, x, x, padding, need_weights) for m in (ours, theirs)), strict=True):
                torch.testing.assert_close(mine, other, **CLOSE)


@pytest.mark.parametrize("need_weights", [True, False])
def test_dropout_draws_what_torch_draws(need_weights):
    theirs, ours = pair(dropout=0.4)
    found = []
    for layer in (theirs.train(), ours.train()):
        torch.manual_seed(5)
        found.append(layer(*inputs(), need_weights=need_weights))
    for mine, other in zip(*found, strict=True):
        torch.testing.assert_close(mine, other, **CLOSE)
    still = ours.eval()(*inputs(), need_weights=need_weights)[0]
    assert not torch.allclose(found[0][0], still)
    assert torch.equal(still, ours(*inputs(), need_weights=need_weights)[0])


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("extra", [{}, {"add_bias_kv": True}, {"add_zero_attn": True}])
@pytest.mark.parametrize("head_dim", [1, 2, 5])
def test_both_paths_agree(mask, extra, head_dim):
    torch.manual_seed(3)
    layer = Attention(EMBED, HEADS, batch_first=True, head_dim=head_dim, dtype=torch.float64, **extra)
    plain = results(layer, inputs(), **masks(mask))[0]
    fast = results(layer, inputs(), **masks(mask), need_weights=False)[0]
    torch.testing.assert_close(plain, fast, **CLOSE)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("need_weights", [True, False])
def test_the_causal_hint(padded, need_weights):
    theirs, ours = pair()
    given = [inputs()[1]] * 3
    padding = masks("padding")["key_padding_mask"] if padded else None
    options = {"attn_mask": causal(KEYS, KEYS), "key_padding_mask": padding, "need_weights": need_weights}
    same(theirs, ours, given, **options, is_causal=True)
    hinted, plain = (ours(*given, **options, is_causal=hint)[0] for hint in (True, False))
    torch.testing.assert_close(hinted, plain, **CLOSE)


@pytest.mark.parametrize("extra", [{"add_bias_kv": True}, {"add_zero_attn": True}])
def test_the_causal_hint_does_not_hide_added_keys(extra):
    theirs, ours = pair(**extra)  # torch's kernel hides them under the hint, against torch's own mask
    x = inputs()[1]
    options = {"attn_mask": causal(KEYS, KEYS), "need_weights": False}
    expected = theirs(x, x, x, **options)[0]
    for hint in (True, False):
        torch.testing.assert_close(ours(x, x, x, **options, is_causal=hint)[0], expected, **CLOSE)


@pytest.mark.parametrize("kind", ["bool", "float"])
def test_a_query_without_visible_keys_behaves_as_in_torch(kind):
    theirs, ours = pair()
    hidden = torch.zeros(QUERIES, KEYS, dtype=torch.bool)
    hidden[2] = True
    mask = hidden if kind == "bool" else torch.zeros(QUERIES, KEYS, dtype=torch.float64).masked_fill(hidden, -torch.inf)
    for need_weights in (True, False):
        (mine, w), (other, v) = (m(*inputs(), attn_mask=mask, need_weights=need_weights) for m in (ours, theirs))
        torch.testing.assert_close(mine, other, **CLOSE, equal_nan=True)
        assert not mine[:, [0, 1, 3]].isnan().any()
        if need_weights:
            torch.testing.assert_close(w, v, **CLOSE, equal_nan=True)
            assert mine[:, 2].isnan().all()
        else:
            torch.testing.assert_close(mine[:, 2], ours.o_bias.expand(BATCH, -1), **CLOSE)
    out = ours(*inputs(), attn_mask=mask, need_weights=False)[0]
    out.sum().backward()
    assert all(p.grad.isfinite().all() for p in ours.parameters())


def swapped(theirs: nn.MultiheadAttention, name: str) -> Attention:
    """Ours with the heads of one weight in another order, or with head and number mixed up."""
    ours = Attention.from_torch(theirs)
    with torch.no_grad():
        if name == "mixed":
            h, n = theirs.num_heads, theirs.head_dim
            ours.q_weight.copy_(theirs.in_proj_weight[:EMBED].unflatten(0, (n, h)).transpose(0, 1))
        else:
            weight = ours.get_parameter(name)
            weight.copy_(weight.flip(0).clone())
    return ours


@pytest.mark.parametrize(
    "name",
    ["q_weight", "k_weight", "v_weight", "o_weight", "q_bias", "k_bias", "v_bias", "bias_k", "bias_v", "mixed"],
)
def test_a_wrong_order_of_heads_is_noticed(name):
    theirs, ours = pair(add_bias_kv=True)
    same(theirs, ours, inputs())
    with pytest.raises(AssertionError):
        same(theirs, swapped(theirs, name), inputs())


def test_a_wrong_scale_or_sign_of_the_mask_is_noticed():
    theirs, ours = pair()
    ours.head_dim += 1
    with pytest.raises(AssertionError):
        same(theirs, ours, inputs())
    theirs, ours = pair()
    given, hidden = inputs(), masks("padding")["key_padding_mask"]
    assert not torch.allclose(ours(*given, hidden)[0], theirs(*given, ~hidden)[0])
