"""Transformers built with a proved error: with enough heads, or with one wide head."""
