"""Real data on a store: trained, killed, resumed, failed alone, diverged; and what the command line makes of it."""

from __future__ import annotations

import json
import math
import os
import signal
import time

import pytest
import torch

from headcount.core.errors import BadInput, HeadcountError
from headcount.store.store import Store
from headcount.sweeps import engine as engines
from headcount.sweeps import run as runner
from headcount.sweeps.encoder_spec import RealModel, RealSpec
from headcount.sweeps.experiments import Encoders
from headcount.sweeps.open_data import open_cifar, open_marco
from headcount.sweeps.results import stored_runs, stored_spec
from headcount.sweeps.run import run_on_store
from headcount.training import session
from headcount.training.encoder.stacked import EncoderTrainer, RealTrain
from real_tiny import write_bert, write_corpus, write_pictures


@pytest.fixture(scope="module")
def marco(tmp_path_factory):
    folder = tmp_path_factory.mktemp("marco")
    corpus, bert = write_corpus(folder / "corpus"), write_bert(folder / "bert")
    return open_marco(corpus, bert, lengths=(4, 2), validation=12, quiet=True)


@pytest.fixture(scope="module")
def cifar(tmp_path_factory):
    return open_cifar(write_pictures(tmp_path_factory.mktemp("cifar") / "images"), patch=16)


def marco_spec(source, **options) -> RealSpec:
    train = {"steps": 12, "warmup": 2, "batch": 8, "evaluations": 3, **options.pop("train", {})}
    settings = {"name": "tiny-marco", "kind": "marco", "heads": [1, 2], "lengths": [2, 4], "seeds": 2, **options}
    return RealSpec(source=source.data, model=RealModel(head_dim=4, depth=2), train=RealTrain(**train), **settings)


def cifar_spec(source, **options) -> RealSpec:
    train = {"steps": 40, "warmup": 4, "batch": 16, "evaluations": 2, "learning_rate": 3e-3, **options.pop("train", {})}
    model = options.pop("model", RealModel(head_dim=8, depth=1, dropout=0.1))
    settings = {"name": "tiny-cifar", "kind": "cifar", "heads": [2], "lengths": [32], "seeds": 2, **options}
    return RealSpec(source=source.data, model=model, train=RealTrain(**train), **settings)


def timeless(runs) -> list:
    """Records without what varies from one training to the next."""
    return [
        {**r.data(), "seconds": 0, "provenance": 0, "trials": [{**t.data(), "seconds": 0} for t in r.trials]}
        for r in runs
    ]


def test_a_run_of_candidates(marco, tmp_path):
    spec = marco_spec(marco)
    with Store.open(tmp_path / "store") as store:
        counts = run_on_store(spec, store, feeds=marco.feeds(), quiet=True)
        assert counts == {"pending": 0, "running": 0, "done": 8, "diverged": 0, "failed": 0}
        assert stored_spec(store, "tiny-marco") == spec.on(torch.device("cpu"))
        runs = stored_runs(store, "tiny-marco")
        metrics = [t.metrics for t in store.trials(run="tiny-marco")]
    assert [(r.values, r.measure, r.task["name"]) for r in runs] == [
        ({"length": 2}, "error rate", "MS MARCO candidates"),
        ({"length": 4}, "error rate", "MS MARCO candidates"),
    ]
    assert all(r.samples == {"train": 36, "validation": 12} and r.intrinsic is None for r in runs)
    assert all(math.isfinite(m["loss"]) and math.isfinite(m["train_loss"]) for m in metrics)
    for run in runs:
        assert [(t.heads, t.seed) for t in run.trials] == [(1, 0), (1, 1), (2, 0), (2, 1)]
        for t in run.trials:
            assert t.nmse == pytest.approx(1 - t.accuracy, abs=1e-9)
            assert t.train_nmse == pytest.approx(1 - t.train_accuracy, abs=1e-9)
            assert t.accuracy <= t.mrr <= 1
            assert t.steps == 12
            assert 0 < t.parameters < t.parameters_total
            assert [step for step, _ in t.curve] == [4, 8, 12]
            assert t.curve[-1][1] == t.nmse


def test_frames_are_learned(cifar, tmp_path):
    spec = cifar_spec(cifar, train={"steps": 60, "batch": 32})
    with Store.open(tmp_path / "store") as store:
        run_on_store(spec, store, feeds=cifar.feeds(), quiet=True)
        (run,) = stored_runs(store, "tiny-cifar")
    assert run.values == {"length": 5}
    assert (run.task["side"], run.task["length"], run.task["name"]) == (32, 5, "CIFAR-10 frames")
    assert all(t.accuracy > 0.9 and t.train_accuracy > 0.9 for t in run.trials), "three classes that can be seen"


def test_tokens_one_by_one(tmp_path):
    source = open_marco(
        write_corpus(tmp_path / "c"),
        write_bert(tmp_path / "b"),
        lengths=[2],
        queries=40,
        validation=10,
        entry="tokens",
        most=12,
        quiet=True,
    )
    with Store.open(tmp_path / "store") as store:
        counts = run_on_store(marco_spec(source, lengths=[2]), store, feeds=source.feeds(), quiet=True)
        (run,) = stored_runs(store, "tiny-marco")
    assert counts["done"] == 4
    assert run.task["entry"] == "tokens"
    assert all(t.accuracy is not None for t in run.trials)


@pytest.mark.parametrize("kind", ["marco", "cifar"])
def test_a_resumed_run_equals_an_uninterrupted_one(kind, request, tmp_path, monkeypatch):
    source = request.getfixturevalue(kind)
    options = {"lengths": [4]} if kind == "marco" else {}
    spec = (marco_spec if kind == "marco" else cifar_spec)(source, train={"steps": 30, "evaluations": 4}, **options)
    feeds = source.feeds()
    with Store.open(tmp_path / "whole") as store:
        run_on_store(spec, store, feeds=source.feeds(), quiet=True)
        whole = timeless(stored_runs(store, spec.name))
    monkeypatch.setattr(session, "WINDOW_SECONDS", 1e-9)  # a step a window, so that a stop comes anywhere
    launch = EncoderTrainer.launch

    def slower(self, steps):
        time.sleep(0.01)
        return launch(self, steps)

    monkeypatch.setattr(EncoderTrainer, "launch", slower)
    stops = 0
    with Store.open(tmp_path / "broken") as store:
        while True:
            counts = run_on_store(spec, store, feeds=feeds, seconds=0.13, quiet=True)
            if not counts["pending"]:
                break
            stops += any(t.checkpoint_step for t in store.trials(run=spec.name, states=("pending",)))
            assert counts["running"] == 0, "all were given back"
        broken = timeless(stored_runs(store, spec.name))
    assert stops >= 2
    assert broken == whole


def test_ctrl_c_leaves_checkpoints(cifar, tmp_path, monkeypatch):
    monkeypatch.setattr(session, "WINDOW_SECONDS", 1e-9)
    launch = EncoderTrainer.launch

    def interrupted(self, steps):
        if self.steps == 5:
            os.kill(os.getpid(), signal.SIGINT)
        return launch(self, steps)

    with Store.open(tmp_path / "whole") as store:
        run_on_store(cifar_spec(cifar), store, feeds=cifar.feeds(), quiet=True)
        whole = timeless(stored_runs(store, "tiny-cifar"))
    with Store.open(tmp_path / "broken") as store:
        with monkeypatch.context() as patch:
            patch.setattr(EncoderTrainer, "launch", interrupted)
            with pytest.raises(KeyboardInterrupt):
                run_on_store(cifar_spec(cifar), store, feeds=cifar.feeds(), quiet=True)
        assert {(t.state, t.checkpoint_step) for t in store.trials()} == {("pending", 6)}
        run_on_store(cifar_spec(cifar), store, feeds=cifar.feeds(), quiet=True)
        assert timeless(stored_runs(store, "tiny-cifar")) == whole


def test_a_crashed_run_resumes_from_the_last_checkpoint(cifar, tmp_path, monkeypatch):
    launch, seen = EncoderTrainer.launch, []

    def crashing(self, steps):
        seen.append(self.steps)
        if len(seen) == 10:
            raise HeadcountError("the disk is gone")
        return launch(self, steps)

    with Store.open(tmp_path / "whole") as store:
        run_on_store(cifar_spec(cifar), store, feeds=cifar.feeds(), quiet=True)
        whole = timeless(stored_runs(store, "tiny-cifar"))
    monkeypatch.setattr(session, "WINDOW_SECONDS", 1e-9)
    monkeypatch.setattr(runner, "CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr(engines, "MAX_SAVING_FRACTION", 1e9)
    monkeypatch.setattr(EncoderTrainer, "launch", crashing)
    with Store.open(tmp_path / "broken") as store:
        with pytest.raises(HeadcountError, match="the disk is gone"):
            run_on_store(cifar_spec(cifar), store, feeds=cifar.feeds(), quiet=True)
        assert {(t.state, t.checkpoint_step) for t in store.trials()} == {("pending", 9)}
        run_on_store(cifar_spec(cifar), store, feeds=cifar.feeds(), quiet=True)
        assert seen[10] == 9
        assert timeless(stored_runs(store, "tiny-cifar")) == whole


def test_finished_trials_are_not_trained_again(marco, tmp_path, monkeypatch):
    with Store.open(tmp_path / "store") as store:
        run_on_store(marco_spec(marco, heads=[1], lengths=[2]), store, feeds=marco.feeds(), quiet=True)
        first = timeless(stored_runs(store, "tiny-marco"))
        seen = []
        make = EncoderTrainer.__init__

        def noted(self, spec, *rest, **named):
            seen.append(spec)
            make(self, spec, *rest, **named)

        monkeypatch.setattr(EncoderTrainer, "__init__", noted)
        asked = []
        feeds = marco.feeds()
        more = marco_spec(marco, lengths=[2], seeds=3)
        counts = run_on_store(more, store, feeds=lambda p: (asked.append(p.size), feeds(p))[1], quiet=True)
        assert counts["done"] == 6
        assert [s.heads for s in seen] == [2, 1], "the larger stack first, and of the other the new seed alone"
        again = timeless(stored_runs(store, "tiny-marco"))
        assert again[0]["trials"][:2] == first[0]["trials"]
        assert asked == [2]
        run_on_store(marco_spec(marco, lengths=[2], seeds=3), store, feeds=pytest.fail, quiet=True)


def test_weights_are_removed_unless_requested(cifar, tmp_path):
    for weights in (False, True):
        with Store.open(tmp_path / f"store{weights}") as store:
            run_on_store(cifar_spec(cifar), store, feeds=cifar.feeds(), quiet=True, weights=weights)
            names = [t.hash for t in store.trials()]
            arrays = [saved for _, saved in store.load_checkpoints(names).values()]
        assert all(("theta" in a) == weights and "first" not in a for a in arrays)


def test_one_bad_seed_fails_alone(marco, tmp_path, monkeypatch):
    make, sizes = EncoderTrainer.__init__, []

    def moody(self, spec, train, seeds, *rest, **named):
        sizes.append(len(seeds))
        if 2 in seeds:
            raise RuntimeError("seed 2 is no good")
        make(self, spec, train, seeds, *rest, **named)

    monkeypatch.setattr(EncoderTrainer, "__init__", moody)
    with Store.open(tmp_path / "store") as store:
        counts = run_on_store(
            marco_spec(marco, heads=[1], lengths=[2], seeds=4), store, feeds=marco.feeds(), quiet=True
        )
        failed = [t for t in store.trials() if t.state == "failed"]
        (run,) = stored_runs(store, "tiny-marco")
    assert sizes == [4, 2, 2, 1, 1]
    assert (counts["done"], counts["failed"]) == (3, 1)
    assert failed[0].error == "RuntimeError: seed 2 is no good"
    assert run.left_out == {"failed": 1}


def test_a_full_device_halves_the_stack(marco, tmp_path, monkeypatch):
    launch = EncoderTrainer.launch

    def full(self, steps):
        if len(self.seeds) > 1 and self.steps > 3:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
        return launch(self, steps)

    with Store.open(tmp_path / "whole") as store:
        run_on_store(marco_spec(marco, heads=[1], lengths=[2]), store, feeds=marco.feeds(), quiet=True)
        whole = timeless(stored_runs(store, "tiny-marco"))
    monkeypatch.setattr(EncoderTrainer, "launch", full)
    with Store.open(tmp_path / "halved") as store:
        counts = run_on_store(marco_spec(marco, heads=[1], lengths=[2]), store, feeds=marco.feeds(), quiet=True)
        halved = timeless(stored_runs(store, "tiny-marco"))
    assert counts["done"] == 2
    for one, other in zip(halved[0]["trials"], whole[0]["trials"], strict=True):
        assert one["nmse"] == other["nmse"]


def test_a_diverged_trial_is_recorded(marco, tmp_path):
    spec = marco_spec(marco, heads=[1], lengths=[2])
    with Store.open(tmp_path / "store") as store:
        feeds = marco.feeds()

        def poisoned(panel):
            feed = feeds(panel)
            feed.means.first.fill_(float("nan"))
            return feed

        counts = run_on_store(spec, store, feeds=poisoned, quiet=True)
        (run,) = stored_runs(store, "tiny-marco")
    assert counts["diverged"] == 2
    assert all(t.state == "diverged" and t.nmse is None and t.accuracy is None and t.steps == 0 for t in run.trials)


def test_data_that_differ_from_the_spec_are_rejected(marco, cifar, tmp_path):
    with Store.open(tmp_path / "store") as store:
        with pytest.raises(BadInput, match="made from other data or with other options"):
            run_on_store(cifar_spec(cifar), store, feeds=marco.feeds(), quiet=True)
        small = cifar.feeds()(cifar_spec(cifar, lengths=[48]).panels()[0])
        with pytest.raises(BadInput, match=r"the spec states 5 tokens, but the data have 10"):
            run_on_store(cifar_spec(cifar), store, feeds=lambda panel: small, quiet=True)
        assert store.runs() == {}, "nothing is kept of a run that could not start"


def test_precisions_are_kept_apart(marco, tmp_path):
    """What a GPU trains in bf16 and a CPU in float32 are other trials, whatever `auto` meant; the store shows one."""
    spec = marco_spec(marco, lengths=[2])
    assert spec.train.precision == "auto"
    places = {where: spec.on(torch.device(where)) for where in ("cpu", "cuda")}
    names = {
        where: {p.trial(h, s).hash() for p in one.panels() for h in p.heads for s in (0, 1)}
        for where, one in places.items()
    }
    assert not names["cpu"] & names["cuda"]
    with Store.open(tmp_path / "store") as store:
        run_on_store(places["cuda"], store, feeds=marco.feeds(), quiet=True)  # as a GPU would: the CPU can do it too
        run_on_store(spec.model_copy(update={"heads": [1]}), store, feeds=marco.feeds(), quiet=True)
        found = {(t.spec["train"]["precision"], t.provenance["precision"], t.state) for t in store.trials()}
        assert found == {("bf16", "bf16", "done"), ("float32", "float32", "done")}
        assert len(store.trials()) == 6
        (shown,) = stored_runs(store, "tiny-marco", spec.on(torch.device("cpu")))
        assert (len(shown.trials), shown.spec["train"]["precision"]) == (2, "float32")
        assert (shown.provenance["precision"], shown.left_out) == ("float32", {"pending": 2, "superseded": 4})
        assert stored_spec(store, "tiny-marco").train.precision == "float32", "as many of each: the last started"
        run_on_store(spec, store, feeds=marco.feeds(), quiet=True, seconds=0)
        assert stored_spec(store, "tiny-marco") == places["cuda"], "four trials against two"
        (shown,) = stored_runs(store, "tiny-marco")
        assert (len(shown.trials), shown.provenance["precision"]) == (4, "bf16")


def test_an_unresolved_precision_would_mix_them(marco, tmp_path, monkeypatch):
    monkeypatch.setattr(RealSpec, "on", lambda self, device: self)
    spec = marco_spec(marco, heads=[1], lengths=[2])
    with Store.open(tmp_path / "store") as store:
        run_on_store(spec, store, feeds=marco.feeds(), quiet=True)
        run_on_store(
            spec.on(torch.device("cuda")), store, feeds=pytest.fail, quiet=True
        )  # nothing is left to be trained
        assert {t.provenance["precision"] for t in store.trials()} == {"auto"}


def test_stacks_are_seeds_of_one_model(marco):
    spec = marco_spec(marco, seeds=3).on(torch.device("cpu"))
    trials = {t.hash(): t for p in spec.panels() for h in p.heads for s in range(3) for t in [p.trial(h, s)]}
    experiment = Encoders(spec, marco.feeds(), torch.device("cpu"))
    assert experiment.names == list(trials)
    found = experiment.stacked(experiment.names)
    assert [(trials[s[0]].model.heads, trials[s[0]].model.tokens, len(s)) for s in found] == [
        (2, 4, 3),
        (2, 2, 3),
        (1, 4, 3),
        (1, 2, 3),
    ]


def test_the_command_line(marco, tmp_path, headcount_here):
    with Store.open(tmp_path / "store") as store:
        run_on_store(marco_spec(marco, heads=[1, 2, 3], seeds=3), store, feeds=marco.feeds(), quiet=True)
    at = ("--store", str(tmp_path / "store"))
    listed = headcount_here("runs", *at, "--json")
    assert json.loads(listed.stdout)[0]["done"] == 18
    shown = headcount_here("runs", "tiny-marco", *at)
    assert shown.returncode == 0, shown.stderr
    assert "length" in shown.stdout
    assert "None" not in shown.stdout
    found = headcount_here("analyse", "tiny-marco", *at, "--json", "--resamples", "200")
    assert found.returncode == 0, found.stderr
    page = headcount_here("report", "tiny-marco", *at, "--out", str(tmp_path / "page"))
    assert page.returncode == 0, page.stderr
    assert headcount_here("report", "tiny-marco", *at, "--terminal").returncode == 0
    merged = headcount_here("runs", "merge", str(tmp_path / "store"), "--store", str(tmp_path / "other"))
    assert merged.returncode == 0, merged.stderr
    refused = headcount_here("export", "tiny-marco", "best", *at, "--out", str(tmp_path / "model"))
    assert refused.returncode == 2
    assert "cannot be exported" in refused.stderr
