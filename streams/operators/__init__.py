"""The operators: plain functions over columns, and what they remember."""
