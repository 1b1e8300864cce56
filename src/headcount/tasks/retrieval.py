"""Generalized D-retrieval: H(X) = F0(z_1, …, z_D) with z_i = min over t in S_i of f_i(x(t))."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from headcount.core import BadInput
from headcount.tasks.expressions import in_torch as expr_torch
from headcount.tasks.expressions.tree import Function, Node
from headcount.tasks.sampling import Law, Uniform
from headcount.tasks.task import Task


class GeneralizedRetrieval(Task):
    """A task of the paper's class, for any f_i, index sets and F0.

    f: D functions of one token, R^dim → R. S: D sets of positions (from 0), or None for all positions. F0: a function
    R^D → R^out. Functions are expressions; bare callables on tensors also work, for training and search only: such a
    task cannot be saved, and nothing about it can be built or proved. length: T. dim: d, if the functions f do not
    determine it. law: the distribution of tokens (default: uniform on [0, 1]^d). name: of the task.

    Its methods take X[..., length, dim].
    """

    def __init__(
        self,
        f: Sequence[Function],
        S: Sequence[Sequence[int]] | None,
        F0: Function,
        *,
        length: int,
        dim: int | None = None,
        law: Law | None = None,
        name: str = "retrieval",
    ) -> None:
        if not f:
            raise BadInput("a retrieval task needs at least one function f")
        dims = {g.in_dim for g in f if isinstance(g, Node)}
        if dim is None:
            if len(dims) != 1:
                raise BadInput("dim is not clear from the functions f: state it")
            dim = dims.pop()
        for i, g in enumerate(f):
            if isinstance(g, Node) and (g.out_dim != 1 or g.in_dim not in (0, dim)):
                raise BadInput(
                    f"f[{i}] maps R^{g.in_dim} → R^{g.out_dim}: it must map one token, R^{dim}, to one number"
                )
        if isinstance(F0, Node) and F0.in_dim not in (0, len(f)):
            raise BadInput(f"F0 takes {F0.in_dim} numbers, but there are {len(f)} functions f: it must take one per f")
        if isinstance(length, bool) or not isinstance(length, int):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise BadInput(f"length must be a whole number ≥ 1, not {length!r}")
        if length < len(f):
            raise BadInput(f"length must be at least D = {len(f)}, not {length}: each f needs a position")
        self.f, self.F0 = tuple(f), F0
        sets = [range(length)] * len(f) if S is None else S
        if len(sets) != len(f):
            raise BadInput(f"there are {len(f)} functions f but {len(sets)} index sets S: give one set per f")
        try:
            self.S = tuple(tuple(sorted(_position(t) for t in s)) for s in sets)
        except TypeError:
            raise BadInput("S must be D lists of positions, which are whole numbers from 0") from None
        for i, s in enumerate(self.S):
            if not s or len(set(s)) != len(s) or s[0] < 0 or s[-1] >= length:
                raise BadInput(
                    f"S[{i}] must be a non-empty list of distinct positions from 0 to {length - 1}; got {list(s)[:8]}"
                )
        # the number of outputs of a callable is found by calling it
        out_dim = F0.out_dim if isinstance(F0, Node) else int(_call(F0, torch.zeros(2, len(f))).shape[-1])
        super().__init__(name=name, length=length, dim=dim, out_dim=out_dim, law=law or Uniform())

    @property
    def intrinsic(self) -> int:
        """The exact D: the number of distinct pairs (f_i, S_i) with f_i not constant that F0 reads.

        It is decided by structure: the same function over the same set counts once, and a coordinate that F0 never
        reads does not count. Redundancy that only algebra could show is left to `check_assumptions`.
        """
        return len(self._lookups())

    @property
    def positional(self) -> bool:
        """Whether some minimum is taken over only a part of the positions."""
        return any(len(s) < self.length for _, s in self._lookups())

    def _lookups(self) -> set[tuple[Function, tuple[int, ...]]]:
        """Return the pairs (f_i, S_i) that count."""
        read = self.F0.reads() if isinstance(self.F0, Node) else frozenset(range(len(self.f)))
        return {
            (g, s)
            for i, (g, s) in enumerate(zip(self.f, self.S, strict=True))
            if i in read and not (isinstance(g, Node) and not g.reads())
        }

    @property
    def symbolic(self) -> bool:
        """Whether all functions are expressions, so that the task can be saved, built and proved."""
        return all(isinstance(g, Node) for g in (*self.f, self.F0))

    def tokens(self, X: Tensor) -> Tensor:
        """Return f_i(x(t)) for every token of X, as [..., D, length]."""
        values = [_call(g, X) for g in self.f]
        for i, v in enumerate(values):
            if v.shape[-1] != 1:
                raise BadInput(f"f[{i}] returns {v.shape[-1]} numbers per token: it must return one")
        return torch.stack([v[..., 0] for v in values], dim=-2)

    def retrieve(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return the minima z[..., D] of X and the positions [..., D] where they are attained (the first of ties)."""
        self.check_input(X)
        members = self.members(X.device)
        values = self.tokens(X).masked_fill(~members, torch.inf)
        # argmin does not promise the first of ties: take the first position that attains the minimum
        z = values.amin(-1)
        # inf and nan must also come from a position of S_i
        attains = ((values == z[..., None]) | values.isnan()) & members
        positions = attains.to(torch.int8).argmax(-1)
        return torch.gather(values, -1, positions[..., None])[..., 0], positions

    def features(self, X: Tensor) -> Tensor:
        """Return the minima z[..., D] of X; gradients flow only through the attained minima."""
        return self.retrieve(X)[0]

    def positions(self, X: Tensor) -> Tensor:
        """Return the positions [..., D] that are retrieved from X."""
        return self.retrieve(X)[1]

    def value(self, X: Tensor) -> Tensor:
        """Return H(X)[..., out_dim]."""
        return _call(self.F0, self.features(X))

    def gradient(self, X: Tensor) -> Tensor:
        """Return dH/dX[..., out_dim, length, dim] at X: zero except at the retrieved positions."""
        with torch.enable_grad():
            leaf = X.detach().requires_grad_(True)
            totals = self.value(leaf).reshape(-1, self.out_dim).sum(0)
            if not totals.requires_grad:  # a callable that ignores its input
                return X.new_zeros(*X.shape[:-2], self.out_dim, self.length, self.dim)
            rows = [torch.autograd.grad(total, leaf, retain_graph=True, materialize_grads=True)[0] for total in totals]
        return torch.stack(rows, dim=-3)

    def data(self) -> dict[str, Any]:
        """Return the task as JSON data; refused for bare callables."""
        if not self.symbolic:
            raise BadInput(
                f"{self.name} uses a bare Python function, which cannot be saved: "
                "write f and F0 as expressions (hc.variable) to save, build or prove"
            )
        functions = [g.data() for g in self.f if isinstance(g, Node)]
        F0 = self.F0.data() if isinstance(self.F0, Node) else None
        return {"kind": "retrieval", **self._common(), "f": functions, "S": [list(s) for s in self.S], "F0": F0}

    def members(self, device: torch.device) -> Tensor:
        """Return bool[D, length]: whether position t belongs to S_i, on a device."""
        members = torch.zeros(len(self.S), self.length, dtype=torch.bool, device=device)
        for i, s in enumerate(self.S):
            members[i, list(s)] = True
        return members


def _call(g: Function, x: Tensor) -> Tensor:
    """Evaluate an expression or a callable; a callable may drop a last axis of length 1."""
    if isinstance(g, Node):
        return expr_torch.evaluate(g, x)
    y = g(x)
    y = y if y.ndim == x.ndim else y[..., None]
    if y.shape[:-1] != x.shape[:-1]:
        raise BadInput(
            f"a function mapped {list(x.shape)} to {list(y.shape)}: only the last axis may change (sum(-1), not sum())"
        )
    return y


def _position(t: Any) -> int:
    """Return a position as an int: whole numbers of any type are accepted, but not bool."""
    if isinstance(t, bool):
        raise TypeError
    return operator.index(t)
