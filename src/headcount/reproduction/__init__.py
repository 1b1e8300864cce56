"""The paper's numbers as data, one spec per table or figure, theirs and ours side by side."""
