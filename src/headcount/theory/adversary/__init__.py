"""The adversary of the lower bound, run: two inputs that a narrow head cannot tell apart."""
