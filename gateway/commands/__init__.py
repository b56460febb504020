"""Subcommands of the gateway."""
