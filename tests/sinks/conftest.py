"""Fixtures of the embedded engine for all tests here."""

from tests.sinks.engine import client, clients, empty, engine

__all__ = ["client", "clients", "empty", "engine"]
