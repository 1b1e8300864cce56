"""Figure data in, pictures, tables and the self-contained page out."""
