"""The notebook views of a single model, just trained or read from a folder."""

from __future__ import annotations

from typing import Any

from headcount.models import SavedModel
from headcount.render import Column, Table, View, trial_table, trial_text
from headcount.render.charts import curve_chart
from headcount.training import Trained


def trained_view(trained: Trained) -> View:
    """Return the error and the sizes, and how the error fell during training."""
    trial, name = trained.trial, trained.task.name
    return View(
        sentences=[trial_text(trial, trained.wrong), f"Task: {name}."],
        tables=[trial_table(trial, trained.wrong)],
        figures=[curve_chart(trial, name)] if trial.curve else [],
        rows=[{"step": step, "nmse": error} for step, error in trial.curve],
    )


def model_facts(saved: SavedModel) -> dict[str, Any]:
    """Return a model's task, its sizes and options, the dtype of its weights and its parameter counts."""
    return {
        "task": (saved.task or {}).get("name", "not stated"),
        "model": {key: value for key, value in saved.transformer.spec.data().items() if value not in (None, False)},
        "dtype": str(saved.dtype).removeprefix("torch."),
        "parameters": saved.transformer.counts(),
    }


def saved_model_view(saved: SavedModel) -> View:
    """Return the view: the task, the sizes and options, and the parameters."""
    facts, spec = model_facts(saved), saved.transformer.spec
    numbers = {
        **facts["model"],
        "dtype": facts["dtype"],
        "parameters by the paper's count": facts["parameters"]["paper"],
        "parameters in all": facts["parameters"]["total"],
        "hash": saved.hash(),
    }
    columns = [Column(name="Setting", kind="text", key=True), Column(name="Value", kind="text")]
    rows = [[name.replace("_", " "), str(value)] for name, value in numbers.items()]
    heads = f"{spec.heads} head{'s' if spec.heads > 1 else ''} of dimension {spec.head_dim}"
    sentence = f"A transformer with {heads} and {facts['parameters']['total']:,} parameters; task: {facts['task']}."
    return View([sentence], tables=[Table(caption="", columns=columns, rows=rows)], rows=[numbers])
