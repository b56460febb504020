"""Chooses which requests of old days are kept, and drops the others."""
