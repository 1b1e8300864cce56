"""A bit of the database flips: every verb gives the same answer as before, or says that something is damaged.

Never a changed answer, never an error of the program, never a file that is gone.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import shutil
import sqlite3
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from store_help import SWEEP

from headcount.cli.analyse import analyse
from headcount.cli.export import export
from headcount.cli.main import main
from headcount.cli.runs import runs
from headcount.core.errors import HeadcountError
from headcount.store import database
from headcount.store.query import Queries
from headcount.store.store import Store
from headcount.sweeps.file import read_sweep
from headcount.sweeps.run import run_on_store
from results import write_result

FLIPS = 600
FEW = 40


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a sweep's file and its store: one run that is done, one that has only begun."""
    folder = tmp_path_factory.mktemp("flips")
    (folder / "small.toml").write_text(SWEEP)
    with Store.open(folder / "store") as store:
        plan = read_sweep(folder / "small.toml")
        run_on_store(plan, store, quiet=True, workers=1)
        waiting = store.add_run("waiting", [{"chain": number} for number in range(30)])
        store.fail(waiting[0], "out of memory")
    return folder


def listed(folder: Path) -> None:
    runs(store=folder / "store", json=True)


def rows(folder: Path) -> None:
    runs("small", store=folder / "store", json=True)
    runs("waiting", store=folder / "store", json=True)


def analysed(folder: Path) -> None:
    analyse("small", store=folder / "store", resamples=100, json=True)


def exported(folder: Path) -> None:
    shutil.rmtree(folder / "model", ignore_errors=True)
    export("small", "best", out=folder / "model", store=folder / "store", json=True)


def swept(folder: Path) -> None:
    """The sweep once more: nothing is left to train."""
    main(["sweep", str(folder / "small.toml"), "--store", str(folder / "store"), "--json"])


VERBS: tuple[Callable[[Path], None], ...] = (listed, rows, analysed, exported, swept)


def answer(verb: Callable[[Path], None], folder: Path, caplog: pytest.LogCaptureFixture) -> tuple[str, str]:
    """What a verb prints, and what it complains of: a refusal, or a line in the log."""
    caplog.clear()
    out, errors = io.StringIO(), io.StringIO()
    refused = ""
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        try:
            verb(folder)
        except SystemExit as ended:
            assert "unexpected" not in errors.getvalue(), errors.getvalue()
            refused = errors.getvalue() if ended.code not in (0, None) else ""
        except HeadcountError as error:
            refused = str(error)
    said = "\n".join([refused, *(record.getMessage() for record in caplog.records)]).strip()
    return out.getvalue().replace(str(folder), "HERE"), said


def flip(path: Path, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


def files(folder: Path) -> set[str]:
    return {path.name for path in (folder / "store").rglob("*.safetensors")}


def outcomes(whole: Path, place: Path, bits: list[int], caplog: pytest.LogCaptureFixture) -> Counter[str]:
    """Flip each bit in a copy, ask every verb, and count what came of it."""
    truth = {verb.__name__: answer(verb, whole, caplog) for verb in VERBS}
    assert all(said == "" for _, said in truth.values()), truth
    kept = files(whole)
    found = Counter[str]()
    for bit in bits:
        copy = place / "copy"
        shutil.copytree(whole, copy)
        flip(copy / "store" / "trials.sqlite", bit)
        for verb in VERBS:
            try:
                out, said = answer(verb, copy, caplog)
            except Exception as error:
                found["raw"] += 1
                found[f"bit {bit}: {verb.__name__}: {error!r}"[:300]] += 1
                continue
            same = out == truth[verb.__name__][0]
            kind = "stated" if said else "same" if same else "silent"
            found[kind] += 1
            if kind == "silent":
                found[f"bit {bit}: {verb.__name__} changed"] += 1
            if "\n" in said.strip() and verb is not swept:
                assert all(line for line in said.splitlines())
        found["files deleted"] += len(kept - files(copy))
        shutil.rmtree(copy)
    return found


def bits_of(whole: Path, number: int, seed: int) -> list[int]:
    size = (whole / "store" / "trials.sqlite").stat().st_size
    return random.Random(seed).sample(range(size * 8), number)


def check(found: Counter[str], number: int) -> None:
    assert (found["raw"], found["silent"], found["files deleted"]) == (0, 0, 0), found
    assert found["same"] + found["stated"] == number * len(VERBS)
    assert min(found["same"], found["stated"]) > 0, "nothing was tested"


@pytest.mark.parametrize("checked", [True, False], ids=["structure checked", "checksums alone"])
def test_a_flipped_bit_is_harmless_or_reported(whole, tmp_path, caplog, monkeypatch, checked):
    if not checked:  # as in a store that is too large for a check of its structure at every opening
        monkeypatch.setattr(database, "MAX_CHECKED_AT_OPEN_BYTES", 0)
    check(outcomes(whole, tmp_path, bits_of(whole, FEW // 2, seed=5 + checked), caplog), FEW // 2)


def flipped_metric(whole: Path, place: Path) -> Path:
    """A copy in which the lowest bit of a digit of one error has flipped: 0.5… is 0.4… now, and still JSON."""
    shutil.copytree(whole, place / "copy")
    path = place / "copy" / "store" / "trials.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as db:
        text = db.execute("SELECT metrics FROM trials WHERE metrics IS NOT NULL").fetchone()[0]
    digits = f'"nmse":{json.loads(text)["nmse"]!r}'.encode()
    flip(path, (path.read_bytes().index(digits) + len(digits) - 1) * 8)
    return place / "copy"


def test_a_changed_error_is_left_out_and_reported(whole, tmp_path, caplog):
    before, after = (answer(rows, folder, caplog) for folder in (whole, flipped_metric(whole, tmp_path)))
    assert before[1] == ""
    assert "1 trial of the store" in after[1]
    assert "damaged and left out: headcount runs --check" in after[1]


def test_the_check_catches_a_reader_that_does_not_verify(whole, tmp_path, caplog, monkeypatch):
    copy = flipped_metric(whole, tmp_path)
    monkeypatch.setattr(Queries, "sealed", property(lambda self: False))
    before, after = (answer(rows, folder, caplog) for folder in (whole, copy))
    assert before[0] != after[0]
    assert after[1] == "", "the sabotage must be silent, or it shows nothing"


@pytest.mark.slow
def test_many_flips(whole, tmp_path, caplog, monkeypatch):
    started = time.monotonic()
    seed = 11
    bits = bits_of(whole, FLIPS, seed)
    with_check = outcomes(whole, tmp_path, bits, caplog)
    monkeypatch.setattr(database, "MAX_CHECKED_AT_OPEN_BYTES", 0)
    without = outcomes(whole, tmp_path, bits, caplog)
    kinds = {"same": "same", "stated": "stated", "silent": "silent", "raw": "raw", "files deleted": "files_deleted"}
    counts = {
        "flips": FLIPS,
        "verbs": len(VERBS),
        **{name: with_check[kind] for kind, name in kinds.items()},
        **{f"{name}_without_structure_check": without[kind] for kind, name in kinds.items()},
    }
    check(with_check, FLIPS)
    check(without, FLIPS)
    write_result("store-flips", {"seconds": round(time.monotonic() - started, 1)}, seeds=[seed], counts=counts)
