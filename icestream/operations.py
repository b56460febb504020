"""Operations: what a service does for its requests, each the name of an entry span."""

MANY_OPERATIONS = "[other operations]"
"""Stands for the operations of a service that has too many (`most_operations` of the collector)."""
