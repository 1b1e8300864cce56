"""The trial that names the fastest attention kernel of a device; its clock is made up here."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from headcount.kernels.attention import trial
from headcount.kernels.attention.trial import TRIAL_HEADS, attention_needs_trial, fastest_attention


def test_the_fastest_kernel_is_chosen(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """And one line says on what attention runs, and why not on the others."""
    enabled = {
        "flash": torch.backends.cuda.flash_sdp_enabled,
        "efficient": torch.backends.cuda.mem_efficient_sdp_enabled,
        "cudnn": torch.backends.cuda.cudnn_sdp_enabled,
    }
    times = {"flash": [9.0, 4.0, 4.0, 5.0], "efficient": [8.0, 7.0, 3.0, 7.0]}

    def timed(parts: Tensor, seen: Tensor | None) -> float:
        (name,) = [name for name, on in enabled.items() if on()]
        if name not in times:
            raise RuntimeError("No available kernel")
        return times[name].pop(0)

    monkeypatch.setattr(trial, "_milliseconds", timed)
    shape = (2, 40, 4, torch.float32, False, torch.device("cpu"))
    with caplog.at_level("INFO", logger=trial.__name__):
        assert fastest_attention(*shape) == "efficient"
        assert fastest_attention(*shape) == "efficient"  # from memory: there are no more times
        times.clear()
        assert fastest_attention(3, *shape[1:]) is None
    refused, narrow = "it does not support this shape, mask or device", "narrow: the tensors are on the cpu"
    first, second = (record.getMessage().partition(", not on ") for record in caplog.records)
    assert first[0] == "attention over 40 tokens runs on efficient (3 ms)"
    assert first[2] == f"flash: 4 ms; cudnn: {refused}; {narrow}"
    assert second[0] == "attention over 40 tokens runs as torch chooses"
    assert second[2] == f"flash: {refused}; efficient: {refused}; cudnn: {refused}; {narrow}"


def test_our_own_kernel_is_timed_where_it_applies(monkeypatch: pytest.MonkeyPatch) -> None:
    preferred: list[bool] = []
    monkeypatch.setattr(trial, "_why_not_narrow", lambda _: None)
    monkeypatch.setattr(trial, "_milliseconds", lambda *_: preferred.append(trial.narrow_preferred.get()) or 1.0)
    assert fastest_attention(5, 40, 16, torch.float32, False, torch.device("cpu")) == "flash"  # the first of equals
    assert preferred == 12 * [False] + 4 * [True]
    assert not trial.narrow_preferred.get()


def test_no_trial_in_float32_on_a_cpu_or_for_few_tokens() -> None:
    cuda = torch.device("cuda", 0)
    assert attention_needs_trial(33, torch.bfloat16, cuda)
    assert not attention_needs_trial(32, torch.bfloat16, cuda)
    assert not attention_needs_trial(33, torch.float32, cuda)
    assert not attention_needs_trial(33, torch.bfloat16, torch.device("cpu"))


def test_all_head_counts_share_one_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes: list[tuple[int, ...]] = []
    monkeypatch.setattr(trial, "_milliseconds", lambda parts, _: shapes.append(tuple(parts.shape)) or 1.0)
    fastest_attention(6, 41, 4, torch.float32, True, torch.device("cpu"))
    assert {shape[3] for shape in shapes} == {TRIAL_HEADS}
