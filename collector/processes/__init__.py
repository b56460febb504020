"""Processes of this host and what they map: addresses to files."""
