"""One step of Adam for a stack of models, in plain PyTorch and in Triton."""
