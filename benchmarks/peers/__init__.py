"""What people use instead, doing the same work as we do, and how the two are timed beside each other.

The peers are `torch_layers`, `vmap`, `jax` and `jax_sweep`, and `vit` for vision transformers. `turns` times a noisy
machine, `floor` says what the arithmetic needs at least; `steps` and `sweep` (with `sweep_plan`) measure, `run` does
both in one run and `tables` prints its result. `benchmarks/speed.py` is the command.
"""
