"""The theorems as functions, with all constants: enough heads, too few heads, every encoder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount.core import open_door

if TYPE_CHECKING:
    from headcount.theory.bounds import reach as reach
    from headcount.theory.bounds.calculator import MAX_ROWS as MAX_ROWS
    from headcount.theory.bounds.calculator import Facts as Facts
    from headcount.theory.bounds.calculator import Row as Row
    from headcount.theory.bounds.calculator import check_rows as check_rows
    from headcount.theory.bounds.calculator import family_rule as family_rule
    from headcount.theory.bounds.calculator import of_share as of_share
    from headcount.theory.bounds.calculator import of_tasks as of_tasks
    from headcount.theory.bounds.calculator import related as related
    from headcount.theory.bounds.calculator import rows as rows
    from headcount.theory.bounds.enough_heads import Upper as Upper
    from headcount.theory.bounds.enough_heads import budget_figure as budget_figure
    from headcount.theory.bounds.enough_heads import count_figure as count_figure
    from headcount.theory.bounds.enough_heads import uppers as uppers
    from headcount.theory.bounds.lipschitz import copies as copies
    from headcount.theory.bounds.lipschitz import find_alphabet as find_alphabet
    from headcount.theory.bounds.lipschitz import least_error as least_error
    from headcount.theory.bounds.over_encoders import Transition as Transition
    from headcount.theory.bounds.over_encoders import every_encoder as every_encoder
    from headcount.theory.bounds.reach import hard_pair as hard_pair
    from headcount.theory.bounds.related_work import Known as Known
    from headcount.theory.bounds.softmax_leakage import beta_for as beta_for
    from headcount.theory.bounds.too_few_heads import exponents as exponents
    from headcount.theory.bounds.too_few_heads import rounded_down as rounded_down

__getattr__, __dir__ = open_door(__name__)
