"""Theorem 1 as a construction: approximants of a permutation-invariant function, proved and measured."""
