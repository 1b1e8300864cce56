"""MS MARCO: the collection in its public formats, a BM25 search, mined candidates, tokens as vectors."""
