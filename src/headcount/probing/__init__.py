"""Which heads of an existing model can go: measured, removed, saved."""
