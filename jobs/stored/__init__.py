"""Compares what is stored with what was recomputed, and names what is missing."""
