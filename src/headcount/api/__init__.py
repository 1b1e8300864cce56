"""What `import headcount as hc` offers beyond the rooms' own names: every verb of the command line as a function."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount.core import open_door

if TYPE_CHECKING:
    from headcount.api.attack_result import AttackResult as AttackResult
    from headcount.api.attack_result import attack as attack
    from headcount.api.bounds_result import BoundsResult as BoundsResult
    from headcount.api.bounds_result import bounds as bounds
    from headcount.api.bounds_result import bounds_of as bounds_of
    from headcount.api.irreducible_result import IrreducibleResult as IrreducibleResult
    from headcount.api.irreducible_result import irreducible as irreducible
    from headcount.api.proofs import certify as certify
    from headcount.api.proofs import density as density
    from headcount.api.proofs import verify as verify
    from headcount.api.reproduction import reproduce as reproduce
    from headcount.api.stored import analyse as analyse
    from headcount.api.stored import export as export
    from headcount.api.stored import read_run as read_run
    from headcount.api.stored import report as report
    from headcount.api.sweep_result import SweepResult as SweepResult
    from headcount.api.sweep_result import sweep as sweep
    from headcount.api.training import train as train

__getattr__, __dir__ = open_door(__name__)
