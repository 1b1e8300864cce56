"""A worker process: reads one trial a line on standard input, writes progress and the record as JSON lines.

A process of its own, started as `python -m headcount.experiments.worker`, needs nothing of the caller's main
module, so that experiments run from scripts, notebooks and the shell alike.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch

from headcount.base.errors import HeadcountError
from headcount.experiments.data import prepare
from headcount.experiments.spec import ExperimentSpec
from headcount.experiments.train import train


def _say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Train what comes in until the input ends."""
    torch.set_num_threads(1)  # the models are small: one core each beats several cores on one
    spec = ExperimentSpec.parse(json.loads(sys.stdin.readline()))
    task = spec.task.task()
    data = prepare(task, spec.train)
    for line in sys.stdin:
        trial = json.loads(line)
        model = spec.model.model(heads=trial["heads"], dim=task.dim, length=task.length, out_dim=task.out_dim)
        try:
            trained = train(
                task, model, spec.train, seed=trial["seed"], data=data,
                on_step=lambda step, error: _say({"step": step, "nmse": error}),
            )  # fmt: skip
        except HeadcountError as error:
            _say({"error": str(error)})
        else:
            _say({"trial": trained.trial.data()})


if __name__ == "__main__":
    main()
