"""Probe an existing model: what each head contributes, which heads repeat others, and which can be removed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from headcount.core import BadInput, Displayable, provenance, renamed_argument
from headcount.probing.architectures import FamilyLayer, family, find_layers
from headcount.probing.attention import (
    ATTENTION_KINDS,
    OpenLayer,
    one_thread_if_small,
    open_layers,
    open_module,
    twin,
    without_fast_path,
)
from headcount.probing.curve import curve_chart, curve_table
from headcount.probing.heat_map import as_figure, heat_figure
from headcount.probing.layers import Layer
from headcount.probing.measure import CARRIED_FRACTION, Loss, Meter, OnProgress, carriers
from headcount.probing.prune import OUTPUT_TOLERANCE, compare, outputs, relative_difference, remove_heads
from headcount.probing.prune_plan import loss_curve, plan_removals
from headcount.probing.record import (
    MIN_REDUNDANT_SIMILARITY,
    Head,
    LayerRecord,
    Pair,
    ProbeRecord,
    Pruned,
    PrunePlan,
    is_at_chance,
)
from headcount.probing.words import headline, layer_table, loading_text, sentences
from headcount.render import Drawing, View, filled

DEFAULT_BUDGET = 0.01
STAGE_RANGES = {
    "gradients": (0.02, 0.1),
    "ablation": (0.1, 0.55),
    "plan": (0.55, 0.8),
    "curve": (0.8, 0.92),
    "removal": (0.92, 1.0),
}
"""Where each stage begins and ends, as fractions of the work: a guess for the progress bar."""


class AtChance(BadInput):
    """Raised for a model that is no better than guessing when a better one is required."""


@dataclass(frozen=True, eq=False)
class Probe(Displayable):
    """What a probe found, and the model without the heads that can go; a notebook shows sentences, tables and pictures.

    `plot()` returns the heat map of heads, `table()` a row per head for pandas, `curve()` a row per removal.
    """

    record: ProbeRecord
    pruned: nn.Module | None
    layers: Sequence[Layer]

    def kept(self) -> dict[str, list[int]]:
        """Return the heads that stay, by the name of their layer."""
        removed = set(self.record.plan.gone())
        return {
            layer.name: [head for head in range(layer.heads) if (i, head) not in removed]
            for i, layer in enumerate(self.layers)
        }

    def curve(self) -> list[dict[str, Any]]:
        """Return the loss against heads removed as rows for `pandas.DataFrame`; layers and heads count from 1."""
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
    budget: float = DEFAULT_BUDGET,
    name: str = "",
    data: str = "the batches given",
    loss_name: str = "the loss given",
    notes: Sequence[str] = (),
    chance: float | None = None,
    must_beat_chance: bool = False,
    on_progress: OnProgress | None = None,
    told: OnProgress | None = None,
) -> Probe:
    """Measure the heads of a torch module; `loss(module, batch)` is one number, small if the module is right.

    The module may have nn.MultiheadAttention layers, or be a model of transformers of a known family. It is not
    changed: masks, cuts and losses use twins in evaluation mode. batches: the inputs of `loss`, one after the other.
    budget: the fraction by which the loss may grow when heads are removed. chance: the loss of guessing, if there is
    one; a model that is no better is reported as being at chance level, and with `must_beat_chance` it is refused
    (BadInput) before its heads are measured. name, data, loss_name: what the record calls the model, the batches and
    the loss. notes: lines for the record. on_progress: called with the fraction of the work that is done and a text.
    told: the old name of on_progress.
    """
    on_progress = renamed_argument("told", told, "on_progress", on_progress, removed="0.3")
    if not 0 <= budget < 100:
        raise BadInput(f"invalid budget {budget:g}: use a fraction of the loss, 0 or more (0.01 is one per cent)")
    batches = list(batches)
    if not batches:
        raise BadInput("no batches to measure on")
    name = name or type(module).__name__

    def check(full: float) -> None:
        if must_beat_chance and is_at_chance(full, chance):
            losses = f"loss {full:.4g}, guessing {chance:.4g}"
            raise AtChance(f"{name} is at chance level on these data ({losses}): removing heads would prove nothing")

    with one_thread_if_small(module):
        found = _probe(module, batches, loss, budget, check, on_progress or _ignore_progress)
    given = {"model": name, "samples": data, "loss_name": loss_name, "chance": chance}
    record = found.record.model_copy(update={**given, "notes": [*notes, *found.record.notes]})
    return Probe(record, found.pruned, found.layers)


def _probe(
    module: nn.Module,
    batches: list[Any],
    loss: Loss,
    budget: float,
    check: Callable[[float], None],
    on_progress: OnProgress,
) -> Probe:
    """Measure, plan, remove and compare; the caller adds the names of the model and the data.

    `check` is called with the loss of the whole model before the work begins, and may raise.
    """
    original = twin(module).eval()
    with without_fast_path():
        model, layers, architecture = _find_heads(original)
        meter = Meter(model, layers, batches, loss)
        layers = meter.layers
        if isinstance(layers[0], OpenLayer):
            _check_reproduced(original, model, batches[0], loss)
        full = meter.loss()
        check(full)
        gradients = meter.gradients(_stage(on_progress, "gradients"))
        similarities = meter.similarities()
        ablations = meter.ablations(full, _stage(on_progress, "ablation"))
        plan = plan_removals(meter, full, ablations, budget, _stage(on_progress, "plan"))
        curve = loss_curve(meter, full, plan, _stage(on_progress, "curve"))
    on_progress(STAGE_RANGES["removal"][0], "removing heads, timing")
    pruned = remove_heads(model, layers, plan.gone()) if plan.steps else None
    removed = None if pruned is None else compare(original, meter, pruned, plan.gone())
    record = _record(layers, architecture, gradients, ablations, similarities, full, plan, removed)
    record = record.model_copy(update={"curve": curve})
    on_progress(1.0, "")
    return Probe(record, pruned, layers)


def _find_heads(module: nn.Module) -> tuple[nn.Module, Sequence[Layer], str]:
    """Return the model, its attention layers and their architecture; nn.MultiheadAttention layers are opened."""
    for kind, name in ATTENTION_KINDS.items():
        if any(isinstance(part, kind) for part in module.modules()):
            model = open_module(module)
            return model, open_layers(model), name
    kind = getattr(getattr(module, "config", None), "model_type", None)
    if not isinstance(kind, str):
        raise BadInput(
            f"{type(module).__name__} has no nn.MultiheadAttention or headcount.Attention layer, "
            "and is not a model of transformers"
        )
    known = family(kind)
    layers = find_layers(module, known.layouts)
    if not layers:
        raise BadInput(f"no attention layer of the {known.name} family was found in {type(module).__name__}")
    return module, layers, f"{known.name} ({kind})"


def _check_reproduced(original: nn.Module, model: nn.Module, batch: Any, loss: Loss) -> None:
    """Refuse a module whose opened twin gives other outputs: the measurements would not apply to it."""
    with torch.no_grad():
        gap = relative_difference(outputs(original, batch, loss), outputs(model, batch, loss))
    if not gap <= OUTPUT_TOLERANCE:
        raise BadInput(f"the module's outputs cannot be reproduced (they differ by {gap:.2g}): are they random?")


def _ignore_progress(_share: float, _note: str) -> None:
    """Do nothing."""


def _stage(on_progress: OnProgress, name: str) -> OnProgress:
    """Return a callback for one stage that reports its share of the whole work."""
    start, end = STAGE_RANGES[name]
    return lambda share, note: on_progress(start + (end - start) * min(share, 1.0), note)


def _notes(layers: Sequence[Layer]) -> list[str]:
    grouped = max(layer.group for layer in layers)
    biased = any(isinstance(layer, FamilyLayer) and layer.layout.bias for layer in layers)
    shared = "Layers of a stack share one position bias: a head that any of them keeps is left as zeros in the others."
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
    plan: PrunePlan,
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
        share=CARRIED_FRACTION,
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
        redundant=[pair for pair in pairs if pair.similarity >= MIN_REDUNDANT_SIMILARITY],
        closest=[closest[i] for i in sorted(closest)],
        plan=plan,
        pruned=removed,
        not_pruned=None if removed is not None else _reason_not_pruned(layers, plan),
        saved=None,
        notes=_notes(layers),
        provenance=provenance(),
    )


def _reason_not_pruned(layers: Sequence[Layer], plan: PrunePlan) -> str:
    if all(len(layer.units()) == 1 for layer in layers):
        shared = all(layer.heads > 1 for layer in layers)
        reason = "all heads of a layer share one key and value" if shared else "every layer has one head"
        return f"nothing can be removed: {reason}, and every layer keeps at least one"
    return f"no head can go: each would raise the loss by more than {100 * plan.budget:g} %"
