"""What a probe shows: the loss against heads removed, chance level, the default page, and its view in a notebook."""

from __future__ import annotations

import base64
import json
import math
import re
from pathlib import Path
from typing import Any

import matplotlib.figure
import numpy as np
import pytest
import torch
from probe_models import PLANTED, batches, loss, make, planted
from torch import nn

import headcount as hc
from headcount.cli.common import page_name
from headcount.probing import prune as probe_remove
from headcount.probing.architectures import family, find_layers
from headcount.probing.curve import MAX_TERMINAL_POINTS, curve_chart, curve_table, thinned
from headcount.probing.data import read_data
from headcount.probing.load import load_folder
from headcount.probing.measure import Meter
from headcount.probing.of_model import Probe, probe
from headcount.probing.page import page
from headcount.probing.prune_plan import loss_curve
from headcount.probing.record import CurvePoint, ProbeRecord
from headcount.probing.words import headline, markdown, sentences
from render.browser_pipe import Browser, find_browser
from support import Cli, breakable, check_frame
from widths import WIDTHS, line_problems, missing

EVIL = '<script>alert("x")</script>'


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe_remove, "MIN_TIMING_SECONDS", 0.0)


@pytest.fixture(scope="module")
def found() -> Probe:
    """A planted GPT-2 with a meaningful loss: the labels are what the model itself predicts."""
    probe_remove.MIN_TIMING_SECONDS, pause = 0.0, probe_remove.MIN_TIMING_SECONDS
    try:
        model = planted(make("gpt2"))
        with torch.no_grad():
            own = [{"input_ids": b["input_ids"], "wanted": model(b["input_ids"]).logits} for b in batches("gpt2")]
        return probe(model, own, distance, budget=0.0001, name=EVIL, chance=2.0)
    finally:
        probe_remove.MIN_TIMING_SECONDS = pause


def distance(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    logits = model(batch["input_ids"]).logits
    return (logits - batch["wanted"]).square().mean() / batch["wanted"].var() + 0.1


# -- the curve ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("remeasured", ["all", "candidates"])
def test_every_loss_of_the_curve_is_measured_with_its_heads_gone(found: Probe, remeasured: Any) -> None:
    model = make("bert")
    meter = Meter(model, find_layers(model, family("bert").layouts), batches("bert"), loss)
    plan = found.record.plan.model_copy(update={"steps": found.record.plan.steps[:2], "remeasured": remeasured})
    gone = plan.gone()
    plan = plan.model_copy(update={"loss": meter.loss(gone)})
    points = loss_curve(meter, meter.loss(), plan, lambda *_: None)
    assert [point.removed for point in points] == list(range(7)), "up to one head a layer"
    assert [point.within for point in points] == [True] * 3 + [False] * 4
    for point in points[3:]:
        gone += [(point.layer or 0, head) for head in point.heads]
        assert point.loss == pytest.approx(meter.loss(gone), abs=1e-5)
    assert len(set(gone)) == 6
    assert len(loss_curve(meter, meter.loss(), plan, lambda *_: None, seconds=0.0)) == 3


def test_the_curve_is_in_record_page_list_and_chart(found: Probe) -> None:
    record = found.record
    assert [p.removed for p in record.curve] == list(range(7))
    assert [p.loss for p in record.curve if p.within][1:] == [step.loss for step in record.plan.steps]
    assert record.curve[-1].loss > 5 * record.curve[0].loss or PLANTED not in record.plan.gone()
    chart = curve_chart(record)
    assert chart is not None
    assert [(p.x, p.y) for p in chart.series[0].points] == [(p.removed, p.loss) for p in record.curve]
    assert len(curve_table(record).rows) == 7
    assert "Loss against heads removed" in page(record)
    assert '"id":"loss-curve"' in page(record)
    assert "| Removed | Loss |" in markdown(record)
    assert ProbeRecord.parse(json.loads(json.dumps(record.data()))).curve == record.curve
    flat = record.model_copy(update={"curve": record.curve[:1]})
    assert curve_chart(flat) is None
    assert "loss-curve" not in page(flat)


@pytest.mark.parametrize(
    "losses", [[1.0, 1.0, 1.0], [-2.0, -1.0, 0.5], [0.0, 0.0, 1e-9], [1e-6, 1.0, 50.0], [5.0, 5.1, 5.3]]
)
def test_any_losses_can_be_drawn(found: Probe, losses: list[float]) -> None:
    points = [CurvePoint(removed=i, loss=v, layer=0, heads=[i], within=i < 1) for i, v in enumerate(losses)]
    plan = found.record.plan.model_copy(update={"allowed": losses[0]})
    record = found.record.model_copy(update={"curve": points, "plan": plan, "chance": None})
    chart = curve_chart(record)
    assert chart is not None
    assert len(chart.y.ticks) >= 2
    assert all(chart.y.low <= v <= chart.y.high for v in losses)
    assert all(chart.y.low <= v <= chart.y.high for v, _ in chart.y.ticks)
    assert len({text for _, text in chart.y.ticks}) == len(chart.y.ticks)
    assert "nan" not in page(record)


@pytest.mark.parametrize("width", WIDTHS)
def test_a_terminal_of_any_width_shows_all_numbers(
    width: int, found: Probe, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from headcount.cli.probe import _show

    monkeypatch.setenv("COLUMNS", str(width))
    _show(found.record, None)
    shown = capsys.readouterr().out
    assert line_problems(shown.replace(EVIL, "model"), width) == []
    points = thinned(found.record.curve, MAX_TERMINAL_POINTS)
    assert missing([n for point in points for n in (point.removed, point.loss)], shown) == []
    assert missing([layer.carry_ablation for layer in found.record.layers], shown) == []


def test_a_terminal_shows_few_points_and_the_important_ones() -> None:
    points = [CurvePoint(removed=i, loss=1.0 + i, layer=0, heads=[i], within=i < 58) for i in range(144)]
    few = thinned(points, 12)
    assert len(few) <= 12
    assert {0, 57, 143} <= {point.removed for point in few}
    assert thinned(points, 200) == points


# -- the map ------------------------------------------------------------------------------------------------

LIGHT = """[...document.querySelectorAll('figure.map svg path')].map(p => getComputedStyle(p).fill)
  .filter(f => f.startsWith('rgb')).map(f => f.match(/[\\d.]+/g).slice(0, 3).map(Number))"""
LETTERS = """[...document.querySelectorAll('figure.map svg text')].filter(t => /^−?\\d+$/.test(t.textContent))
  .map(t => [t.textContent, getComputedStyle(t).fill.match(/[\\d.]+/g).slice(0, 3).map(Number)])"""


def luminance(colour: list[float]) -> float:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (v / 255 for v in colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.skipif(find_browser() is None, reason="no chromium on this machine")
def test_the_map_follows_a_dark_page(found: Probe, tmp_path: Path) -> None:
    shares = [1.0, 0.8, 0.6, 0.4, 0.0, -0.3, -0.7, -1.0]
    heads = [
        h.model_copy(update={"ablation": s, "gradient": s}) for h, s in zip(found.record.heads, shares, strict=True)
    ]
    (tmp_path / "page.html").write_text(page(found.record.model_copy(update={"heads": heads})), encoding="utf-8")
    browser, cells, letters = Browser(find_browser() or "", tmp_path / "profile"), {}, {}
    try:
        for scheme in ("light", "dark"):
            browser.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
            browser.open(tmp_path / "page.html")
            cells[scheme] = [luminance(colour) for colour in browser.run(LIGHT)]
            letters[scheme] = [(text, luminance(colour)) for text, colour in browser.run(LETTERS)]
        assert browser.errors == []
    finally:
        browser.close()
    middle = shares.index(0.0)
    assert cells["light"][middle] > 0.9 > 0.05 > cells["dark"][middle], "no difference looks like the page"
    assert all(0.05 < cells[scheme][k] < 0.6 for scheme in cells for k in (0, 7)), "the ends stand out from both pages"
    for scheme, found_letters in letters.items():
        of_cells = [(text, light) for text, light in found_letters if len(text) > 1 or text == "0"][:8]
        numbers = [f"{round(100 * s)}".replace("-", "−") for s in shares]
        assert [text for text, _ in of_cells if text in numbers] == numbers
        for (_, ink), cell in zip(of_cells, cells[scheme], strict=False):
            contrast = (max(ink, cell) + 0.05) / (min(ink, cell) + 0.05)
            assert contrast > 3, (scheme, contrast)


# -- chance level -------------------------------------------------------------------------------------------


def saved(kind: str, place: Path, scale: float | None = None) -> Path:
    model = make(kind)
    if scale is not None:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(scale)
    model.save_pretrained(place / kind)
    return place / kind


def test_a_model_at_chance_level_is_reported(tmp_path: Path, headcount_here: Cli) -> None:
    folder = saved("gpt2", tmp_path, scale=0.1)  # nearly uniform, on random tokens
    done = headcount_here("probe", folder, "--samples", "8")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("gpt2 is at chance level on these data")
    assert "At chance level: guessing without looking at the input has the loss 4.787" in done.stdout
    record = json.loads((tmp_path / "headcount-probe/gpt2/probe.json").read_text())
    assert record["chance"] == pytest.approx(math.log(120))
    assert "is at chance level" in (tmp_path / "headcount-probe/gpt2/index.html").read_text()


def test_a_model_at_chance_level_is_saved_only_on_request(tmp_path: Path, headcount_here: Cli) -> None:
    folder = saved("gpt2", tmp_path, scale=0.1)
    words = ("probe", folder, "--samples", "8", "--prune", "0.5", "--save", "small")
    refused = headcount_here(*words)
    assert refused.returncode == 2
    line = refused.stderr.strip().splitlines()[-1]
    assert line.startswith("headcount: gpt2 is at chance level on these data (loss 4.")
    assert "removing heads would prove nothing; small was not written" in line
    assert "--save-at-chance" in line
    assert [path.name for path in tmp_path.iterdir()] == ["gpt2"], "neither model nor page"
    with pytest.raises(hc.BadInput, match="save_at_chance=True"):
        hc.probe_folder(folder, samples=8, save=tmp_path / "small")
    done = headcount_here(*words, "--save-at-chance")
    assert done.returncode == 0, done.stderr
    warned, loaded = done.stdout.find("Warning: the model is at chance level"), done.stdout.find("Saved in small")
    assert 0 < warned < loaded
    assert (tmp_path / "small/config.json").is_file()
    page = tmp_path / "headcount-probe/gpt2"
    assert any("at chance level" in note for note in json.loads((page / "probe.json").read_text())["notes"])
    assert "Warning: the model is at chance level" in (page / "index.html").read_text()


def test_a_model_that_beats_guessing_is_saved_without_a_flag(tmp_path: Path) -> None:
    folder = saved("vit", tmp_path)  # judged by its own first choice
    found = hc.probe_folder(folder, samples=8, budget=1.0, save=tmp_path / "small")
    assert found.record.chance is not None
    assert found.record.saved
    assert not any("chance" in note for note in found.record.notes)


def test_a_model_at_chance_level_is_refused_before_its_heads_are_measured() -> None:
    shares: list[float] = []
    with pytest.raises(hc.BadInput, match=r"GPT2LMHeadModel is at chance level on these data \(loss"):
        probe(
            make("gpt2"),
            batches("gpt2"),
            loss,
            chance=0.1,
            must_beat_chance=True,
            on_progress=lambda s, _: shares.append(s),
        )
    assert shares == []
    found = probe(make("gpt2"), batches("gpt2"), loss, chance=0.1)
    assert found.record.at_chance


def test_a_model_that_beats_guessing_is_not_at_chance_level(found: Probe) -> None:
    assert not found.record.at_chance
    assert "chance" not in " ".join([headline(found.record), *sentences(found.record)])
    for value, expected in ((2.0, False), (0.1, True), (None, False)):
        assert found.record.model_copy(update={"chance": value}).at_chance is expected


CHANCES = {
    "classes": ("vit", {"X": "images", "y": [0, 0, 0, 1]}, -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))),
    "one class": ("vit", {"X": "images", "y": [2, 2, 2, 2]}, math.log(5)),
    "own choice": ("vit", {"X": "images"}, math.log(5)),
    "tokens": ("gpt2", {"X": "ids"}, math.log(120)),
    "own output": ("bert-plain", {"X": "ids"}, None),
}


@pytest.mark.parametrize("case", CHANCES)
def test_the_loss_of_guessing(case: str, tmp_path: Path) -> None:
    kind, arrays, wanted = CHANCES[case]
    made = {"images": np.zeros((4, 3, 8, 8), np.float32), "ids": np.arange(24).reshape(4, 6)}
    np.savez(tmp_path / "d.npz", **{k: made.get(str(v), np.array(v) if k == "y" else v) for k, v in arrays.items()})
    data = read_data(load_folder(saved(kind, tmp_path)), tmp_path / "d.npz", samples=8, batch=4, seed=0)
    assert data.chance == (wanted if wanted is None else pytest.approx(wanted))


# -- the page by default ------------------------------------------------------------------------------------


def test_the_page_is_written_by_default(tmp_path: Path, headcount_here: Cli) -> None:
    folder = saved("bert", tmp_path)
    done = headcount_here("probe", folder, "--samples", "4")
    assert done.returncode == 0, done.stderr
    assert "Page     headcount-probe/bert/index.html" in done.stdout
    assert headcount_here("probe", folder, "--samples", "4").returncode == 0, "its own is overwritten"
    (tmp_path / "headcount-probe/bert/thesis.tex").write_text("mine")
    refused = headcount_here("probe", folder, "--samples", "4")
    assert refused.returncode == 2
    assert "thesis.tex" in refused.stderr
    assert refused.stdout == ""


def test_every_model_has_a_page_of_its_own(tmp_path: Path, headcount_here: Cli) -> None:
    for place in ("a", "b"):  # the last folder has the same name
        folder = saved("bert", tmp_path / place).relative_to(tmp_path)
        done = headcount_here("probe", folder, "--samples", "4")
        assert done.returncode == 0, done.stderr
        assert f"Page     headcount-probe/{place}-bert/index.html" in done.stdout
    assert sorted(p.name for p in (tmp_path / "headcount-probe").iterdir()) == ["a-bert", "b-bert"]


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("bert", "bert"),
        ("./bert/", "bert"),
        ("runs/a/checkpoint-5", "runs-a-checkpoint-5"),
        ("../bert", "bert"),
        (".", "here"),
        ("..", "x"),
        ("my model: α", "my-model-α"),
        (".hidden", "hidden"),
        ("?", "model"),
        ("/", "model"),
        ("long" * 30 + "/last", ("long" * 30 + "-last")[-60:]),
    ],
)
def test_the_page_is_named_after_the_model(
    model: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "x" / "here"
    here.mkdir(parents=True)
    monkeypatch.chdir(here)
    assert page_name(Path(model), "model") == name
    if model not in ("/", "../bert", ".."):
        assert page_name(here / model, "model") == name, "the same by its absolute path"


def test_json_for_programs_writes_no_page(tmp_path: Path, headcount_here: Cli) -> None:
    done = headcount_here("probe", saved("bert", tmp_path), "--samples", "4", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["curve"]
    assert not (tmp_path / "headcount-probe").exists()


# -- notebooks ----------------------------------------------------------------------------------------------


def test_a_notebook_shows_sentence_table_and_pictures(found: Probe) -> None:
    shown = breakable(found._repr_html_())
    assert "2 of 8 heads" in shown or "1 of 8 heads" in shown
    assert shown.count("<table>") == 2
    pictures = re.findall(r'<img alt="([^"]+)" src="data:image/png;base64,([^"]+)"', shown)
    assert len(pictures) == 2
    assert all(base64.b64decode(data)[:4] == b"\x89PNG" for _, data in pictures)
    assert "<script" not in shown
    named = Probe(found.record.model_copy(update={"samples": EVIL, "notes": [EVIL]}), None, found.layers)._repr_html_()
    assert "<script" not in named
    assert "&lt;script&gt;" in named
    assert "of 8 heads" in repr(found)


def test_plot_needs_no_path_and_keeps_the_picture_with_one(found: Probe, tmp_path: Path) -> None:
    drawn = found.plot()
    assert isinstance(drawn, matplotlib.figure.Figure)
    assert drawn._repr_png_()[:4] == b"\x89PNG"
    for name in ("a.png", "a.svg", "a.pdf"):
        found.plot(tmp_path / name)
        assert (tmp_path / name).stat().st_size > 1000
    with pytest.raises(hc.BadInput, match=r"\.png, \.pdf or \.svg"):
        found.plot(tmp_path / "a.xlsx")


def test_rows_have_no_empty_columns(found: Probe) -> None:
    rows = found.table()
    assert [row["head"] for row in rows] == [1, 2, 3, 4] * 2
    assert list(rows[0]) == ["layer", "head", "ablation", "gradient", "can_go", "goes_as"]
    assert {row["goes_as"] for row in rows if row["can_go"]} == set(range(1, 1 + len(found.record.plan.gone())))
    nothing = found.record.model_copy(update={"plan": found.record.plan.model_copy(update={"steps": []})})
    assert "goes_as" not in Probe(nothing, None, found.layers).table()[0]
    curve = found.curve()
    assert [row["removed"] for row in curve] == list(range(7))
    assert all(set(row) == set(curve[0]) for row in curve)


def test_rows_are_what_pandas_takes(found: Probe) -> None:
    frame = check_frame(found.table())
    assert frame.groupby("layer")["head"].max().to_dict() == {1: 4, 2: 4}
    assert int(frame["can_go"].sum()) == len(found.record.plan.gone())
    losses = check_frame(found.curve())
    assert losses.loc[losses["within_budget"], "loss"].iloc[-1] == found.record.plan.loss


def test_the_public_names_are_these() -> None:
    assert hc.probe is probe
    assert hc.load_pruned.__module__ == "headcount.probing.load"
    assert callable(hc.probe_folder)
