"""Residual addition and layer norm in one pass, in plain PyTorch and in Triton."""
