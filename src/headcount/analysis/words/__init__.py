"""The sentences of the one rule, made from its record alone, and numbers in words."""
