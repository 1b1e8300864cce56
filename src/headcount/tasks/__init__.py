"""What is to be approximated: expressions, the generalized D-retrieval class and its families, arrays."""
