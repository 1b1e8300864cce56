"""The trusted part: certificates, verified from the weights up in ball arithmetic; it shares nothing with the search."""
