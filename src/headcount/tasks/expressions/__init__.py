"""Expressions: serialisable trees over a small closed set of operations, with evaluators in torch, NumPy and balls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount.core import open_door

if TYPE_CHECKING:
    from headcount.tasks.expressions import in_balls as in_balls
    from headcount.tasks.expressions import in_numpy as in_numpy
    from headcount.tasks.expressions import in_torch as in_torch
    from headcount.tasks.expressions import tree as tree
    from headcount.tasks.expressions.in_balls import ball as ball
    from headcount.tasks.expressions.in_balls import evaluate as evaluate
    from headcount.tasks.expressions.in_balls import monotone as monotone
    from headcount.tasks.expressions.in_balls import power as power
    from headcount.tasks.expressions.in_balls import softplus as softplus
    from headcount.tasks.expressions.jet_arithmetic import balls as balls
    from headcount.tasks.expressions.jet_arithmetic import ceil as ceil
    from headcount.tasks.expressions.jet_arithmetic import floor as floor
    from headcount.tasks.expressions.jet_arithmetic import jets as jets
    from headcount.tasks.expressions.tree import Expr as Expr
    from headcount.tasks.expressions.tree import Function as Function
    from headcount.tasks.expressions.tree import Node as Node
    from headcount.tasks.expressions.tree import variable as variable

__getattr__, __dir__ = open_door(__name__)
