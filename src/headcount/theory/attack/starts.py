"""Where the search for colliding pairs starts: tokens among which no head prefers one by much, targets far apart.

Two sequences made of tokens with nearly equal scores have flat attention, and there the equations o(X1) = o(X2) have
full rank. So every start takes a token, gathers those within a number of logits of it in all heads' scores, and
exchanges tokens of the two sequences for others of that gathering as long as this drives the targets apart. Some starts
take all tokens instead. Tokens of the sphere start on it, and coordinates that are held are those of a drawn sequence.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headcount.theory.attack.layer import HeadMap
from headcount.theory.attack.pairs import OUTSIDE, Pairs

TOKENS = 40_000
GATHERED = 256
LOGITS = (0.5, 8.0)
EXCHANGES = 300


def starts(pairs: Pairs, draws: Tensor, rng: np.random.Generator) -> Tensor:
    """Return a pair for every one of `pairs.outputs`: Z[count, 2·length·dim]."""
    count, (_, length, dim) = len(pairs.outputs), pairs.shape
    low, high = pairs.low[:dim], pairs.high[:dim]
    uniform = low + (high - low) * torch.from_numpy(rng.random((TOKENS // 2, dim))).to(low)
    seen = draws.reshape(-1, dim)
    tokens = torch.cat([uniform, seen[torch.from_numpy(rng.permutation(len(seen))[: TOKENS // 2]).to(seen.device)]])
    if pairs.moves.sphere:
        tokens = tokens / tokens.norm(dim=-1, keepdim=True).clamp_min(1e-300)
    gathered = torch.from_numpy(_gather(pairs, tokens, count, rng)).to(tokens.device)
    picks = torch.from_numpy(rng.integers(GATHERED, size=(count, 2, length))).to(tokens.device)
    index = torch.gather(gathered, 1, picks.flatten(1)).view(count, 2, length)
    held = list(pairs.moves.fixed)
    drawn = draws[torch.from_numpy(rng.integers(len(draws), size=(count, 2)))] if held else None

    def chosen(index: Tensor) -> Tensor:
        X = tokens[index]
        if drawn is not None:
            X[..., held] = drawn[..., held]
        return X

    score = _score(pairs, chosen(index))
    rows, sides = torch.arange(count)[:, None], torch.arange(2)[None]
    for _ in range(EXCHANGES):
        tried = index.clone()
        place = torch.from_numpy(rng.integers(length, size=(count, 2)))
        choice = torch.from_numpy(rng.integers(GATHERED, size=(count, 2))).to(tokens.device)
        tried[rows, sides, place] = torch.gather(gathered, 1, choice)
        new = _score(pairs, chosen(tried))
        better = new > score
        index, score = torch.where(better[..., None], tried, index), torch.where(better, new, score)
    return chosen(index).flatten(1)


def _score(pairs: Pairs, X: Tensor) -> Tensor:
    """Return what each sequence is chosen for, [count, 2]: a high target for the first, a low one for the second."""
    flat, target = X.flatten(0, 1), pairs.target
    y = target(flat).view(len(X), 2, -1).gather(2, pairs.outputs[:, None, None].expand(-1, 2, 1))[..., 0]
    loss = OUTSIDE * target.steepness * target.excess(flat).view(len(X), 2)
    return (y * y.new_tensor([1.0, -1.0]) - loss) / pairs.unit[:, None]


def _gather(pairs: Pairs, tokens: Tensor, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return GATHERED tokens for every start; every fourth takes them from all."""
    everything = np.arange(len(tokens))
    if not isinstance(pairs.layer, HeadMap):
        return rng.choice(everything, size=(count, GATHERED))
    scores = pairs.layer.scores(tokens).cpu().numpy()
    found = np.empty((count, GATHERED), np.int64)
    for k in range(count):
        near = everything
        if k % 4 < 3:
            logits = LOGITS[0] * (LOGITS[1] / LOGITS[0]) ** rng.random()
            away = np.abs(scores - scores[:, [int(rng.integers(len(tokens)))]]).max(0)
            near = np.flatnonzero(away < logits)
            if len(near) < GATHERED // 4:  # a lonely token: its nearest ones
                near = np.argpartition(away, GATHERED // 4)[: GATHERED // 4]
        found[k] = rng.choice(near, size=GATHERED)
    return found
