"""The paper's transformer: readable beside equation 4, and the same maths for stacks of models."""
