"""Reads the messages of a time range, and runs the operators on them again."""
