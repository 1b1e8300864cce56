"""Attention of narrow heads, in PyTorch and in Triton, and which kernel is fastest."""
