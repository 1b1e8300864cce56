"""What every room may use: errors, strict specs, hashing, whole-file writes, provenance, progress."""
