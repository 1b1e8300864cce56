"""Attention of narrow heads, in plain PyTorch and in Triton."""
