"""Probe a model that exists: what its heads are worth, which repeat others, which can go, and what that gains."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from headcount.core import BadInput, Shown, provenance
from headcount.probing.architectures import FamilyLayer, family, find_layers
from headcount.probing.attention import KINDS, OpenLayer, few_threads, open_layers, opened, plain_paths, twin
from headcount.probing.curve import curve_chart, curve_table
from headcount.probing.heat_map import as_figure, heat_figure
from headcount.probing.layers import Layer
from headcount.probing.measure import SHARE, Loss, Meter, Told, carriers
from headcount.probing.prune import TOLERANCE, apart, compare, outputs, remove
from headcount.probing.prune_plan import loss_curve, plan
from headcount.probing.record import REDUNDANT, Head, LayerRecord, Pair, Plan, ProbeRecord, Pruned, is_at_chance
from headcount.probing.words import headline, layer_table, loading_text, sentences
from headcount.render import Drawing, View, filled

BUDGET = 0.01
STAGES = {
    "gradients": (0.02, 0.1),
    "ablation": (0.1, 0.55),
    "plan": (0.55, 0.8),
    "curve": (0.8, 0.92),
    "removal": (0.92, 1.0),
}
"""Where each stage begins and ends, as shares of the work: a guess for the bar."""


class AtChance(BadInput):
    """A model that is no better than guessing, where a better one is needed."""


@dataclass(frozen=True, eq=False)
class Probe(Shown):
    """What a probe found, and the model without the heads that can go; a notebook shows sentence, table and pictures.

    `plot()` returns the map of heads, `table()` a row a head for pandas, `curve()` a row a removal.
    """

    record: ProbeRecord
    pruned: nn.Module | None
    layers: Sequence[Layer]

    def kept(self) -> dict[str, list[int]]:
        """The heads that stay, by the name of their layer."""
        gone = set(self.record.plan.gone())
        return {
            layer.name: [head for head in range(layer.heads) if (i, head) not in gone]
            for i, layer in enumerate(self.layers)
        }

    def curve(self) -> list[dict[str, Any]]:
        """The loss against heads removed as rows, which `pandas.DataFrame` takes; layers and heads count from 1."""
        return filled(
            [
                {
                    "removed": point.removed,
                    "loss": point.loss,
                    "within_budget": point.within,
                    "layer": None if point.layer is None else point.layer + 1,
                    "heads": [h + 1 for h in point.heads],
                }
                for point in self.record.curve
            ]
        )

    def _view(self) -> View:
        record, chart = self.record, curve_chart(self.record)
        drawn = heat_figure(record)
        order = {head: step for step, head in enumerate(record.plan.gone(), 1)}
        rows = [
            {
                "layer": h.layer + 1,
                "head": h.head + 1,
                "ablation": h.ablation,
                "gradient": h.gradient,
                "can_go": (h.layer, h.head) in order,
                "goes_as": order.get((h.layer, h.head)),
            }
            for h in record.heads
        ]
        return View(
            sentences=[f"{headline(record)} (measured).", *sentences(record), *loading_text(record), *record.notes],
            tables=[layer_table(record), curve_table(record)],
            figures=[Drawing(lambda: as_figure(drawn), drawn.alt), *([] if chart is None else [chart])],
            rows=rows,
        )

    def __repr__(self) -> str:
        return f"{headline(self.record)} (measured)"


def probe(
    module: nn.Module,
    batches: Iterable[Any],
    loss: Loss,
    *,
    budget: float = BUDGET,
    name: str = "",
    data: str = "the batches given",
    loss_name: str = "the loss given",
    notes: Sequence[str] = (),
    chance: float | None = None,
    must_beat_chance: bool = False,
    told: Told | None = None,
) -> Probe:
    """Measure the heads of a torch module; `loss(module, batch)` is one number, small where the module is right.

    The module may have nn.MultiheadAttention layers, or be a model of transformers of a known family. It is not
    changed: masks, cuts and losses are those of twins in evaluation mode. `budget` is the share by which the loss
    may grow when heads go, `chance` the loss of guessing, where there is one: a model that is no better is named so,
    and with `must_beat_chance` refused (BadInput) before its heads are measured. batches: what `loss` takes, one after
    the other. name, data, loss_name: what the record calls the model, the batches and the loss. notes: lines that the
    record keeps. told: is called with the share of the work that is done and a text.
    """
    if not 0 <= budget < 100:
        raise BadInput(f"the budget is a share of the loss from 0 on (0.01: one per cent), not {budget:g}")
    batches = list(batches)
    if not batches:
        raise BadInput("there are no batches to measure on")
    name = name or type(module).__name__

    def check(full: float) -> None:
        if must_beat_chance and is_at_chance(full, chance):
            losses = f"loss {full:.4g}, that of guessing {chance:.4g}"
            raise AtChance(f"{name} is at chance level on these data ({losses}): what is removed proves nothing")

    with few_threads(module):
        found = _probe(module, batches, loss, budget, check, told or _silent)
    given = {"model": name, "samples": data, "loss_name": loss_name, "chance": chance}
    record = found.record.model_copy(update={**given, "notes": [*notes, *found.record.notes]})
    return Probe(record, found.pruned, found.layers)


def _probe(
    module: nn.Module, batches: list[Any], loss: Loss, budget: float, check: Callable[[float], None], told: Told
) -> Probe:
    """Measure, plan, remove and compare; what the data and the model are called is for the caller to say.

    `check` gets the loss of the whole model, and may raise, before the work begins.
    """
    original = twin(module).eval()
    with plain_paths():
        model, layers, architecture = _heads_of(original)
        meter = Meter(model, layers, batches, loss)
        layers = meter.layers
        if isinstance(layers[0], OpenLayer):
            _check_same(original, model, batches[0], loss)
        full = meter.loss()
        check(full)
        gradients = meter.gradients(_stage(told, "gradients"))
        similarities = meter.similarities()
        ablations = meter.ablations(full, _stage(told, "ablation"))
        going = plan(meter, full, ablations, budget, _stage(told, "plan"))
        curve = loss_curve(meter, full, going, _stage(told, "curve"))
    told(STAGES["removal"][0], "removing heads, timing")
    pruned = remove(model, layers, going.gone()) if going.steps else None
    removed = None if pruned is None else compare(original, meter, pruned, going.gone())
    record = _record(layers, architecture, gradients, ablations, similarities, full, going, removed)
    record = record.model_copy(update={"curve": curve})
    told(1.0, "")
    return Probe(record, pruned, layers)


def _heads_of(module: nn.Module) -> tuple[nn.Module, Sequence[Layer], str]:
    """Find the attention layers, and open those that hide their heads."""
    for kind, name in KINDS.items():
        if any(isinstance(part, kind) for part in module.modules()):
            model = opened(module)
            return model, open_layers(model), name
    kind = getattr(getattr(module, "config", None), "model_type", None)
    if not isinstance(kind, str):
        raise BadInput(
            f"{type(module).__name__} has no nn.MultiheadAttention layer and no headcount.Attention, "
            "and is no model of transformers"
        )
    known = family(kind)
    layers = find_layers(module, known.layouts)
    if not layers:
        raise BadInput(f"no attention layer of the {known.name} family was found in {type(module).__name__}")
    return module, layers, f"{known.name} ({kind})"


def _check_same(original: nn.Module, model: nn.Module, batch: Any, loss: Loss) -> None:
    """The opened layers must give the numbers of the module itself, or nothing measured would be about it."""
    with torch.no_grad():
        gap = apart(outputs(original, batch, loss), outputs(model, batch, loss))
    if not gap <= TOLERANCE:
        raise BadInput(f"the module's outputs cannot be reproduced (they differ by {gap:.2g}): are they random?")


def _silent(_share: float, _note: str) -> None:
    """Nobody listens."""


def _stage(told: Told, name: str) -> Told:
    start, end = STAGES[name]
    return lambda share, note: told(start + (end - start) * min(share, 1.0), note)


def _notes(layers: Sequence[Layer]) -> list[str]:
    grouped = max(layer.group for layer in layers)
    biased = any(isinstance(layer, FamilyLayer) and layer.layout.bias for layer in layers)
    shared = "Layers of a stack share one position bias: a head that one of them keeps leaves zeros in the others."
    if grouped == 1:
        return [shared] if biased else []
    return [f"Heads that share one key and value ({grouped} each) can only be removed together."]


def _record(
    layers: Sequence[Layer],
    architecture: str,
    gradients: list[list[float]],
    ablations: list[list[float]],
    similarities: list[list[list[float]]],
    full: float,
    going: Plan,
    removed: Pruned | None,
) -> ProbeRecord:
    pairs = [
        Pair(layer=i, first=a, second=b, similarity=found[a][b])
        for i, found in enumerate(similarities)
        for a in range(len(found))
        for b in range(a + 1, len(found))
    ]
    pairs.sort(key=lambda pair: -pair.similarity)
    closest = {pair.layer: pair for pair in reversed(pairs)}
    return ProbeRecord(
        model="",
        architecture=architecture,
        samples="",
        loss_name="",
        loss=full,
        share=SHARE,
        carry_ablation=carriers(e for layer in ablations for e in layer),
        carry_gradient=carriers(e for layer in gradients for e in layer),
        layers=[
            LayerRecord(
                name=layer.name,
                heads=layer.heads,
                head_dim=layer.head_dim,
                group=layer.group,
                carry_ablation=carriers(ablations[i]),
                carry_gradient=carriers(gradients[i]),
                similarity=similarities[i],
            )
            for i, layer in enumerate(layers)
        ],
        heads=[
            Head(layer=i, head=head, gradient=gradients[i][head], ablation=ablations[i][head])
            for i, layer in enumerate(layers)
            for head in range(layer.heads)
        ],
        redundant=[pair for pair in pairs if pair.similarity >= REDUNDANT],
        closest=[closest[i] for i in sorted(closest)],
        plan=going,
        pruned=removed,
        not_pruned=None if removed is not None else _why_not(layers, going),
        saved=None,
        notes=_notes(layers),
        provenance=provenance(),
    )


def _why_not(layers: Sequence[Layer], going: Plan) -> str:
    if all(len(layer.units()) == 1 for layer in layers):
        shared = all(layer.heads > 1 for layer in layers)
        reason = "all heads of a layer share one key and value" if shared else "every layer has one head"
        return f"nothing can be removed: {reason}, and a layer keeps at least one"
    return f"no head can go: each would raise the loss by more than {100 * going.budget:g} %"
