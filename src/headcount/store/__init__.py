"""Trials: what was run, how it ended, what was measured, where it came from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount.core import open_door

if TYPE_CHECKING:
    from headcount.store.check import Findings as Findings
    from headcount.store.check import check_store as check_store
    from headcount.store.check import damaged_checkpoints as damaged_checkpoints
    from headcount.store.check import quick_check as quick_check
    from headcount.store.checkpoints import Snapshot as Snapshot
    from headcount.store.memory import MemoryStore as MemoryStore
    from headcount.store.memory import TrialStore as TrialStore
    from headcount.store.query import left_out_line as left_out_line
    from headcount.store.query import log as log
    from headcount.store.records import Measure as Measure
    from headcount.store.records import Run as Run
    from headcount.store.records import State as FinishedState  # pyright: ignore[reportUnusedImport]
    from headcount.store.records import Trial as Trial
    from headcount.store.schema import DamagedStore as DamagedStore
    from headcount.store.store import Store as Store
    from headcount.store.trials import FINISHED as FINISHED
    from headcount.store.trials import STATES as STATES
    from headcount.store.trials import Outcome as Outcome
    from headcount.store.trials import State as State
    from headcount.store.trials import StoredTrial as StoredTrial

__getattr__, __dir__ = open_door(__name__)
