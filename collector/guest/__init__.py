"""Limits the collector's CPU and memory, and drops privileges that it does not need."""
