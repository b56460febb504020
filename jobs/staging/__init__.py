"""Staging tables, where a job collects what it recomputed."""
