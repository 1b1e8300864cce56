"""A store in memory: the same calls as `Store`, for runs that nobody keeps.

What runs on a store runs on this one as well, and the same suite of tests holds for both. It lives as long as its
process and belongs to one thread; final weights are not kept.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

from headcount.core import BadInput, content_hash
from headcount.store.checkpoints import Arrays, Snapshot
from headcount.store.trials import STATES, Outcome, State, StoredTrial


@runtime_checkable
class TrialStore(Protocol):
    """What a runner asks of a store, be it a folder or memory."""

    def add_run(
        self, name: str, specs: Sequence[Mapping[str, Any]], about: Mapping[str, Any] | None = None
    ) -> list[str]:
        """Name a set of trials, add those that are missing as pending, and return their hashes."""
        ...

    def states(self, trials: Iterable[str]) -> dict[str, State]:
        """Return the states of those trials that the store has."""
        ...

    def trials(self, run: str | None = None, states: Iterable[State] | None = None) -> list[StoredTrial]:
        """Return the trials of a run, or all, in the order in which they were added."""
        ...

    def curve(self, trial: str) -> list[tuple[int, float]]:
        """Return the points of a trial's curve, by step."""
        ...

    def claim(self, hashes: Iterable[str]) -> list[str]:
        """Take trials that are free; no two ever hold the same one."""
        ...

    def renew(self) -> list[str]:
        """Say that what is held is still being worked on."""
        ...

    def release(self) -> None:
        """Give back all that is held."""
        ...

    def load_checkpoints(self, trials: Iterable[str]) -> dict[str, tuple[int, Arrays]]:
        """Return step and arrays of the last checkpoints."""
        ...

    def checkpoint_many(self, snapshots: Sequence[Snapshot]) -> list[str]:
        """Keep checkpoints; return the trials that are not ours."""
        ...

    def finish_many(self, outcomes: Sequence[Outcome]) -> list[str]:
        """Keep how trials ended; return those that were refused."""
        ...


class MemoryStore:
    """Trials, runs, curves and checkpoints of one process."""

    def __init__(self) -> None:
        self._trials: dict[str, StoredTrial] = {}
        self._runs: dict[str, dict[str, None]] = {}
        self._abouts: dict[str, dict[str, Any]] = {}
        self._curves: dict[str, dict[int, float]] = {}
        self._checkpoints: dict[str, tuple[int, Arrays]] = {}

    def add_run(
        self, name: str, specs: Sequence[Mapping[str, Any]], about: Mapping[str, Any] | None = None
    ) -> list[str]:
        """Name a set of trials, add those that are missing as pending, and return their hashes in the order given."""
        if not specs:
            raise BadInput(f"run {name!r} has no trials: give at least one spec")
        now = time.time()
        hashes = [content_hash(spec) for spec in specs]
        for trial, spec in zip(hashes, specs, strict=True):
            if trial not in self._trials:
                self._trials[trial] = StoredTrial(
                    trial, dict(spec), "pending", 0, None, None, None, None, None, None, now, now
                )
        self._runs.setdefault(name, {}).update(dict.fromkeys(hashes))
        if about is not None:
            self._abouts[name] = dict(about)
        return hashes

    def members(self, run: str) -> list[str]:
        """Return the hashes of a run's trials, in the order in which they were added."""
        return list(self._runs[run])

    def about(self, run: str) -> dict[str, Any]:
        """Return what else is known of a run."""
        return self._abouts.get(run, {})

    def states(self, trials: Iterable[str]) -> dict[str, State]:
        """Return the states of those trials that the store has."""
        return {trial: self._trials[trial].state for trial in trials if trial in self._trials}

    def counts(self, run: str) -> dict[State, int]:
        """Return how many trials of a run are in which state."""
        found = Counter(self._trials[trial].state for trial in self._runs[run])
        return {state: found[state] for state in STATES if found[state]}

    def trials(self, run: str | None = None, states: Iterable[State] | None = None) -> list[StoredTrial]:
        """Return the trials of a run, or all, in the order in which they were added."""
        wanted = None if states is None else set(states)
        names = self._trials if run is None else self._runs.get(run, {})
        return [self._trials[name] for name in names if wanted is None or self._trials[name].state in wanted]

    def curve(self, trial: str) -> list[tuple[int, float]]:
        """Return the points of a trial's curve, by step."""
        return sorted(self._curves.get(trial, {}).items())

    def claim(self, hashes: Iterable[str]) -> list[str]:
        """Take trials that are neither finished nor held."""
        taken = [trial for trial in dict.fromkeys(hashes) if self._known(trial).state == "pending"]
        for trial in taken:
            self._change(trial, state="running")
        return taken

    def renew(self) -> list[str]:
        """Return what is held; nobody else could take it."""
        return [trial for trial, row in self._trials.items() if row.state == "running"]

    def release(self) -> None:
        """Give back all that is held."""
        for trial in self.renew():
            self._change(trial, state="pending")

    def load_checkpoints(self, trials: Iterable[str]) -> dict[str, tuple[int, Arrays]]:
        """Return step and arrays of the last checkpoints."""
        return {trial: self._checkpoints[trial] for trial in trials if trial in self._checkpoints}

    def checkpoint_many(self, snapshots: Sequence[Snapshot]) -> list[str]:
        """Keep checkpoints of unfinished trials; return the trials that have ended, left as they are."""
        lost = [snapshot.hash for snapshot in snapshots if self._known(snapshot.hash).finished]
        for one in snapshots:
            if one.hash not in lost:
                self._checkpoints[one.hash] = (one.step, {name: array.copy() for name, array in one.arrays.items()})
                self._curves.setdefault(one.hash, {}).update(one.curve)
                self._change(one.hash, step=one.step, checkpoint_step=one.step)
        return lost

    def finish_many(self, outcomes: Sequence[Outcome]) -> list[str]:
        """Keep how trials ended; return those that had ended otherwise."""
        refused: list[str] = []
        for one in outcomes:
            row = self._known(one.hash)
            if row.finished:
                if (row.state, row.metrics, row.error) != (one.state, one.metrics, one.error):
                    refused.append(one.hash)
                continue
            self._checkpoints.pop(one.hash, None)
            self._curves.setdefault(one.hash, {}).update(one.curve)
            last = one.last_step()
            self._change(
                one.hash,
                state=one.state,
                metrics=_plain(one.metrics),
                provenance=_plain(one.provenance),
                error=one.error,
                step=row.step if last is None else last,
                checkpoint_step=None,
            )
        return refused

    def _known(self, trial: str) -> StoredTrial:
        if trial not in self._trials:
            raise BadInput(f"the store has no trial {trial!r}: add it to a run first")
        return self._trials[trial]

    def _change(self, trial: str, **changes: Any) -> None:
        self._trials[trial] = replace(self._trials[trial], updated=time.time(), **changes)


def _plain(values: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if values is None else dict(values)
