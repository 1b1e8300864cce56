"""Training and experiment specs, the plain training loop, and experiments over head counts and seeds."""
