"""Corrects the lake, slice by slice."""
