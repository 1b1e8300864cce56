"""From advice to code: sizes that divide, exact parameter counts, source that runs, one line for bad numbers."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from record_cases import VERDICTS, made_record
from torch import nn

import headcount as hc
from headcount.advisor.configuration import Configuration, configuration, free_sizes, torch_sizes


def built(found: Configuration) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(found.code, names)
    return names


def parameters(layer: nn.Module) -> int:
    return sum(p.numel() for p in layer.parameters())


@pytest.mark.parametrize("embed_dim", [None, 10, 12, 64, 768, 9, 6])
def test_the_code_runs_and_both_layers_take_the_same_call(embed_dim: int | None):
    found = configuration(made_record(), embed_dim)
    made = built(found)
    x = torch.randn(2, 7, found.torch.embed_dim)
    for name, sizes in (("attention", found.torch), ("free_attention", found.free)):
        layer = made[name]
        assert (layer.embed_dim, layer.num_heads, layer.head_dim) == (sizes.embed_dim, sizes.num_heads, sizes.head_dim)
        assert parameters(layer) == sizes.parameters
        y, weights = layer(x, x, x, average_attn_weights=False)
        assert y.shape == x.shape
        assert weights.shape == (2, sizes.num_heads, 7, 7)
    assert found.free.num_heads == 3
    assert found.free.head_dim == 4
    for name in ("block", "free_block"):
        for block in (made[name].train(), made[name].eval()):
            with torch.no_grad():
                assert block(x, src_key_padding_mask=torch.zeros(2, 7, dtype=torch.bool)).shape == x.shape
    ours, theirs = (inspect.signature(type(made[n]).forward).parameters for n in ("free_attention", "attention"))
    assert [(p.name, p.default) for p in ours.values()] == [(p.name, p.default) for p in theirs.values()]


def test_torch_gets_the_fewest_heads_that_divide_and_are_enough():
    assert configuration(made_record()).torch.data() == {
        "embed_dim": 12,
        "num_heads": 3,
        "head_dim": 4,
        "parameters": 4 * 144 + 48,
    }
    for width in range(1, 200):
        for heads in range(1, 12):
            right = [h for h in range(heads, width + 1) if width % h == 0 and (width // h >= 2 or width == heads == 1)]
            if right:
                assert torch_sizes(heads, 4, width).num_heads == right[0]
                nn.MultiheadAttention(width, right[0], device="meta")
            else:
                with pytest.raises(hc.BadInput, match="take embed_dim (\\d+)") as told:
                    torch_sizes(heads, 4, width)
                wider = int(str(told.value).split("take embed_dim ")[1].split(",")[0])
                assert wider >= width
                assert torch_sizes(heads, 4, wider).num_heads == heads
    assert "3 does not divide embed_dim 10: 5 is the smallest" in configuration(made_record(), 10).note
    assert "does not" not in configuration(made_record(), 9).note


@pytest.mark.parametrize(
    ("numbers", "line"),
    [
        ((4, 4, 7), "embed_dim 7 is not divided by 4 heads or any larger number"),
        ((4, 4, 0), "embed_dim must be a whole number from 1"),
        ((4, 4, -8), "embed_dim must be a whole number from 1"),
        ((4, 4, 8.0), "embed_dim must be a whole number from 1 to 1000000, not 8.0"),
        ((4, 4, True), "embed_dim must be a whole number"),
        ((0, 4, 8), "heads must be a whole number from 1"),
        ((4, 0, None), "head_dim must be a whole number from 1"),
        ((4, 4, 10**9), "embed_dim must be a whole number from 1"),
    ],
)
def test_bad_numbers_get_one_line(numbers: tuple[Any, Any, Any], line: str):
    with pytest.raises(hc.BadInput) as told:
        torch_sizes(*numbers)
    assert line in str(told.value)
    assert "\n" not in str(told.value)
    with pytest.raises(hc.BadInput):
        free_sizes(0, 3, 4)


def test_answers_carry_numbers_and_tags():
    record = made_record()
    found = configuration(record, 10)
    told = {answer.question: answer for answer in found.answers}
    first = told["Do more heads add parameters?"]
    assert first.tag == "proved"
    count = parameters(hc.Attention(10, 4, head_dim=4)) - parameters(hc.Attention(10, 3, head_dim=4))
    assert f"adds {count:,}" in first.text
    assert f"{parameters(nn.MultiheadAttention(10, 1)):,} parameters with any number" in first.text
    assert parameters(nn.MultiheadAttention(10, 1)) == parameters(nn.MultiheadAttention(10, 5))
    assert told["More heads or larger heads at a fixed width?"].tag == "measured"
    assert "2 × 6: 0.12" in told["More heads or larger heads at a fixed width?"].text
    bare = configuration(record.model_copy(update={"curves": []}), 10).answers
    assert next(a for a in bare if a.question.startswith("More heads or")).tag == "extrapolated"
    assert told["What if I take too few heads?"].tag == "measured"
    assert told["Are these the sizes that were measured?"].tag == "extrapolated"
    assert configuration(record).answers[-1].tag == "measured"


def test_an_advice_without_a_head_count_has_no_configuration():
    for verdict in VERDICTS:
        record = made_record(verdict)
        if record.named is None:
            with pytest.raises(hc.BadInput, match="names no number of heads"):
                configuration(record)
        else:
            built(configuration(record, 64))
    assert Configuration.parse(configuration(made_record()).data()) == configuration(made_record())
