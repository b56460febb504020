"""Queries of operations: how many requests each had, and what these used."""
