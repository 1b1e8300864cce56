"""The paper's tables and figures: its numbers as data, one spec each, theirs and ours side by side."""
