"""What the trials of a run say: the transition, in numbers and in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount.core import open_door

if TYPE_CHECKING:
    from headcount.analysis.blocks import planned as planned
    from headcount.analysis.blocks import planned_heads as planned_heads
    from headcount.analysis.blocks import setting_name as setting_name
    from headcount.analysis.blocks import size as size
    from headcount.analysis.bootstrap import interval as interval
    from headcount.analysis.by_heads import HeadRow as HeadRow
    from headcount.analysis.by_heads import head_rows as head_rows
    from headcount.analysis.doubts import LEVEL_DECADES as LEVEL_DECADES
    from headcount.analysis.doubts import largest_fall as largest_fall
    from headcount.analysis.grounds import Grounds as Grounds
    from headcount.analysis.heads_needed import POOR as POOR
    from headcount.analysis.heads_needed import Evidence as Evidence
    from headcount.analysis.heads_needed import needed_above_floor as needed_above_floor
    from headcount.analysis.law import FORMS as FORMS
    from headcount.analysis.law import MIN_CELLS as MIN_CELLS
    from headcount.analysis.law import STEP as STEP
    from headcount.analysis.law import at_edge as at_edge
    from headcount.analysis.law import fit as fit
    from headcount.analysis.law import predicted as predicted
    from headcount.analysis.measures import BLIND as BLIND
    from headcount.analysis.measures import FEW as FEW
    from headcount.analysis.measures import FLOOR as FLOOR
    from headcount.analysis.measures import HALF as HALF
    from headcount.analysis.measures import UNMEASURED as UNMEASURED
    from headcount.analysis.measures import ZERO as ZERO
    from headcount.analysis.measures import Part as Part
    from headcount.analysis.measures import blind_note as blind_note
    from headcount.analysis.measures import guessing as guessing
    from headcount.analysis.measures import seen as seen
    from headcount.analysis.measures import words as measure_words  # pyright: ignore[reportUnusedImport]
    from headcount.analysis.of_runs import analyse as analyse
    from headcount.analysis.of_runs import answers as answers
    from headcount.analysis.of_runs import find_transition as find_transition
    from headcount.analysis.rates import LARGE as LARGE
    from headcount.analysis.record import Analysis as Analysis
    from headcount.analysis.record import Cause as Cause
    from headcount.analysis.record import Cell as Cell
    from headcount.analysis.record import Dimension as Dimension
    from headcount.analysis.record import EqualError as EqualError
    from headcount.analysis.record import HeadsNeeded as HeadsNeeded
    from headcount.analysis.record import Law as Law
    from headcount.analysis.record import Place as Place
    from headcount.analysis.record import Reason as Reason
    from headcount.analysis.record import Tag as Tag
    from headcount.analysis.record import Verdict as Verdict
    from headcount.analysis.record import fits as fits
    from headcount.analysis.slopes import reversal_score as reversal_score

__getattr__, __dir__ = open_door(__name__)
