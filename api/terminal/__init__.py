"""Queries the API from a terminal, and draws its answers."""
