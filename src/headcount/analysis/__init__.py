"""What the trials of a run say: the transition, in numbers and in words."""
