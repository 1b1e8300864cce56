"""The reach R of a given model: how far its output can move while every head's output crosses its range of values.

The heads are followed by G(o) = F(c + W_O o). For two outputs o, o' in the box of the letters' values

    |G_k(o) − G_k(o')| ≤ Σ_r sup |∂G_k/∂o_r|·|o_r − o'_r| ≤ R_k·max_r |o_r − o'_r|/Δ_r,   R_k = Σ_r sup |∂G_k/∂o_r|·Δ_r,

because the box is convex and contains the segment between them. The slopes are enclosed by the chain rule in ball
arithmetic: a unit of F that is on (or off) on the whole box has slope 1 (or 0), and only the other units have slopes
anywhere in [0, 1]. So R is computed from the actual weights, including the standardisation, and not as a product of
norms.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from flint import arb, arb_mat, ctx

from headcount.core import BadInput
from headcount.core.readers import FEEDFORWARD_LAYERS
from headcount.models import SavedModel
from headcount.recheck import PRECISION, Heads, Rejected, Weights, matrix, slope
from headcount.tasks.expressions import ceil
from headcount.theory.attack.layer import HeadMap
from headcount.theory.bounds.lipschitz import Alphabet

Balls = Sequence[arb]


def reach(model: SavedModel, alphabet: Alphabet) -> list[float]:
    """Return R of every output, rounded up, over sequences of the alphabet's letters."""
    spec = model.transformer.spec
    if spec.depth > 1 or spec.layer_norm:
        raise BadInput("the bound over all encoders is for models of one layer without layer norms")
    if spec.dim != len(alphabet.letters[0]):
        raise BadInput(f"the model takes tokens of {spec.dim} numbers, the task has {len(alphabet.letters[0])}")
    before, ctx.prec = ctx.prec, PRECISION
    try:
        weights = _weights(model)
        length = 1 if spec.positions == "none" else spec.length
        heads = Heads(weights, length)
        values = [_values(heads, letter, length) for letter in alphabet.balls()]
        box = [_hull([letter[r] for letter in values]) for r in range(heads.count)]
        slopes = _slopes(weights, heads.output, box).table()
        widths = [2 * side.rad() for side in box]
        found = [sum((g.abs_upper() * w for g, w in zip(row, widths, strict=True)), arb(0)) for row in slopes]
        return [ceil(abs(arb(std)) * R) for std, R in zip(model.std, found, strict=True)]
    except Rejected as error:
        raise BadInput(f"the model has no reach: {error}") from None
    finally:
        ctx.prec = before


def _weights(model: SavedModel) -> Weights:
    """Return the weights as the trusted part reads them."""
    tensors = {name: t.detach().cpu().double().numpy() for name, t in model.transformer.tensors()}
    return Weights({"model": model.transformer.spec.data()}, tensors, model.hash())


def _values(heads: Heads, letter: list[arb], length: int) -> list[arb]:
    """Return, per equation, a ball with the values of one letter at all positions (and the class token's)."""
    return [_hull(row) for row in heads.attend([letter] * length)[2]]


def _hull(some: Balls) -> arb:
    """Return a ball that contains all of the given balls."""
    low, high = some[0].lower(), some[0].upper()
    for v in some[1:]:
        low, high = low.min(v.lower()), high.max(v.upper())
    return low.union(high)


def _slopes(model: Weights, output: arb_mat, box: Balls) -> arb_mat:
    """Enclose ∂G/∂o [out_dim, equations] over a box of head outputs."""
    kind = model.config["model"]["feedforward"]
    u = matrix(model["class_token"]) + output * arb_mat([[v] for v in box])
    slopes, last = output, FEEDFORWARD_LAYERS[kind] - 1
    for k in range(last):
        name = f"layers.0.feedforward.layers.{k}."
        pre = (matrix(model[name + "weight"]) * u + matrix(model[name + "bias"])).entries()
        steep = [gelu_slope(v) if kind == "gelu2" else slope(v) for v in pre]
        rows = (matrix(model[name + "weight"]) * slopes).table()
        slopes = arb_mat([[s * g for g in row] for s, row in zip(steep, rows, strict=True)])
        u = arb_mat([[v.max(arb(0))] for v in pre])  # only used in ReLU networks: GELU networks have one such layer
    return matrix(model[f"layers.0.feedforward.layers.{last}.weight"]) * slopes


def gelu_slope(v: arb) -> arb:
    """Enclose GELU'(x) = Φ(x) + x·φ(x) over a ball; it rises between −√2 and √2 and falls outside."""
    found, turn = _gelu_slope_at(v.lower()).union(_gelu_slope_at(v.upper())), arb(2).sqrt()
    for t in (-turn, turn):
        if not (v < t or v > t):
            found = found.union(_gelu_slope_at(t))
    return found


def _gelu_slope_at(x: arb) -> arb:
    root = arb(2).sqrt()
    return (1 + (x / root).erf()) / 2 + x * (-x * x / 2).exp() / (arb.pi() * 2).sqrt()


def hard_pair(model: SavedModel, alphabet: Alphabet) -> torch.Tensor:
    """Return the two sequences of the theorem's proof for a model, [2, T, dim] in float64."""
    spec = model.transformer.spec
    if alphabet.common != alphabet.length:
        raise BadInput("a hard pair can be made only for tasks whose index sets have all positions")
    letters = torch.tensor([[float(v.mid()) for v in letter] for letter in alphabet.balls()], dtype=torch.float64)
    T, K = alphabet.length, alphabet.size
    a = HeadMap(model.transformer).logits(letters[:, None].expand(K, T, -1))  # [K, heads, T]
    top = a.argmax(0)  # [heads, T]
    places = _without_positions if spec.positions == "none" else _with_positions
    where, (m, place) = places(a, top, T, K)
    first = letters[where]
    second = first.clone()
    second[place] = letters[m]
    return torch.stack([first, second])


def _without_positions(_: torch.Tensor, top: torch.Tensor, T: int, K: int) -> tuple[list[int], tuple[int, int]]:
    """Return the letter at every position of X, and the letter and position that X' exchanges."""
    tops = sorted(set(top[:, 0].tolist()))
    m = next(j for j in range(K) if j not in tops)
    rest = [j for j in range(K) if j != m and j not in tops]
    turns = [tops[i % len(tops)] for i in range(T - len(rest))]  # the first top letter at least as often as any other
    return turns + rest, (m, 0)


def _with_positions(a: torch.Tensor, top: torch.Tensor, T: int, K: int) -> tuple[list[int], tuple[int, int]]:
    """Return the same for weights that depend on the position; `a` are their logarithms [K, heads, T]."""
    free = [[t for t in range(T) if m not in top[:, t].tolist()] for m in range(K)]
    m = max(range(K), key=lambda j: len(free[j]))
    share = -(T // -K)
    hidden, each = free[m][:share], -(share // -len(top)) - 1  # P of the proof, and q
    others, left = [j for j in range(K) if j != m], list(hidden)
    where = [others[0]] * T
    for k, tops in enumerate(top.tolist()):
        for t in sorted(left, key=lambda t: float(-a[tops[t], k, t]))[:each]:
            where[t] = tops[t]
            left.remove(t)
    outside = [t for t in range(T) if t not in hidden]
    for t, j in zip(outside, others, strict=False):
        where[t] = j
    return where, (m, left[0])
