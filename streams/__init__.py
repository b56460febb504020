"""The stream processors: symbolize, deduplicate, attach. Operators are plain functions; Faust moves messages."""
