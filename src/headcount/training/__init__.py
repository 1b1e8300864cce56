"""How models are trained: the plain loop, on cores, in stacks; batches, data, checkpoints, memory."""
