"""The lake: Delta tables, written and kept fit for years."""
