"""Advice: how many heads a task needs, and the probe of a model that exists."""
