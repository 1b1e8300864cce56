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
    from headcount.api.bounds_result import bounds_table as bounds_table
    from headcount.api.irreducible_result import IrreducibleResult as IrreducibleResult
    from headcount.api.irreducible_result import irreducible as irreducible
    from headcount.api.model_views import model_facts as model_facts
    from headcount.api.proof_views import built_facts as built_facts
    from headcount.api.proof_views import built_sentences as built_sentences
    from headcount.api.proof_views import certificate_sentences as certificate_sentences
    from headcount.api.proof_views import density_sentence as density_sentence
    from headcount.api.proof_views import density_table as density_table
    from headcount.api.proof_views import weights_sentence as weights_sentence
    from headcount.api.proofs import certify as certify
    from headcount.api.proofs import density as density
    from headcount.api.reproduction import reproduce as reproduce
    from headcount.api.stored import analyse as analyse
    from headcount.api.stored import export as export
    from headcount.api.stored import read_run as read_run
    from headcount.api.stored import report as report
    from headcount.api.sweep_result import SweepResult as SweepResult
    from headcount.api.sweep_result import sweep as sweep
    from headcount.api.training import train as train
    from headcount.api.verdicts import CertificateVerdict as CertificateVerdict
    from headcount.api.verdicts import PairVerdict as PairVerdict
    from headcount.api.verdicts import verify as verify
    from headcount.api.verdicts import verify_all as verify_all
    from headcount.api.verdicts import verify_witness as verify_witness

__getattr__, __dir__ = open_door(__name__)
