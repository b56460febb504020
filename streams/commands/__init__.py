"""Subcommands of `icestream`, one a file."""
