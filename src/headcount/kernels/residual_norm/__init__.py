"""A residual sum and its layer norm in one pass, in plain PyTorch and in Triton."""
