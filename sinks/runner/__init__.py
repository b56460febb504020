"""Reads messages, and has ranges of them written once each."""
