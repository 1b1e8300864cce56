"""Every kind of page, made of small records: for tests that hold for all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from run_cases import made_case
from test_run_page import PAPER

from advisor.record_cases import made_record
from headcount.advisor.page import advice_page
from headcount.advisor.record import WitnessRecord
from headcount.analysis.of_runs import analyse
from headcount.analysis.record import Reason
from headcount.probing.page import page as probe_page
from headcount.probing.record import CurvePoint, Head, LayerRecord, Pair, ProbeRecord, PrunePlan, Step
from headcount.render.pair.picture import pair_html
from headcount.render.panel_page import page_html
from headcount.render.run_page import run_page
from test_pair_picture import make as made_pair
from test_report import found_in, make_run


def made_probe(name: str = "small", **changes: Any) -> ProbeRecord:
    """The record of a model of two layers with two heads each, of which one can go."""
    heads = [Head(layer=i, head=j, gradient=0.1 * (i + 1), ablation=0.2 * (i + j)) for i in range(2) for j in range(2)]
    layer = {"heads": 2, "head_dim": 4, "group": 1, "carry_ablation": 1, "carry_gradient": 2}
    similar = [[1.0, 0.3], [0.3, 1.0]]
    fields: dict[str, Any] = {
        "model": name,
        "architecture": "gpt2",
        "samples": "8 sequences",
        "loss_name": "cross entropy",
        "loss": 1.5,
        "chance": 4.0,
        "share": 0.95,
        "carry_ablation": 2,
        "carry_gradient": 3,
        "heads": heads,
        "redundant": [],
        "layers": [LayerRecord(name=f"layer {i}", similarity=similar, **layer) for i in range(2)],
        "closest": [Pair(layer=i, first=0, second=1, similarity=0.3) for i in range(2)],
        "plan": PrunePlan(
            budget=0.05, allowed=1.575, loss=1.51, remeasured="all", steps=[Step(layer=0, heads=[0], loss=1.51)]
        ),
        "curve": [
            CurvePoint(removed=0, loss=1.5, layer=None, heads=[], within=True),
            CurvePoint(removed=1, loss=1.51, layer=0, heads=[0], within=True),
            CurvePoint(removed=2, loss=2.5, layer=1, heads=[1], within=False),
        ],
        "pruned": None,
        "not_pruned": "nothing was removed",
        "saved": None,
        "notes": ["A note."],
        "provenance": {"time": "2026-01-02T03:04:05+00:00", "versions": {"python": "3.11.2"}},
    }
    return ProbeRecord(**{**fields, **changes})


def demo(name: str) -> str:
    run = make_run(title=name, name=name, provenance={"commit": name})
    return page_html(run, found_in(run))


def report(name: str, **options: Any) -> str:
    runs, _ = made_case(title=name, name=name, provenance={"commit": name}, **options)
    return run_page(runs, analyse(runs, resamples=100), PAPER, remarks=[name], scale=name)


def witness(name: str) -> WitnessRecord:
    reasons = [Reason(tag="proved", text=name), Reason(text=name)]
    return WitnessRecord(
        heads=2, tag="measured", why="", target="best model", X1=[[0.25]], X2=[[0.5]], sentences=reasons
    )


PAGES: dict[str, Callable[[str], str]] = {
    "demo": demo,
    "report": report,
    "report of settings": lambda name: report(name, settings=({"head_dim": 4}, {"kind": name}), lengths=(8,)),
    "report of what failed": lambda name: report(name, diverged=10_000),
    "advice": lambda name: advice_page(made_record(name=name), witness=witness(name)),
    "advice on noise": lambda name: advice_page(made_record("noise", name=name, classes=True)),
    "probe": lambda name: probe_page(made_probe(name, samples=name, notes=[name], loss_name=name)),
    "pair": lambda name: pair_html(made_pair(6, 3, 2, 3, title=name, subtitle=name, sentences=[name])),
    "pair of a deeper model": lambda name: pair_html(made_pair(6, 2, 1, 2, weights=False, title=name)),
}
"""Each takes a text that lands in as many places of the page as a user can reach."""
