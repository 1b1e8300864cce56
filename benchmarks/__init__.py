"""Benchmarks and studies of the package; each script is a module, such as `python -m benchmarks.speed`.

They use only what any user may use: the public names of `headcount` and the doors of its rooms (`tests/test_house.py`
enforces this). Run them in the root of the repository. Results are in `benchmarks/results/`.
"""
