"""Queries of samples, summed up by stack or over time, and of what stacks are made of."""
