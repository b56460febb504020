"""Fixtures of the embedded engine for all tests here."""

from tests.sinks.engine import client, clients, empty

__all__ = ["client", "clients", "empty"]
