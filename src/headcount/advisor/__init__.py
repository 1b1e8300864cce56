"""How many heads a user's data need: trials within a budget, the rule, prices, and a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount.core import open_door

if TYPE_CHECKING:
    from headcount.advisor.advice import FILES as FILES
    from headcount.advisor.advice import Advice as Advice
    from headcount.advisor.advice import advise as advise
    from headcount.advisor.advice import check_numbers as check_numbers
    from headcount.advisor.configuration import Configuration as Configuration
    from headcount.advisor.configuration import check_width as check_width
    from headcount.advisor.data import Material as Material
    from headcount.advisor.data import material as material
    from headcount.advisor.data import prepared as prepared
    from headcount.advisor.engine import TrialEngine as TrialEngine
    from headcount.advisor.record import WitnessRecord as WitnessRecord
    from headcount.advisor.search import Search as Search
    from headcount.advisor.sklearn import HeadCountAdvisor as HeadCountAdvisor
    from headcount.advisor.split import Split as Split
    from headcount.advisor.split import Splits as Splits
    from headcount.advisor.witness import MIN_SEARCH_SECONDS as MIN_SEARCH_SECONDS
    from headcount.advisor.words.answer import curve_table as curve_table
    from headcount.advisor.words.answer import curve_text as curve_text
    from headcount.advisor.words.answer import price_text as price_text

__getattr__, __dir__ = open_door(__name__)
