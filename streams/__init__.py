"""The stream processors: translate, symbolize, deduplicate, attach. Operators are plain functions; Faust moves messages."""
