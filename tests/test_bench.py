"""The bench: every row or its reason, ratios that follow from the times, and peers that do the same mathematics."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from benchmarks import speed
from benchmarks.peers import floor, run, steps, sweep, tables, turns, vmap
from benchmarks.peers.jax import Jax, JaxTraining
from benchmarks.peers.sweep_plan import BenchSweep
from benchmarks.peers.torch_layers import TorchLayers, one_at_a_time
from benchmarks.peers.turns import LEARNING_RATE, PeerUnavailable
from headcount.core.text.terminal import Terminal
from headcount.models.transformer.reference import Transformer
from headcount.models.transformer.spec import ModelSpec
from headcount.training.data import Part
from headcount.training.spec import TrainSpec
from results import shape_problems
from support import Cli

Predict = Callable[[Mapping[str, Tensor], Tensor], Tensor]
SPEC = ModelSpec(dim=3, length=5, heads=2, head_dim=4, hidden=6)
TINY = steps.BenchPlan(lengths=(4,), turns=1, batch=8, samples=32, compiled=False, work=0.01, models=2)
needs_jax = pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="JAX is not installed")


def tiny_sweep(heads: tuple[int, ...] = (1, 2), total: int = 30) -> BenchSweep:
    train = TrainSpec(steps=total, warmup=5, batch=16, train_size=64, validation_size=32, evaluations=3)
    return BenchSweep(train, heads=heads, lengths=(4,), seeds=2, hidden=8)


@pytest.fixture
def no_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)


# -- the peers do the same mathematics --------------------------------------------------------------------------------


def same_function(predict: Predict, spec: ModelSpec = SPEC) -> bool:
    """Whether a peer computes what the reference does with the same weights."""
    model = Transformer(spec, seed=5)
    X = torch.randn(7, spec.length, spec.dim, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        return torch.allclose(predict(dict(model.named_parameters()), X), model(X), rtol=1e-4, atol=1e-5)


def with_jax(w: Mapping[str, Tensor], X: Tensor) -> Tensor:
    peer = Jax("cpu")
    out = peer.predict({name: peer.put(t.detach().numpy()) for name, t in w.items()}, peer.put(X.numpy()))
    return torch.tensor(peer.jax.device_get(out))


PREDICTORS = [vmap.predict, pytest.param(with_jax, marks=needs_jax)]


@pytest.mark.parametrize("predict", PREDICTORS)
@pytest.mark.parametrize("size", [{}, {"heads": 1}, {"heads": 5, "length": 1}, {"out_dim": 3, "hidden": 17}])
def test_a_peer_is_the_reference(predict, size):
    assert same_function(predict, ModelSpec.parse({**SPEC.data(), "width": None, **size}))


def half_as_sharp(w: Mapping[str, Tensor], X: Tensor) -> Tensor:
    return vmap.predict({**w, "layers.0.attention.query": w["layers.0.attention.query"] / 2}, X)


def no_class_token(w: Mapping[str, Tensor], X: Tensor) -> Tensor:
    """Drop the "c +" of equation 4, which a peer could save."""
    F = "layers.0.feedforward.layers.0"
    return vmap.predict({**w, f"{F}.bias": w[f"{F}.bias"] - w[f"{F}.weight"] @ w["class_token"]}, X)


def fewer_heads(w: Mapping[str, Tensor], X: Tensor) -> Tensor:
    cut = {name: t[:1] if ".attention." in name else t for name, t in w.items()}
    return vmap.predict(cut, X)


@pytest.mark.parametrize("sabotaged", [half_as_sharp, no_class_token, fewer_heads])
def test_a_peer_that_does_less_is_noticed(sabotaged):
    assert not same_function(sabotaged)


def one_sequence() -> Part:
    """Data that leave nothing to chance: every batch is the same sequence."""
    g = torch.Generator().manual_seed(2)
    return Part(torch.randn(1, SPEC.length, SPEC.dim, generator=g), torch.randn(1, 1, generator=g))


def reference_after(count: int) -> dict[str, Tensor]:
    model, part = Transformer(SPEC, seed=1), one_sequence()
    optimiser = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    for _ in range(count):
        optimiser.zero_grad()
        (model(part.X) - part.y).square().mean().backward()
        optimiser.step()
    return {name: p.detach() for name, p in model.named_parameters()}


def same_weights(found: Mapping[str, Tensor], count: int) -> bool:
    """Whether the second model of a stack is where the plain loop is after so many steps."""
    return all(torch.allclose(found[n][1], w, rtol=1e-3, atol=2e-5) for n, w in reference_after(count).items())


def test_vmap_trains_as_the_plain_loop():
    training = vmap.VmapTraining(vmap.stacked_weights(SPEC, [0, 1]), one_sequence(), 4, compiled=False)
    assert training.run(6) == 12
    found = {name: w.detach() for name, w in training.weights.items()}
    assert same_weights(found, 6)
    assert not same_weights(found, 5)


@needs_jax
def test_jax_trains_as_the_plain_loop():
    training = JaxTraining("cpu", vmap.stacked_weights(SPEC, [0, 1]), one_sequence(), 4, 3)
    assert training.run() + training.run() == 12
    found = {name: torch.tensor(training.peer.jax.device_get(w)) for name, w in training.state[0].items()}
    assert same_weights(found, 6)
    assert not same_weights(found, 5)


def test_the_two_uses_of_torchs_layer_are_one_function():
    usual, cheapest = TorchLayers(SPEC, all_rows=True), TorchLayers(SPEC, all_rows=False)
    cheapest.load_state_dict(usual.state_dict())
    X = torch.randn(6, SPEC.length, SPEC.dim)
    torch.testing.assert_close(usual(X), cheapest(X), rtol=1e-4, atol=1e-5)


def test_one_model_at_a_time_learns():
    part = one_sequence()
    model = nn.Sequential(nn.Flatten(), nn.Linear(SPEC.length * SPEC.dim, 1))
    before = float((model(part.X) - part.y).square().sum().detach())
    assert one_at_a_time(model, part, 4, 50)() == 50
    assert float((model(part.X) - part.y).square().sum().detach()) < before


# -- the table ------------------------------------------------------------------------------------------------------


def text_of(table: Any) -> str:
    console = Terminal(width=160, record=True, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
    console.print(table)
    return console.export_text()


def tiny_result(monkeypatch: pytest.MonkeyPatch, plan: steps.BenchPlan = TINY, **options: Any) -> dict[str, Any]:
    monkeypatch.setattr(run, "help_seconds", lambda: 0.2)
    monkeypatch.setattr(run, "peak_rate", lambda _: (1e11, "100 GFLOP/s, made up"))
    return run.run_bench(plan.device, plan=plan, quiet=True, **options)


def test_every_row_has_times_or_a_reason(monkeypatch, no_jax):
    class NoCompiler:
        def __init__(self, *_: Any, **__: Any) -> None:
            raise RuntimeError("InvalidCxxCompiler: No working C++ compiler found in torch._inductor.config.cpp.cxx")

    monkeypatch.setattr(steps, "VmapTraining", NoCompiler)
    result = tiny_result(monkeypatch)
    row = result["T=4"]
    assert row["absent"] == {"vmap": "torch.compile needs a C++ compiler", "jax": "JAX is not installed"}
    timed = {"nn_mha", "class_query", "reference"}
    assert {key.removesuffix("_over_engine") for key in row if key.endswith("_over_engine")} == timed
    for name in timed:  # of one turn the ratio is that of the times
        assert row[f"{name}_over_engine"] == pytest.approx(row[f"{name}_us"] / row["engine_us"])
    assert row["floor_us"] == pytest.approx(8 * 4 * 2304 / 1e11 * 1e6)
    assert row["share_of_floor"] == pytest.approx(row["floor_us"] / row["engine_us"])
    table = text_of(tables.steps_table(result, TINY.rows))
    assert all(label in table for label in TINY.rows.values())
    assert "JAX is not installed" in table
    assert "needs a C++ compiler" in table
    assert f"{row['nn_mha_us']:,.0f}" in table


def test_the_result_can_be_committed_and_is_saved_as_it_grows(monkeypatch, no_jax, tmp_path):
    saved: list[set[str]] = []
    plan = steps.BenchPlan(**{**vars(TINY), "lengths": (4, 6), "skip": ("nn_mha", "class_query", "reference", "vmap")})
    result = tiny_result(monkeypatch, plan, save=lambda r: saved.append(set(r)), sweep=True, trials=tiny_sweep((1,)))
    assert shape_problems({**result, "provenance": {**result["provenance"], "commit": "0" * 12}}, "bench-cpu") == []
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    assert result["T=4"]["absent"]["vmap"] == "left out"
    assert ["T=6" in part for part in saved] == [False, True, True, True]
    assert ["sweep" in part for part in saved] == [False, False, True, True]
    assert result["counts"] == {**result["counts"], "trials": 2, "turns": 1}


def test_ours_must_run(monkeypatch):
    monkeypatch.setattr(steps, "cpu_engine", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        tiny_result(monkeypatch, steps.BenchPlan(**{**vars(TINY), "skip": tuple(steps.PEERS)}))


def test_turns_are_taken_in_turn():
    order: list[str] = []

    def work(name: str) -> Callable[[], int]:
        return lambda: order.append(name) or 1

    found = turns.in_turns({"a": work("a"), "b": work("b")}, 3, "cpu")
    assert order == ["a", "b"] * 3
    assert [len(times) for times in found.values()] == [3, 3]
    assert turns.ratio([2.0, 8.0, 9.0], [1.0, 2.0, 3.0]) == 3.0


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RuntimeError("CUDA out of memory. Tried to allocate 3 GiB"), "out of memory"),
        (ValueError("first line\nsecond"), "did not run: ValueError: first line"),
        (Exception(), "did not run: Exception:"),
    ],
)
def test_reasons_are_short(error, reason):
    assert turns.short_reason(error) == reason


# -- a GPU's way through it, with a CPU in its place ------------------------------------------------------------------


@pytest.fixture
def pretended_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `cuda` mean the CPU: the lines that only a GPU runs are then run here too."""
    move = Tensor.to
    monkeypatch.setattr(Tensor, "to", lambda t, d, *a, **k: move(t, "cpu" if d == "cuda" else d, *a, **k))
    for name, value in {"get_device_name": "NVIDIA H200", "synchronize": None, "empty_cache": None}.items():
        monkeypatch.setattr(torch.cuda, name, lambda *_, v=value: v)
    monkeypatch.setattr(steps, "find_device", lambda _: torch.device("cpu"))
    trained = sweep.train_jobs
    monkeypatch.setattr(sweep, "train_jobs", lambda jobs, device, quiet: trained(jobs, device="cpu", quiet=quiet))


def test_the_way_of_a_gpu(monkeypatch, pretended_gpu, no_jax):
    plan = steps.BenchPlan(**{**vars(TINY), "device": "cuda", "skip": ("engine_1024",)})
    result = run.run_bench("cuda", plan=plan, quiet=True, sweep=True, trials=tiny_sweep((2,)))
    assert result["name"] == "bench-h200"
    assert result["provenance"]["machine"]["device"] == "NVIDIA H200"
    row = result["T=4"]
    assert row["absent"] == {"jax": "JAX is not installed", "engine_1024": "left out"}
    assert {"nn_mha_us", "class_query_us", "vmap_us", "engine_us"} < set(row)
    assert "reference_us" not in row
    assert row["floor_us"] == pytest.approx(8 * 4 * 2304 / 67e12 * 1e6)
    assert "67 TFLOP/s" in result["sweep"]["peak"]
    assert "1,024 models: left out" in text_of(tables.steps_table(result, plan.rows))


@pytest.mark.parametrize(
    ("device", "name"),
    [
        ("NVIDIA H200", "bench-h200"),
        ("NVIDIA GeForce RTX 4090", "bench-rtx-4090"),
        ("Tesla V100-SXM2", "bench-v100-sxm2"),
    ],
)
def test_a_result_is_named_after_the_hardware(device, name):
    assert run.result_name("cuda", device) == name
    assert run.result_name("cpu", "cpu") == "bench-cpu"


def test_an_unknown_gpu_has_no_floor(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H2000")
    rate, words = floor.peak_rate("cuda")
    assert rate == 0
    assert "H2000" in words
    assert floor.peak_rate("cpu")[0] > 1e8


# -- the sweep --------------------------------------------------------------------------------------------------------


def test_the_floor_counts_every_shape():
    paper = sweep.sweep_of("cuda")
    assert floor.flop_per_token(paper.model(4, 8)) == 2304
    assert (len(paper.shapes), paper.seeds, paper.train.steps, paper.train.warmup) == (25, 16, 2000, 200)
    found = sweep.floor_of(paper, (67e12, "as stated"), 10.0)
    tokens = 16 * 2000 * 256 * (8 + 16 + 32 + 64 + 128)
    assert found["tokens"] == 5 * tokens
    assert found["flop"] == tokens * sum(6 * (4 * 32 + 2 * h * 32) for h in range(1, 6))
    assert found["share_of_floor"] == pytest.approx(found["flop"] / 67e12 / 10)


def test_a_sweep_without_jax(no_jax):
    found = sweep.run_sweep_bench(tiny_sweep(), "cpu", (0.0, "no peak rate is known"), quiet=True)
    assert found["absent"] == {"jax": "JAX is not installed"}
    assert found["ours"]["us_per_model_step"] == pytest.approx(found["ours"]["seconds"] / (4 * 30) * 1e6)
    assert set(found["ours"]["best"]) == {"h=1", "h=2"}
    assert "share_of_floor" not in found
    lines = "\n".join(tables.sweep_lines(found))
    assert "JAX is not installed" in lines
    assert "no peak rate is known" in lines
    assert "T = 4" in text_of(tables.sweep_table(found))


@needs_jax
def test_a_sweep_with_jax():
    plan = tiny_sweep((2,), 31)  # the last part is shorter than the others
    assert plan.programs == 2
    found = sweep.run_sweep_bench(plan, "cpu", (1e9, "made up"), quiet=True)
    assert found["jax_over_ours"] == pytest.approx(found["jax"]["seconds"] / found["ours"]["seconds"])
    assert 0.5 < found["best_error_ours_over_jax"]["median"] < 2
    assert "JAX takes" in "\n".join(tables.sweep_lines(found))


def test_a_peer_that_fails_costs_only_its_own_part(monkeypatch):
    def fails(*_: Any) -> Any:
        raise RuntimeError("RESOURCE_EXHAUSTED: too large")

    monkeypatch.setattr(sweep, "jax_twin", fails)
    found = sweep.run_sweep_bench(tiny_sweep((1,)), "cpu", (1e9, "made up"), quiet=True)
    assert found["absent"] == {"jax": "out of memory"}
    assert found["ours"]["seconds"] > 0


def test_jax_without_that_device_is_absent(monkeypatch):
    class Hollow:
        @staticmethod
        def devices(name: str) -> Any:
            raise RuntimeError(f"Unknown backend {name}")

    monkeypatch.setitem(sys.modules, "jax", Hollow)
    with pytest.raises(PeerUnavailable, match="JAX is installed without cuda"):
        Jax("cuda")


# -- the command ------------------------------------------------------------------------------------------------------

BAD = {
    "no such device": (["--device", "tpu"], "cpu or cuda"),
    "unknown row": (["--skip", "jaxx"], "did you mean 'jax'"),
    "ours left out": (["--skip", "engine"], "--skip"),
    "nothing left": (["--skip", "steps"], "--sweep"),
    "steps of nothing": (["--steps", "10"], "--sweep"),
    "no steps": (["--sweep", "--steps", "0"], "at least 1"),
    "half a step": (["--sweep", "--steps", "2.5"], "whole number"),
    "out below a file": (["--out", "/dev/null/result.json"], "choose another"),
    "a folder as out": (["--out", "/dev"], "give a file name"),
    "out without a value": (["--out", ""], "an empty argument"),
    "unknown flag": (["--devise", "cpu"], "did you mean '--device'"),
    "half a flag": (["--dev", "cpu"], "did you mean '--device'"),
    "a flag without its value": (["--device"], "--help lists what is allowed"),
}


def asked(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Run the command, which refuses its arguments; return its one line."""
    assert speed.main(arguments) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert error.startswith("headcount: ")
    assert error.count("\n") == 1
    return error


@pytest.mark.parametrize("case", BAD)
def test_bad_input_gets_one_line(case, capsys):
    arguments, said = BAD[case]
    assert said in asked(arguments, capsys)


@pytest.mark.parametrize("option", ["--device", "--skip", "--steps", "--out", ""])
def test_hostile_arguments_are_shown_literally(option, capsys, tmp_path):
    evil = "\x1b[31mred\r\n[bold]twice"
    rest = [option, str(tmp_path / "none" / evil), "--device", "tpu"] if option == "--out" else [option, evil]
    error = asked(rest if option else [evil], capsys)
    assert "\x1b" not in error
    assert "\r" not in error


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_gets_one_line(capsys):
    assert "not found" in asked(["--device", "cuda"], capsys)


def test_the_command_prints_and_writes(monkeypatch, no_jax, capsys, tmp_path: Path):
    plan = steps.BenchPlan(**{**vars(TINY), "skip": ("vmap",)})
    result = tiny_result(monkeypatch, plan, sweep=True, trials=tiny_sweep((1,)))
    monkeypatch.setattr(run, "run_bench", lambda *_, **__: result)
    for flag in ([], ["--json"]):
        assert speed.main(["--sweep", "--out", str(tmp_path / "a.json"), *flag]) == 0
        out = capsys.readouterr().out
        assert json.loads(out) == result if flag else "nn.MultiheadAttention, all rows are queries" in out
        assert flag or "arithmetic floor" in out
    assert json.loads((tmp_path / "a.json").read_text()) == result


def test_make_bench_runs_the_command(repo: Path):
    done = subprocess.run(["make", "-n", "bench"], cwd=repo, capture_output=True, text=True, check=True)
    (line,) = (line for line in done.stdout.splitlines() if "benchmarks" in line and "-m" in line)
    arguments = line.partition("-m benchmarks.speed ")[2].split()
    assert speed.read_options(arguments).out == Path("benchmarks/results/bench-cpu.json")


def test_headcount_bench_says_where_it_went(headcount_here: Cli):
    done = headcount_here("bench", "--device", "cuda")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert "python -m benchmarks.speed" in done.stderr
