"""Enclosures of expressions and of attention heads over boxes."""
