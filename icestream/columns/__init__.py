"""Columns of numbers: packed fields of messages, and operations on arrays."""
