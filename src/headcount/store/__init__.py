"""Trials: what was run, how it ended, what was measured, where it came from."""
