"""Reads from files how to unwind their stacks: call frame information, Go's tables, and code that has neither."""
