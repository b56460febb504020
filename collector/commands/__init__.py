"""Subcommands of `icestream`, one in each file."""
