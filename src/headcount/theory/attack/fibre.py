"""Climb towards the fibre {o(X1) = o(X2)}, project onto it, and follow it: many pairs at once, in float64.

All three stages keep to the box with an active set: a coordinate that would leave the box is held at its face and left
out of the step, and the others compensate. Clamping after the step would violate the equations. If tokens lie on
the sphere, or coordinates are fixed, slopes are taken along the remaining directions (`Pairs.tangent`).
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor

from headcount.theory.attack.pairs import Pairs

EQUALITY_TOLERANCE = 1e-12  # smaller differences of outputs are within float64's rounding
ACTIVE_SET_ROUNDS = 3  # iterations that find the coordinates held at the box's faces
MAX_STEPS_BEHIND = 5  # steps that a climb may be late before the clock sets its schedule
OnProgress = Callable[[float, float], None]  # fraction done, best gap in standard deviations


def climb(
    pairs: Pairs,
    at: Tensor,
    scale: float,
    steps: int,
    weights: tuple[float, float],
    softness: tuple[float, float],
    mix: tuple[float, float],
    until: float,
    on_progress: OnProgress | None = None,
) -> tuple[Tensor, bool]:
    """Maximise merit − μ·|o(X1) − o(X2)|² by Gauss–Newton steps with growing μ = 10^weights and curvature corrections.

    The step d solves (2μ JᵀJ + ρ) d = ∇merit − 2μ Jᵀr by way of the small matrix S = J Jᵀ + ρ/(2μ), where ρ is the
    pair's own damping. A step along a curved fibre leaves it; three corrections −JᵀS⁻¹r with the same S bring it back.
    Return the pairs, and whether the clock took over: only then does the result depend on the speed of the machine.
    """
    rho = torch.ones(len(at), dtype=at.dtype, device=at.device)
    start, side = time.perf_counter(), float((pairs.high - pairs.low).mean())
    r, jac = pairs.residual(at)
    eye = torch.eye(jac.shape[1], dtype=at.dtype, device=at.device)
    share, step, clock_led = 0.0, 0, False
    while share < 1.0:  # a slow machine takes fewer steps through the whole schedule
        clock = min((time.perf_counter() - start) / max(until - start, 1e-9), 1.0)
        share = step / max(steps - 1, 1)
        if clock > (step + MAX_STEPS_BEHIND) / max(steps - 1, 1) or (clock_led and clock > share):
            share, clock_led = clock, True
        step += 1
        mu = 10.0 ** (weights[0] + (weights[1] - weights[0]) * share) / scale**2
        tau = pairs.target.softness_unit * softness[0] * (softness[1] / softness[0]) ** share
        entropy_weight = mix[0] + (mix[1] - mix[0]) * share
        with torch.enable_grad():
            leaf = at.clone().requires_grad_(True)
            merit = pairs.merit(leaf, tau, entropy_weight)
            slope = pairs.tangent(at, torch.autograd.grad(merit.sum(), leaf)[0])
        merit = merit.detach() - mu * r.square().sum(1)
        free = pairs.free(at, slope - 2 * mu * (jac.mT @ r[..., None])[..., 0])
        d, part, gram = torch.zeros_like(at), jac, eye.expand(len(at), -1, -1)
        for _ in range(ACTIVE_SET_ROUNDS):
            part, ascent = jac * free[:, None], slope * free
            gram = part @ part.mT + (rho / (2 * mu))[:, None, None] * eye
            solved = _solve(gram, torch.stack([(part @ ascent[..., None])[..., 0], r], -1))
            correction = (part.mT @ solved).unbind(-1)
            d = ((ascent - correction[0]) / rho[:, None] - correction[1]) * free
            free = free & pairs.free(at, d)
        tried = pairs.clamp(at + _limit_step(d * free, 0.2 * side))
        for _ in range(3):
            correction = (part.mT @ _solve(gram, pairs.difference(tried)[..., None]))[..., 0]
            tried = pairs.clamp(tried - _limit_step(correction * free, 0.06 * side))
        new_r, new_jac = pairs.residual(tried)
        better = pairs.merit(tried, tau, entropy_weight) - mu * new_r.square().sum(1) > merit
        at, r = torch.where(better[:, None], tried, at), torch.where(better[:, None], new_r, r)
        jac = torch.where(better[:, None, None], new_jac, jac)
        rho = torch.where(better, 0.5 * rho, 4.0 * rho).clamp(1e-4, 1e12)
        if on_progress is not None and step % 10 == 0:
            on_progress(share, float(pairs.gap(at).max()))
    return at, clock_led


def project(pairs: Pairs, at: Tensor, scale: float, rounds: int = 80) -> tuple[Tensor, Tensor]:
    """Project pairs onto the fibre by Levenberg–Marquardt steps of least norm; return them and which converged."""
    r, jac = pairs.residual(at)
    damping = torch.full((len(at),), 1e-4, dtype=at.dtype, device=at.device)
    for _ in range(rounds):
        if bool((r.abs().amax(1) <= 0.05 * EQUALITY_TOLERANCE * scale).all()):
            break
        free = torch.ones_like(at, dtype=torch.bool)
        step = torch.zeros_like(at)
        for _ in range(ACTIVE_SET_ROUNDS):
            step = _least_norm_step(jac, r, free, damping) * free
            free = free & pairs.free(at, step)
        tried = pairs.clamp(at + step * free)
        new_r, new_jac = pairs.residual(tried)
        better = new_r.square().sum(1) < r.square().sum(1)
        at, r = torch.where(better[:, None], tried, at), torch.where(better[:, None], new_r, r)
        jac = torch.where(better[:, None, None], new_jac, jac)
        damping = torch.where(better, 0.2 * damping, 8.0 * damping).clamp(1e-18, 1e6)
    return at, r.abs().amax(1) <= EQUALITY_TOLERANCE * min(max(scale, 1e-3), 1.0)


def follow(
    pairs: Pairs,
    at: Tensor,
    converged: Tensor,
    scale: float,
    steps: int,
    until: float,
    on_progress: OnProgress | None = None,
) -> tuple[Tensor, Tensor]:
    """Follow the fibre: step along the merit's tangential gradient, project back, keep the step if the merit grew."""
    side = float((pairs.high - pairs.low).mean())
    length = torch.full((len(at),), 0.05 * side, dtype=at.dtype, device=at.device)
    best = torch.where(converged, pairs.merit(at, 0.0, 0.0), -torch.inf)
    undamped = torch.full_like(length, 1e-13)
    for step in range(steps):
        if time.perf_counter() > until or bool((length < 1e-7 * side).all()):
            break
        softness = 0.03 * 10.0 ** (-2 * step / steps) * pairs.target.softness_unit
        with torch.enable_grad():
            leaf = at.clone().requires_grad_(True)
            slope = pairs.tangent(at, torch.autograd.grad(pairs.merit(leaf, softness, 0.0).sum(), leaf)[0])
        jac = pairs.residual(at)[1]
        free = pairs.free(at, slope)
        along = torch.zeros_like(at)
        for _ in range(ACTIVE_SET_ROUNDS):
            along = (slope + _least_norm_step(jac, (jac @ (slope * free)[..., None])[..., 0], free, undamped)) * free
            free = free & pairs.free(at, along)
        along = along * free
        move = length[:, None] * along / along.abs().amax(1, keepdim=True).clamp_min(1e-300)
        tried, reached = project(pairs, pairs.clamp(at + move), scale, rounds=8)
        merit = pairs.merit(tried, 0.0, 0.0)
        better = reached & (merit > best)
        at = torch.where(better[:, None], tried, at)
        best, converged = torch.where(better, merit, best), converged | better
        length = torch.where(better, 1.3 * length, 0.6 * length).clamp(max=0.5 * side)
        if on_progress is not None and step % 5 == 0:
            on_progress(step / steps, float(best.max()))
    return at, converged


def _solve(gram: Tensor, rhs: Tensor) -> Tensor:
    return torch.linalg.solve_ex(gram, rhs)[0].nan_to_num(0.0)


def _limit_step(step: Tensor, size: float) -> Tensor:
    """Shorten every step so that no coordinate exceeds `size`."""
    return step / (step.abs().amax(1, keepdim=True) / size).clamp_min(1.0)


def _least_norm_step(jac: Tensor, r: Tensor, free: Tensor, damping: Tensor) -> Tensor:
    """Return the damped least-norm solution of J·step = −r over the free coordinates."""
    part = jac * free[:, None]
    gram = part @ part.mT
    ridge = damping * gram.diagonal(dim1=1, dim2=2).mean(1) + 1e-290
    eye = torch.eye(gram.shape[1], dtype=jac.dtype, device=jac.device)
    return (part.mT @ _solve(gram + ridge[:, None, None] * eye, -r[..., None]))[..., 0]
