"""Other ways to do the same training ("peers"), and the code that times them beside ours.

The peers are `torch_layers`, `vmap`, `jax` and `jax_sweep`, and `vit` for vision transformers. `turns` takes timings on
a noisy machine, and `floor` computes the least time that the arithmetic needs. `steps` and `sweep` (with `sweep_plan`)
measure, `run` does both in one run, and `tables` prints the result. `benchmarks/speed.py` is the command.
"""
