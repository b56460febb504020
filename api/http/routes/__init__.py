"""Routes: one group in each file."""
