"""Model specs and files, and the reference transformer, readable beside equation 4."""
