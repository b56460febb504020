"""Symbols: finds the names of addresses in files, and answers requests for them."""
