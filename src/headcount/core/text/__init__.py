"""All that is shown as text goes out through here: made harmless, rounded, on guarded streams."""
