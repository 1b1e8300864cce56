"""Many trials: the spec, the plan of stacks, the runner, results read back from a store."""
