"""Whether a task meets the paper's assumptions: proved by branch and bound, or measured."""
