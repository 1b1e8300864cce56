"""Model specs and files, and the reference transformer, readable beside equation 4."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount.core import open_door

if TYPE_CHECKING:
    from headcount.models.files import SavedModel as SavedModel
    from headcount.models.files import load_model as load_model

__getattr__, __dir__ = open_door(__name__)
