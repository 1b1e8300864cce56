"""The picture of two colliding sequences: the same every time, every shape legible, the page whole and safe."""

from __future__ import annotations

import functools
import html
import itertools
import math
import random
import re
import xml.etree.ElementTree as ElementTree

import pytest

from headcount.core.errors import BadInput
from headcount.render.pair.data import PairFigure, head_focuses, most_informative, number_text, strips, value_text
from headcount.render.pair.draw import draw_pair
from headcount.render.pair.picture import pair_html, pair_png, save_pair
from headcount.render.pair.targets import targets_panel
from headcount.render.style import _settings
from test_report import read


def softmin(values, beta=8.0):
    scores = [math.exp(-beta * (v - min(values))) for v in values]
    return [s / sum(scores) for s in scores]


def make(T, d, heads, D, *, m=None, kind="exact", f=True, weights=True, uncovered=(1,), **changes):
    """A made-up pair: head k follows the k-th function that is covered, in a softened way."""
    draw = random.Random(7)
    X1 = [[draw.uniform(-1, 1) for _ in range(d)] for _ in range(T)]
    X2 = [x if draw.random() < 0.6 else [draw.uniform(-1, 1) for _ in range(d)] for x in X1]
    places = [[draw.uniform(-0.8, 0.8) for _ in range(d)] for _ in range(D)]
    f1, f2 = ([[math.dist(x, place) for x in X] for place in places] for X in (X1, X2))
    best1, best2 = ([min(range(T), key=row.__getitem__) for row in F] for F in (f1, f2))
    covered = [i for i in range(D) if i not in uncovered] or [0]
    w1, w2 = ([softmin(F[covered[k % len(covered)]]) for k in range(heads)] for F in (f1, f2))
    out = [draw.gauss(0, 1) for _ in range(m or 8 * heads)]
    figure = {
        "title": f"{heads} heads cannot tell these two sequences apart, although the task asks for {D} look-ups",
        "subtitle": f"quadratic-basins, T = {T}, d = {d}, D = {D}",
        "kind": kind,
        "X1": X1,
        "X2": X2,
        "low": [-1.0] * d,
        "high": [1.0] * d,
        "f1": f1,
        "f2": f2,
        "best1": best1,
        "best2": best2,
        "names": [f"f{i + 1}" for i in range(D)],
        "weights1": w1,
        "weights2": w2,
        "out1": out,
        "out2": [v + (draw.gauss(0, 0.02) if kind == "near" else 0.0) for v in out],
        "heads": heads,
        "uncovered": list(uncovered),
        "y1": 1.3125,
        "y2": 0.40625,
        "unit": 0.21,
        "prediction1": 0.91,
        "prediction2": 0.93 if kind == "near" else 0.91,
        "sentences": ["No feed-forward block can repair this.", "Every model with fewer heads has such pairs."],
    }
    if not f:
        figure |= {"f1": None, "f2": None, "best1": None, "best2": None, "names": None, "uncovered": []}
    if not weights:
        figure |= {"weights1": None, "weights2": None}
    return figure | changes


CASES = {
    "d = 1": make(6, 1, 1, 2),
    "d = 1, long": make(64, 1, 2, 3, m=64, uncovered=(0, 2)),
    "d = 2": make(8, 2, 1, 2),
    "d = 2, a flat box": make(8, 2, 1, 1, f=False, uncovered=(), low=[-1.0, -9.0], high=[1.0, 9.0]),
    "d = 4": make(16, 4, 3, 4),
    "d = 4, long": make(64, 4, 5, 6, m=40),
    "all large": make(64, 6, 8, 8, m=64),
    "no functions": make(16, 3, 2, 3, f=False),
    "no functions, d = 2, deeper": make(30, 2, 1, 2, f=False, weights=False),
    "many coordinates": make(4, 14, 13, 2, m=13, f=False),
    "deeper": make(16, 4, 2, 4, weights=False),
    "near": make(6, 1, 1, 2, kind="near"),
    "evidence": make(6, 3, 2, 1, kind="evidence", uncovered=()),
    "all uncovered": make(6, 4, 1, 4, uncovered=tuple(range(4))),
    "long names": make(6, 4, 1, 3, names=[f"the distance from anchor {i}" for i in range(3)]),
    "names as long as they may be": make(6, 4, 2, 2, uncovered=(1,), names=["WWWWWWa", "WWWWWWb"]),
    "one token": make(1, 1, 1, 1, uncovered=()),
    "long words": make(6, 3, 1, 2, title="An endless title " * 40, subtitle="and a subtitle " * 40),
}


ANSWERS = {
    "far from zero": {"y1": 1000.25, "y2": 1000.5, "prediction1": 1000.375, "prediction2": 1000.375},
    "large numbers": {"y1": -4.25e7, "y2": 3.5e7, "prediction1": 1.0, "prediction2": 1.0, "unit": 1e6},
    "no gap": {"y1": 0.0, "y2": 0.0, "prediction1": 0.0, "prediction2": 0.0},
    "an answer far away": {"prediction1": 90.0, "prediction2": 90.0},
    "two answers": {"prediction1": 1.3125, "prediction2": 0.40625},
    "the wrong way round": {"prediction1": -8.0, "prediction2": 9.0},
}


@functools.cache
def page_of(case):
    return pair_html(CASES[case])


def drawn_texts(fig):
    """All texts that are seen: of the figure, its legend and its axes, with the ticks inside the view."""
    texts = [*fig.texts, *(text for legend in fig.legends for text in legend.get_texts())]
    for axes in fig.axes:
        texts += axes.texts
        for axis in (axes.xaxis, axes.yaxis) if axes.axison else ():
            low, high = sorted(axis.get_view_interval())
            texts += [axis.label, *(t.label1 for t in axis.get_major_ticks() if low <= t.get_loc() <= high)]
    return [text for text in texts if text.get_text().strip()]


def check_texts(fig):
    """No text is cut, and none covers another."""
    fig.draw_without_rendering()
    boxes = [(text.get_text(), text.get_window_extent()) for text in drawn_texts(fig)]
    for text, box in boxes:
        assert box.x0 >= 0, text
        assert box.y0 >= 0, text
        assert box.x1 <= fig.bbox.x1, text
        assert box.y1 <= fig.bbox.y1, text
    for (one, a), (other, b) in itertools.combinations(boxes, 2):
        wide, tall = min(a.x1, b.x1) - max(a.x0, b.x0), min(a.y1, b.y1) - max(a.y0, b.y0)
        assert min(wide, tall) <= 1.5, (one, other)  # a pixel or two of a line's own margin
    return [text for text, _ in boxes]


@pytest.mark.parametrize("case", CASES)
def test_no_text_is_cut_and_none_covers_another(case):
    with _settings():
        told = check_texts(draw_pair(PairFigure.parse(CASES[case]), titled=True))
    assert len(told) > 10
    assert ("no head\nfollows it" in told) == bool(CASES[case]["uncovered"])


@pytest.mark.parametrize("case", ANSWERS)
def test_targets_and_answers_are_told_apart(case):
    from matplotlib.figure import Figure

    figure = PairFigure.parse({**CASES["d = 1"], **ANSWERS[case]})
    with _settings():
        fig = Figure(figsize=(12.4, 2.0))
        targets_panel(fig, (0.35, 0.04, 11.7, 1.75), figure)
        told = check_texts(fig)
    targets = [text for text in told if text.startswith("target ")]
    assert len(set(targets)) == (2 if figure.gap else 1)
    assert any(text.startswith("the model says") for text in told)


def test_the_same_bytes_every_time(tmp_path):
    import matplotlib

    names = [name for name in matplotlib.rcParams if name != "backend"]  # asking for it would look for a screen
    before = [matplotlib.rcParams[name] for name in names]
    figure = make(3, 1, 1, 1, m=2, f=False, weights=False)
    for name, settings in (("a", {}), ("b", {"font.size": 30, "svg.hashsalt": "other"})):
        with matplotlib.rc_context(settings):
            (tmp_path / f"{name}.png").write_bytes(pair_png(figure, dpi=40))
            (tmp_path / f"{name}.html").write_text(pair_html(figure), encoding="utf-8")
    for ending, start in (("png", b"\x89PNG"), ("html", b"<!DOCTYPE html>")):
        content = (tmp_path / f"a.{ending}").read_bytes()
        assert content.startswith(start)
        assert content == (tmp_path / f"b.{ending}").read_bytes()
    assert [matplotlib.rcParams[name] for name in names] == before
    save_pair(figure, tmp_path / "c.svg")
    assert "<dc:date>" not in (tmp_path / "c.svg").read_text(encoding="utf-8")
    save_pair(figure, tmp_path / "c.PDF")
    assert (tmp_path / "c.PDF").read_bytes().startswith(b"%PDF")
    assert b"CreationDate" not in (tmp_path / "c.PDF").read_bytes()
    for wrong in ("a.gif", "a"):
        with pytest.raises(BadInput, match=".png, .pdf or .svg"):
            save_pair(figure, tmp_path / wrong)


# -- the page -----------------------------------------------------------------------------------------------

PAGES = ("d = 1", "d = 4", "no functions, d = 2, deeper", "long names")


@pytest.mark.parametrize("case", PAGES)
def test_the_page_is_whole_and_needs_nothing_else(case):
    figure = CASES[case]
    page = page_of(case)
    seen = read(page)
    assert all(ref.startswith("#") for ref in seen.references), seen.references
    assert {ref[1:] for ref in seen.references} <= set(seen.ids)
    assert len(seen.ids) == len(set(seen.ids)), "an id twice"
    assert not {tag for tag, _ in seen.tags} & {"script", "link", "iframe", "img", "object"}
    assert not re.search(r"@import|url\((?!#)", page)
    svg = re.search(r"<svg.*?</svg>", page, re.DOTALL)
    assert svg is not None
    assert len(ElementTree.fromstring(svg[0]).get("aria-label", "")) > 40
    assert ("do not look at the tokens directly" in page) == (figure["weights1"] is None)


@pytest.mark.parametrize("case", PAGES)
def test_the_page_holds_every_number(case):
    figure = CASES[case]
    text = html.unescape(" ".join(read(page_of(case)).text))
    told = PairFigure.parse(figure)
    numbers = [figure[key] for key in ("y1", "y2", "prediction1", "prediction2", "unit")]
    for number in [*numbers, told.gap, told.wrong, *(m for focus in head_focuses(told) for m in focus.means)]:
        assert number_text(number, 6) in text
    assert f"{told.distance:.6g} apart" in text
    for row in strips(told):
        if row.best is not None:
            assert f"{number_text(row.first[row.best[0]], 6)} at {row.best[0]}" in text
    for head in range(figure["heads"] if figure["weights1"] else 0):
        for weights in (figure["weights1"][head], figure["weights2"][head]):
            assert f"{weights.index(max(weights))}:\u00a0{100 * max(weights):.1f}\u00a0%" in text
    for word in (figure["title"], figure["subtitle"], *figure["sentences"], *(figure["names"] or ())):
        assert word in text
    raw = {float(n) for n in re.findall(r"-?\d+\.\d+(?:e-?\d+)?", text)}
    for key in ("X1", "X2", "f1", "f2", "weights1", "weights2"):
        assert {v for row in figure[key] or () for v in row} <= raw, key
    assert {*figure["out1"], *figure["out2"]} <= raw


def test_everything_is_escaped():
    evil = '<script>alert(1)</script> & "quotes" \x00 $x$ {T} ]]>\n'
    figure = make(2, 3, 1, 2, title=evil, subtitle=evil, names=["<i>", "a&b"], sentences=[evil])
    page = pair_html(figure)
    assert "<script" not in page
    assert "<i>" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert "\x00" not in page
    assert "<script" in "".join(read(page).text)
    svg = re.search(r"<svg.*?</svg>", page, re.DOTALL)
    assert svg is not None
    assert "<i>" in "".join(ElementTree.fromstring(svg[0]).itertext())
    pair_png(figure, dpi=20)


# -- the data -----------------------------------------------------------------------------------------------

GOOD = make(6, 2, 2, 3)
BAD = {
    "unknown key": {"colour": "red"},
    "kind": {"kind": "certain"},
    "title": {"title": 3},
    "6 rows of 2 numbers in X2": {"X2": GOOD["X2"][:-1]},
    "6 rows of 2 numbers in X1": {"X1": [*GOOD["X1"][:-1], [0.0]]},
    "at least one token": {"X1": []},
    "2 numbers in high": {"high": [1.0]},
    "low must be below high": {"low": [1.0, 1.0]},
    "finite": {"y1": math.nan},
    "unit": {"unit": 0.0},
    "given for both": {"f2": None},
    "weights1 and weights2": {"weights1": None},
    "2 rows of 6 numbers in weights1": {"weights1": GOOD["weights1"][:1]},
    "must not be negative": {"weights2": [[-0.5] * 6] * 2},
    "sum above 1": {"weights2": [[0.5] * 6] * 2},
    "3 rows of 6 numbers in f1": {"f1": GOOD["f1"][:2]},
    "best1 must hold 3 positions from 0 to 5": {"best1": [0, 1, 6]},
    "best2 must hold": {"best2": None},
    "uncovered must hold": {"uncovered": [3]},
    "16 numbers in out2": {"out2": [0.0]},
    "out1": {"out1": []},
    "need a name": {"names": []},
    "need f1 and f2": {"f1": None, "f2": None},
    "heads": {"heads": 0},
    "is not JSON data": {"sentences": {1, 2}},
}


@pytest.mark.parametrize("words", BAD)
def test_malformed_data_are_refused_in_one_line(words):
    for use in (pair_png, pair_html):
        with pytest.raises(BadInput) as caught:
            use({**GOOD, **BAD[words]})
        assert words in str(caught.value)
        assert str(caught.value).startswith("pair: ")
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 300


def test_a_missing_key_is_named():
    with pytest.raises(BadInput, match="pair: y2 is missing"):
        pair_png({key: value for key, value in GOOD.items() if key != "y2"})


def test_heads_are_shown_along_what_they_follow():
    figure = PairFigure.parse(make(16, 4, 3, 4, uncovered=(2,)))
    assert [focus.strip.name for focus in head_focuses(figure)] == ["f1", "f2", "f4"]
    for focus in head_focuses(figure):
        expected = sum(v * w for v, w in zip(focus.strip.first, focus.first, strict=True))
        assert focus.means[0] == pytest.approx(expected)


def test_rows_that_no_head_follows_are_always_kept():
    figure = PairFigure.parse(make(8, 3, 1, 20, uncovered=(3, 17)))
    kept = [row.number for row in most_informative(strips(figure))]
    assert len(kept) == 12
    assert kept == sorted(kept)
    assert {3, 17} <= set(kept)


def test_the_claim_about_the_error_is_true():
    draw = random.Random(1)
    for _ in range(200):
        y1, y2, p1, p2 = (draw.uniform(-1, 1) for _ in range(4))
        figure = PairFigure.parse({**GOOD, "y1": y1, "y2": y2, "prediction1": p1, "prediction2": p2})
        assert max(abs(y1 - p1), abs(y2 - p2)) >= figure.wrong - 1e-12


def test_numbers_are_short():
    assert [number_text(v) for v in (0.0, -0.0, -1.25, 12345.6, 1e-9, -2e7)] == [
        "0",
        "0",
        "−1.25",
        "12346",
        "1e-09",
        "−2e+07",
    ]
    row = strips(PairFigure.parse(make(6, 1, 1, 1, f=False, X1=[[-1.0]] * 6, X2=[[1.0]] * 6)))[0]
    assert [value_text(v, row) for v in (-0.001, 0.5, -0.25)] == ["0.00", "0.50", "−0.25"]
