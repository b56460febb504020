"""Builds unwinding tables, and stores them on disk."""
