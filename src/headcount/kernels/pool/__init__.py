"""From tokens to every head's pooled hidden state, in plain PyTorch, numba and Triton."""
