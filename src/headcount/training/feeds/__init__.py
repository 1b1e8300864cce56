"""What hands batches of real data to a trainer: candidates of queries, images."""
