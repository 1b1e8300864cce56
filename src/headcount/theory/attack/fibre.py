"""Climbing to the fibre {o(X1) = o(X2)}, onto it, and along it: many pairs at once, in float64.

All three keep to the box by an active set: a coordinate that would leave it is held at its face and takes no part in
the step, so that the others make up for it. Clamping afterwards would spoil the equations. Where tokens lie on the
sphere, or coordinates are held, slopes are taken along the directions that are left (`Pairs.tangent`).
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor

from headcount.theory.attack.pairs import Pairs

EQUAL = 1e-12  # outputs that differ by less are equal to float64's digits
ROUNDS = 3  # to find which coordinates are held
BEHIND = 5  # steps by which a climb may be late before the clock takes over
Told = Callable[[float, float], None]  # share done, best gap in standard deviations


def climb(
    pairs: Pairs,
    at: Tensor,
    scale: float,
    steps: int,
    weights: tuple[float, float],
    softness: tuple[float, float],
    mix: tuple[float, float],
    until: float,
    told: Told | None = None,
) -> tuple[Tensor, bool]:
    """Gauss–Newton ascent of merit − μ·|o(X1) − o(X2)|², μ = 10^weights growing, corrected to second order.

    The step solves (2μ JᵀJ + ρ) d = ∇merit − 2μ Jᵀr through the small matrix S = J Jᵀ + ρ/(2μ); ρ is every pair's
    own damping. A step along a curved fibre leaves it: three corrections −JᵀS⁻¹r with the same gram bring it back.
    Return the pairs, and whether the clock took over: only then do they depend on how fast the machine is.
    """
    rho = torch.ones(len(at), dtype=at.dtype, device=at.device)
    begun, side = time.perf_counter(), float((pairs.high - pairs.low).mean())
    r, jac = pairs.residual(at)
    eye = torch.eye(jac.shape[1], dtype=at.dtype, device=at.device)
    share, step, hurried = 0.0, 0, False
    while share < 1.0:  # a slow machine takes fewer steps, but all of the way
        clock = min((time.perf_counter() - begun) / max(until - begun, 1e-9), 1.0)
        share = step / max(steps - 1, 1)
        if clock > (step + BEHIND) / max(steps - 1, 1) or (hurried and clock > share):
            share, hurried = clock, True
        step += 1
        mu = 10.0 ** (weights[0] + (weights[1] - weights[0]) * share) / scale**2
        tau = pairs.target.grain * softness[0] * (softness[1] / softness[0]) ** share
        amount = mix[0] + (mix[1] - mix[0]) * share
        with torch.enable_grad():
            leaf = at.clone().requires_grad_(True)
            merit = pairs.merit(leaf, tau, amount)
            slope = pairs.tangent(at, torch.autograd.grad(merit.sum(), leaf)[0])
        merit = merit.detach() - mu * r.square().sum(1)
        free = pairs.free(at, slope - 2 * mu * (jac.mT @ r[..., None])[..., 0])
        d, part, gram = torch.zeros_like(at), jac, eye.expand(len(at), -1, -1)
        for _ in range(ROUNDS):
            part, ascent = jac * free[:, None], slope * free
            gram = part @ part.mT + (rho / (2 * mu))[:, None, None] * eye
            solved = _solve(gram, torch.stack([(part @ ascent[..., None])[..., 0], r], -1))
            back = (part.mT @ solved).unbind(-1)
            d = ((ascent - back[0]) / rho[:, None] - back[1]) * free
            free = free & pairs.free(at, d)
        tried = pairs.clamp(at + _at_most(d * free, 0.2 * side))
        for _ in range(3):
            back = (part.mT @ _solve(gram, pairs.difference(tried)[..., None]))[..., 0]
            tried = pairs.clamp(tried - _at_most(back * free, 0.06 * side))
        new_r, new_jac = pairs.residual(tried)
        better = pairs.merit(tried, tau, amount) - mu * new_r.square().sum(1) > merit
        at, r = torch.where(better[:, None], tried, at), torch.where(better[:, None], new_r, r)
        jac = torch.where(better[:, None, None], new_jac, jac)
        rho = torch.where(better, 0.5 * rho, 4.0 * rho).clamp(1e-4, 1e12)
        if told is not None and step % 10 == 0:
            told(share, float(pairs.gap(at).max()))
    return at, hurried


def project(pairs: Pairs, at: Tensor, scale: float, rounds: int = 80) -> tuple[Tensor, Tensor]:
    """Levenberg–Marquardt onto the fibre by steps of least length; return the pairs and which lie on it."""
    r, jac = pairs.residual(at)
    damping = torch.full((len(at),), 1e-4, dtype=at.dtype, device=at.device)
    for _ in range(rounds):
        if bool((r.abs().amax(1) <= 0.05 * EQUAL * scale).all()):
            break
        free = torch.ones_like(at, dtype=torch.bool)
        step = torch.zeros_like(at)
        for _ in range(ROUNDS):
            step = _least(jac, r, free, damping) * free
            free = free & pairs.free(at, step)
        tried = pairs.clamp(at + step * free)
        new_r, new_jac = pairs.residual(tried)
        better = new_r.square().sum(1) < r.square().sum(1)
        at, r = torch.where(better[:, None], tried, at), torch.where(better[:, None], new_r, r)
        jac = torch.where(better[:, None, None], new_jac, jac)
        damping = torch.where(better, 0.2 * damping, 8.0 * damping).clamp(1e-18, 1e6)
    return at, r.abs().amax(1) <= EQUAL * min(max(scale, 1e-3), 1.0)


def follow(
    pairs: Pairs, at: Tensor, on: Tensor, scale: float, steps: int, until: float, told: Told | None = None
) -> tuple[Tensor, Tensor]:
    """Go along the fibre: the merit's gradient within the tangent, back onto the fibre, kept where the merit grew."""
    side = float((pairs.high - pairs.low).mean())
    length = torch.full((len(at),), 0.05 * side, dtype=at.dtype, device=at.device)
    best = torch.where(on, pairs.merit(at, 0.0, 0.0), -torch.inf)
    undamped = torch.full_like(length, 1e-13)
    for step in range(steps):
        if time.perf_counter() > until or bool((length < 1e-7 * side).all()):
            break
        softness = 0.03 * 10.0 ** (-2 * step / steps) * pairs.target.grain
        with torch.enable_grad():
            leaf = at.clone().requires_grad_(True)
            slope = pairs.tangent(at, torch.autograd.grad(pairs.merit(leaf, softness, 0.0).sum(), leaf)[0])
        jac = pairs.residual(at)[1]
        free = pairs.free(at, slope)
        along = torch.zeros_like(at)
        for _ in range(ROUNDS):
            along = (slope + _least(jac, (jac @ (slope * free)[..., None])[..., 0], free, undamped)) * free
            free = free & pairs.free(at, along)
        along = along * free
        move = length[:, None] * along / along.abs().amax(1, keepdim=True).clamp_min(1e-300)
        tried, met = project(pairs, pairs.clamp(at + move), scale, rounds=8)
        merit = pairs.merit(tried, 0.0, 0.0)
        better = met & (merit > best)
        at = torch.where(better[:, None], tried, at)
        best, on = torch.where(better, merit, best), on | better
        length = torch.where(better, 1.3 * length, 0.6 * length).clamp(max=0.5 * side)
        if told is not None and step % 5 == 0:
            told(step / steps, float(best.max()))
    return at, on


def _solve(gram: Tensor, rhs: Tensor) -> Tensor:
    return torch.linalg.solve_ex(gram, rhs)[0].nan_to_num(0.0)


def _at_most(step: Tensor, size: float) -> Tensor:
    """Shorten steps of which a coordinate is longer than `size`."""
    return step / (step.abs().amax(1, keepdim=True) / size).clamp_min(1.0)


def _least(jac: Tensor, r: Tensor, free: Tensor, damping: Tensor) -> Tensor:
    """Return the damped step of least length over the free coordinates with J·step = −r."""
    part = jac * free[:, None]
    gram = part @ part.mT
    ridge = damping * gram.diagonal(dim1=1, dim2=2).mean(1) + 1e-290
    eye = torch.eye(gram.shape[1], dtype=jac.dtype, device=jac.device)
    return (part.mT @ _solve(gram + ridge[:, None, None] * eye, -r[..., None]))[..., 0]
