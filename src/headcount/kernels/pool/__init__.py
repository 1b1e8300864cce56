"""Tokens to the pooled hidden state of every head, in plain PyTorch, numba and Triton."""
