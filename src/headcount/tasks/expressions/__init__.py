"""Expressions: a serialisable tree over a small closed set, with evaluators in torch, NumPy and balls."""
