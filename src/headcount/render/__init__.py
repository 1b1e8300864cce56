"""Figure data in, words, tables, pictures and the self-contained HTML pages out."""
