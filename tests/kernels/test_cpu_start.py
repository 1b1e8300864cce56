"""The kernels' machine code: one entry, one layout, compiled by a process that does not run it."""

import os
import subprocess
import sys

import numpy as np
import pytest

from headcount.models.transformer.compiled import Compiled, why_not_compiled
from headcount.models.transformer.spec import ModelSpec

pytestmark = pytest.mark.skipif(why_not_compiled() is not None, reason="numba is not here")
SPEC = ModelSpec(dim=3, length=5, heads=2, head_dim=2, hidden=6)


def draw():
    g = np.random.default_rng(0)
    compiled = Compiled(SPEC)
    theta = 0.3 * g.standard_normal(sum(int(np.prod(s)) for s in compiled.flat.shapes.values()))
    return compiled, theta, g.standard_normal((7, 5, 3)), g.standard_normal((7, 1))


def test_the_kernels_that_run_come_from_disk():
    from headcount.kernels.step.numba_cache import is_on_disk, run

    compiled, theta, X, _ = draw()
    compiled.predict(theta, X)
    assert is_on_disk("float64")
    assert not is_on_disk("float16")  # the question can be answered no
    assert run.stats.cache_hits
    assert not run.stats.cache_misses


def test_any_memory_layout_runs_the_same_code():
    from headcount.kernels.step.numba import run

    compiled, theta, X, y = draw()
    loss, grad = compiled.gradient(theta, X, y)
    frozen = X.copy()
    frozen.setflags(write=False)
    for other in (np.asfortranarray(X), np.repeat(X, 2, axis=0)[::2], frozen):
        again, same = compiled.gradient(theta, other, y)
        assert again == loss
        assert np.array_equal(same, grad)
    assert len(run.signatures) <= 2


COLD = """
import sys
import numpy as np
from headcount.kernels.step import numba_cache
from headcount.models.transformer.compiled import Compiled
sys.path.insert(0, {tests!r})
from test_cpu_start import draw
assert numba_cache.is_on_disk("float64") == {warm}
compiled, theta, X, y = draw()
loss, grad = compiled.gradient(theta, X, y)
first, second = np.zeros_like(theta), np.zeros_like(theta)
index = np.arange(28).reshape(7, 4) % 7
compiled.steps(theta, first, second, X, y, np.zeros((0, 0), bool), index, np.full(7, 1e-2), 0, 0.0, False)
assert not numba_cache.run.stats.cache_misses
print(loss.hex(), grad.tobytes().hex(), theta.tobytes().hex(), compiled.predict(theta, X).tobytes().hex())
"""


@pytest.mark.slow
def test_the_first_process_computes_the_same_bits(tmp_path, repo):
    """A minute: the kernels are compiled anew."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    printed = []
    for warm in (False, True):
        code = COLD.format(tests=str(repo / "tests/kernels"), warm=warm)
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        printed.append(done.stdout)
    assert printed[0] == printed[1]
    assert len(printed[0]) > 1000
