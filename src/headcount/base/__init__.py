"""What every room may use: errors, strict specs, hashing, atomic writes, provenance, progress."""
