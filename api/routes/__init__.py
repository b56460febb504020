"""Routes, a group a file."""
