"""Speed and studies, measured from outside: each script is a module, such as `python -m benchmarks.speed`.

They take what any user may take: the public names of `headcount` and the doors of its rooms (`tests/test_house.py`
holds them to it). Run them in the root of the repository; results are kept in `benchmarks/results/`.
"""
