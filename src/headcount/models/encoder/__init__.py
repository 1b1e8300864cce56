"""The encoders of the paper's real tasks: a readable reference, and stacks of them."""
