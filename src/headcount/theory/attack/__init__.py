"""The search for two inputs that attention maps to the same numbers, and the witness it leaves."""
