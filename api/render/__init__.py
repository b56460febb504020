"""Output formats, one in each file."""
