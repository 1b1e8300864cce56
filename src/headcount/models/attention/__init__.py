"""The attention layer that people put into their own models, with any number of heads."""
