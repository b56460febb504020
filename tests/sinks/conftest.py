"""Fixtures for all tests here: databases of the embedded engine, and an S3."""

from tests.sinks.engine import client, clients, empty
from tests.sinks.s3 import bucket, dead_object_store

__all__ = ["bucket", "client", "clients", "dead_object_store", "empty"]
