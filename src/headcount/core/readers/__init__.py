"""Strict readers of files: JSON, TOML, packed arrays, model folders, certificates and witnesses."""
