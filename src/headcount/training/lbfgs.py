"""L-BFGS on a stack of models at once: the last digits, after Adam has found the valley.

Each model has its own curvature pairs, its own step length and its own end, as if it were alone: sums run over the
weights of one model, never over the stack. A step is taken only where the loss falls by a share of what the slope
promises (Armijo), so the training error never rises; a model that can no longer improve in its precision stands still.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

LossAndGradient = Callable[[Tensor], tuple[Tensor, Tensor]]
"""theta[models, size] → loss[models], gradient[models, size]."""

PAIRS = 20  # curvature pairs that are kept
PROMISE = 1e-4  # share of the promised fall that a step must bring
HALVINGS = 12  # step lengths that are tried before a model stands still


def _dot(a: Tensor, b: Tensor) -> Tensor:
    """Inner products model by model, in float64: float32 sums over thousands of weights lose the small differences."""
    return (a.double() * b.double()).sum(1)


def _direction(gradient: Tensor, pairs: list[tuple[Tensor, Tensor, Tensor]]) -> Tensor:
    """Return minus the inverse Hessian's estimate times the gradient, by the two loops over the pairs."""
    q, kept = gradient.double(), list[Tensor]()
    scale = torch.ones(len(q), 1, dtype=torch.float64, device=q.device)
    for s, y, curvature in reversed(pairs):
        weight = torch.where(curvature > 0, _dot(s, q) / curvature, 0.0)[:, None]
        q = q - weight * y
        kept.append(weight)
    for s, y, curvature in pairs:  # the latest pair that is one sets the scale
        del s
        scale = torch.where((curvature > 0)[:, None], (curvature / _dot(y, y))[:, None], scale)
    q = scale * q
    for (s, y, curvature), weight in zip(pairs, reversed(kept), strict=True):
        back = torch.where(curvature > 0, _dot(y, q) / curvature, 0.0)[:, None]
        q = q + s * (weight - back)
    return -q


def polish(
    function: LossAndGradient,
    theta: Float[Tensor, "models size"],
    iterations: int,
    stopped: Callable[[], bool] = lambda: False,
) -> Float[Tensor, "models size"]:
    """Return better weights after at most so many iterations; `stopped` is asked before each."""
    loss, gradient = function(theta)
    pairs: list[tuple[Tensor, Tensor, Tensor]] = []
    moving = torch.isfinite(loss)
    for _ in range(iterations):
        if stopped() or not bool(moving.any()):
            break
        direction = _direction(gradient, pairs)
        slope = _dot(gradient, direction)
        uphill = ~(slope < 0)
        direction = torch.where(uphill[:, None], -gradient.double(), direction)
        slope = torch.where(uphill, -_dot(gradient, gradient), slope)
        length = torch.ones_like(slope)
        if not pairs:  # nothing is known of the curvature yet: a first step of length at most 1e-2
            length = 1e-2 / direction.norm(dim=1).clamp_min(1e-2)
        theta, (loss, gradient), moved, (s, y) = _search(
            function, theta, loss, gradient, direction, slope, length, moving
        )
        moving = moving & moved
        curvature = _dot(s, y)
        curvature = torch.where(moved & (curvature > 1e-12 * _dot(y, y)), curvature, 0.0)
        pairs = [*pairs[-PAIRS + 1 :], (s.double(), y.double(), curvature)]
    return theta


def _search(
    function: LossAndGradient,
    theta: Tensor,
    loss: Tensor,
    gradient: Tensor,
    direction: Tensor,
    slope: Tensor,
    length: Tensor,
    moving: Tensor,
) -> tuple[Tensor, tuple[Tensor, Tensor], Tensor, tuple[Tensor, Tensor]]:
    """Shorten every model's step until its loss falls enough; return the new point and which models moved."""
    new, new_loss, new_gradient = theta, loss, gradient
    moved = torch.zeros_like(moving)
    for _ in range(HALVINGS):
        open_ = moving & ~moved
        if not bool(open_.any()):
            break
        tried = (theta.double() + length[:, None] * direction).to(theta.dtype)
        tried = torch.where(open_[:, None], tried, new)
        tried_loss, tried_gradient = function(tried)
        bound = loss.double() + PROMISE * length * slope
        good = open_ & (tried_loss.double() <= bound) & (tried_loss < loss)  # NaN fails every comparison
        new = torch.where(good[:, None], tried, new)
        new_loss = torch.where(good, tried_loss, new_loss)
        new_gradient = torch.where(good[:, None], tried_gradient, new_gradient)
        moved = moved | good
        length = torch.where(good, length, 0.4 * length)
    return new, (new_loss, new_gradient), moved, (new - theta, new_gradient - gradient)
