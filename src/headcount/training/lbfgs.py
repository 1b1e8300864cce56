"""L-BFGS for a stack of models at once, to gain the last digits after Adam.

Each model has its own curvature pairs, step length and stopping point, as if it were alone: sums run over the weights
of one model, never over the stack. A step is taken only if it satisfies Armijo's condition, so the training error never
rises; a model that can no longer improve within its precision stops moving.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

LossAndGradient = Callable[[Tensor], tuple[Tensor, Tensor]]
"""theta[models, size] → loss[models], gradient[models, size]."""

MAX_PAIRS = 20  # curvature pairs kept per model
ARMIJO_FRACTION = 1e-4  # fraction of the decrease predicted by the slope that a step must achieve
MAX_STEP_TRIALS = 12  # step lengths tried before a model stops moving
STEP_SHRINKAGE = 0.4  # factor between two step lengths tried


def _dot(a: Tensor, b: Tensor) -> Tensor:
    """Return each model's inner product, in float64: float32 sums over thousands of weights lose small differences."""
    return (a.double() * b.double()).sum(1)


def _direction(gradient: Tensor, pairs: list[tuple[Tensor, Tensor, Tensor]]) -> Tensor:
    """Return minus the estimated inverse Hessian times the gradient, by the two-loop recursion."""
    q, weights = gradient.double(), list[Tensor]()
    scale = torch.ones(len(q), 1, dtype=torch.float64, device=q.device)
    for s, y, curvature in reversed(pairs):
        weight = torch.where(curvature > 0, _dot(s, q) / curvature, 0.0)[:, None]
        q = q - weight * y
        weights.append(weight)
    for s, y, curvature in pairs:  # the latest pair with positive curvature sets the scale
        del s
        scale = torch.where((curvature > 0)[:, None], (curvature / _dot(y, y))[:, None], scale)
    q = scale * q
    for (s, y, curvature), weight in zip(pairs, reversed(weights), strict=True):
        back = torch.where(curvature > 0, _dot(y, q) / curvature, 0.0)[:, None]
        q = q + s * (weight - back)
    return -q


def polish(
    function: LossAndGradient,
    theta: Float[Tensor, "models size"],
    iterations: int,
    stopped: Callable[[], bool] = lambda: False,
) -> Float[Tensor, "models size"]:
    """Return improved weights after at most this many iterations; `stopped` is checked before each."""
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
        if not pairs:  # the curvature is still unknown: limit the first step to length 1e-2
            length = 1e-2 / direction.norm(dim=1).clamp_min(1e-2)
        theta, (loss, gradient), moved, (s, y) = _search(
            function, theta, loss, gradient, direction, slope, length, moving
        )
        moving = moving & moved
        curvature = _dot(s, y)
        curvature = torch.where(moved & (curvature > 1e-12 * _dot(y, y)), curvature, 0.0)
        pairs = [*pairs[-MAX_PAIRS + 1 :], (s.double(), y.double(), curvature)]
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
    """Backtrack until each model's loss falls enough; return the point, loss and gradient, who moved, and (s, y)."""
    new, new_loss, new_gradient = theta, loss, gradient
    moved = torch.zeros_like(moving)
    for _ in range(MAX_STEP_TRIALS):
        searching = moving & ~moved
        if not bool(searching.any()):
            break
        trial = (theta.double() + length[:, None] * direction).to(theta.dtype)
        trial = torch.where(searching[:, None], trial, new)
        trial_loss, trial_gradient = function(trial)
        bound = loss.double() + ARMIJO_FRACTION * length * slope
        accepted = searching & (trial_loss.double() <= bound) & (trial_loss < loss)  # NaN fails every comparison
        new = torch.where(accepted[:, None], trial, new)
        new_loss = torch.where(accepted, trial_loss, new_loss)
        new_gradient = torch.where(accepted[:, None], trial_gradient, new_gradient)
        moved = moved | accepted
        length = torch.where(accepted, length, STEP_SHRINKAGE * length)
    return new, (new_loss, new_gradient), moved, (new - theta, new_gradient - gradient)
