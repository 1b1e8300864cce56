"""Speed against what people use instead, in one run on the same work."""
