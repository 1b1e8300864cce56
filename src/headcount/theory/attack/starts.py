"""Starting points of the search: sequences of tokens with similar scores in every head, and targets far apart.

Two sequences of tokens with nearly equal scores have flat attention, where the equations o(X1) = o(X2) have full rank.
So every start picks a token, gathers the tokens whose scores are close to its own in all heads, and exchanges tokens of
the two sequences for gathered ones as long as this drives the targets apart. Every fourth start uses all tokens
instead. Tokens of a sphere law start on the sphere, and fixed coordinates are taken from a drawn sequence.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headcount.theory.attack.layer import HeadMap
from headcount.theory.attack.pairs import REGION_PENALTY, Pairs

CANDIDATE_TOKENS = 40_000
TOKENS_PER_START = 256
SCORE_RANGE = (0.5, 8.0)  # largest difference of scores (logits) within a start, drawn log-uniformly
EXCHANGES = 300


def starts(pairs: Pairs, draws: Tensor, rng: np.random.Generator) -> Tensor:
    """Return a starting pair for each of `pairs.outputs`: Z[count, 2·length·dim]."""
    count, (_, length, dim) = len(pairs.outputs), pairs.shape
    low, high = pairs.low[:dim], pairs.high[:dim]
    uniform = low + (high - low) * torch.from_numpy(rng.random((CANDIDATE_TOKENS // 2, dim))).to(low)
    drawn_tokens = draws.reshape(-1, dim)
    tokens = torch.cat(
        [
            uniform,
            drawn_tokens[
                torch.from_numpy(rng.permutation(len(drawn_tokens))[: CANDIDATE_TOKENS // 2]).to(drawn_tokens.device)
            ],
        ]
    )
    if pairs.moves.sphere:
        tokens = tokens / tokens.norm(dim=-1, keepdim=True).clamp_min(1e-300)
    gathered = torch.from_numpy(_gather_tokens(pairs, tokens, count, rng)).to(tokens.device)
    picks = torch.from_numpy(rng.integers(TOKENS_PER_START, size=(count, 2, length))).to(tokens.device)
    index = torch.gather(gathered, 1, picks.flatten(1)).view(count, 2, length)
    fixed = list(pairs.moves.fixed)
    drawn = draws[torch.from_numpy(rng.integers(len(draws), size=(count, 2)))] if fixed else None

    def sequences_at(index: Tensor) -> Tensor:
        X = tokens[index]
        if drawn is not None:
            X[..., fixed] = drawn[..., fixed]
        return X

    score = _score(pairs, sequences_at(index))
    rows, sides = torch.arange(count)[:, None], torch.arange(2)[None]
    for _ in range(EXCHANGES):
        tried = index.clone()
        position = torch.from_numpy(rng.integers(length, size=(count, 2)))
        choice = torch.from_numpy(rng.integers(TOKENS_PER_START, size=(count, 2))).to(tokens.device)
        tried[rows, sides, position] = torch.gather(gathered, 1, choice)
        new = _score(pairs, sequences_at(tried))
        better = new > score
        index, score = torch.where(better[..., None], tried, index), torch.where(better, new, score)
    return sequences_at(index).flatten(1)


def _score(pairs: Pairs, X: Tensor) -> Tensor:
    """Return the objective of each sequence, [count, 2]: a high target for the first, a low one for the second."""
    flat, target = X.flatten(0, 1), pairs.target
    y = target(flat).view(len(X), 2, -1).gather(2, pairs.outputs[:, None, None].expand(-1, 2, 1))[..., 0]
    loss = REGION_PENALTY * target.steepness * target.excess(flat).view(len(X), 2)
    return (y * y.new_tensor([1.0, -1.0]) - loss) / pairs.unit[:, None]


def _gather_tokens(pairs: Pairs, tokens: Tensor, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return TOKENS_PER_START tokens for every start; every fourth start draws them from all tokens."""
    all_tokens = np.arange(len(tokens))
    if not isinstance(pairs.layer, HeadMap):
        return rng.choice(all_tokens, size=(count, TOKENS_PER_START))
    scores = pairs.layer.scores(tokens).cpu().numpy()
    found = np.empty((count, TOKENS_PER_START), np.int64)
    for k in range(count):
        similar = all_tokens
        if k % 4 < 3:
            logits = SCORE_RANGE[0] * (SCORE_RANGE[1] / SCORE_RANGE[0]) ** rng.random()
            score_distance = np.abs(scores - scores[:, [int(rng.integers(len(tokens)))]]).max(0)
            similar = np.flatnonzero(score_distance < logits)
            if len(similar) < TOKENS_PER_START // 4:  # too few similar tokens: take the nearest
                similar = np.argpartition(score_distance, TOKENS_PER_START // 4)[: TOKENS_PER_START // 4]
        found[k] = rng.choice(similar, size=TOKENS_PER_START)
    return found
