"""Output formats, one a file."""
