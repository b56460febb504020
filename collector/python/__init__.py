"""Frames of Python programs."""
