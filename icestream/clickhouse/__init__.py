"""Clients of ClickHouse, and SQL that sinks and the API share."""
