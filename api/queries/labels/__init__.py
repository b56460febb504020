"""Queries of labels: which there are, and their values."""
