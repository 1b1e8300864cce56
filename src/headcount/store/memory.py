"""A store in memory with the methods of `Store` that a runner needs, for runs that are not kept.

The runner works the same on both, and the same suite of tests covers both. A store in memory lasts as long as its
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
    """What a runner needs of a store, whether a folder or in memory."""

    def add_run(
        self, name: str, specs: Sequence[Mapping[str, Any]], about: Mapping[str, Any] | None = None
    ) -> list[str]:
        """Name a set of trials, add those that are missing as pending, and return their hashes."""
        ...

    def states(self, trials: Iterable[str]) -> dict[str, State]:
        """Return the states of those of the trials that the store has."""
        ...

    def trials(self, run: str | None = None, states: Iterable[State] | None = None) -> list[StoredTrial]:
        """Return the trials of a run, or all, in the order they were added."""
        ...

    def curve(self, trial: str) -> list[tuple[int, float]]:
        """Return the points of a trial's curve, by step."""
        ...

    def claim(self, hashes: Iterable[str]) -> list[str]:
        """Take the free ones of these trials; no two store objects ever hold the same trial."""
        ...

    def renew(self) -> list[str]:
        """Renew the lease on all trials that are held, and return their hashes."""
        ...

    def release(self) -> None:
        """Release all trials that are held."""
        ...

    def load_checkpoints(self, trials: Iterable[str]) -> dict[str, tuple[int, Arrays]]:
        """Return step and arrays of the last checkpoints."""
        ...

    def checkpoint_many(self, snapshots: Sequence[Snapshot]) -> list[str]:
        """Store checkpoints; return the trials that are not ours."""
        ...

    def finish_many(self, outcomes: Sequence[Outcome]) -> list[str]:
        """Store outcomes; return the trials that were refused."""
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
        """Return the hashes of a run's trials, in the order they were added."""
        return list(self._runs[run])

    def about(self, run: str) -> dict[str, Any]:
        """Return the data that were stored with a run, such as its spec."""
        return self._abouts.get(run, {})

    def states(self, trials: Iterable[str]) -> dict[str, State]:
        """Return the states of those of the trials that the store has."""
        return {trial: self._trials[trial].state for trial in trials if trial in self._trials}

    def counts(self, run: str) -> dict[State, int]:
        """Return how many trials of a run are in each state; states without trials are left out."""
        found = Counter(self._trials[trial].state for trial in self._runs[run])
        return {state: found[state] for state in STATES if found[state]}

    def trials(self, run: str | None = None, states: Iterable[State] | None = None) -> list[StoredTrial]:
        """Return the trials of a run, or all, in the order they were added."""
        wanted = None if states is None else set(states)
        names = self._trials if run is None else self._runs.get(run, {})
        return [self._trials[name] for name in names if wanted is None or self._trials[name].state in wanted]

    def curve(self, trial: str) -> list[tuple[int, float]]:
        """Return the points of a trial's curve, by step."""
        return sorted(self._curves.get(trial, {}).items())

    def claim(self, hashes: Iterable[str]) -> list[str]:
        """Take trials that are neither finished nor held."""
        taken = [trial for trial in dict.fromkeys(hashes) if self._trial(trial).state == "pending"]
        for trial in taken:
            self._change(trial, state="running")
        return taken

    def renew(self) -> list[str]:
        """Return the trials that are held; no other process can take them, so there is no lease to renew."""
        return [trial for trial, row in self._trials.items() if row.state == "running"]

    def release(self) -> None:
        """Release all trials that are held."""
        for trial in self.renew():
            self._change(trial, state="pending")

    def load_checkpoints(self, trials: Iterable[str]) -> dict[str, tuple[int, Arrays]]:
        """Return step and arrays of the last checkpoints."""
        return {trial: self._checkpoints[trial] for trial in trials if trial in self._checkpoints}

    def checkpoint_many(self, snapshots: Sequence[Snapshot]) -> list[str]:
        """Store checkpoints of unfinished trials; return the trials that have ended, which stay unchanged."""
        ended = [snapshot.hash for snapshot in snapshots if self._trial(snapshot.hash).finished]
        for snapshot in snapshots:
            if snapshot.hash not in ended:
                arrays = {name: array.copy() for name, array in snapshot.arrays.items()}
                self._checkpoints[snapshot.hash] = (snapshot.step, arrays)
                self._curves.setdefault(snapshot.hash, {}).update(snapshot.curve)
                self._change(snapshot.hash, step=snapshot.step, checkpoint_step=snapshot.step)
        return ended

    def finish_many(self, outcomes: Sequence[Outcome]) -> list[str]:
        """Store outcomes; return the trials that had already ended differently."""
        refused: list[str] = []
        for outcome in outcomes:
            stored = self._trial(outcome.hash)
            if stored.finished:
                if (stored.state, stored.metrics, stored.error) != (outcome.state, outcome.metrics, outcome.error):
                    refused.append(outcome.hash)
                continue
            self._checkpoints.pop(outcome.hash, None)
            self._curves.setdefault(outcome.hash, {}).update(outcome.curve)
            last = outcome.last_step()
            self._change(
                outcome.hash,
                state=outcome.state,
                metrics=_as_dict(outcome.metrics),
                provenance=_as_dict(outcome.provenance),
                error=outcome.error,
                step=stored.step if last is None else last,
                checkpoint_step=None,
            )
        return refused

    def _trial(self, trial: str) -> StoredTrial:
        if trial not in self._trials:
            raise BadInput(f"the store has no trial {trial!r}: add it to a run first")
        return self._trials[trial]

    def _change(self, trial: str, **changes: Any) -> None:
        self._trials[trial] = replace(self._trials[trial], updated=time.time(), **changes)


def _as_dict(values: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if values is None else dict(values)
