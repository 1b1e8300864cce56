"""The probe of a module: masks, importance, redundancy, the plan, and the real removal of heads."""

from __future__ import annotations

import copy
import itertools

import pytest
import torch
from probe_models import PLANTED, Reader, batches, loss, make, planted, reader_batches, reader_loss
from torch import nn

from headcount import Attention
from headcount.core.errors import BadInput
from headcount.probing import prune as probe_remove
from headcount.probing.architectures import FamilyLayer, family, find_layers
from headcount.probing.attention import OpenLayer, open_layers, open_module, without_fast_path
from headcount.probing.masks import Masks
from headcount.probing.measure import Meter, carriers
from headcount.probing.of_model import Probe, probe
from headcount.probing.prune import compare, outputs, relative_difference, remove_heads
from headcount.probing.prune_plan import plan_removals
from headcount.probing.record import ProbeRecord
from headcount.probing.words import ranges

KINDS = ("bert", "vit", "gpt2", "llama")
MORE_KINDS = ("roberta", "xlm-roberta", "camembert", "electra", "distilbert", "deit", "mistral", "qwen2", "qwen3")
MORE_KINDS += ("gemma", "gemma2", "gemma3_text")
REMOVED = [(0, 1), (0, 2), (1, 3)]


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(probe_remove, "MIN_TIMING_SECONDS", 0.0)


def probed(kind: str, change=lambda model: model, **options) -> ProbeRecord:
    if kind == "reader":
        return probe(change(Reader()), reader_batches(), reader_loss, **options).record
    return probe(change(make(kind)), batches(kind), loss, **options).record


def meter_of(kind: str, **changed) -> Meter:
    if kind == "reader":
        module = open_module(Reader().eval())
        return Meter(module, open_layers(module), reader_batches(), reader_loss)
    model = make(kind, **changed)
    return Meter(model, find_layers(model, family(model.config.model_type).layouts), batches(kind), loss)


# -- importance ---------------------------------------------------------------------------------------------


def finds_planted(record: ProbeRecord) -> bool:
    """Whether the planted head, and only it, is found both ways."""
    by_ablation = max(record.heads, key=lambda h: abs(h.ablation))
    by_gradient = max(record.heads, key=lambda h: h.gradient)
    others = [max(abs(h.ablation), h.gradient) for h in record.heads if (h.layer, h.head) != PLANTED]
    alone = max(others) < 1e-5 < min(abs(by_ablation.ablation), by_gradient.gradient)
    return alone and all((h.layer, h.head) == PLANTED for h in (by_ablation, by_gradient))


@pytest.mark.parametrize("kind", [*KINDS, "reader"])
def test_a_head_that_carries_everything_is_found(kind):
    record = probed(kind, planted)
    assert finds_planted(record)
    assert record.carry_gradient == 1
    assert record.evidence == "measured"
    gone = record.plan.gone()
    assert len([g for g in gone if g[0] == 0]) == 3  # one head of the idle layer stays
    assert record.pruned is not None
    assert record.pruned.equal


@pytest.mark.parametrize("sabotage", ["heads permuted", "another layer's mask"])
def test_masks_at_the_wrong_place_do_not_find_it(sabotage, monkeypatch):
    right, without = Masks._multiplied, Masks.without
    if sabotage == "heads permuted":
        monkeypatch.setattr(Masks, "without", lambda self, heads: without(self, [(i, (h + 1) % 4) for i, h in heads]))
    else:
        monkeypatch.setattr(Masks, "_multiplied", lambda self, i: right(self, 1 - i))
    assert not finds_planted(probed("bert", planted))


def test_ablation_is_the_loss_with_weights_set_to_zero():
    meter = meter_of("gpt2")
    found = meter.ablations(meter.loss(), lambda *_: None)
    for i, head in itertools.product(range(2), range(4)):
        model = make("gpt2")
        with torch.no_grad():
            model.transformer.h[i].attn.c_proj.weight[head * 8 : head * 8 + 8] = 0.0
            increase = sum(float(loss(model, b)) for b in batches("gpt2")) / 2 - meter.loss()
        assert found[i][head] == pytest.approx(increase, abs=1e-5)


def test_gradient_is_the_slope_of_the_loss():
    meter = meter_of("reader")  # models of transformers compute parts in float32, whatever they are given
    meter.module.double()
    x, hidden, y = meter.batches[0]
    meter.batches = [(x.double(), hidden, y.double())]
    meter.masks.values = [v.double() for v in meter.masks.values]
    found = meter.gradients(lambda *_: None)
    with meter.masks, torch.no_grad():
        for i, head in ((0, 0), (1, 3)):
            values = []
            for step in (1e-4, -1e-4):
                meter.masks.without([])
                meter.masks.values[i][head] += step
                values.append(float(reader_loss(meter.module, meter.batches[0])))
            assert found[i][head] == pytest.approx(abs(values[0] - values[1]) / 2e-4, rel=1e-5)


def test_ranges_are_short():
    assert ranges([5, 1, 3, 2]) == "1–3, 5"
    assert ranges([]) == ""


def test_carriers_count_the_largest_effects():
    assert carriers([5.0, 0.0, -9.0]) == 1
    assert carriers([1.0] * 100) == 95
    assert carriers([0.0, 0.0]) == 0
    assert carriers([0.5, 0.46, 0.04]) == 2


# -- redundancy ---------------------------------------------------------------------------------------------


def with_duplicate_head(model, first: int = 0, second: int = 1):
    """Make one head of BERT's first layer a copy of another."""
    part = model.bert.encoder.layer[0].attention.self
    with torch.no_grad():
        for linear in (part.query, part.key, part.value):
            linear.weight[second * 8 : second * 8 + 8] = linear.weight[first * 8 : first * 8 + 8]
            linear.bias[second * 8 : second * 8 + 8] = linear.bias[first * 8 : first * 8 + 8]
    return model


def test_two_heads_that_do_the_same_are_redundant():
    record = probed("bert", with_duplicate_head)
    assert [(p.layer, p.first, p.second) for p in record.redundant] == [(0, 0, 1)]
    assert record.redundant[0].similarity == pytest.approx(1.0, abs=1e-6)
    assert record.layers[0].similarity[1][0] == pytest.approx(1.0, abs=1e-6)
    assert probed("bert").redundant == []


# -- the plan -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("max_seconds", [1e9, 0.0])
@pytest.mark.parametrize("kind", ["bert", "llama"])
def test_a_plan_keeps_to_its_budget_and_its_losses_are_measured(kind, max_seconds):
    meter = meter_of(kind, **({"num_key_value_heads": 2} if kind == "llama" else {}))
    full = meter.loss()
    found = plan_removals(meter, full, meter.ablations(full, lambda *_: None), 0.03, lambda *_: None, max_seconds)
    assert found.steps
    assert found.remeasured == ("all" if max_seconds else "candidates")
    gone: list[tuple[int, int]] = []
    for step in found.steps:
        assert len(step.heads) == meter.layers[step.layer].group
        gone += [(step.layer, head) for head in step.heads]
        assert step.loss == pytest.approx(meter.loss(gone), abs=1e-5)
        assert step.loss <= full * 1.03 + 1e-6
    assert all(len([g for g in gone if g[0] == i]) < 4 for i in range(2))
    nothing = plan_removals(meter, full, [[1.0] * 4] * 2, 0.0, lambda *_: None, 0.0)
    assert nothing.loss <= full + 1e-6


def test_the_first_removal_is_the_cheapest():
    meter = meter_of("gpt2")
    full = meter.loss()
    costs = meter.ablations(full, lambda *_: None)
    first = plan_removals(meter, full, costs, 1.0, lambda *_: None).steps[0]
    assert costs[first.layer][first.heads[0]] == min(c for layer in costs for c in layer)


# -- removal ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [*KINDS, *MORE_KINDS, "reader"])
def test_a_pruned_model_gives_the_masked_outputs(kind):
    meter = meter_of(kind)
    grouped = meter.layers[0].group > 1
    gone = [(0, 2), (0, 3), (1, 0), (1, 1)] if grouped else REMOVED
    assert [(layer.heads, layer.head_dim) for layer in meter.layers] == [(4, 8)] * 2
    pruned = remove_heads(meter.module, meter.layers, gone)
    found = compare(meter.module, meter, pruned, gone, repeats=1)
    assert found.equal
    assert found.difference < 1e-5
    rows = 32 * 8 * len(gone) * (3 if grouped else 4)  # of query, key, value and output; groups share key and value
    biases = found.parameters_before - found.parameters_after - rows
    assert biases in (0, 3 * 8 * len(gone), 2 * 8 * len(gone))
    other = compare(meter.module, meter, pruned, [(0, 0), *gone[1:]], repeats=1)
    assert not other.equal, "another mask must not pass for the same"


def test_cutting_the_wrong_heads_is_noticed(monkeypatch):
    right = FamilyLayer.keep_only
    monkeypatch.setattr(
        FamilyLayer, "keep_only", lambda self, heads: right(self, [(h + 1) % self.heads for h in heads])
    )
    record = probed("gpt2", budget=0.05)
    assert record.pruned is not None
    assert not record.pruned.equal


def test_heads_of_a_group_go_together():
    layer = meter_of("mistral").layers[0]
    assert layer.units() == [(0, 1), (2, 3)]
    with pytest.raises(ValueError, match="groups of 2"):
        layer.keep_only([0, 1, 2])
    one = probe(make("llama", num_key_value_heads=1), batches("llama"), loss)
    assert one.pruned is None
    assert "share one key and value" in (one.record.not_pruned or "")


def test_the_module_itself_is_not_changed():
    module = Reader().train()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    found = probe(module, reader_batches(), reader_loss, budget=1.0)
    assert module.training
    assert isinstance(module.second, nn.MultiheadAttention)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in module.modules())
    assert found.pruned is not None
    again = probe(found.pruned, reader_batches(), reader_loss, budget=0.0).record
    assert again.loss == pytest.approx(found.record.plan.loss, abs=1e-5)
    assert sum(len(kept) for kept in found.kept().values()) == len(again.heads)


# -- nn.MultiheadAttention ----------------------------------------------------------------------------------


class HeadMasks(nn.Module):
    """A module that attends once or twice, through a layer with the given options, with a mask for every head."""

    def __init__(self, times: int = 1, **options) -> None:
        super().__init__()
        torch.manual_seed(3)
        layer = nn.MultiheadAttention(8, 4, **options)
        self.parts, self.out = nn.ModuleList([layer] * times), nn.Linear(8, 1)
        with torch.no_grad():
            for p in self.parameters():
                p.add_(0.5 * torch.randn(p.shape))

    def forward(self, x):
        slopes = torch.arange(1.0, 5.0)[:, None, None] * -torch.arange(x.shape[0])  # of the four heads it was made for
        mask = slopes.expand(4, x.shape[0], -1) if x.dim() == 2 else slopes.repeat(x.shape[1], x.shape[0], 1)
        for part in self.parts:
            x = x + part(x, x, x, attn_mask=mask)[0]
        return self.out(x)


def probe_layer(module: HeadMasks, shape: tuple[int, ...] = (5, 3, 8)) -> Probe:
    torch.manual_seed(4)
    return probe(module, [torch.randn(shape) for _ in range(3)], lambda m, x: m(x).square().mean(), budget=5.0)


LAYERS = {
    "a mask for every head": lambda: probe_layer(HeadMasks()),
    "added keys": lambda: probe_layer(HeadMasks(add_bias_kv=True)),
    "a zero key": lambda: probe_layer(HeadMasks(add_bias_kv=True, add_zero_attn=True, bias=False)),
    "one sequence": lambda: probe_layer(HeadMasks(), (5, 8)),
    "a layer that serves twice": lambda: probe_layer(HeadMasks(2)),
    "parametrized weights": lambda: probe_layer(parametrized(HeadMasks())),
    "headcount.Attention": lambda: probe_layer(with_own_attention(HeadMasks())),
}


def parametrized(module: HeadMasks) -> HeadMasks:
    nn.utils.parametrizations.spectral_norm(module.parts[0], "in_proj_weight")
    return module


def with_own_attention(module: HeadMasks) -> HeadMasks:
    module.parts[0] = Attention.from_torch(module.parts[0])
    return module


@pytest.mark.parametrize("kind", LAYERS)
def test_heads_of_every_kind_of_layer_are_measured_and_removed(kind):
    found = LAYERS[kind]()
    assert found.record.architecture == ("headcount.Attention" if "headcount" in kind else "nn.MultiheadAttention")
    assert [layer.heads for layer in found.layers] == [4]
    assert min(max(abs(h.ablation), h.gradient) for h in found.record.heads) > 1e-4
    assert found.record.pruned is not None
    assert found.record.pruned.equal
    assert found.record.pruned.difference < 1e-5
    left = {id(part): part for part in found.pruned.parts}
    assert [part.num_heads for part in left.values()] == [4 - len(found.record.plan.gone())]
    assert left.popitem()[1].kept_heads == tuple(found.kept()["parts.0"])


@pytest.mark.parametrize("kind", ["a mask for every head", "a layer that serves twice"])
def test_removing_other_heads_than_the_masked_is_noticed(kind, monkeypatch):
    right = OpenLayer.keep_only
    monkeypatch.setattr(OpenLayer, "keep_only", lambda self, heads: right(self, [(h + 1) % self.heads for h in heads]))
    record = LAYERS[kind]().record
    assert record.pruned is not None
    assert not record.pruned.equal


def test_a_query_that_sees_no_key_can_be_probed():
    hidden = torch.zeros(4, 4, dtype=torch.bool)
    hidden[2] = True

    def blind(module, x):
        return module(x, hidden).square().mean()

    class Blind(Wrapper):
        def forward(self, x, hidden):
            return self.part(x, x, x, attn_mask=hidden, need_weights=False)[0]

    found = probe(Blind(nn.MultiheadAttention(8, 2)), [torch.randn(4, 2, 8)], blind)
    assert found.record.loss > 0


def test_an_opened_module_has_the_numbers_of_the_module_itself():
    module = Reader()
    made = open_module(module)
    with torch.no_grad():
        module.second.in_proj_weight.mul_(2.0)
    assert torch.equal(made.second.q_weight.flatten(0, 1), module.second.in_proj_weight[:32])
    assert made.second.o_weight.untyped_storage().data_ptr() == module.second.out_proj.weight.data_ptr()


def test_a_state_dict_of_an_earlier_pruned_module_is_still_read():
    """Its query, key and value were linear maps, as was the output: by those names it was stored."""
    module = Reader()
    first = open_module(module).second.without_heads([1])
    rows = [i for i in range(32) if not 8 <= i < 16]
    old = {
        f"{name}.{what}": getattr(module.second, f"in_proj_{what}").chunk(3)[i][rows]
        for i, name in enumerate(("query", "key", "value"))
        for what in ("weight", "bias")
    }
    old |= {"out_proj.weight": module.second.out_proj.weight[:, rows], "out_proj.bias": module.second.out_proj.bias}
    again = open_module(Reader()).second.without_heads([1])
    nn.init.zeros_(again.q_weight)
    again.load_state_dict({name: value.detach() for name, value in old.items()})
    assert all(torch.equal(p, q) for p, q in zip(again.parameters(), first.parameters(), strict=True))


def test_an_opened_module_gives_the_same_outputs():
    module, batch = Reader().eval(), reader_batches()[0]
    with without_fast_path(), torch.no_grad():
        wanted = outputs(module, batch, reader_loss)
        made = open_module(module)
        assert relative_difference(wanted, outputs(made, batch, reader_loss)) < 1e-5
        with torch.no_grad():
            turned = copy.deepcopy(made)
            turned.second.q_weight.neg_()
        assert relative_difference(wanted, outputs(turned, batch, reader_loss)) > 1e-3


# -- what cannot be probed ----------------------------------------------------------------------------------


class OwnForward(nn.MultiheadAttention):
    """Attention that overrides forward."""

    def forward(self, *inputs, **options):
        return super().forward(*inputs, **options)


class OursWithOwnForward(Attention):
    """Our attention with another forward."""

    def forward(self, *inputs, **options):
        return super().forward(*inputs, **options)


class Wrapper(nn.Module):
    """A module that calls a layer."""

    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.part = part

    def forward(self, x):
        return self.part(x, x, x)[0]


X = [torch.ones(2, 3, 8)]


def wrapped(**options):
    return Wrapper(nn.MultiheadAttention(8, 2, **options))


def mean(module, batch):
    return module(batch).mean()


BAD = {
    "no attention": (lambda: probe(nn.Linear(8, 8), X, mean), "no nn.MultiheadAttention or headcount.Attention layer"),
    "bare": (lambda: probe(nn.MultiheadAttention(8, 2), X, mean), "bare nn.MultiheadAttention"),
    "bare, ours": (lambda: probe(Attention(8, 2), X, mean), "bare headcount.Attention"),
    "own forward": (lambda: probe(Wrapper(OwnForward(8, 2)), X, mean), "OwnForward overrides forward"),
    "own forward, ours": (
        lambda: probe(Wrapper(OursWithOwnForward(8, 2)), X, mean),
        "OursWithOwnForward overrides forward",
    ),
    "no batches": (lambda: probe(Reader(), [], mean), "no batches"),
    "budget": (lambda: probe(Reader(), X, mean, budget=-1.0), "invalid budget -1"),
    "loss of many": (lambda: probe(wrapped(), X, lambda m, b: m(b)), "one number"),
    "not reached": (lambda: probe(wrapped(), X, lambda m, b: b.sum()), "reached"),
    "nan": (lambda: probe(wrapped(), X, lambda m, b: m(b).mean() * torch.nan), "nan"),
    "random": (lambda: probe(wrapped(), X, lambda m, b: m(b + torch.randn(8)).mean()), "random"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_in_one_line(case):
    act, words = BAD[case]
    with pytest.raises(BadInput, match=words) as caught:
        act()
    assert "\n" not in str(caught.value)
