"""What the trials of a run say about the number of heads, as codes and numbers."""

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
    from headcount.analysis.heads_needed import POOR_ERROR as POOR_ERROR
    from headcount.analysis.heads_needed import Evidence as Evidence
    from headcount.analysis.heads_needed import needed_above_floor as needed_above_floor
    from headcount.analysis.law import FORMS as FORMS
    from headcount.analysis.law import GRID_OF_DELTA as GRID_OF_DELTA
    from headcount.analysis.law import MIN_CELLS as MIN_CELLS
    from headcount.analysis.law import STEP as STEP
    from headcount.analysis.law import at_edge as at_edge
    from headcount.analysis.law import fit as fit
    from headcount.analysis.law import predicted as predicted
    from headcount.analysis.measures import MIN_WRONG_ANSWERS as MIN_WRONG_ANSWERS
    from headcount.analysis.measures import NO_TRAINING_ERROR as NO_TRAINING_ERROR
    from headcount.analysis.measures import NO_WRONG_ANSWER as NO_WRONG_ANSWER
    from headcount.analysis.measures import ROUNDING_ERROR as ROUNDING_ERROR
    from headcount.analysis.measures import WRONG_ANSWERS_FOR_ZERO as WRONG_ANSWERS_FOR_ZERO
    from headcount.analysis.measures import Notice as Notice
    from headcount.analysis.measures import Part as Part
    from headcount.analysis.measures import guess_error_rate as guess_error_rate
    from headcount.analysis.measures import with_errors_on as with_errors_on
    from headcount.analysis.of_runs import analyse as analyse
    from headcount.analysis.of_runs import answers as answers
    from headcount.analysis.of_runs import find_transition as find_transition
    from headcount.analysis.rates import LARGE_ERROR_RATE as LARGE_ERROR_RATE
    from headcount.analysis.record import Analysis as Analysis
    from headcount.analysis.record import Cause as Cause
    from headcount.analysis.record import Cell as Cell
    from headcount.analysis.record import Departure as Departure
    from headcount.analysis.record import Dimension as Dimension
    from headcount.analysis.record import EqualError as EqualError
    from headcount.analysis.record import HeadsNeeded as HeadsNeeded
    from headcount.analysis.record import Law as Law
    from headcount.analysis.record import Place as Place
    from headcount.analysis.record import Reason as Reason
    from headcount.analysis.record import Scaling as Scaling
    from headcount.analysis.record import Tag as Tag
    from headcount.analysis.record import Verdict as Verdict
    from headcount.analysis.record import fits as fits
    from headcount.analysis.slopes import reversal_score as reversal_score

__getattr__, __dir__ = open_door(__name__)
