"""Enclosures over boxes: of expressions, and of one attention head."""
