"""The theorems as functions: enough heads, too few heads, every encoder, with all constants."""
