"""How many attention heads does a task need, and what does it cost to have fewer?

    import headcount as hc

    task = hc.make_task("sum-of-maxima", intrinsic=3, dim=3, length=8)
    hc.sweep(task, heads=range(1, 6), seeds=8).plot()

Every name below is imported on first use, so that `import headcount` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headcount.core import open_door, register_display

if TYPE_CHECKING:
    from headcount.advisor import Advice as Advice
    from headcount.advisor import HeadCountAdvisor as HeadCountAdvisor
    from headcount.advisor import advise as advise
    from headcount.analysis import find_transition as find_transition
    from headcount.api import AttackResult as AttackResult
    from headcount.api import BoundsResult as BoundsResult
    from headcount.api import IrreducibleResult as IrreducibleResult
    from headcount.api import SweepResult as SweepResult
    from headcount.api import analyse as analyse
    from headcount.api import attack as attack
    from headcount.api import bounds as bounds
    from headcount.api import certify as certify
    from headcount.api import density as density
    from headcount.api import export as export
    from headcount.api import irreducible as irreducible
    from headcount.api import report as report
    from headcount.api import sweep as sweep
    from headcount.api import train as train
    from headcount.api import verify as verify
    from headcount.core import BadInput as BadInput
    from headcount.core import HeadcountError as HeadcountError
    from headcount.models import SavedModel as SavedModel
    from headcount.models import load_model as load_model
    from headcount.models.attention import Attention as Attention
    from headcount.models.transformer import ModelSpec as ModelSpec
    from headcount.models.transformer import Transformer as Transformer
    from headcount.probing import load_pruned as load_pruned
    from headcount.probing import probe as probe
    from headcount.probing import probe_folder as probe_folder
    from headcount.recheck import verify_witness as verify_witness
    from headcount.render import write_report as write_report
    from headcount.sweeps import SweepSpec as SweepSpec
    from headcount.tasks import GeneralizedRetrieval as GeneralizedRetrieval
    from headcount.tasks import index_sets as index_sets
    from headcount.tasks import make_task as make_task
    from headcount.tasks import parse_task as parse_task
    from headcount.tasks.arrays import ArrayTask as ArrayTask
    from headcount.tasks.assumptions import check_assumptions as check_assumptions
    from headcount.tasks.expressions import variable as variable
    from headcount.theory.construct import build as build
    from headcount.training import TrainSpec as TrainSpec

__version__ = "0.1.0"

__getattr__, __dir__ = open_door(__name__)


class _Results:
    """What results show and say, for rooms that may not import the room that does it."""

    @staticmethod
    def view(result: Any) -> Any:
        from headcount.api.views import view_of

        return view_of(result)

    @staticmethod
    def words(record: Any, grounds: Any) -> Any:
        from headcount.render.words import in_words

        return in_words(record, grounds)


register_display(view=_Results.view, words=_Results.words)
