"""The trusted part: certificates and witnesses, verified from the weights up in ball arithmetic.

It imports nothing from the search. The search imports it, and both parse tasks with `tasks.expressions`.
docs/build.md lists what is shared, why a bug there could hide, and which tests guard against it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount.core import open_door

if TYPE_CHECKING:
    from headcount.recheck.certificate import Verdict as Verdict
    from headcount.recheck.certificate import verify as verify
    from headcount.recheck.differences import Network as Network
    from headcount.recheck.differences import difference as difference
    from headcount.recheck.enough import Checked as Checked
    from headcount.recheck.heads import Heads as Heads
    from headcount.recheck.heads import Sequences as Sequences
    from headcount.recheck.heads import matrix as matrix
    from headcount.recheck.heads import slope as slope
    from headcount.recheck.pooled import Pooled as Pooled
    from headcount.recheck.pooled import shares_pieces as shares_pieces
    from headcount.recheck.support import Equations as Equations
    from headcount.recheck.support import has_unit_tokens as has_unit_tokens
    from headcount.recheck.trees import PRECISION as PRECISION
    from headcount.recheck.trees import number as number
    from headcount.recheck.weights import Rejected as Rejected
    from headcount.recheck.weights import Weights as Weights
    from headcount.recheck.weights import read_weights as read_weights
    from headcount.recheck.wide import CheckedWide as CheckedWide
    from headcount.recheck.witness import NoInclusion as NoInclusion
    from headcount.recheck.witness import WitnessVerdict as WitnessVerdict
    from headcount.recheck.witness import prove as prove
    from headcount.recheck.witness import reader as reader
    from headcount.recheck.witness import verify_witness as verify_witness

__getattr__, __dir__ = open_door(__name__)
