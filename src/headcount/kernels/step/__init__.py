"""Loss and gradient of a whole training step, in plain PyTorch, numba and Triton."""
